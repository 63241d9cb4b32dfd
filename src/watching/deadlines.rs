//! Timeouts for lists and watches.
//!
//! kube's watcher has a timeout for the events of a watch (295 s), and none for a list or for the start of a watch. After a
//! request without a response it would never update the policies again. The client's read timeout applies to a connection,
//! and tests cannot control its time.
//!
//! After a restore of etcd from a backup, the API server accepts a watch from a resource version that it has not reached,
//! and sends neither events nor bookmarks. kube's watcher would restart the watch from the same version indefinitely. So a watch
//! without any event ends with the error for an expired version, and the watcher lists again.
//!
//! An API server may also report an expired version as the HTTP status of a watch request. kube's watcher lists again only
//! after the watch event with this error, and would repeat the request indefinitely. So the status becomes that event.

use std::future::ready;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{BoxStream, once, unfold};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use kube::Client;
use kube::client::Body;
use serde_json::json;
use tokio::time::timeout;
use tower::{BoxError, service_fn};

/// Timeout from a request to the head of its response. The API server ends a list after 60 s, and sends the head of a watch
/// immediately.
const HEAD: Duration = Duration::from_secs(30);

/// Timeout between two parts of a response. The API server sends a bookmark on each watch once a minute.
const SILENCE: Duration = Duration::from_secs(90);

/// Returns a client with these timeouts. It calls `responded` for each part of a successful response, except the head of a
/// watch.
pub(crate) fn with_deadlines(client: &Client, responded: impl Fn() + Send + Sync + 'static) -> Client {
    let responded: Responded = Arc::new(responded);
    let inner = client.clone();
    let service = service_fn(move |request| send(inner.clone(), request, responded.clone()));
    Client::new(service, client.default_namespace())
}

type Responded = Arc<dyn Fn() + Send + Sync>;

/// The stream of the parts of a response.
type Frames = BoxStream<'static, Result<Frame<Bytes>, BoxError>>;

async fn send(
    client: Client,
    request: Request<Body>,
    responded: Responded,
) -> Result<Response<StreamBody<Frames>>, BoxError> {
    let is_watch = request.uri().query().is_some_and(|query| query.contains("watch="));
    let response = timeout(HEAD, client.send(request)).await;
    let (mut head, body) = response.map_err(|_| no_response(HEAD))??.into_parts();
    if is_watch && head.status == StatusCode::GONE {
        head.status = StatusCode::OK;
        // The length of the other body.
        head.headers.clear();
        let event = expired("the API server answered the watch request with 410");
        return Ok(Response::from_parts(head, StreamBody::new(once(ready(Ok(event))).boxed())));
    }
    let failed = !head.status.is_success();
    if !failed && !is_watch {
        responded();
    }
    let frames = unfold((Some(body), is_watch), move |(body, is_silent_watch)| {
        let responded = responded.clone();
        async move {
            let mut body = body?;
            match timeout(SILENCE, body.frame()).await {
                Ok(None) if is_silent_watch && !failed => {
                    // As an error, so that the next watch waits. The end of a watch alone begins another one at once.
                    let error = io::Error::other("watch ended without an event");
                    Some((Err(error.into()), (None, false)))
                }
                Ok(None) => None,
                Ok(Some(Ok(frame))) => {
                    if !failed {
                        responded();
                    }
                    Some((Ok(frame), (Some(body), false)))
                }
                Ok(Some(Err(error))) => Some((Err(BoxError::from(error)), (None, false))),
                Err(_) if is_silent_watch => {
                    let event = expired("watch received no event and no bookmark, listing again");
                    Some((Ok(event), (None, false)))
                }
                Err(_) => Some((Err(no_response(SILENCE)), (None, false))),
            }
        }
    });
    Ok(Response::from_parts(head, StreamBody::new(frames.boxed())))
}

/// The watch event for an expired resource version.
fn expired(message: &str) -> Frame<Bytes> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "Expired", "code": 410,
        "message": message,
    });
    Frame::data(Bytes::from(format!("{}\n", json!({ "type": "ERROR", "object": status }))))
}

fn no_response(time: Duration) -> BoxError {
    let text = format!("no response from the API server for {} s", time.as_secs());
    io::Error::new(io::ErrorKind::TimedOut, text).into()
}

#[cfg(test)]
mod tests;
