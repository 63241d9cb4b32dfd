//! One flush: read, compute, write under `resourceVersion`, report the result to the engine.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use scopeguard::ScopeGuard;
use squelch_engine::{Engine, FlushPlan, FlushTask};
use tracing::warn;

use super::call::Calls;
use super::event::{self, StoredTime};
use super::refusal::{NextStep, Refusal};
use super::stored::FetchedEvent;
use crate::clock;
use crate::metrics::{FlushResult, Metrics};

/// Maximum consecutive conflicts. Then the task waits as after any other failure.
const MAX_ATTEMPTS: u32 = 8;

/// Carries out flush tasks.
pub struct Writer {
    client: Client,
    pub(super) engine: Arc<Engine>,
    metrics: Arc<Metrics>,
    last_timestamp: StoredTime,
}

/// A task taken from the engine. If it is dropped without a result, by a panic or because its future is dropped, it
/// is released; otherwise the engine would not issue a task for its series again.
pub(super) type TakenTask = ScopeGuard<Taken, fn(Taken)>;

/// A task, and the number of attempts so far.
pub(super) struct Taken {
    engine: Arc<Engine>,
    pub(super) task: FlushTask,
    attempts: u32,
}

/// The outcome of one attempt to flush.
pub(super) struct FlushOutcome {
    /// The task, if the Event has changed since it was read.
    pub(super) retry: Option<TakenTask>,
    /// What failed.
    pub(super) refusal: Option<Refusal>,
}

impl Writer {
    /// `client` must not be shared and must not retry: each call of the writer has to be one call to the API server.
    pub fn new(client: Client, engine: Arc<Engine>, metrics: Arc<Metrics>) -> Self {
        Self { client, engine, metrics, last_timestamp: StoredTime::default() }
    }

    /// With this time in `lastTimestamp`.
    #[must_use]
    pub fn storing(self, last_timestamp: StoredTime) -> Self {
        Self { last_timestamp, ..self }
    }

    /// Takes over a task that the engine has issued.
    pub(super) fn take(&self, task: FlushTask) -> TakenTask {
        let taken = Taken { engine: self.engine.clone(), task, attempts: 0 };
        scopeguard::guard(taken, release)
    }

    /// Attempts the task once. The engine gets the result, unless the task is to be retried now.
    pub(super) async fn flush(&self, mut taken: TakenTask) -> FlushOutcome {
        taken.attempts += 1;
        let result = self.read_and_write(&taken.task).await;
        let refusal = result.err();
        self.metrics.flushes(result.unwrap_or_else(Refusal::result));
        match refusal.map(Refusal::next_step) {
            Some(NextStep::ReadAgain) if taken.attempts < MAX_ATTEMPTS => {
                return FlushOutcome { retry: Some(taken), refusal };
            }
            Some(NextStep::ReadAgain) => requeue_after(taken, Duration::ZERO),
            Some(NextStep::RetryAfter(at_least)) => requeue_after(taken, at_least),
            Some(NextStep::Discard) => discard(taken, refusal),
            None => drop(ScopeGuard::into_inner(taken)),
        }
        FlushOutcome { retry: None, refusal }
    }

    async fn read_and_write(&self, task: &FlushTask) -> Result<FlushResult, Refusal> {
        let calls = Calls::new(task, &self.client)?;
        let mut found = calls.read().await?;
        let planned = self.engine.plan(task, found.as_mut().map(FetchedEvent::found), clock::now());
        let planned = self.with_witness(task, &calls, planned).await?;
        let times = |occurred_at| self.last_timestamp.times(occurred_at, clock::wall());
        let (stored, value, result) = match (planned, found) {
            (FlushPlan::Write { value, occurred_at, shown }, Some(found)) => {
                let patch = event::change(&found, value, times(occurred_at), &shown, &task.namespace);
                (calls.patch(patch).await?, value, FlushResult::Written)
            }
            (FlushPlan::Create { value, occurred_at, content, witness }, None) => {
                // A witness is of the same namespace.
                if witness.is_none() {
                    self.check_namespace(task, &calls).await?;
                }
                let body = event::recreate(&task.namespace, &task.name, &content, value, times(occurred_at));
                (calls.create(&body).await?, value, FlushResult::Created)
            }
            // The engine has completed the task.
            (FlushPlan::Wait, _) => return Ok(FlushResult::NotStored),
            (FlushPlan::Lost { occurrences }, _) => {
                log_lost(task, occurrences, "the Event is not stored, or another Event has its name");
                return Ok(FlushResult::NotStored);
            }
            _ => return Ok(FlushResult::Confirmed),
        };
        if stored.count < value {
            // Another webhook has changed what squelch wrote.
            return Err(Refusal::Unexpected);
        }
        self.engine.ack(task, value, clock::now());
        Ok(result)
    }
}

impl Writer {
    /// Checks that an Event of the group is stored before its summary is created: the API server may have refused all
    /// of them.
    async fn with_witness(
        &self,
        task: &FlushTask,
        calls: &Calls<'_>,
        planned: FlushPlan,
    ) -> Result<FlushPlan, Refusal> {
        let FlushPlan::Create { witness: Some(witness), .. } = &planned else { return Ok(planned) };
        let mut found = calls.read_other(witness).await?;
        match self.engine.check_witness(task, found.as_mut().map(FetchedEvent::found), clock::now()) {
            FlushPlan::Nothing => Ok(planned),
            answered => Ok(answered),
        }
    }
}

impl Writer {
    /// Checks that the namespace was not deleted and created again since the occurrences were merged. The watch of
    /// namespaces may be minutes late.
    async fn check_namespace(&self, task: &FlushTask, calls: &Calls<'_>) -> Result<(), Refusal> {
        match calls.namespace_uid().await? {
            Some(uid) if self.engine.is_of_namespace(task, &uid) => Ok(()),
            _ => Err(Refusal::Terminating),
        }
    }
}

/// The task is due again at once. After a panic it waits as after a failure.
fn release(Taken { engine, task, .. }: Taken) {
    if std::thread::panicking() {
        engine.requeue_after(&task, Duration::ZERO, clock::now());
    } else {
        engine.release(&task, clock::now());
    }
}

fn requeue_after(taken: TakenTask, at_least: Duration) {
    let Taken { engine, task, .. } = ScopeGuard::into_inner(taken);
    engine.requeue_after(&task, at_least, clock::now());
}

fn discard(taken: TakenTask, refusal: Option<Refusal>) {
    let Taken { engine, task, .. } = ScopeGuard::into_inner(taken);
    let reason = match refusal {
        Some(Refusal::TooLarge) => "the stored Event is too large",
        Some(Refusal::Terminating) => "the namespace is being deleted, or was deleted",
        _ => "the API server refused the write",
    };
    log_lost(&task, engine.discard(&task), reason);
}

fn log_lost(task: &FlushTask, lost: u64, reason: &'static str) {
    if lost > 0 {
        // The name is logged, not the text. The name is a tenant's too, so control characters are escaped.
        let event: String = task.name.escape_debug().take(MAX_SHOWN).collect();
        warn!(namespace = %task.namespace, event, policy = %task.policy.display, occurrences = lost, reason,
            "pending occurrences lost");
    }
}

/// Maximum characters of an Event's name in a log line: the longest name of most objects.
const MAX_SHOWN: usize = 253;
