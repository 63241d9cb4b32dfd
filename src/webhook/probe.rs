//! squelch's proof to itself: the one review that is answered with a mark. It touches no state.
//!
//! The API server keeps its clients of webhooks by URL or Service, path and `caBundle`, never by the entry's name
//! (apiserver `util/webhook`, `ClientManager`), and behind them its connections by TLS options and dialer (client-go
//! `transport`, `tlsTransportCache`). So the entry of the proof has a path of its own, and a `caBundle` of its own
//! (see `arming::configuration`): its connections are not those of Event writes, closing them disturbs no review in
//! flight, and since each is closed after one answer, each proof needs a dial and a handshake.

use std::collections::HashMap;

use bytes::Bytes;
use serde_json::Value;
use squelch_engine::Operation;

use super::answer;
use super::handler::{Webhook, unread};
use super::review::{self, Review};
use crate::{PROBE_ANNOTATION, PROOF_ANNOTATION};

impl Webhook {
    /// Answers a review that came on the proof's path, after `token`; `None` for bytes that are none.
    pub(super) fn prove(&self, bytes: &[u8], token: &str) -> Option<Bytes> {
        let Ok(review) = review::decode(bytes) else { return unread(bytes) };
        // Only the active replica proves: that the API server reaches another is no reason to ask it.
        let nonce = self.nonce(&review).filter(|_| self.decides());
        let mark = nonce.and_then(|nonce| self.tokens.mark(token, &nonce));
        let Some(mark) = mark else { return Some(answer::allow(review.version(), review.uid())) };
        self.metrics.proof_given();
        Some(answer::allow_annotated(&review, PROOF_ANNOTATION, &mark))
    }

    /// The number that is asked to be marked; `None` for whatever is not squelch's own dry run.
    fn nonce(&self, review: &Review<'_>) -> Option<String> {
        let write = review.observe(&self.own_user, self.clock.wall()).ok()?;
        if !(write.own && write.dry_run && write.operation == Operation::Create) {
            return None;
        }
        let annotations: HashMap<String, Value> = serde_json::from_str(write.event.annotations).ok()?;
        annotations.get(PROBE_ANNOTATION)?.as_str().map(ToOwned::to_owned)
    }
}
