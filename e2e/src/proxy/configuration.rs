//! The webhook configuration on its way from squelch to the API server.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::Method;
use serde_json::Value;

use super::call::ProxiedCall;
use super::relay::{Behind, Observer, decoded, encoded};

/// Replaces squelch's authority with the proxy's, and records squelch's.
pub(super) struct Configuration {
    /// The proxy's authority, encoded as in `caBundle`.
    ca_bundle: String,
    squelch: Arc<Behind>,
    listens_at: Mutex<String>,
    own_writes: AtomicBool,
    /// Added to the `namespaceSelector` of each entry that is written.
    added: Mutex<Option<Value>>,
}

impl Configuration {
    pub(super) fn new(authority: &str, squelch: Arc<Behind>) -> Self {
        let (listens_at, own_writes, added) = (Mutex::default(), AtomicBool::default(), Mutex::default());
        Self { ca_bundle: encoded(authority), squelch, listens_at, own_writes, added }
    }

    /// Sets the address of the squelch that writes the next configuration.
    pub(super) fn comes_from(&self, webhook: &str) {
        webhook.clone_into(&mut self.listens_at.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Removes the exclusion of squelch's own writes from the next configuration.
    pub(super) fn ask_about_own_writes(&self) {
        self.own_writes.store(true, Ordering::Relaxed);
    }

    /// Adds an expression to each entry of the next configurations.
    pub(super) fn add_at_admission(&self, expression: Value) {
        *self.added.lock().unwrap_or_else(PoisonError::into_inner) = Some(expression);
    }

    /// `None` if the body is not a webhook configuration.
    fn rewritten(&self, body: &[u8]) -> Option<Bytes> {
        let mut configuration: Value = serde_json::from_slice(body).ok()?;
        for webhook in configuration["webhooks"].as_array_mut()? {
            let authority = decoded(webhook["clientConfig"]["caBundle"].as_str()?)?;
            let listens_at = self.listens_at.lock().unwrap_or_else(PoisonError::into_inner);
            self.squelch.is(&listens_at, &authority).ok()?;
            webhook["clientConfig"]["caBundle"] = self.ca_bundle.as_str().into();
            if let Some(expression) = &*self.added.lock().unwrap_or_else(PoisonError::into_inner) {
                add_expression(webhook, expression);
            }
            if self.own_writes.load(Ordering::Relaxed) {
                webhook.as_object_mut()?.remove("matchConditions");
            }
        }
        Some(configuration.to_string().into())
    }
}

/// Adds an expression to the `namespaceSelector` of an entry. Returns whether it was missing.
pub fn add_expression(entry: &mut Value, expression: &Value) -> bool {
    let expressions = &mut entry["namespaceSelector"]["matchExpressions"];
    if !expressions.is_array() {
        *expressions = Value::Array(Vec::new());
    }
    let Some(list) = expressions.as_array_mut() else { return false };
    let is_missing = !list.contains(expression);
    if is_missing {
        list.push(expression.clone());
    }
    is_missing
}

impl Observer for Arc<Configuration> {
    fn asked(&self, asked: &ProxiedCall, body: Bytes) -> Bytes {
        let configures = asked.is_about("mutatingwebhookconfigurations") && asked.method == Method::PATCH;
        // Other bodies are unchanged: the API server would then trust squelch alone, and calls would fail.
        configures.then(|| self.rewritten(&body)).flatten().unwrap_or(body)
    }

    fn decided(&self, _: &ProxiedCall, _: &[u8]) {}

    fn delivered(&self, _: &ProxiedCall) {}
}
