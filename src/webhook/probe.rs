//! Signs squelch's own probe: a dry-run Event that a replica sends through the API server. The active replica signs.
//! A probe changes no state.
//!
//! The API server caches webhook clients by URL or Service, path and `caBundle`, not by the entry's name (apiserver
//! `util/webhook`, `ClientManager`), and connections by TLS options and dialer (client-go `transport`,
//! `tlsTransportCache`). The probe's entry therefore has a path and a `caBundle` of its own (see
//! `arming::configuration`). Its connections carry no Event writes, so each can be closed after one response without
//! disturbing a review, and every probe tests a new dial and handshake.

use std::collections::HashMap;

use bytes::Bytes;
use serde_json::Value;
use squelch_engine::Operation;

use super::handler::{Webhook, allow_unread};
use super::response;
use super::review::{self, Review};
use crate::{PROBE_ANNOTATION, PROBE_SIGNATURE_ANNOTATION};

impl Webhook {
    /// Answers a review on the probe path of `token`. Returns `None` for bytes that are no review.
    pub(super) fn sign_probe(&self, bytes: &[u8], token: &str) -> Option<Bytes> {
        let Ok(review) = review::decode(bytes) else { return allow_unread(bytes) };
        // Only the active replica signs: the API server must reach this one.
        let nonce = self.nonce(&review).filter(|_| self.is_active());
        let signature = nonce.and_then(|nonce| self.tokens.sign(token, &nonce));
        let Some(signature) = signature else { return Some(response::allow(review.version(), review.uid())) };
        self.metrics.probe_answered();
        Some(response::allow_annotated(&review, PROBE_SIGNATURE_ANNOTATION, &signature))
    }

    /// Returns the nonce to sign; `None` for a review other than squelch's own dry run.
    fn nonce(&self, review: &Review<'_>) -> Option<String> {
        let write = review.observe(&self.own_user, self.clock.wall()).ok()?;
        if !(write.own && write.dry_run && write.operation == Operation::Create) {
            return None;
        }
        let annotations: HashMap<String, Value> = serde_json::from_str(write.event.annotations).ok()?;
        annotations.get(PROBE_ANNOTATION)?.as_str().map(ToOwned::to_owned)
    }
}
