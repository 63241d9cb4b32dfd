//! The schedule of status writes. Pure: time is an argument.
//!
//! Every user who can edit a policy can cause writes, and the rate of writes is limited. So writes of conditions (after an
//! edit or a changed condition) and writes of counters alternate: while both are due, each has half of the rate. Counters
//! that would be older than two intervals at half of the rate come first, if the whole rate is sufficient for them. Writes
//! of conditions alternate between namespaces.

mod counted;
mod tracked;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use squelch_engine::{Moment, NamespaceUids, ScopeCounters};

use crate::api::{ConditionType, EventPolicyStatus};
use crate::policy::{Armed, Policy, Set};

use super::desired::{Difference, Facts, desired, difference};
use super::transitions::{Transition, condition, transitions};
use counted::{Counted, sums};
use tracked::Tracked;

/// Minimum time between two writes of a policy's conditions, so that a flapping condition cannot use up the rate.
const CONDITIONS_INTERVAL: Duration = Duration::from_secs(1);

/// Limits on the rate of status writes.
#[derive(Clone, Copy, Debug)]
pub struct WriteLimits {
    /// Minimum time between two writes of a policy's counters.
    pub interval: Duration,
    /// Maximum writes per second in total.
    pub qps: u32,
}

impl WriteLimits {
    /// Minimum time between two writes.
    pub(super) fn pause(self) -> Duration {
        Duration::from_secs(1) / self.qps.max(1)
    }
}

/// A status to be written.
#[derive(Clone, Debug)]
pub struct Due {
    /// The policy.
    pub policy: Arc<Policy>,
    /// Its desired status.
    pub status: EventPolicyStatus,
    /// The share of the rate that the write uses.
    share: RateShare,
}

/// The two shares of the rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RateShare {
    Conditions,
    Counters,
}

/// The known statuses in the cluster, and the times of their writes.
#[derive(Debug, Default)]
pub struct Plan {
    interval: Duration,
    /// Minimum time between two writes.
    pause: Duration,
    /// Statuses in the cluster when this replica became active, by policy uid, until a policy is tracked.
    initial: HashMap<Arc<str>, EventPolicyStatus>,
    /// Whether the policies that existed when this replica became active are tracked. Later ones are new.
    has_begun: bool,
    /// By policy uid.
    tracked: HashMap<Arc<str>, Tracked>,
    /// The uids of the namespaces at the last call.
    namespace_uids: Arc<NamespaceUids>,
    /// Time of the last attempt to write conditions, per namespace of the policy. `None` for cluster-scoped policies.
    conditions_attempts: HashMap<Option<Arc<str>>, Moment>,
    /// Which API servers do not reach the webhook, in a sentence.
    note: Option<Arc<str>>,
    /// Whether counters were due at the last call of [`Self::due`].
    counters_due: bool,
    /// Whether conditions were written while counters were due, so that counters come next.
    counters_first: bool,
}

impl Plan {
    /// Creates a plan without known statuses.
    pub fn new(limits: WriteLimits) -> Self {
        Self { interval: limits.interval, pause: limits.pause(), ..Self::default() }
    }

    /// Sets the statuses in the cluster, by policy uid. They are newer than those from the watch.
    pub fn start_from(&mut self, statuses: HashMap<Arc<str>, EventPolicyStatus>) {
        self.initial = statuses;
    }

    /// Sets which API servers do not reach the webhook, in a sentence. `None` if all do.
    pub fn set_note(&mut self, note: Option<Arc<str>>) {
        self.note = note;
    }

    /// Returns the number of received occurrences that no status in the cluster includes.
    pub fn unwritten(
        &mut self,
        set: &Set,
        counters: &[ScopeCounters],
        armed: &Armed,
        wall: Timestamp,
    ) -> u64 {
        let received = |status: Option<&EventPolicyStatus>| {
            status.and_then(|status| status.counters).unwrap_or_default().received
        };
        let changed = self.changed(set, counters, armed, wall);
        let missing = changed
            .iter()
            .map(|(_, tracked, due)| received(Some(&due.status)) - received(tracked.current.as_ref()));
        missing.map(|missing| missing.max(0).unsigned_abs()).sum()
    }

    /// Returns the statuses that are due, in the order of their writes. Stops tracking deleted policies.
    pub fn due(
        &mut self,
        set: &Set,
        counters: &[ScopeCounters],
        armed: &Armed,
        now: Moment,
        wall: Timestamp,
    ) -> Vec<Due> {
        let interval = self.interval;
        let (mut due_conditions, mut due_counters, mut load) = (Vec::new(), Vec::new(), 0);
        for (change, tracked, due) in self.changed(set, counters, armed, wall) {
            let (conditions_at, counters_at) =
                (tracked.conditions_due_at(interval), tracked.counters_due_at(interval));
            let conditions_are_due = change == Difference::Conditions && conditions_at <= now;
            let counters_changed = tracked.counters_changed(&due.status);
            load += u32::from(counters_changed);
            // In both shares: its counters must not wait behind the conditions of many other policies.
            if counters_changed && counters_at <= now {
                due_conditions.extend(conditions_are_due.then(|| (conditions_at, due.clone())));
                due_counters.push((counters_at, Due { share: RateShare::Counters, ..due }));
            } else if conditions_are_due {
                due_conditions.push((conditions_at, due));
            }
        }
        self.has_begun = true;
        due_counters.sort_by_key(|(at, _)| *at);
        self.counters_due = !due_counters.is_empty();
        let is_urgent = self.is_urgent(&due_counters, load, now);
        let conditions = self.by_namespace(due_conditions).into_iter();
        let counters = due_counters.into_iter().map(|(_, due)| due);
        let due = if is_urgent {
            counters.chain(conditions).collect()
        } else {
            alternate(conditions, counters, self.counters_first)
        };
        let mut seen = HashSet::new();
        due.into_iter().filter(|due| seen.insert(due.policy.id.uid.clone())).collect()
    }

    /// Whether one of the sorted counters would be older than two intervals at half of the rate. False if the load, which
    /// is the number of policies with changed counters, exceeds the whole rate.
    fn is_urgent(&self, counters: &[(Moment, Due)], load: u32, now: Moment) -> bool {
        // One additional write, since the rate is not exact to the millisecond.
        let written = (2..).map(|number: u32| now.plus(2 * number * self.pause));
        let is_late = |((at, _), written): (&(Moment, Due), Moment)| written > at.plus(self.interval);
        load * self.pause <= self.interval && counters.iter().zip(written).any(is_late)
    }

    /// Orders writes of conditions: first the oldest one of each namespace, then the second one of each, and so on. The
    /// namespace with the earliest last attempt comes first.
    fn by_namespace(&self, mut conditions: Vec<(Moment, Due)>) -> Vec<Due> {
        conditions.sort_by_key(|(at, _)| *at);
        let mut number_of: HashMap<Option<Arc<str>>, usize> = HashMap::new();
        let ordered = conditions.into_iter().map(|(at, due)| {
            let namespace = &due.policy.namespace;
            let number = number_of.entry(namespace.clone()).or_default();
            *number += 1;
            ((*number, self.conditions_attempts.get(namespace).copied(), at), due)
        });
        let mut ordered: Vec<_> = ordered.collect();
        ordered.sort_by_key(|(order, _)| *order);
        ordered.into_iter().map(|(_, due)| due).collect()
    }

    /// Returns all statuses that differ from the cluster, due or not, for the last writes before exit. Changed counters
    /// come first: they are lost with the process, while the next active replica computes the conditions again.
    pub fn all(&mut self, set: &Set, counters: &[ScopeCounters], armed: &Armed, wall: Timestamp) -> Vec<Due> {
        let mut all = self.changed(set, counters, armed, wall);
        all.sort_by_key(|(_, tracked, due)| {
            let current = tracked.current.as_ref().and_then(|status| status.counters).unwrap_or_default();
            current == due.status.counters.unwrap_or_default()
        });
        all.into_iter().map(|(_, _, due)| due).collect()
    }

    /// Records an attempted write. Returns the transitions of the status if it succeeded.
    pub fn attempted(&mut self, due: Due, succeeded: bool, now: Moment) -> Vec<Transition> {
        let Some(tracked) = self.charge(&due, now) else { return Vec::new() };
        tracked.attempted(succeeded, now);
        if !succeeded {
            return Vec::new();
        }
        let transitions = transitions(tracked.current.as_ref(), &due.status);
        tracked.current = Some(due.status);
        transitions
    }

    /// Records a write that the API server refused. Returns whether it is the first one with this spec.
    pub fn refused(&mut self, due: &Due, now: Moment) -> bool {
        self.charge(due, now).is_some_and(|tracked| tracked.refused(due.policy.generation, now))
    }

    fn charge(&mut self, due: &Due, now: Moment) -> Option<&mut Tracked> {
        self.counters_first = due.share == RateShare::Conditions && self.counters_due;
        let tracked = self.tracked.get_mut(&due.policy.id.uid)?;
        if due.share == RateShare::Conditions {
            self.conditions_attempts.insert(due.policy.namespace.clone(), now);
        }
        Some(tracked)
    }

    fn changed(
        &mut self,
        set: &Set,
        counters: &[ScopeCounters],
        armed: &Armed,
        wall: Timestamp,
    ) -> Vec<(Difference, &Tracked, Due)> {
        self.track(set, wall);
        let counted = sums(counters);
        let nothing = Counted::default();
        let awaiting = armed.as_ref().map(|scope| set.awaiting(scope)).unwrap_or_default();
        let policies = set.policies().iter();
        let changed = policies.filter_map(|policy| {
            let tracked = self.tracked.get(&policy.id.uid)?;
            let counted = counted.get(&policy.id.uid).unwrap_or(&nothing);
            let uid = &*policy.id.uid;
            // A namespace that comes to a policy in force changes nothing for its other namespaces.
            let is_awaiting = if was_effective(tracked.current.as_ref(), policy.generation) {
                awaiting.wholly(uid)
            } else {
                awaiting.in_part(uid)
            };
            let status = desired(&Facts {
                generation: policy.generation,
                outcome: &policy.outcome,
                cluster_scoped: policy.namespace.is_none(),
                effect: set.effect(policy),
                exclusion: set.exclusions().of(policy),
                unevaluated: set.exclusions().unevaluated(),
                disarmed_reason: armed.as_ref().err().map(AsRef::as_ref),
                is_selected: !is_awaiting,
                note: self.note.as_deref(),
                counted: &counted.counters,
                dropped: &counted.dropped,
                base: tracked.base,
                base_dropped: &tracked.base_dropped,
                since: tracked.since,
                previous: tracked.current.as_ref(),
                now: wall,
            });
            let change = difference(tracked.current.as_ref(), &status);
            let share =
                if change == Difference::Conditions { RateShare::Conditions } else { RateShare::Counters };
            let due = Due { policy: policy.clone(), status, share };
            (change > Difference::Nothing).then_some((change, tracked, due))
        });
        changed.collect()
    }

    fn track(&mut self, set: &Set, wall: Timestamp) {
        let mut before = std::mem::take(&mut self.tracked);
        for policy in set.policies() {
            let known = before.remove(&policy.id.uid);
            let initial = self.initial.remove(&policy.id.uid);
            let is_new = self.has_begun && initial.is_none();
            let mut tracked = known.unwrap_or_else(|| Tracked::new(policy, initial, is_new, wall));
            tracked.revise(policy.generation);
            if policy.namespace.is_none() {
                // Otherwise entries of deleted namespaces would stay in the list. One with another uid is a new one.
                let before = &self.namespace_uids;
                let is_same = |name: &str| {
                    before.get(name).is_none_or(|uid| set.namespace_uids().get(name) == Some(uid))
                };
                tracked
                    .base_dropped
                    .retain(|dropped| set.has_namespace(&dropped.namespace) && is_same(&dropped.namespace));
            }
            self.tracked.insert(policy.id.uid.clone(), tracked);
        }
        self.namespace_uids = set.namespace_uids().clone();
        let namespaces: HashSet<_> = set.policies().iter().map(|policy| &policy.namespace).collect();
        self.conditions_attempts.retain(|namespace, _| namespaces.contains(namespace));
    }
}

/// Alternates between conditions and counters until one of them ends.
fn alternate(
    mut conditions: impl Iterator<Item = Due>,
    mut counters: impl Iterator<Item = Due>,
    counters_first: bool,
) -> Vec<Due> {
    let mut counters_next = counters_first;
    let alternating = std::iter::from_fn(|| {
        let next = if counters_next {
            counters.next().or_else(|| conditions.next())
        } else {
            conditions.next().or_else(|| counters.next())
        };
        counters_next = next.as_ref()?.share == RateShare::Conditions;
        next
    });
    alternating.collect()
}

/// Whether this generation of a policy was in force.
fn was_effective(status: Option<&EventPolicyStatus>, generation: i64) -> bool {
    let effective = status.and_then(|status| condition(status, ConditionType::Effective));
    effective.is_some_and(|it| it.status == "True" && it.observed_generation == Some(generation))
}

#[cfg(test)]
mod tests;
