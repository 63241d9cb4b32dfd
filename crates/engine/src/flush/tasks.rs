//! Flush tasks for the writer, and the results that it reports.
//!
//! A task names a series whose stored Event may need a write. The writer reads the Event and calls
//! [`Engine::plan`]. It writes what the plan says under the `resourceVersion` that it read, and calls
//! [`Engine::ack`]. Each task is completed by exactly one of [`Engine::plan`] (nothing to write),
//! [`Engine::check_witness`] (not to be created), [`Engine::ack`], [`Engine::requeue_after`],
//! [`Engine::release`] and [`Engine::discard`].
//!
//! squelch never writes an Event for a client that the API server refused it. Admission precedes validation,
//! quota and the API server's own checks, so an admitted write may not be stored. Only a read confirms it.

use std::sync::Arc;
use std::time::Duration;

use crate::decide::aggregation::is_summary;
use crate::flush::phase::DECIDING;
use crate::flush::plan::{FlushPlan, StoredEvent};
use crate::model::content::Content;
use crate::state::live_series::Handle;
use crate::state::scope::{Scope, ScopeId};
use crate::state::series::COMMIT_GRACE;
use crate::{Engine, Moment, PolicyId};

/// Maximum delay of the first retry. Each further one may wait twice as long.
pub(crate) const FIRST_RETRY: Duration = Duration::from_secs(1);
/// Maximum delay of any retry, because the cause of the failures may end at any time.
const LONGEST_RETRY: Duration = Duration::from_secs(5 * 60);
/// Delay of retries while draining.
const RETRY_AT_THE_END: Duration = Duration::from_secs(1);

/// A task for the flush writer: read a stored Event and write its pending occurrences.
#[derive(Clone, Debug)]
pub struct FlushTask {
    /// The Event's namespace.
    pub namespace: Arc<str>,
    /// The Event's name.
    pub name: Box<str>,
    /// The policy under which they were merged.
    pub policy: PolicyId,
    pub(crate) scope: ScopeId,
    pub(crate) series: Handle,
}

impl Engine {
    /// Returns what to do with the Event `found` in etcd (`None`: not stored).
    pub fn plan(&self, task: &FlushTask, found: Option<StoredEvent>, now: Moment) -> FlushPlan {
        let deciding = self.phase() == DECIDING;
        let was_found = found.is_some();
        let mut was_compared = false;
        let planned = self.with_series(task, |scope, handle| {
            // A client's write was admitted after the task was issued. The series is due again after the grace
            // time.
            if deciding && now < scope.series.get(handle)?.not_before {
                return scope.complete(handle, FlushPlan::Nothing, deciding, now);
            }
            let plan = scope.plan(handle, found, deciding, now)?;
            was_compared = true;
            scope.complete(handle, plan, deciding, now)
        });
        let planned = planned.unwrap_or(FlushPlan::Nothing);
        // An Event that was not compared with the series may belong to another user.
        if was_found
            && was_compared
            && !matches!(planned, FlushPlan::Lost { .. })
            && let Some(mut namespace) = self.locked(&task.namespace)
        {
            namespace.names.confirm_owner(self.hasher.name(&task.name), task.series);
        }
        planned
    }

    /// Returns [`FlushPlan::Nothing`] if the summary may be created, given the Event `found` under the name of
    /// its witness. Otherwise the task is completed, as [`FlushPlan::Wait`] or [`FlushPlan::Lost`] says.
    pub fn check_witness(&self, task: &FlushTask, found: Option<StoredEvent>, now: Moment) -> FlushPlan {
        let deciding = self.phase() == DECIDING;
        let checked = self.with_series(task, |scope, handle| {
            let (group, witness) = scope.series.witness(handle)?.clone();
            let since = now.since(witness.admitted_at);
            let is_it = |content: &Content| {
                let event = content.view();
                // A summary has the fields of its group's Events, and can be that of another user's group.
                !is_summary(&event) && self.hasher.witness(&event) == witness.says
            };
            let verdict = match found {
                Some(found) if found.content.as_deref().is_none_or(is_it) && !found.is_older_than(since) => {
                    return Some(FlushPlan::Nothing);
                }
                None if since < COMMIT_GRACE => FlushPlan::Wait,
                _ => {
                    scope.refute_witness(group, &witness);
                    FlushPlan::Lost { occurrences: scope.discard(handle)? }
                }
            };
            scope.complete(handle, verdict, deciding, now)
        });
        checked.unwrap_or(FlushPlan::Lost { occurrences: 0 })
    }

    /// Whether the occurrences of a task were merged in the namespace with this uid, and its series is live. True if the uid
    /// of that namespace is unknown.
    pub fn is_of_namespace(&self, task: &FlushTask, uid: &str) -> bool {
        let Some(namespace) = self.locked(&task.namespace) else { return false };
        let is_live = |scope: &Scope| scope.id == task.scope && scope.series.get(task.series).is_some();
        namespace.scopes.iter().any(is_live) && namespace.uid.as_deref().is_none_or(|known| known == uid)
    }

    /// Records that the API server acknowledged `value`.
    pub fn ack(&self, task: &FlushTask, value: i64, now: Moment) {
        let deciding = self.phase() == DECIDING;
        self.with_series(task, |scope, handle| {
            scope.change(handle, now, |series| {
                series.in_flight = false;
                series.failures = 0;
                series.drained = !deciding;
                series.confirm(value);
                series.read = true;
                series.written_at = now;
            })?;
            scope.series.forget_witness(handle);
            scope.remove_if_closed(handle, now)
        });
    }

    /// Records a failed write. The occurrences stay pending, and the task is issued again after a delay that
    /// grows with consecutive failures and is at least `at_least`. While draining the delay is one second.
    /// Returns the delay if the series is live.
    pub fn requeue_after(&self, task: &FlushTask, at_least: Duration, now: Moment) -> Option<Duration> {
        let draining = self.is_draining();
        self.with_series(task, |scope, handle| {
            scope.change(handle, now, |series| {
                series.failures = series.failures.saturating_add(1);
                let jitter = self.hasher.jitter(&task.name, series.failures);
                let pause = if draining {
                    RETRY_AT_THE_END
                } else {
                    retry_delay(series.failures, jitter).max(at_least)
                };
                series.retry(now.plus(pause), draining);
                pause
            })
        })
    }

    /// Returns a task that was not tried. Its series is due again at once.
    pub fn release(&self, task: &FlushTask, now: Moment) {
        self.with_series(task, |scope, handle| scope.change(handle, now, |series| series.in_flight = false));
    }

    /// Removes a series that can never be written. Its pending occurrences are counted as lost. Its client's
    /// next such Event passes, so that the client sees the API server's reason. Returns the number of lost
    /// occurrences.
    pub fn discard(&self, task: &FlushTask) -> u64 {
        let lost = self.with_series(task, |scope, handle| {
            if let Some((group, witness)) = scope.series.witness(handle).cloned() {
                scope.refute_witness(group, &witness);
            }
            scope.discard(handle)
        });
        lost.unwrap_or(0)
    }

    /// Runs `act` on the series of a task, if it is live, under the lock of its namespace.
    fn with_series<T>(
        &self,
        task: &FlushTask,
        act: impl FnOnce(&mut Scope, Handle) -> Option<T>,
    ) -> Option<T> {
        let mut namespace = self.locked(&task.namespace)?;
        let scope = namespace.scopes.iter_mut().find(|scope| scope.id == task.scope)?;
        let before = scope.sizes();
        let done = act(scope, task.series);
        self.usage.change(&before, &scope.sizes());
        done
    }
}

/// Returns the delay after this many consecutive failures. It doubles each time and is reduced by a random part
/// of up to half, so that series which failed together do not retry together.
fn retry_delay(failures: u8, jitter: u16) -> Duration {
    let doublings = u32::from(failures.saturating_sub(1));
    let longest = FIRST_RETRY.saturating_mul(2u32.saturating_pow(doublings)).min(LONGEST_RETRY);
    longest / 2 + longest / 2 * u32::from(jitter) / u32::from(u16::MAX)
}
