//! One order: read, modify, write under `resourceVersion`, and tell the engine.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Event;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::Status;
use kube::{Api, Client};
use tracing::{debug, warn};

use super::event;
use crate::FIELD_MANAGER;
use crate::clock;
use crate::engine::{Engine, Order, Plan};
use crate::metrics::{FlushResult, Metrics};

/// A call without an answer after this long is taken for lost; the next order reads what became of it.
const DEADLINE: Duration = Duration::from_secs(10);
/// Reads and writes again after a conflict at most this often in one order.
const CONFLICTS: usize = 8;
/// An order that failed is tried again after this long.
const PAUSE: Duration = Duration::from_secs(1);
/// The same where the API server refuses for lack of rights: only a person mends that.
const PAUSE_FORBIDDEN: Duration = Duration::from_secs(30);
/// What a 429 may ask for at most.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(60);

/// Carries orders out.
pub struct Writer {
    client: Client,
    engine: Arc<Engine>,
    metrics: Arc<Metrics>,
}

/// Why an order ended without its write.
enum Failure {
    /// The Event is not as it was read: read again.
    Conflict,
    /// It will never be taken: the namespace ends, or the Event is refused as invalid.
    Never,
    /// Not now; again after this long.
    Later(Duration),
}

impl Writer {
    /// `client` must not retry by itself: each call of the writer is one call to the API server.
    pub fn new(client: Client, engine: Arc<Engine>, metrics: Arc<Metrics>) -> Self {
        Self { client, engine, metrics }
    }

    /// Gives an order back that was not begun: it is due again at once.
    pub(super) fn give_back(&self, order: &Order) {
        self.engine.postpone(order, Duration::ZERO, clock::now());
    }

    /// Carries one order out. The engine is told how it ended, whatever happens. False if it was postponed.
    pub(super) async fn pay(&self, order: &Order) -> bool {
        let result = self.read_and_write(order).await;
        let result = match result {
            Ok(result) => result,
            Err(Failure::Never) => {
                let lost = self.engine.abandon(order, clock::now());
                warn!(namespace = %order.namespace, event = %order.name, lost, "an Event cannot be written any more");
                FlushResult::Lost
            }
            Err(Failure::Conflict) => {
                self.engine.postpone(order, PAUSE, clock::now());
                FlushResult::Conflict
            }
            Err(Failure::Later(pause)) => {
                self.engine.postpone(order, pause, clock::now());
                FlushResult::Failed
            }
        };
        self.metrics.flushes(result);
        !matches!(result, FlushResult::Conflict | FlushResult::Failed)
    }

    async fn read_and_write(&self, order: &Order) -> Result<FlushResult, Failure> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), &order.namespace);
        for _ in 0..CONFLICTS {
            let found = within(order, "read", events.get_opt(&order.name)).await?;
            let planned = self.engine.plan(order, found.as_ref().map(event::count), clock::now());
            let (written, value, result) = match (planned, found) {
                (Plan::Write { value, occurred_at }, Some(found)) => {
                    let change = Patch::Merge(event::change(&found, value, occurred_at));
                    let as_squelch =
                        PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
                    let written =
                        within(order, "write", events.patch(&order.name, &as_squelch, &change)).await;
                    (written.map(drop), value, FlushResult::Written)
                }
                (Plan::Create { value, occurred_at, content }, None) => {
                    let body = event::recreate(&order.namespace, &order.name, &content, value, occurred_at);
                    (self.create(order, &events, body).await, value, FlushResult::Created)
                }
                // Nothing to write: the engine has taken the order as answered.
                _ => return Ok(FlushResult::Confirmed),
            };
            match written {
                Ok(()) => {
                    self.engine.settle(order, value, clock::now());
                    return Ok(result);
                }
                Err(Failure::Conflict) => {}
                Err(failure) => return Err(failure),
            }
        }
        Err(Failure::Conflict)
    }

    async fn create(
        &self,
        order: &Order,
        events: &Api<Event>,
        body: serde_json::Value,
    ) -> Result<(), Failure> {
        let Ok(body) = serde_json::from_value::<Event>(body) else { return Err(Failure::Never) };
        let as_squelch = PostParams { field_manager: Some(FIELD_MANAGER.into()), ..PostParams::default() };
        within(order, "create", events.create(&as_squelch, &body)).await.map(drop)
    }
}

/// One call with a deadline, its failure told apart.
async fn within<T>(
    order: &Order,
    call: &'static str,
    answer: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, Failure> {
    let Ok(answer) = tokio::time::timeout(DEADLINE, answer).await else {
        debug!(namespace = %order.namespace, event = %order.name, call, "no answer in time");
        return Err(Failure::Later(PAUSE));
    };
    answer.map_err(|error| {
        debug!(namespace = %order.namespace, event = %order.name, call, %error, "a flush failed");
        match error {
            kube::Error::Api(status) => of_status(&status),
            _ => Failure::Later(PAUSE),
        }
    })
}

fn of_status(status: &Status) -> Failure {
    let details = status.details.as_ref();
    match status.code {
        // A CREATE finds no namespace any more.
        404 if details.is_some_and(|details| details.kind == "namespaces") => Failure::Never,
        // Someone wrote, made or deleted the Event in between: read again.
        404 | 409 => Failure::Conflict,
        403 if ends_with_its_namespace(status) => Failure::Never,
        403 => Failure::Later(PAUSE_FORBIDDEN),
        400 | 413 | 422 => Failure::Never,
        429 => {
            let asked = details.map_or(0, |details| details.retry_after_seconds);
            Failure::Later(Duration::from_secs(u64::from(asked)).clamp(PAUSE, MAX_RETRY_AFTER))
        }
        _ => Failure::Later(PAUSE),
    }
}

/// The API server refuses new objects in a namespace that is being deleted, and says so as a cause.
fn ends_with_its_namespace(status: &Status) -> bool {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    causes.into_iter().any(|cause| cause.reason == "NamespaceTerminating")
}
