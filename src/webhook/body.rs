//! Reads request bodies within limits.

use std::pin::{Pin, pin};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Body;
use tokio::task::yield_now;

use super::limiter::{Limiter, Permit};

/// Maximum length of a review, in bytes. The API server accepts Events of 3 MiB; JSON escapes can make that six times as
/// long, and a review has `object` and `oldObject`.
pub(super) const MAX_BODY: usize = 40 << 20;

/// Maximum bytes of the bodies in flight of at most [`LONG`](super::long_reviews::LONG) bytes each. Long ones wait for each
/// other, so they have a limit of their own: one tenant's must not leave the Events of others undecided.
pub(super) const MAX_BODIES: usize = 32 << 20;

/// The same of longer bodies, and of bodies of an unknown length.
pub(super) const MAX_LONG_BODIES: usize = 96 << 20;

/// Maximum length of a probe's review, in bytes. squelch's own takes a few KiB.
pub(super) const MAX_PROBE: usize = 64 << 10;

/// Bytes kept of a body that is not kept whole. The API server writes `uid` within the first 200 bytes.
const PREFIX_LENGTH: usize = 1 << 10;

/// Maximum time to read and answer a request. The API server waits for one second.
pub(super) const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes after which reading yields to other tasks. A body that arrives faster than it is read would otherwise occupy a
/// worker of the runtime for milliseconds.
const YIELD_AFTER: usize = 256 << 10;

/// The result of reading a body.
pub(super) enum Received {
    /// The whole body, and the permit for its bytes.
    Whole(Bytes, Permit),
    /// The first [`PREFIX_LENGTH`] bytes of a body that is too long or found no capacity.
    Prefix(Bytes),
    /// The client aborted the body.
    Aborted,
}

/// Reads a body whole if it has at most `max_length` bytes and `limiter` has capacity for it, or else its prefix.
pub(super) async fn receive<B: Body<Data = Bytes>>(
    body: B,
    max_length: usize,
    limiter: &Limiter,
) -> Received {
    let body = pin!(body);
    let mut chunks = Chunks::new(body);
    // Acquires a declared length at once, so that the buffer never grows.
    let declared =
        chunks.body.size_hint().exact().map_or(0, |length| usize::try_from(length).unwrap_or(usize::MAX));
    let permit = if declared > max_length { None } else { limiter.try_acquire(declared) };
    let Some(mut permit) = permit else { return prefix(chunks, Collected::default(), MAX_BODY).await };
    let mut collected = Collected { declared, ..Collected::default() };
    while let Some(data) = chunks.next().await {
        let Ok(data) = data else { return Received::Aborted };
        let length = collected.len() + data.len();
        let fits = length <= max_length && permit.grow_to(length);
        collected.push(data, chunks.has_ended());
        if !fits {
            drop(permit);
            return prefix(chunks, collected, MAX_BODY).await;
        }
    }
    Received::Whole(collected.into_bytes(), permit)
}

/// Reads up to `max_read` bytes and keeps the prefix. Reading on lets a client that is still writing see the response.
pub(super) async fn receive_prefix<B: Body<Data = Bytes>>(body: B, max_read: usize) -> Received {
    prefix(Chunks::new(pin!(body)), Collected::default(), max_read).await
}

async fn prefix<B: Body<Data = Bytes>>(
    mut chunks: Chunks<'_, B>,
    so_far: Collected,
    max_read: usize,
) -> Received {
    let mut length = so_far.len();
    let mut kept = prefix_of(&so_far.first);
    keep(&mut kept, &so_far.rest);
    drop(so_far);
    while length <= max_read {
        let Some(data) = chunks.next().await else { break };
        let Ok(data) = data else { return Received::Aborted };
        length = length.saturating_add(data.len());
        keep(&mut kept, &data);
    }
    Received::Prefix(kept.freeze())
}

/// Copies the prefix, so that it does not keep the body alive.
pub(super) fn prefix_of(body: &[u8]) -> BytesMut {
    BytesMut::from(&body[..body.len().min(PREFIX_LENGTH)])
}

/// The chunks of a body that are still to be read.
struct Chunks<'b, B> {
    body: Pin<&'b mut B>,
    /// Bytes read since the last yield.
    since_yield: usize,
}

impl<'b, B: Body<Data = Bytes>> Chunks<'b, B> {
    fn new(body: Pin<&'b mut B>) -> Self {
        Self { body, since_yield: 0 }
    }

    /// Whether the body has reported its end.
    fn has_ended(&self) -> bool {
        self.body.is_end_stream()
    }

    async fn next(&mut self) -> Option<Result<Bytes, B::Error>> {
        loop {
            let frame = match self.body.frame().await? {
                Ok(frame) => frame,
                Err(error) => return Some(Err(error)),
            };
            let Ok(data) = frame.into_data() else { continue };
            self.since_yield += data.len();
            if self.since_yield >= YIELD_AFTER {
                self.since_yield = 0;
                yield_now().await;
            }
            return Some(Ok(data));
        }
    }
}

fn keep(kept: &mut BytesMut, data: &[u8]) {
    let wanted = PREFIX_LENGTH.saturating_sub(kept.len()).min(data.len());
    kept.extend_from_slice(&data[..wanted]);
}

/// Collected frames. Most reviews arrive in one frame, which is not copied. Otherwise frames are copied, because each
/// keeps the read buffer of its connection alive.
#[derive(Default)]
struct Collected {
    declared: usize,
    first: Bytes,
    rest: BytesMut,
}

impl Collected {
    fn len(&self) -> usize {
        if self.rest.is_empty() { self.first.len() } else { self.rest.len() }
    }

    fn push(&mut self, data: Bytes, is_last: bool) {
        if is_last && self.len() == 0 {
            self.first = data;
            return;
        }
        if self.rest.is_empty() {
            let first = std::mem::take(&mut self.first);
            self.rest.reserve(self.declared.max(first.len() + data.len()));
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

    fn whole(received: Received) -> Bytes {
        match received {
            Received::Whole(bytes, _) => bytes,
            _ => panic!("not whole"),
        }
    }

    fn prefix_bytes(received: Received) -> Bytes {
        match received {
            Received::Prefix(bytes) => bytes,
            _ => panic!("not a prefix"),
        }
    }

    #[tokio::test]
    async fn chunks_are_joined_in_order() {
        let limiter = Limiter::new(100);
        let parts = ["", "ab", "", "c", "defg"].map(Bytes::from).to_vec();
        assert_eq!(whole(receive(chunks(parts), MAX_BODY, &limiter).await), "abcdefg");
        assert_eq!(whole(receive(Full::new(Bytes::from("one")), MAX_BODY, &limiter).await), "one");
        assert_eq!(whole(receive(chunks(Vec::new()), MAX_BODY, &limiter).await), "");
        assert!(limiter.try_acquire(100).is_some(), "every permit is released");
    }

    #[tokio::test]
    async fn without_capacity_only_the_prefix_is_kept_and_the_permit_is_released() {
        let limiter = Limiter::new(30_000);
        let long = Bytes::from(vec![b'x'; 20_000]);
        assert_eq!(
            prefix_bytes(receive(chunks(vec![long.clone(); 3]), MAX_BODY, &limiter).await).len(),
            PREFIX_LENGTH
        );
        assert!(limiter.try_acquire(30_000).is_some());
        let _permit = limiter.try_acquire(29_999).unwrap();
        assert_eq!(prefix_bytes(receive(Full::new(Bytes::from("ab")), MAX_BODY, &limiter).await), "ab");
    }

    #[test]
    fn reading_a_long_body_yields_to_other_tasks() {
        let limiter = Limiter::new(usize::MAX);
        let body = |parts: usize| chunks(vec![Bytes::from(vec![b'x'; YIELD_AFTER]); parts]);
        let short = chunks(vec![Bytes::from(vec![b'x'; YIELD_AFTER / 8]); 7]);
        assert!(receive(short, MAX_BODY, &limiter).now_or_never().is_some());
        assert!(receive(body(1), MAX_BODY, &limiter).now_or_never().is_none());
        assert!(receive_prefix(body(1), MAX_BODY).now_or_never().is_none());
    }

    #[tokio::test]
    async fn only_the_prefix_of_a_body_above_the_maximum_is_kept() {
        let limiter = Limiter::new(usize::MAX);
        let body = |length| Full::new(Bytes::from(vec![b'x'; length]));
        assert_eq!(whole(receive(body(3_000), 3_000, &limiter).await).len(), 3_000);
        assert_eq!(prefix_bytes(receive(body(3_001), 3_000, &limiter).await).len(), PREFIX_LENGTH);
        let parts = vec![Bytes::from(vec![b'x'; 1_501]); 2];
        assert_eq!(prefix_bytes(receive(chunks(parts), 3_000, &limiter).await).len(), PREFIX_LENGTH);
    }

    #[tokio::test]
    async fn a_body_above_the_maximum_is_not_read_to_its_end() {
        let limiter = Limiter::new(usize::MAX);
        let mebibyte = Bytes::from(vec![b'x'; 1 << 20]);
        let mut sent = 0;
        let endless = StreamBody::new(stream::iter(std::iter::repeat_with(|| {
            sent += 1;
            assert!(sent <= 42, "read beyond the maximum");
            Ok::<_, Infallible>(Frame::data(mebibyte.clone()))
        })));
        assert_eq!(prefix_bytes(receive(endless, MAX_BODY, &limiter).await).len(), PREFIX_LENGTH);
    }
}
