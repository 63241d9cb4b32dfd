//! Periodic work: closes idle series and issues flush tasks.
//!
//! Writes of a namespace wait while it is processed, and the calling thread does nothing else during a tick. So
//! both are bounded by the number of processed entries: [`SLICE`] and [`STEPS`].

use std::sync::Arc;

use crate::flush::phase::{DECIDING, DRAINING};
use crate::flush::plan::{FlushPlan, plan};
use crate::flush::tasks::FlushTask;
use crate::state::capacity::Sizes;
use crate::state::live_series::Handle;
use crate::state::namespace::Namespace;
use crate::state::scope::Scope;
use crate::state::series::Series;
use crate::{Engine, Mode, Moment};

/// Maximum number of tasks of one scope before the next one's turn.
const SHARE: usize = 8;

/// Maximum number of processed entries of each table before the namespace is unlocked. Closing one takes one or
/// two microseconds with a cold cache, so a slice takes about a tenth of a millisecond.
pub(crate) const SLICE: usize = 64;

/// Maximum number of processed entries per tick, where each visited namespace counts as one: about half a
/// millisecond. At ten ticks a second, ten thousand namespaces are visited in two seconds and a million series
/// closed in four minutes. Nothing waits for that: a write to an idle series opens another one.
const STEPS: usize = 400;

/// Number of series visited at once while draining. A visit takes about a hundredth of the time to close a
/// series.
const WALK: usize = 64 * SLICE;

impl Engine {
    /// Closes idle series and returns the due flush tasks, about `budget` at most. A series has at most one
    /// task until that is completed. Namespaces take turns, also across calls, so that a busy one does not
    /// starve others. Locks one namespace at a time and processes a bounded number of entries; the next call
    /// continues.
    pub fn tick(&self, now: Moment, budget: usize) -> Vec<FlushTask> {
        self.tick_with_limits(now, budget, |_, _| usize::MAX)
    }

    /// [`Self::tick`], where `limit` returns the maximum number of tasks for this turn of a namespace, given the tasks so
    /// far. With a limit of 0 a namespace gets no task, and its idle series are closed all the same.
    pub fn tick_with_limits(
        &self,
        now: Moment,
        budget: usize,
        limit: impl Fn(&Arc<str>, &[FlushTask]) -> usize,
    ) -> Vec<FlushTask> {
        let mut tasks = Vec::new();
        let (mut steps, mut at_rest) = (0, 0);
        while steps < STEPS
            && tasks.len() < budget
            && at_rest < self.namespace_list.len()
            && let Some(name) = self.namespace_list.next_turn()
        {
            let budget = budget.min(tasks.len().saturating_add(limit(&name, &tasks)));
            let processed = self.tick_namespace(&name, now, budget, &mut tasks);
            steps += 1 + processed;
            at_rest = if processed == 0 { at_rest + 1 } else { 0 };
        }
        tasks
    }

    /// Processes one turn of a namespace. Returns the number of processed entries.
    pub(crate) fn tick_namespace(
        &self,
        name: &Arc<str>,
        now: Moment,
        budget: usize,
        tasks: &mut Vec<FlushTask>,
    ) -> usize {
        let phase = self.phase();
        let key = self.hasher.namespace(name);
        let Some(mut entry) = self.namespaces.get_mut(&key) else { return 0 };
        let namespace = &mut **entry;
        let mut processed = 0;
        for scope in &mut namespace.scopes {
            scope.retired |= scope.is_namespace_gone(now);
            let before = scope.sizes();
            let share = budget.min(tasks.len() + SHARE);
            let mut ticking =
                ScopeTick { namespace: &namespace.name, scope, now, tasks, share, processed: 0 };
            ticking.run(phase);
            processed += ticking.processed;
            self.usage.change(&before, &scope.sizes());
        }
        self.limit_top_dropped(namespace);
        self.limit_ended(namespace);
        self.forget_scopes(namespace, now);
        processed += self.forget_names(namespace, SLICE, now);
        drop(entry);
        let gone = self.namespaces.remove_if(&key, |_, namespace| namespace.is_empty());
        if let Some((_, namespace)) = gone {
            self.usage.remove_namespace();
            self.namespace_list.remove(&namespace.name);
        }
        processed
    }

    /// Removes the scopes that are over and retains their counters.
    fn forget_scopes(&self, namespace: &mut Namespace, now: Moment) {
        let Namespace { scopes, gone_policies, name, .. } = namespace;
        scopes.retain(|scope| {
            let over = scope.is_over(now);
            if over {
                if scope.deleted {
                    gone_policies.keep(scope, name);
                } else {
                    self.gone_namespaces.keep(scope);
                }
                self.forget_sizes(scope);
            }
            !over
        });
        gone_policies.retain(scopes, now);
    }

    /// Subtracts from the sums what a removed scope still holds: tracked combinations and records of ended series.
    pub(crate) fn forget_sizes(&self, scope: &Scope) {
        let Sizes { dropped, ended, .. } = scope.sizes();
        self.usage.change(&Sizes { dropped, ended, ..Sizes::default() }, &Sizes::default());
    }

    /// Evicts records of ended series if those that this tick closed exceed the limit.
    fn limit_ended(&self, namespace: &mut Namespace) {
        for _ in 0..SLICE {
            let before = namespace.sizes();
            if !self.usage.at_capacity(&before, &self.settings).ended {
                return;
            }
            let evicted = namespace.scopes.iter_mut().any(Scope::evict_ended);
            self.usage.change(&before, &namespace.sizes());
            if !evicted {
                return;
            }
        }
    }

    /// Reduces a namespace's tracked combinations to its fair share if too many are used in all.
    fn limit_top_dropped(&self, namespace: &mut Namespace) {
        for _ in 0..SLICE {
            let before = namespace.sizes();
            if !self.usage.at_capacity(&before, &self.settings).dropped {
                return;
            }
            namespace.scopes.iter_mut().for_each(Scope::evict_lightest);
            let after = namespace.sizes();
            if after == before {
                return;
            }
            self.usage.change(&before, &after);
        }
    }
}

/// Whether a series must be flushed in this phase of draining.
fn is_to_be_drained(series: &Series, phase: u8) -> bool {
    series.needs_flush() && !(series.drained && phase == DRAINING)
}

/// The part of a tick for one scope.
struct ScopeTick<'a> {
    namespace: &'a Arc<str>,
    scope: &'a mut Scope,
    now: Moment,
    tasks: &'a mut Vec<FlushTask>,
    /// Number of tasks at which the next scope has its turn.
    share: usize,
    /// Number of processed entries.
    processed: usize,
}

impl ScopeTick<'_> {
    fn run(&mut self, phase: u8) {
        self.processed += self.scope.revise_series(SLICE, self.now);
        if phase == DECIDING {
            self.processed += self.scope.forget_expired(SLICE, self.now);
            self.close_idle();
            self.issue_due();
        } else {
            self.issue_all_pending(phase);
        }
    }

    fn issue_due(&mut self) {
        let mut scanned = 0;
        while self.tasks.len() < self.share
            && scanned < SLICE
            && let Some((due, handle)) = self.scope.series.first_timer()
            && due <= self.now
        {
            scanned += 1;
            self.scope.series.cancel_timer(handle);
            let Some(series) = self.scope.series.get(handle) else { continue };
            let timing = self.scope.rules.timing(series.summary);
            if series.next_flush(&timing, self.now).is_some_and(|flush| flush <= self.now) {
                self.issue(handle, false);
                self.scope.schedule(handle, self.now);
            } else if series.closing && !series.needs_flush() && !series.in_flight {
                // A client's write has flushed it meanwhile.
                self.scope.close(handle);
            } else {
                self.scope.schedule(handle, self.now);
            }
        }
        self.processed += scanned;
    }

    /// Removes series without a write for the idle timeout, and all series of a retired scope. A series with
    /// pending occurrences begins to close instead. Checks the oldest first. Waiting series keep their place,
    /// because a summary would otherwise be checked only after all newer ones. If there are many, they move to
    /// the end.
    fn close_idle(&mut self) {
        let ordinary = self.scope.rules.timing(false).idle_timeout;
        let ordered_by = self.scope.ordered_by();
        let mut waiting = Vec::new();
        let mut cursor = self.scope.series.oldest();
        for _ in 0..SLICE {
            let Some(handle) = cursor else { return };
            cursor = self.scope.series.next_newer(handle);
            let Some(series) = self.scope.series.get(handle) else { return };
            let idle = self.now.since(series.seen);
            if !self.scope.retired && idle <= ordinary {
                if idle + ordered_by <= ordinary {
                    return;
                }
                // One behind it may have been seen slightly earlier.
                continue;
            }
            let over =
                self.scope.retired || series.is_over(&self.scope.rules.timing(series.summary), self.now);
            if !over {
                waiting.push(handle);
                continue;
            }
            self.processed += 1;
            if series.in_flight || series.needs_flush() {
                self.scope.begin_closing(handle, self.now);
            } else {
                self.scope.close(handle);
            }
        }
        for handle in waiting {
            self.scope.series.move_to_newest(handle);
        }
    }

    /// Issues tasks from the last series to the first, some at a time.
    fn issue_all_pending(&mut self, phase: u8) {
        let all = u32::try_from(self.scope.series.len()).unwrap_or(u32::MAX);
        let mut walked = 0;
        while self.tasks.len() < self.share && walked < WALK.min(self.scope.series.len()) {
            walked += 1;
            let below = if self.scope.undrained_below == 0 { all } else { self.scope.undrained_below };
            self.scope.undrained_below = below - 1;
            let Some((handle, series)) = self.scope.series.nth(below - 1) else { continue };
            let waits = series.deferred && self.now < series.not_before;
            if is_to_be_drained(&series, phase) && !series.in_flight && !waits {
                self.issue(handle, true);
                self.processed += 1;
            }
        }
        self.processed += walked / SLICE;
    }

    /// Issues a task. In Observe it is acknowledged at once and nothing is written.
    fn issue(&mut self, handle: Handle, draining: bool) {
        if self.scope.rules.mode == Mode::Observe {
            self.acknowledge(handle, draining);
            return;
        }
        let in_flight = self.scope.change(handle, self.now, |series| series.in_flight = true);
        let name = self.scope.series.name(handle);
        if let (Some(()), Some(name)) = (in_flight, name) {
            self.tasks.push(FlushTask {
                namespace: self.namespace.clone(),
                name: name.into(),
                policy: self.scope.policy().clone(),
                scope: self.scope.id,
                series: handle,
            });
        }
    }

    fn acknowledge(&mut self, handle: Handle, draining: bool) {
        let now = self.now;
        let Some(series) = self.scope.series.get(handle) else { return };
        let timing = self.scope.rules.timing(series.summary);
        let content = self.scope.series.content(handle).cloned();
        self.scope.change(handle, now, |series| {
            let stored = Some(series.stored);
            let plan = plan(series, content.as_ref(), &timing, stored, draining, now);
            series.drained = draining;
            if plan != FlushPlan::Nothing {
                series.confirm(series.total);
                series.written_at = now;
            }
        });
        if series.closing {
            self.scope.close(handle);
        }
    }
}
