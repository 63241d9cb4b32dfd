//! One call to the API server: with a deadline, sent once, and its failure told apart.
//!
//! The responses are read as they come, up to [`MAX_ANSWER`]. (The client's own errors do not tell the header
//! `Retry-After`, which is all that priority and fairness say with a 429.)

use std::error::Error;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http::header::{DATE, HeaderMap, RETRY_AFTER};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use jiff::Timestamp;
use jiff::fmt::rfc2822;
use kube::Client;
use kube::api::{GetParams, Patch, PatchParams, PostParams};
use kube::client::Body;
use kube::core::Request;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use squelch_engine::{FlushTask, is_namespace_name};
use tracing::debug;

use super::refusal::Refusal;
use super::stored::Stored;
use crate::FIELD_MANAGER;

/// A call without an answer after this long is taken for lost; the next look reads what became of it. The API
/// server itself gives a call a minute: a writer that waits for that pays nobody.
const DEADLINE: Duration = Duration::from_secs(10);

/// The longest answer that is read, in bytes. etcd takes an Event of 1.5 MiB, which can be twice as long in JSON. Most
/// Events are below 10 KiB. At shutdown 32 answers are read at the same time and take at most 64 MiB. While a thread
/// parses one, it takes at most twice as much again. What is kept of an Event before its write is below 30 KiB.
const MAX_ANSWER: usize = 2 << 20;

/// What may stand in a path as it is (RFC 3986, unreserved).
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Makes calls about one order's Event.
pub(super) struct Calls<'a> {
    client: &'a Client,
    order: &'a FlushTask,
    /// Its name as it stands in a path.
    name: String,
    events: Request,
}

impl<'a> Calls<'a> {
    /// # Errors
    /// No Event can have this name or this namespace: it came with a CREATE that the API server refused after squelch
    /// had seen it, or from a caller that is not the API server.
    pub(super) fn about(order: &'a FlushTask, client: &'a Client) -> Result<Self, Refusal> {
        if !is_path_segment(&order.name) || !is_namespace_name(&order.namespace) {
            return Err(Refusal::Invalid);
        }
        let name = utf8_percent_encode(&order.name, ESCAPED).to_string();
        let events = Request::new(format!("/api/v1/namespaces/{}/events", order.namespace));
        Ok(Self { client, order, name, events })
    }

    /// The Event as it is stored; `None`: there is none.
    pub(super) async fn read(&self) -> Result<Option<Stored>, Refusal> {
        self.read_named(&self.name).await
    }

    /// Another Event of the same namespace, as it is stored; `None`: there is none, or can be none of this name.
    pub(super) async fn read_other(&self, name: &str) -> Result<Option<Stored>, Refusal> {
        if !is_path_segment(name) {
            return Ok(None);
        }
        self.read_named(&utf8_percent_encode(name, ESCAPED).to_string()).await
    }

    async fn read_named(&self, name: &str) -> Result<Option<Stored>, Refusal> {
        match self.send(Call::Read, self.events.get(name, &GetParams::default())).await {
            Ok(event) => Ok(Some(event)),
            Err(Refusal::Gone) => Ok(None),
            Err(refusal) => Err(refusal),
        }
    }

    /// Changes the Event; returns it as it is stored now.
    pub(super) async fn change(&self, change: Value) -> Result<Stored, Refusal> {
        let as_squelch = PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
        self.send(Call::Change, self.events.patch(&self.name, &as_squelch, &Patch::Merge(change))).await
    }

    /// Makes the Event; returns it as it is stored now.
    pub(super) async fn create(&self, event: &Value) -> Result<Stored, Refusal> {
        let as_squelch = PostParams { field_manager: Some(FIELD_MANAGER.into()), ..PostParams::default() };
        self.send(Call::Create, self.events.create(&as_squelch, event.to_string().into_bytes())).await
    }

    async fn send(
        &self,
        call: Call,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<Stored, Refusal> {
        let sent = async {
            // What cannot be asked (a name too long for any URL) cannot be written either.
            let request = request.map_err(|_| Refusal::Invalid)?;
            let exchange = tokio::time::timeout(DEADLINE, exchange(self.client, request));
            let answered = exchange.await.map_err(|_| Refusal::Timeout)?;
            let (status, headers, body) = answered.map_err(|_| Refusal::Disconnected)?;
            let header = |name| headers.get(name).and_then(|value| value.to_str().ok());
            if status.is_success() {
                let body = match (body, call) {
                    (Some(body), _) => body,
                    (None, Call::Read) => return Err(Refusal::TooLarge),
                    // It is done, and the next flush reads what is stored.
                    (None, Call::Change | Call::Create) => return Err(Refusal::Unexpected),
                };
                return Stored::new(&body, header(DATE).and_then(date)).ok_or(Refusal::Unexpected);
            }
            let (code, retry_after) = (status.as_u16(), header(RETRY_AFTER));
            let body = body.unwrap_or_default();
            Err(match call {
                Call::Read => Refusal::of(code, retry_after, &body),
                Call::Change | Call::Create => Refusal::of_write(code, retry_after, &body),
            })
        };
        // Never the answer's text: it may quote the tenant's.
        sent.await.inspect_err(|refusal| {
            debug!(namespace = %self.order.namespace, event = ?self.order.name, ?call, ?refusal, "not done");
        })
    }
}

/// What a call is for.
#[derive(Clone, Copy, Debug)]
enum Call {
    Read,
    Change,
    Create,
}

/// One request and its answer. The body is `None` where it is longer than [`MAX_ANSWER`].
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

/// The time that the API server gave its answer, in whole seconds of its own clock (RFC 9110, section 6.6.1).
fn date(header: &str) -> Option<Timestamp> {
    rfc2822::parse(header).ok().map(|date| date.timestamp())
}

/// What the API server takes for a name (apimachinery, api/validation/path, `IsValidPathSegmentName`). A name in a
/// review is not checked yet, and one that holds a slash would lead anywhere.
fn is_path_segment(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && !name.contains(['/', '%'])
}
