//! The known status of one policy.

use std::time::Duration;

use jiff::Timestamp;
use squelch_engine::Moment;

use super::CONDITIONS_INTERVAL;
use crate::api::{DroppedOccurrences, EventPolicyStatus, PolicyCounters};
use crate::policy::Policy;
use crate::status::desired::counters_differ;

/// Maximum time between two writes of a status that the API server refuses.
const MAX_BACKOFF: Duration = Duration::from_secs(600);

#[derive(Debug)]
pub(super) struct Tracked {
    /// Counters in the status when the policy was first read. The engine's counters are added to them.
    pub(super) base: PolicyCounters,
    pub(super) base_dropped: Vec<DroppedOccurrences>,
    pub(super) since: Timestamp,
    /// The last status read at first or written since. A status from the watch can be older than the last write.
    pub(super) current: Option<EventPolicyStatus>,
    /// The last attempt, and whether it succeeded.
    attempt: Option<(Moment, bool)>,
    /// Number of consecutive writes that the API server refused.
    refusals: u32,
    /// The generation of the policy at the last refusal.
    refused_generation: i64,
}

impl Tracked {
    /// `is_new`: the policy was created since this replica became active. A status that it has then was written for a former
    /// policy of its name.
    pub(super) fn new(
        policy: &Policy,
        initial: Option<EventPolicyStatus>,
        is_new: bool,
        wall: Timestamp,
    ) -> Self {
        let current = initial.or_else(|| policy.reported.clone());
        let status = current.as_ref().filter(|_| !is_new);
        Self {
            base: status.and_then(|status| status.counters).unwrap_or_default(),
            base_dropped: status.map(|status| status.top_dropped.clone()).unwrap_or_default(),
            since: status.and_then(|status| status.since.as_ref()).map_or(wall, |since| since.0),
            current,
            attempt: None,
            refusals: 0,
            refused_generation: 0,
        }
    }

    pub(super) fn conditions_due_at(&self, interval: Duration) -> Moment {
        match self.attempt {
            None => Moment::default(),
            Some((last, true)) => last.plus(CONDITIONS_INTERVAL.min(interval)),
            Some((last, false)) => last.plus(self.backoff(interval)),
        }
    }

    pub(super) fn counters_due_at(&self, interval: Duration) -> Moment {
        self.attempt.map_or_else(Moment::default, |(last, _)| last.plus(self.backoff(interval)))
    }

    /// The interval, doubled with each refusal after the first: another attempt with the same spec is refused too.
    fn backoff(&self, interval: Duration) -> Duration {
        let doublings = self.refusals.saturating_sub(1).min(u32::BITS - 1);
        interval.saturating_mul(1 << doublings).min(MAX_BACKOFF.max(interval))
    }

    /// Records an attempted write.
    pub(super) fn attempted(&mut self, succeeded: bool, now: Moment) {
        self.attempt = Some((now, succeeded));
        if succeeded {
            self.refusals = 0;
        }
    }

    /// Forgets refusals of an older spec.
    pub(super) fn revise(&mut self, generation: i64) {
        if self.refused_generation != generation {
            self.refusals = 0;
        }
    }

    /// Records a refusal of the policy's status. Returns whether it is the first one with this spec.
    pub(super) fn refused(&mut self, generation: i64, now: Moment) -> bool {
        self.revise(generation);
        self.attempt = Some((now, false));
        self.refusals += 1;
        self.refused_generation = generation;
        self.refusals == 1
    }

    /// Whether the counters in the cluster are out of date. False for a new policy, whose first status includes them. Until
    /// then it has no status, or the default of its CRD.
    pub(super) fn counters_changed(&self, desired: &EventPolicyStatus) -> bool {
        let current = self.current.as_ref().filter(|current| current.counters.is_some());
        current.is_some_and(|current| counters_differ(current, desired))
    }
}
