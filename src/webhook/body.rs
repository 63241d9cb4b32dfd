//! Receiving a body within bounds.

use std::pin::{Pin, pin};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Body;
use tokio::task::yield_now;

use super::room::{Room, Taken};

/// The API server takes Events of 3 MiB; JSON escapes may make that sixfold, and there are object and oldObject.
pub(super) const MAX_BODY: usize = 40 << 20;

/// Bodies in flight, in bytes.
pub(super) const MAX_BODIES: usize = 128 << 20;

/// What is kept of a body that is not read whole. The API server writes `uid` within the first 200 bytes.
const BEGINNING: usize = 16 << 10;

/// The API server waits for an answer for one second.
pub(super) const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// After so much of a body others have their turn: one that comes faster than it is taken in would keep a worker of the
/// runtime to itself for milliseconds.
const PART: usize = 256 << 10;

/// What came.
pub(super) enum Received<'r> {
    /// The whole body, and its share of the room for bodies.
    Whole(Bytes, Taken<'r>),
    /// There was no room for it, or it is too large: only its beginning was kept.
    Beginning(Bytes),
    /// The caller broke off.
    Broken,
}

/// Receives a body whole if it is at most [`MAX_BODY`] and `room` holds it.
pub(super) async fn receive<B: Body<Data = Bytes>>(body: B, room: &Room) -> Received<'_> {
    let body = pin!(body);
    let mut parts = Parts::of(body);
    // A body that announces its length is charged at once, so that its buffer never has to grow.
    let announced =
        parts.body.size_hint().exact().map_or(0, |length| usize::try_from(length).unwrap_or(usize::MAX));
    let taken = if announced > MAX_BODY { None } else { room.take(announced) };
    let Some(mut taken) = taken else { return beginning(parts, Gathered::default(), MAX_BODY).await };
    let mut gathered = Gathered { announced, ..Gathered::default() };
    while let Some(data) = parts.next().await {
        let Ok(data) = data else { return Received::Broken };
        let length = gathered.len() + data.len();
        let fits = length <= MAX_BODY && taken.grow_to(length);
        gathered.push(data);
        if !fits {
            drop(taken);
            return beginning(parts, gathered, MAX_BODY).await;
        }
    }
    Received::Whole(gathered.into_bytes(), taken)
}

/// Keeps the beginning and drains the rest up to `drained` bytes in all: a caller that is still writing would not
/// see an answer if the connection were cut.
pub(super) async fn receive_beginning<B: Body<Data = Bytes>>(body: B, drained: usize) -> Received<'static> {
    beginning(Parts::of(pin!(body)), Gathered::default(), drained).await
}

async fn beginning<'r, B: Body<Data = Bytes>>(
    mut parts: Parts<'_, B>,
    so_far: Gathered,
    drained: usize,
) -> Received<'r> {
    let mut length = so_far.len();
    let mut kept = beginning_of(&so_far.first);
    keep(&mut kept, &so_far.rest);
    drop(so_far);
    while length <= drained {
        let Some(data) = parts.next().await else { break };
        let Ok(data) = data else { return Received::Broken };
        length = length.saturating_add(data.len());
        keep(&mut kept, &data);
    }
    Received::Beginning(kept.freeze())
}

/// A copy, so that it does not keep alive what it is the beginning of.
pub(super) fn beginning_of(body: &[u8]) -> BytesMut {
    BytesMut::from(&body[..body.len().min(BEGINNING)])
}

/// What is still to come of a body, in the parts in which it comes.
struct Parts<'b, B> {
    body: Pin<&'b mut B>,
    /// How much came since others had their turn.
    since: usize,
}

impl<'b, B: Body<Data = Bytes>> Parts<'b, B> {
    fn of(body: Pin<&'b mut B>) -> Self {
        Self { body, since: 0 }
    }

    async fn next(&mut self) -> Option<Result<Bytes, B::Error>> {
        loop {
            let frame = match self.body.frame().await? {
                Ok(frame) => frame,
                Err(error) => return Some(Err(error)),
            };
            let Ok(data) = frame.into_data() else { continue };
            self.since += data.len();
            if self.since >= PART {
                self.since = 0;
                yield_now().await;
            }
            return Some(Ok(data));
        }
    }
}

fn keep(kept: &mut BytesMut, data: &[u8]) {
    let wanted = BEGINNING.saturating_sub(kept.len()).min(data.len());
    kept.extend_from_slice(&data[..wanted]);
}

/// Frames put together. Most reviews come in one, which is not copied.
#[derive(Default)]
struct Gathered {
    announced: usize,
    first: Bytes,
    rest: BytesMut,
}

impl Gathered {
    fn len(&self) -> usize {
        if self.rest.is_empty() { self.first.len() } else { self.rest.len() }
    }

    fn push(&mut self, data: Bytes) {
        if self.first.is_empty() && self.rest.is_empty() {
            self.first = data;
            return;
        }
        if self.rest.is_empty() {
            let first = std::mem::take(&mut self.first);
            self.rest.reserve(self.announced.max(first.len() + data.len()));
            self.rest.extend_from_slice(&first);
        }
        self.rest.extend_from_slice(&data);
    }

    fn into_bytes(self) -> Bytes {
        if self.rest.is_empty() { self.first } else { self.rest.freeze() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::{FutureExt as _, stream};
    use http_body_util::{Full, StreamBody};
    use hyper::body::Frame;
    use std::convert::Infallible;

    fn chunks(chunks: Vec<Bytes>) -> impl Body<Data = Bytes> {
        StreamBody::new(stream::iter(chunks.into_iter().map(|chunk| Ok::<_, Infallible>(Frame::data(chunk)))))
    }

    fn whole(received: Received<'_>) -> Bytes {
        match received {
            Received::Whole(bytes, _) => bytes,
            _ => panic!("not whole"),
        }
    }

    fn begun(received: Received<'_>) -> Bytes {
        match received {
            Received::Beginning(bytes) => bytes,
            _ => panic!("not a beginning"),
        }
    }

    #[tokio::test]
    async fn chunks_come_out_as_they_went_in() {
        let room = Room::new(100);
        let parts = ["", "ab", "", "c", "defg"].map(Bytes::from).to_vec();
        assert_eq!(whole(receive(chunks(parts), &room).await), "abcdefg");
        assert_eq!(whole(receive(Full::new(Bytes::from("one")), &room).await), "one");
        assert_eq!(whole(receive(chunks(Vec::new()), &room).await), "");
        assert!(room.take(100).is_some(), "all room is given back");
    }

    #[tokio::test]
    async fn without_room_the_beginning_is_kept_and_the_room_given_back() {
        let room = Room::new(30_000);
        let long = Bytes::from(vec![b'x'; 20_000]);
        assert_eq!(begun(receive(chunks(vec![long.clone(); 3]), &room).await).len(), BEGINNING);
        assert!(room.take(30_000).is_some());
        let _held = room.take(29_999).unwrap();
        assert_eq!(begun(receive(Full::new(Bytes::from("ab")), &room).await), "ab");
    }

    #[test]
    fn others_have_their_turn_within_a_long_body() {
        let room = Room::new(usize::MAX);
        let body = |parts: usize| chunks(vec![Bytes::from(vec![b'x'; PART]); parts]);
        let short = chunks(vec![Bytes::from(vec![b'x'; PART / 8]); 7]);
        assert!(receive(short, &room).now_or_never().is_some());
        assert!(receive(body(1), &room).now_or_never().is_none());
        assert!(receive_beginning(body(1), MAX_BODY).now_or_never().is_none());
    }

    #[tokio::test]
    async fn a_body_beyond_the_cap_is_not_read_to_its_end() {
        let room = Room::new(usize::MAX);
        let mebibyte = Bytes::from(vec![b'x'; 1 << 20]);
        let mut sent = 0;
        let endless = StreamBody::new(stream::iter(std::iter::repeat_with(|| {
            sent += 1;
            assert!(sent <= 42, "read on");
            Ok::<_, Infallible>(Frame::data(mebibyte.clone()))
        })));
        assert_eq!(begun(receive(endless, &room).await).len(), BEGINNING);
    }
}
