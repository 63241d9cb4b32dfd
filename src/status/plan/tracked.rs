//! The known status of one policy.

use std::time::Duration;

use jiff::Timestamp;
use squelch_engine::Moment;

use super::CONDITIONS_INTERVAL;
use crate::api::{DroppedOccurrences, EventPolicyStatus, PolicyCounters};
use crate::policy::Policy;
use crate::status::desired::counters_differ;

#[derive(Debug)]
pub(super) struct Tracked {
    /// Counters in the status when the policy was first read. The engine's counters are added to them.
    pub(super) base: PolicyCounters,
    pub(super) base_dropped: Vec<DroppedOccurrences>,
    pub(super) since: Timestamp,
    /// The last status read at first or written since. A status from the watch can be older than the last write.
    pub(super) current: Option<EventPolicyStatus>,
    /// The last attempt, and whether it succeeded.
    pub(super) attempt: Option<(Moment, bool)>,
}

impl Tracked {
    pub(super) fn new(policy: &Policy, initial: Option<EventPolicyStatus>, wall: Timestamp) -> Self {
        let current = initial.or_else(|| policy.reported.clone());
        let status = current.as_ref();
        Self {
            base: status.and_then(|status| status.counters).unwrap_or_default(),
            base_dropped: status.map(|status| status.top_dropped.clone()).unwrap_or_default(),
            since: status.and_then(|status| status.since.as_ref()).map_or(wall, |since| since.0),
            current,
            attempt: None,
        }
    }

    pub(super) fn conditions_due_at(&self, interval: Duration) -> Moment {
        match self.attempt {
            None => Moment::default(),
            Some((last, true)) => last.plus(CONDITIONS_INTERVAL.min(interval)),
            Some((last, false)) => last.plus(interval),
        }
    }

    pub(super) fn counters_due_at(&self, interval: Duration) -> Moment {
        self.attempt.map_or_else(Moment::default, |(last, _)| last.plus(interval))
    }

    /// Whether the counters in the cluster are out of date. False for a new policy, whose first status includes them.
    pub(super) fn counters_changed(&self, desired: &EventPolicyStatus) -> bool {
        self.current.as_ref().is_some_and(|current| counters_differ(current, desired))
    }
}
