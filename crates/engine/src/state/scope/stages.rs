//! The state of aggregation and limits in a scope: steps 9 to 11 of a decision.

use jiff::Timestamp;

use super::Scope;
use crate::decide::keys::Key;
use crate::state::buckets::Charge;
use crate::state::capacity::AtCapacity;
use crate::state::groups::{ObjectCount, Witness};
use crate::state::live_series::Handle;
use crate::{AggregationRules, BucketRules, Disposition, EventView, Moment};

impl Scope {
    /// See [`Groups::too_many`](crate::state::groups::Groups::too_many).
    pub(crate) fn too_many(
        &mut self,
        group: Key,
        [message, object]: [u64; 2],
        rules: &AggregationRules,
        at_capacity: AtCapacity,
        now: Moment,
    ) -> Option<ObjectCount> {
        let reported = self.groups.too_many(group, message, object, rules, at_capacity, now);
        self.recount();
        reported
    }

    /// See [`Groups::admitted`](crate::state::groups::Groups::admitted).
    pub(crate) fn admitted_of_group(
        &mut self,
        group: Key,
        name: &str,
        says: impl FnOnce() -> u64,
        rules: &AggregationRules,
        at_once: bool,
        now: Moment,
    ) {
        self.groups.admitted(group, name, says, rules, at_once, now);
        self.recount();
    }

    /// Records the witness of a new summary. It must be stored before the summary is created.
    pub(crate) fn note_witness(&mut self, summary: Handle, group: Key) {
        if let Some(witness) = self.groups.witness(group) {
            self.series.set_witness(summary, group, witness.clone());
        }
    }

    /// See [`Groups::refute_witness`](crate::state::groups::Groups::refute_witness).
    pub(crate) fn refute_witness(&mut self, group: Key, witness: &Witness) {
        self.groups.refute_witness(group, witness);
        self.recount();
    }

    /// See [`Buckets::ask`](crate::state::buckets::Buckets::ask).
    pub(crate) fn ask_spam_filter(
        &mut self,
        key: Key,
        rules: &BucketRules,
        at_capacity: bool,
        now: Moment,
    ) -> Option<Charge> {
        let charge = self.spam_filter.ask(key, rules, at_capacity, now);
        self.recount();
        charge
    }

    /// See [`Buckets::charge`](crate::state::buckets::Buckets::charge).
    pub(crate) fn charge_spam_filter(&mut self, charge: Charge) {
        self.spam_filter.charge(charge);
        self.recount();
    }

    /// Counts dropped occurrences among the top dropped: their number, and the time of the last one.
    pub(crate) fn count_dropped(
        &mut self,
        key: Key,
        event: &EventView<'_>,
        disposition: Disposition,
        occurrences: (u64, Timestamp),
        at_capacity: bool,
    ) {
        self.dropped.count(key, event, disposition, occurrences, at_capacity);
        self.recount();
    }
}
