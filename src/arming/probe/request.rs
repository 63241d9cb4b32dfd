//! One probe: a dry-run Event through the API server, which the webhook signs.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use http::header::{CONNECTION, CONTENT_TYPE, HeaderValue};
use http::{Method, Request, StatusCode};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};
use tracing::instrument::WithSubscriber as _;
use tracing::subscriber::NoSubscriber;

use super::outcome::ProbeOutcome;
use crate::descriptors;
use crate::metrics::ProbeResult;
use crate::tls::{self, AcceptedTokens};
use crate::{PROBE_ANNOTATION, PROBE_SIGNATURE_ANNOTATION};

/// Maximum time of a successful probe. Half of the time that an Event write waits for a webhook that hangs.
const TIMEOUT: Duration = Duration::from_millis(500);

/// How long to wait for an answer. A slow API server answers after [`TIMEOUT`], with a signature. This is longer than
/// the second for which the API server waits for the webhook, and short enough that a webhook that hangs is disarmed
/// within 3.5 s: one second until the next probe, and twice this time.
const LATE_TIMEOUT: Duration = Duration::from_millis(1250);

/// Timeout of the API server's health check.
const HEALTH_TIMEOUT: Duration = Duration::from_millis(500);

/// The result of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeReport {
    /// The result.
    pub result: ProbeResult,
    /// Details for logs, Events and conditions. Empty after a success.
    pub message: String,
}

/// Sends probes.
pub struct Probe {
    client: Client,
    namespace: String,
    tokens: Arc<AcceptedTokens>,
}

impl Probe {
    /// Sends probes through `client` in squelch's own namespace. `tokens` verify the signatures.
    pub fn new(client: Client, namespace: String, tokens: Arc<AcceptedTokens>) -> Self {
        Self { client, namespace, tokens }
    }

    /// Sends one probe.
    pub async fn send(&self) -> ProbeReport {
        // The client library logs each failed call as an error. The caller logs changes only.
        self.send_and_judge().with_subscriber(NoSubscriber::new()).await
    }

    async fn send_and_judge(&self) -> ProbeReport {
        let Ok([one, other]) = tls::random_seed() else {
            return report(ProbeResult::Unexpected, "cannot get random bytes");
        };
        let nonce = format!("{one:016x}{other:016x}");
        let mut sending = std::pin::pin!(self.call(self.event(&nonce)));
        let late = tokio::select! {
            biased;
            answer = &mut sending => return self.confirmed(self.judge(&nonce, answer)).await,
            () = sleep(TIMEOUT) => report(ProbeResult::Timeout, format!("no answer within {} ms", TIMEOUT.as_millis())),
        };
        let rest = timeout(LATE_TIMEOUT.saturating_sub(TIMEOUT), sending);
        let (answer, timed_out) = tokio::join!(rest, self.confirmed(late));
        match answer {
            Ok(answer) => self.judge_late(&nonce, answer, timed_out),
            Err(_) => timed_out,
        }
    }

    /// Returns the result of an answer that came after [`TIMEOUT`]. `timed_out` is the result without it. A signature
    /// shows that the webhook answers and the API server is slow. No signature is what a webhook that hangs looks like.
    fn judge_late(
        &self,
        nonce: &str,
        answer: Result<(StatusCode, Value), CallFailure>,
        timed_out: ProbeReport,
    ) -> ProbeReport {
        let judged = self.judge(nonce, answer);
        match (judged.result, ProbeOutcome::of(judged.result)) {
            (_, ProbeOutcome::Success) => {
                let message = format!("signed after more than {} ms", TIMEOUT.as_millis());
                report(ProbeResult::Slow, message)
            }
            (ProbeResult::Unsigned, _) => timed_out,
            // A failure counts only if the API server is healthy.
            (_, outcome) if outcome.is_failure() && !ProbeOutcome::of(timed_out.result).is_failure() => {
                timed_out
            }
            _ => judged,
        }
    }

    /// Checks the API server's health after a failure. An unhealthy API server, such as one that is starting, refuses
    /// many requests, and the failure says nothing about the webhook.
    async fn confirmed(&self, probed: ProbeReport) -> ProbeReport {
        // Without file descriptors, the cause is this process, and no health check is possible.
        if !ProbeOutcome::of(probed.result).is_failure() || probed.result == ProbeResult::NoDescriptors {
            return probed;
        }
        match self.health().await {
            Health::Healthy => probed,
            Health::Unhealthy => report(
                ProbeResult::ApiserverUnhealthy,
                format!("the API server is unhealthy ({})", probed.message),
            ),
            Health::NoDescriptors(failure) => failure.report(),
        }
    }

    /// Returns the result of an answer.
    fn judge(&self, nonce: &str, answer: Result<(StatusCode, Value), CallFailure>) -> ProbeReport {
        let (status, body) = match answer {
            Ok(answer) => answer,
            Err(failure) => return failure.report(),
        };
        let message = body["message"].as_str().unwrap_or_default();
        let refused = |result| report(result, format!("the API server returned {status}: {message}"));
        match status.as_u16() {
            200..300 => self.check_signature(nonce, &body),
            429 => refused(ProbeResult::TooManyRequests),
            500.. => refused(ProbeResult::ServerError),
            // The probe's name is unique, so 409 comes from a proxy.
            401 | 408 | 409 => refused(ProbeResult::Unexpected),
            400..500 => refused(ProbeResult::Rejected),
            _ => refused(ProbeResult::Unexpected),
        }
    }

    fn check_signature(&self, nonce: &str, body: &Value) -> ProbeReport {
        match body["metadata"]["annotations"][PROBE_SIGNATURE_ANNOTATION].as_str() {
            Some(signature) if self.tokens.verify(nonce, signature) => report(ProbeResult::Succeeded, ""),
            Some(_) => report(ProbeResult::WrongSignature, "another process answers the webhook calls"),
            None => report(
                ProbeResult::Unsigned,
                "the API server cannot call the webhook (see its log for probe.squelch.dev)",
            ),
        }
    }

    fn event(&self, nonce: &str) -> Result<Request<Body>, http::Error> {
        let namespace = &self.namespace;
        let event = json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                // Unique, so that it conflicts with no stored Event.
                "name": format!("squelch-probe.{nonce}"),
                "namespace": namespace,
                "annotations": { PROBE_ANNOTATION: nonce },
            },
            "involvedObject": {
                "apiVersion": "v1", "kind": "Namespace", "namespace": namespace, "name": namespace,
            },
            "type": "Normal",
            "reason": "Probe",
            "message": "Probe of the squelch webhook. This Event is never stored.",
            "source": { "component": "squelch" },
        });
        let path = format!("/api/v1/namespaces/{namespace}/events?dryRun=All");
        let request =
            Request::builder().method(Method::POST).uri(path).header(CONTENT_TYPE, "application/json");
        request.body(Body::from(event.to_string().into_bytes()))
    }

    /// Checks that the API server serves and reaches etcd. A refusal shows that too. Health checks bypass the queues of
    /// API Priority and Fairness, which Event writes that wait for a webhook can fill.
    async fn health(&self) -> Health {
        let asked = self.call(Request::get("/readyz").body(Body::empty()));
        match timeout(HEALTH_TIMEOUT, asked).await {
            Ok(Ok((status, _))) if !status.is_server_error() => Health::Healthy,
            Ok(Err(failure)) if failure.no_descriptors => Health::NoDescriptors(failure),
            _ => Health::Unhealthy,
        }
    }

    /// Makes a call on a new connection, which is closed after it: there may be several API servers.
    async fn call(
        &self,
        request: Result<Request<Body>, http::Error>,
    ) -> Result<(StatusCode, Value), CallFailure> {
        let mut request = request.map_err(|error| CallFailure::of(&error))?;
        request.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        let answer = self.client.send(request).await.map_err(|error| CallFailure::of(&error))?;
        let status = answer.status();
        let body = answer.into_body().collect_bytes().await.map_err(|error| CallFailure::of(&error))?;
        // A body that is not JSON has no message and no signature.
        Ok((status, serde_json::from_slice(&body).unwrap_or_default()))
    }
}

/// The API server's health.
enum Health {
    Healthy,
    Unhealthy,
    /// Unknown: this process has no file descriptor left.
    NoDescriptors(CallFailure),
}

/// A call without an answer.
struct CallFailure {
    message: String,
    /// Whether the cause is that this process has no file descriptor left.
    no_descriptors: bool,
}

impl CallFailure {
    fn of(error: &(dyn Error + 'static)) -> Self {
        Self { message: error.to_string(), no_descriptors: descriptors::are_exhausted(error) }
    }

    fn report(self) -> ProbeReport {
        if self.no_descriptors {
            return report(
                ProbeResult::NoDescriptors,
                format!("no file descriptor is left ({})", self.message),
            );
        }
        report(ProbeResult::ApiserverUnreachable, self.message)
    }
}

fn report(result: ProbeResult, message: impl Into<String>) -> ProbeReport {
    ProbeReport { result, message: message.into() }
}

#[cfg(test)]
mod tests;
