//! One call to the API server: with a deadline, sent once, and its failure told apart.
//!
//! The responses are read as they come. (The client's own errors do not tell the header `Retry-After`, which is all
//! that priority and fairness say with a 429.)

use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http::header::RETRY_AFTER;
use kube::Client;
use kube::api::{GetParams, Patch, PatchParams, PostParams};
use kube::client::Body;
use kube::core::Request;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use tracing::debug;

use super::event::Stored;
use super::refusal::Refusal;
use crate::FIELD_MANAGER;
use crate::engine::Order;

/// A call without an answer after this long is taken for lost; the next look reads what became of it. The API
/// server itself gives a call a minute: a writer that waits for that pays nobody.
const DEADLINE: Duration = Duration::from_secs(10);

/// What may stand in a path as it is (RFC 3986, unreserved).
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Makes calls about one order's Event.
pub(super) struct Calls<'a> {
    client: &'a Client,
    order: &'a Order,
    /// Its name as it stands in a path.
    name: String,
    events: Request,
}

impl<'a> Calls<'a> {
    /// # Errors
    /// The Event can have no such name: it came with a CREATE that the API server refused after squelch had seen it.
    pub(super) fn about(order: &'a Order, client: &'a Client) -> Result<Self, Refusal> {
        if !is_path_segment(&order.name) {
            return Err(Refusal::Invalid);
        }
        let name = utf8_percent_encode(&order.name, ESCAPED).to_string();
        let events = Request::new(format!("/api/v1/namespaces/{}/events", order.namespace));
        Ok(Self { client, order, name, events })
    }

    /// The Event as it is stored; `None`: there is none.
    pub(super) async fn read(&self) -> Result<Option<Stored>, Refusal> {
        match self.send("read", self.events.get(&self.name, &GetParams::default())).await {
            Ok(event) => Ok(Some(event)),
            Err(Refusal::Gone) => Ok(None),
            Err(refusal) => Err(refusal),
        }
    }

    /// Changes the Event; returns it as it is stored now.
    pub(super) async fn change(&self, change: Value) -> Result<Stored, Refusal> {
        let as_squelch = PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
        self.send("change", self.events.patch(&self.name, &as_squelch, &Patch::Merge(change))).await
    }

    /// Makes the Event; returns it as it is stored now.
    pub(super) async fn create(&self, event: &Value) -> Result<Stored, Refusal> {
        let as_squelch = PostParams { field_manager: Some(FIELD_MANAGER.into()), ..PostParams::default() };
        self.send("create", self.events.create(&as_squelch, event.to_string().into_bytes())).await
    }

    async fn send(
        &self,
        call: &'static str,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<Stored, Refusal> {
        let sent = async {
            // What cannot be asked (a name too long for any URL) cannot be written either.
            let request = request.map_err(|_| Refusal::Invalid)?;
            let exchange = tokio::time::timeout(DEADLINE, exchange(self.client, request));
            let answered = exchange.await.map_err(|_| Refusal::Timeout)?;
            let (status, retry_after, body) = answered.map_err(|_| Refusal::Disconnected)?;
            if status.is_success() {
                let event = serde_json::from_slice(&body).ok().and_then(Stored::new);
                return event.ok_or(Refusal::Unexpected);
            }
            Err(Refusal::of(status.as_u16(), retry_after.as_deref(), &body))
        };
        // Never the answer's text: it may quote the tenant's.
        sent.await.inspect_err(|refusal| {
            debug!(namespace = %self.order.namespace, event = ?self.order.name, call, ?refusal, "not done");
        })
    }
}

async fn exchange(
    client: &Client,
    request: http::Request<Vec<u8>>,
) -> Result<(StatusCode, Option<String>, Bytes), kube::Error> {
    let response = client.send(request.map(Body::from)).await?;
    let status = response.status();
    let retry_after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
    let retry_after = retry_after.map(ToOwned::to_owned);
    Ok((status, retry_after, response.into_body().collect_bytes().await?))
}

/// What the API server takes for a name (apimachinery, api/validation/path, `IsValidPathSegmentName`). A name in a
/// review is not checked yet, and one that holds a slash would lead anywhere.
fn is_path_segment(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && !name.contains(['/', '%'])
}
