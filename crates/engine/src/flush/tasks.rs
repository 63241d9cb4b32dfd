//! What is owed and how it is paid: orders to the writer, and what the writer reports back.
//!
//! An order names a series whose stored Event is to be looked at. The writer reads it and asks [`Engine::plan`];
//! if there is something to write it writes that under the `resourceVersion` it has read, and tells
//! [`Engine::settle`]. Whatever happens, each order is answered by exactly one of `plan` (nothing to write),
//! [`Engine::settle`], [`Engine::requeue_after`], [`Engine::release`] and [`Engine::discard`].
//!
//! squelch never writes an Event for a client to which the API server has refused it. A review comes before validation,
//! quota and the API server's own checks, so an admitted write proves nothing: only what squelch has read does.

use std::sync::Arc;
use std::time::Duration;

use crate::flush::phase::DECIDING;
use crate::flush::plan::{FlushPlan, StoredEvent};
use crate::model::content::Content;
use crate::state::live_series::Handle;
use crate::state::scope::{Scope, ScopeId};
use crate::state::series::COMMIT_GRACE;
use crate::{Engine, Moment, PolicyId};

/// The first attempt after one that failed comes within this time; each next one may take twice as long.
pub(crate) const FIRST_RETRY: Duration = Duration::from_secs(1);
/// But never longer: what kept a debt from being paid may be gone any time.
const LONGEST_RETRY: Duration = Duration::from_secs(5 * 60);
/// While draining there is no time to wait for long.
const RETRY_AT_THE_END: Duration = Duration::from_secs(1);

/// An order to look at a stored Event, and to pay what it lacks.
#[derive(Clone, Debug)]
pub struct FlushTask {
    /// The Event's namespace.
    pub namespace: Arc<str>,
    /// The Event's name.
    pub name: Box<str>,
    /// The policy under which it was folded.
    pub policy: PolicyId,
    pub(crate) scope: ScopeId,
    pub(crate) series: Handle,
}

impl Engine {
    /// What to write, given the Event that was `found` in etcd (`None`: no such Event).
    pub fn plan(&self, task: &FlushTask, found: Option<StoredEvent>, now: Moment) -> FlushPlan {
        let deciding = self.phase() == DECIDING;
        let was_found = found.is_some();
        let planned = self.with_series(task, |scope, handle| {
            // A client's write was admitted since the order was given: it is due again when that has settled.
            if deciding && now < scope.series.get(handle)?.not_before {
                return scope.answer(handle, FlushPlan::Nothing, deciding, now);
            }
            let plan = scope.plan(handle, found, deciding, now)?;
            scope.answer(handle, plan, deciding, now)
        });
        let planned = planned.unwrap_or(FlushPlan::Nothing);
        if was_found
            && !matches!(planned, FlushPlan::Lost { .. })
            && let Some(mut namespace) = self.locked(&task.namespace)
        {
            namespace.names.prove(self.hasher.name(&task.name), task.series);
        }
        planned
    }

    /// Whether a summary may be created, given the Event of its group that was `found` under the witness's name: then
    /// [`FlushPlan::Nothing`] says so. Else the order is answered, as [`FlushPlan::Wait`] or [`FlushPlan::Lost`] says.
    pub fn check_witness(&self, task: &FlushTask, found: Option<StoredEvent>, now: Moment) -> FlushPlan {
        let deciding = self.phase() == DECIDING;
        let testified = self.with_series(task, |scope, handle| {
            let (group, witness) = scope.series.witness(handle)?.clone();
            let since = now.since(witness.admitted_at);
            let is_it = |content: &Content| self.hasher.witness(&content.view()) == witness.says;
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
            scope.answer(handle, verdict, deciding, now)
        });
        testified.unwrap_or(FlushPlan::Lost { occurrences: 0 })
    }

    /// The stored Event shows `value` now: the API server has acknowledged it.
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
            scope.finish(handle)
        });
    }

    /// It was tried and could not be written now: it stays owed, and is ordered again after a pause, the longer the
    /// more often it failed in a row, and no shorter than `at_least`. While draining the pause is a second. Returns the
    /// pause, if the series lives.
    pub fn requeue_after(&self, task: &FlushTask, at_least: Duration, now: Moment) -> Option<Duration> {
        let draining = self.is_draining();
        self.with_series(task, |scope, handle| {
            scope.change(handle, now, |series| {
                series.failures = series.failures.saturating_add(1);
                let jitter = self.hasher.jitter(&task.name, series.failures);
                let pause =
                    if draining { RETRY_AT_THE_END } else { retry(series.failures, jitter).max(at_least) };
                series.retry(now.plus(pause), draining);
                pause
            })
        })
    }

    /// It was not tried: it is due again at once.
    pub fn release(&self, task: &FlushTask, now: Moment) {
        self.with_series(task, |scope, handle| scope.change(handle, now, |series| series.in_flight = false));
    }

    /// It can never be written: what is owed is lost, and counted as that. The series is forgotten, so that its
    /// client hears from the API server itself what is wrong with the next such Event. Returns how many occurrences.
    pub fn discard(&self, task: &FlushTask) -> u64 {
        let abandoned = self.with_series(task, |scope, handle| {
            if let Some((group, witness)) = scope.series.witness(handle).cloned() {
                scope.refute_witness(group, &witness);
            }
            scope.discard(handle)
        });
        abandoned.unwrap_or(0)
    }

    /// Does something to the series of an order, if it lives, under the lock of its namespace.
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

/// How long a debt waits that could not be paid so many times in a row: twice as long each time, and up to half less
/// by chance, so that those that failed together do not come back together.
fn retry(failures: u8, jitter: u16) -> Duration {
    let doublings = u32::from(failures.saturating_sub(1));
    let longest = FIRST_RETRY.saturating_mul(2u32.saturating_pow(doublings)).min(LONGEST_RETRY);
    longest / 2 + longest / 2 * u32::from(jitter) / u32::from(u16::MAX)
}
