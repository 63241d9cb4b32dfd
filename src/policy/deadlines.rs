//! A client for lists and watches whose requests end when the API server is silent.
//!
//! kube's watcher has a deadline for the events of a watch (295 s), and none for a list or for the start of a watch. A
//! request that the API server never answers would be the last one, and the policies of that moment would stay in force.
//! The client's own read timeout belongs to a connection, and a test cannot move its time.
//!
//! A watch from a version that the API server has not reached, since etcd was restored from a backup, is accepted and stays
//! silent, bookmarks included. kube's watcher would start it again from the same version for ever. So a watch without any
//! event ends as one whose version has expired, and the watcher lists anew.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{BoxStream, unfold};
use http::{Request, Response};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use kube::Client;
use kube::client::Body;
use serde_json::json;
use tokio::time::timeout;
use tower::{BoxError, service_fn};

/// The time from a request to the head of its answer. The API server itself ends a list after 60 s, and sends the head
/// of a watch at once.
const HEAD: Duration = Duration::from_secs(30);

/// The time from one part of an answer to the next. The API server sends a bookmark on each watch once a minute.
const SILENCE: Duration = Duration::from_secs(90);

/// `client` with these deadlines. `responded` is called with each part of a successful answer; the head of a watch is
/// none.
pub(super) fn with_deadlines(client: &Client, responded: impl Fn() + Send + Sync + 'static) -> Client {
    let responded: Responded = Arc::new(responded);
    let inner = client.clone();
    let service = service_fn(move |request| answer(inner.clone(), request, responded.clone()));
    Client::new(service, client.default_namespace())
}

type Responded = Arc<dyn Fn() + Send + Sync>;

/// The parts of an answer, as they come.
type Frames = BoxStream<'static, Result<Frame<Bytes>, BoxError>>;

async fn answer(
    client: Client,
    request: Request<Body>,
    responded: Responded,
) -> Result<Response<StreamBody<Frames>>, BoxError> {
    let is_watch = request.uri().query().is_some_and(|query| query.contains("watch="));
    let answered = timeout(HEAD, client.send(request)).await;
    let (head, body) = answered.map_err(|_| silent(HEAD))??.into_parts();
    let refused = !head.status.is_success();
    if !refused && !is_watch {
        responded();
    }
    let frames = unfold((Some(body), is_watch), move |(body, is_silent_watch)| {
        let responded = responded.clone();
        async move {
            let mut body = body?;
            match timeout(SILENCE, body.frame()).await {
                Ok(None) => None,
                Ok(Some(Ok(frame))) => {
                    if !refused {
                        responded();
                    }
                    Some((Ok(frame), (Some(body), false)))
                }
                Ok(Some(Err(error))) => Some((Err(BoxError::from(error)), (None, false))),
                Err(_) if is_silent_watch => Some((Ok(expired()), (None, false))),
                Err(_) => Some((Err(silent(SILENCE)), (None, false))),
            }
        }
    });
    Ok(Response::from_parts(head, StreamBody::new(frames.boxed())))
}

/// The event of a watch that says that its version has expired.
fn expired() -> Frame<Bytes> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "Expired", "code": 410,
        "message": "no event and no bookmark came: listing anew",
    });
    Frame::data(Bytes::from(format!("{}\n", json!({ "type": "ERROR", "object": status }))))
}

fn silent(time: Duration) -> BoxError {
    let text = format!("the API server has sent nothing for {} s", time.as_secs());
    io::Error::new(io::ErrorKind::TimedOut, text).into()
}

#[cfg(test)]
mod tests;
