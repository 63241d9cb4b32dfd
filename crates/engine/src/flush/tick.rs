//! Periodic work: closes idle series and issues flush tasks.
//!
//! Writes of a namespace wait while it is processed, and the calling thread does nothing else during a tick. So
//! both are bounded by the number of processed entries: [`SLICE`] and [`STEPS`].

mod scope;

use std::sync::Arc;

use crate::flush::tasks::FlushTask;
use crate::state::capacity::Sizes;
use crate::state::namespace::Namespace;
use crate::state::scope::Scope;
use crate::{Engine, Moment};
use scope::ScopeTick;

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
