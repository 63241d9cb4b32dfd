//! The webhook configuration on its way from squelch to the API server.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::Method;
use serde_json::Value;

use super::asked::Asked;
use super::relay::{Behind, Look, decoded, encoded};

/// Puts the proxy's authority in place of squelch's, and learns squelch's.
pub(super) struct Configuration {
    /// The proxy's authority, as `caBundle` holds it.
    ca_bundle: String,
    squelch: Arc<Behind>,
    listens_at: Mutex<String>,
    own_writes: AtomicBool,
}

impl Configuration {
    pub(super) fn new(authority: &str, squelch: Arc<Behind>) -> Self {
        let (listens_at, own_writes) = (Mutex::default(), AtomicBool::default());
        Self { ca_bundle: encoded(authority), squelch, listens_at, own_writes }
    }

    /// Where the squelch listens whose configuration comes next.
    pub(super) fn comes_from(&self, webhook: &str) {
        webhook.clone_into(&mut self.listens_at.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// The next one asks about squelch's own writes, too.
    pub(super) fn ask_about_own_writes(&self) {
        self.own_writes.store(true, Ordering::Relaxed);
    }

    /// `None`: nothing that a webhook configuration has.
    fn rewritten(&self, body: &[u8]) -> Option<Bytes> {
        let mut configuration: Value = serde_json::from_slice(body).ok()?;
        for webhook in configuration["webhooks"].as_array_mut()? {
            let authority = decoded(webhook["clientConfig"]["caBundle"].as_str()?)?;
            let listens_at = self.listens_at.lock().unwrap_or_else(PoisonError::into_inner);
            self.squelch.is(&listens_at, &authority).ok()?;
            webhook["clientConfig"]["caBundle"] = self.ca_bundle.as_str().into();
            if self.own_writes.load(Ordering::Relaxed) {
                webhook.as_object_mut()?.remove("matchConditions");
            }
        }
        Some(configuration.to_string().into())
    }
}

impl Look for Arc<Configuration> {
    fn asked(&self, asked: &Asked, body: Bytes) -> Bytes {
        let configures = asked.is_about("mutatingwebhookconfigurations") && asked.method == Method::PATCH;
        // What cannot be rewritten goes on as it is: the API server then trusts squelch alone, and calls fail.
        configures.then(|| self.rewritten(&body)).flatten().unwrap_or(body)
    }

    fn decided(&self, _: &Asked, _: &[u8]) {}

    fn told(&self, _: &Asked) {}
}
