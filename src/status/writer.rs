//! The task that writes the statuses of policies.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use squelch_engine::{Moment, ScopeCounters};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::announcer::{Announcement, Announcer};
use crate::clock;
use crate::metrics::Metrics;
use crate::policy::{Armed, Policy, Store};

use super::plan::{Due, Plan, WriteLimits};
use super::requests::{WriteOutcome, resource, statuses, write};
use super::transitions::{Transition, TransitionKind};

/// Interval at which the desired statuses are computed. The computation iterates over all policies.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);

/// The interval after a change of policies. A user may edit policies all the time.
const MIN_REFRESH_INTERVAL: Duration = Duration::from_millis(100);

/// Maximum number of concurrent writes before exit.
const LAST_WRITES_IN_FLIGHT: usize = 16;

/// The inputs of statuses besides policies and counters.
pub struct Inputs {
    /// Whose Event writes the API server sends, or why it sends none.
    pub armed: watch::Receiver<Armed>,
    /// Which API servers do not reach the armed webhook, in a sentence. `None` if all do.
    pub note: watch::Receiver<Option<Arc<str>>>,
    /// Whether this replica is active. Only the active replica writes statuses.
    pub active: watch::Receiver<bool>,
    /// Counts refused writes.
    pub metrics: Arc<Metrics>,
}

/// Returns the engine's counters since the start of the process (`Engine::all_counters`).
pub type ReadCounters = Box<dyn Fn() -> Vec<ScopeCounters> + Send + Sync>;

/// Writes the statuses of policies. No other component writes them.
pub struct StatusWriter {
    client: Client,
    store: Arc<Store>,
    read_counters: ReadCounters,
    armed: watch::Receiver<Armed>,
    note: watch::Receiver<Option<Arc<str>>>,
    active: watch::Receiver<bool>,
    reports: Reports,
    plan: Plan,
    /// Whether the statuses in the cluster were read.
    has_initial_statuses: bool,
    /// The statuses that were due at the last refresh, in reverse order.
    queue: Vec<Due>,
    /// Time of the last refresh of the queue.
    last_refresh: Option<Moment>,
    /// Whether policies or conditions have changed since.
    outdated: bool,
    /// Minimum time between two writes.
    pause: Duration,
    /// Earliest time of the next write.
    next: Moment,
}

/// Where outcomes are reported.
struct Reports {
    announcer: Announcer,
    metrics: Arc<Metrics>,
}

impl StatusWriter {
    /// Creates the task. It sends transitions of statuses to `announcer`.
    pub fn new(
        client: Client,
        store: Arc<Store>,
        read_counters: ReadCounters,
        inputs: Inputs,
        announcer: Announcer,
        limits: WriteLimits,
    ) -> Self {
        let Inputs { armed, note, active, metrics } = inputs;
        Self {
            client,
            store,
            read_counters,
            armed,
            note,
            active,
            reports: Reports { announcer, metrics },
            plan: Plan::new(limits),
            has_initial_statuses: false,
            queue: Vec::new(),
            last_refresh: None,
            outdated: false,
            pause: limits.pause(),
            next: Moment::default(),
        }
    }

    /// Waits until this replica is active, then writes statuses until `stop` is cancelled. Returns itself for
    /// [`Self::write_all_now`].
    pub async fn run(mut self, stop: CancellationToken) -> Self {
        if stop.run_until_cancelled(self.start()).await.is_none() {
            return self;
        }
        let mut revision = self.store.subscribe();
        let mut armed = self.armed.clone();
        let mut note = self.note.clone();
        while !stop.is_cancelled() {
            // `write_all_now` repeats a write that the stop interrupts.
            let Some(pause) = stop.run_until_cancelled(self.step(clock::now(), clock::wall())).await else {
                break;
            };
            tokio::select! {
                () = stop.cancelled() => break,
                () = tokio::time::sleep(pause) => {}
                () = changed(&mut revision) => self.outdated = true,
                () = changed(&mut armed) => self.outdated = true,
                () = changed(&mut note) => self.outdated = true,
            }
        }
        self
    }

    /// Waits until this replica is active, and reads the statuses in the cluster. This replica's counts are added to them.
    /// The watch may not have received the last write of the previous active replica yet.
    async fn start(&mut self) {
        while !*self.active.borrow_and_update() {
            changed(&mut self.active).await;
        }
        loop {
            match statuses(&self.client).await {
                Ok(statuses) => break self.plan.start_from(statuses),
                Err(error) => warn!(error, "reading the statuses of policies failed, retrying"),
            }
            tokio::time::sleep(REFRESH_INTERVAL).await;
        }
        self.has_initial_statuses = true;
    }

    /// Returns the number of received occurrences that no status includes yet.
    pub fn unwritten(&mut self) -> u64 {
        let counters = (self.read_counters)();
        self.plan.unwritten(&self.store.load(), &counters, &self.armed.borrow(), clock::wall())
    }

    /// Writes all changed statuses before exit, without intervals between writes. Returns the number of failed writes,
    /// without those of deleted policies. The caller sets the deadline.
    pub async fn write_all_now(&mut self) -> usize {
        let (now, wall) = (clock::now(), clock::wall());
        if !self.store.listed() || !self.has_initial_statuses {
            return 0;
        }
        let all = self.plan.all(&self.store.load(), &(self.read_counters)(), &self.armed.borrow(), wall);
        let client = &self.client;
        let writes = all.into_iter().map(|due| async move { (write(client, &due).await, due) });
        let mut written = futures::stream::iter(writes).buffer_unordered(LAST_WRITES_IN_FLIGHT);
        let mut failed = 0;
        while let Some((outcome, due)) = written.next().await {
            failed += usize::from(outcome == WriteOutcome::Failed);
            self.reports.attempted(&mut self.plan, due, outcome, now);
        }
        failed
    }

    /// Makes at most one write. Returns the time until the next step.
    async fn step(&mut self, now: Moment, wall: Timestamp) -> Duration {
        // No write is allowed yet, so a refresh would have no effect.
        if now < self.next {
            return self.next.since(now);
        }
        if self.until_refresh(now).is_zero() {
            self.refresh(now, wall);
        }
        if !*self.active.borrow() {
            // Another replica may be active. A write would overwrite its counters.
            return REFRESH_INTERVAL;
        }
        if let Some(due) = self.queue.pop()
            // It may be deleted meanwhile, and another one have its name.
            && self.store.load().policies().iter().any(|policy| policy.id.uid == due.policy.id.uid)
        {
            // Set before the write, so that the pause also follows an interrupted write.
            self.next = now.plus(self.pause);
            let outcome = write(&self.client, &due).await;
            self.reports.attempted(&mut self.plan, due, outcome, now);
        }
        if self.queue.is_empty() { self.until_refresh(now) } else { self.pause }
    }

    fn until_refresh(&self, now: Moment) -> Duration {
        let interval = if self.outdated { MIN_REFRESH_INTERVAL } else { REFRESH_INTERVAL };
        self.last_refresh.map_or(Duration::ZERO, |last| interval.saturating_sub(now.since(last)))
    }

    fn refresh(&mut self, now: Moment, wall: Timestamp) {
        (self.last_refresh, self.outdated) = (Some(now), false);
        // The base counters of policies come from the first list.
        if !self.store.listed() {
            return;
        }
        self.plan.set_note(self.note.borrow().clone());
        self.queue =
            self.plan.due(&self.store.load(), &(self.read_counters)(), &self.armed.borrow(), now, wall);
        self.queue.reverse();
    }
}

impl Reports {
    /// Records the outcome of a write, and announces the transitions of the status, or its first refusal.
    fn attempted(&self, plan: &mut Plan, due: Due, outcome: WriteOutcome, now: Moment) {
        let policy = due.policy.clone();
        if let WriteOutcome::Refused(message) = outcome {
            self.metrics.refused_status_write();
            if plan.refused(&due, now) {
                warn!(policy = %policy.id.display, error = message, "status refused, its spec has to be corrected");
                let note = format!(
                    "The API server refuses the status of this policy, because its spec breaks a rule that was \
                     added later. Correct the spec: {message}"
                );
                self.announcer.announce(announcement(&policy, true, "StatusRefused", note));
            }
            return;
        }
        for Transition { kind, message } in plan.attempted(due, outcome == WriteOutcome::Written, now) {
            let (warning, reason) = match kind {
                TransitionKind::Accepted => (false, "Accepted"),
                TransitionKind::Rejected => (true, "Rejected"),
                TransitionKind::Overridden => (false, "Overridden"),
            };
            self.announcer.announce(announcement(&policy, warning, reason, message));
        }
    }
}

fn announcement(policy: &Policy, warning: bool, reason: &'static str, note: String) -> Announcement {
    let resource = resource(policy);
    Announcement {
        regarding: ObjectReference {
            api_version: Some(resource.api_version),
            kind: Some(resource.kind),
            namespace: policy.namespace.as_deref().map(Into::into),
            name: Some(policy.name.to_string()),
            uid: Some(policy.id.uid.to_string()),
            ..ObjectReference::default()
        },
        warning,
        reason,
        action: "Follow",
        note,
    }
}

/// Waits for a change. Never returns if the sender was dropped.
async fn changed<T>(receiver: &mut watch::Receiver<T>) {
    if receiver.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

#[cfg(test)]
mod tests;
