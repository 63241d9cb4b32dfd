//! One call to the API server: it has a deadline, is sent once, and its failure becomes a [`Refusal`].
//!
//! The response is read as a stream, up to [`MAX_ANSWER`]. (The errors of the kube client omit the header
//! `Retry-After`, which is all that priority and fairness sends with a 429.)

use std::error::Error;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http::header::{DATE, HeaderMap, HeaderName, RETRY_AFTER};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use jiff::Timestamp;
use jiff::fmt::rfc2822;
use kube::Client;
use kube::api::{GetParams, ListParams, Patch, PatchParams, PostParams};
use kube::client::Body;
use kube::core::Request;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde_json::Value;
use squelch_engine::{FlushTask, is_namespace_name};
use tracing::debug;

use super::refusal::Refusal;
use super::stored::FetchedEvent;
use crate::FIELD_MANAGER;

/// The deadline of a call. The next flush of the Event reads whether a call without an answer was done. The API
/// server allows a call one minute, which would block the queue.
const DEADLINE: Duration = Duration::from_secs(10);

/// The longest answer that is read, in bytes. etcd accepts an Event of 1.5 MiB, which can be twice as long in JSON.
/// Most Events are below 10 KiB. At shutdown 32 answers are read at the same time and take at most 64 MiB; parsing
/// one takes at most twice its length more. Before the write at most 30 KiB of an Event are kept.
const MAX_ANSWER: usize = 2 << 20;

/// The characters that a path segment contains unescaped (RFC 3986, unreserved).
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Makes the calls of one flush task.
pub(super) struct Calls<'a> {
    client: &'a Client,
    task: &'a FlushTask,
    /// The name of the Event, escaped for a path.
    name: String,
    events: Request,
}

impl<'a> Calls<'a> {
    /// Prepares the calls of a task.
    ///
    /// # Errors
    /// No Event can have this name or namespace. It came with a CREATE that the API server refused after the review,
    /// or from a caller that is not the API server.
    pub(super) fn new(task: &'a FlushTask, client: &'a Client) -> Result<Self, Refusal> {
        if !is_path_segment(&task.name) || !is_namespace_name(&task.namespace) {
            return Err(Refusal::Invalid);
        }
        let name = utf8_percent_encode(&task.name, ESCAPED).to_string();
        let events = Request::new(format!("/api/v1/namespaces/{}/events", task.namespace));
        Ok(Self { client, task, name, events })
    }

    /// Reads the stored Event. Returns `None` if there is none.
    pub(super) async fn read(&self) -> Result<Option<FetchedEvent>, Refusal> {
        self.read_named(&self.name).await
    }

    /// Reads another Event of the namespace. Returns `None` if there is none, or if no Event can have this name.
    pub(super) async fn read_other(&self, name: &str) -> Result<Option<FetchedEvent>, Refusal> {
        if !is_path_segment(name) {
            return Ok(None);
        }
        self.read_named(&utf8_percent_encode(name, ESCAPED).to_string()).await
    }

    async fn read_named(&self, name: &str) -> Result<Option<FetchedEvent>, Refusal> {
        match self.event(Call::Read, self.events.get(name, &GetParams::default())).await {
            Ok(event) => Ok(Some(event)),
            Err(Refusal::Gone) => Ok(None),
            Err(refusal) => Err(refusal),
        }
    }

    /// Reads the uid of the task's namespace. Returns `None` if there is none. A list, because squelch has no right to get
    /// a namespace.
    pub(super) async fn namespace_uid(&self) -> Result<Option<String>, Refusal> {
        let its_name = format!("metadata.name={}", self.task.namespace);
        let list = Request::new("/api/v1/namespaces").list(&ListParams::default().fields(&its_name));
        let (_, body) = self.send(Call::ReadNamespace, list).await?;
        let list: ListedNamespaces = serde_json::from_slice(&body).map_err(|_| Refusal::Unexpected)?;
        Ok(list.items.into_iter().next().map(|namespace| namespace.metadata.uid))
    }

    /// Patches the Event. Returns it as it is stored now.
    pub(super) async fn patch(&self, patch: Value) -> Result<FetchedEvent, Refusal> {
        let as_squelch = PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
        self.event(Call::Patch, self.events.patch(&self.name, &as_squelch, &Patch::Merge(patch))).await
    }

    /// Creates the Event. Returns it as it is stored now.
    pub(super) async fn create(&self, event: &Value) -> Result<FetchedEvent, Refusal> {
        let as_squelch = PostParams { field_manager: Some(FIELD_MANAGER.into()), ..PostParams::default() };
        self.event(Call::Create, self.events.create(&as_squelch, event.to_string().into_bytes())).await
    }

    /// Sends a call about an Event. Returns the Event in the answer.
    async fn event(&self, call: Call, request: BuiltRequest) -> Result<FetchedEvent, Refusal> {
        let (headers, body) = self.send(call, request).await?;
        let sent_at = header(&headers, DATE).and_then(date);
        FetchedEvent::new(&body, sent_at)
            .ok_or(Refusal::Unexpected)
            .inspect_err(|refusal| self.log(call, *refusal))
    }

    /// Sends a call. Returns the headers and the body of the answer.
    async fn send(&self, call: Call, request: BuiltRequest) -> Result<(HeaderMap, Bytes), Refusal> {
        let sent = async {
            // A request that cannot be built (a name too long for a URL) cannot succeed later.
            let request = request.map_err(|_| Refusal::Invalid)?;
            let exchange = tokio::time::timeout(DEADLINE, exchange(self.client, request));
            let answered = exchange.await.map_err(|_| Refusal::Timeout)?;
            let (status, headers, body) = answered.map_err(|_| Refusal::Disconnected)?;
            if status.is_success() {
                return match (body, call) {
                    (Some(body), _) => Ok((headers, body)),
                    (None, Call::Read) => Err(Refusal::TooLarge),
                    // A write is done, and the next flush reads its result.
                    (None, Call::ReadNamespace | Call::Patch | Call::Create) => Err(Refusal::Unexpected),
                };
            }
            let (code, retry_after) = (status.as_u16(), header(&headers, RETRY_AFTER));
            let body = body.unwrap_or_default();
            Err(match call {
                Call::Read | Call::ReadNamespace => Refusal::of(code, retry_after, &body),
                Call::Patch | Call::Create => Refusal::of_write(code, retry_after, &body),
            })
        };
        sent.await.inspect_err(|refusal| self.log(call, *refusal))
    }

    /// Logs a failed call, without the text of the answer, which may quote the Event.
    fn log(&self, call: Call, refusal: Refusal) {
        debug!(namespace = %self.task.namespace, event = ?self.task.name, ?call, ?refusal, "flush call failed");
    }
}

type BuiltRequest = Result<http::Request<Vec<u8>>, kube::core::request::Error>;

/// A list of namespaces.
#[derive(Deserialize)]
struct ListedNamespaces {
    items: Vec<ListedNamespace>,
}

#[derive(Deserialize)]
struct ListedNamespace {
    metadata: NamespaceMetadata,
}

#[derive(Deserialize)]
struct NamespaceMetadata {
    uid: String,
}

fn header(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// The kind of a call.
#[derive(Clone, Copy, Debug)]
enum Call {
    Read,
    ReadNamespace,
    Patch,
    Create,
}

/// Sends one request. The body is `None` if it is longer than [`MAX_ANSWER`].
async fn exchange(
    client: &Client,
    request: http::Request<Vec<u8>>,
) -> Result<(StatusCode, HeaderMap, Option<Bytes>), Box<dyn Error + Send + Sync>> {
    let (head, body) = client.send(request.map(Body::from)).await?.into_parts();
    let body = match Limited::new(body, MAX_ANSWER).collect().await {
        Ok(body) => Some(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => None,
        Err(error) => return Err(error),
    };
    Ok((head.status, head.headers, body))
}

/// Parses the time of an answer by the clock of the API server, in whole seconds (RFC 9110, section 6.6.1).
fn date(header: &str) -> Option<Timestamp> {
    rfc2822::parse(header).ok().map(|date| date.timestamp())
}

/// Whether the API server accepts this as a name (apimachinery, api/validation/path, `IsValidPathSegmentName`). A
/// review shows a name before that check; a name with a slash would address another resource.
fn is_path_segment(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && !name.contains(['/', '%'])
}
