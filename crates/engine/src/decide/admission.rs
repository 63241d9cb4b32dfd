//! Step 12: the write is admitted.

use crate::decide::minted_name::minted_name;
use crate::decide::pipeline::{Decision, verdict};
use crate::state::names::Carried;
use crate::state::series::Series;
use crate::store::table::At;
use crate::{Answer, Disposition, Mode, Observation, Operation, Rules, Stage, Verdict};

impl Decision<'_> {
    /// Admits the write. A CREATE opens its series, unless it carries no occurrence. Then it is a retry, and
    /// its Event may already be stored with an unknown count.
    pub(super) fn admit(&mut self, rules: &Rules, write: &Observation<'_>, carried: &Carried) -> Verdict {
        let mut admitted = self.admit_outside_series(write, carried, Stage::Admit);
        if write.operation == Operation::Update && rules.series.is_some() && rules.mode == Mode::Enforce {
            // No series could be opened. Occurrences that the written count does not include are lost.
            let left_out = carried.occurrences - (write.value - write.old_value);
            self.scope.counters.lost += left_out.max(0).unsigned_abs();
        }
        if write.operation == Operation::Update {
            return admitted;
        }
        // The API server refuses a CREATE with neither name nor generateName.
        let has_name = write.name.is_some() || !write.generate_name.is_empty();
        if !has_name {
            return admitted;
        }
        let name = write.name.as_deref().unwrap_or_default();
        let opens = rules.series.is_some() && carried.occurrences > 0 && self.may_open_as(name);
        let is_named = write.name.is_some() || rules.mode == Mode::Observe;
        let minted = (!is_named && (opens || self.keys.group.is_some()))
            .then(|| minted_name(&write.generate_name, self.hasher.minted(self.number)));
        let stored_name = write.name.as_deref().or(minted.as_deref()).unwrap_or_default();
        if let (Some(group), Some(aggregation)) = (self.keys.group, &rules.aggregation) {
            let says = || self.hasher.witness(&write.event);
            let at_once = self.few_tokens;
            self.scope.admitted_of_group(group, stored_name, says, aggregation, at_once, self.now);
        }
        // A generated name belongs to the user of the write, like a name that the client wrote.
        let entry = match &minted {
            Some(minted) => {
                let key = Some(self.hasher.name(minted));
                self.names.carry(self.hasher, key, write, false, self.at_capacity.names, self.now).name
            }
            None => carried.name,
        };
        if opens {
            self.open_by_create(write, entry, stored_name);
        }
        if let Some(minted) = minted {
            admitted.answer = Answer::AllowNamed(minted);
        }
        admitted
    }

    /// Opens the series of an admitted CREATE. `name`: name of the stored Event. `entry`: that of the name.
    fn open_by_create(&mut self, write: &Observation<'_>, entry: Option<At>, name: &str) {
        let series = Series::opened_by_create(write.value, write.occurred_at, self.now);
        let key = self.series_key(write);
        let handle = self.open(key, name, &series);
        self.names.join(entry, handle, true);
    }

    /// Admits a write outside any series. What its absolute count stores beyond its occurrences is recovered.
    pub(crate) fn admit_outside_series(
        &mut self,
        write: &Observation<'_>,
        carried: &Carried,
        stage: Stage,
    ) -> Verdict {
        let reported_again = match write.operation {
            Operation::Create => (write.value - carried.occurrences).max(0),
            Operation::Update => {
                let stores = write.value - write.old_value;
                self.names.reported_again(self.keys.name, stores, carried.occurrences)
            }
        };
        self.scope.counters.recovered += reported_again.unsigned_abs();
        verdict(Disposition::Admitted, stage, carried.occurrences, Answer::Allow)
    }

    /// Admits a write that series compaction does not handle: exempt, series disabled, or draining. If it
    /// writes the stored Event of a live series, the series follows it, so that its last flush counts
    /// everything exactly once.
    pub(super) fn admit_beside_series(
        &mut self,
        write: &Observation<'_>,
        carried: &Carried,
        stage: Stage,
    ) -> Verdict {
        let (now, occurrences) = (self.now, carried.occurrences);
        let handle = carried.name.and_then(|name| self.names.series_of(name));
        let handle = handle.and_then(|handle| self.living(handle));
        let Some(handle) = handle.filter(|handle| self.is_stored_name(*handle, write, carried)) else {
            return self.admit_outside_series(write, carried, stage);
        };
        let reported_again = self.scope.change(handle, now, |series| match write.operation {
            Operation::Update => {
                series.resync(write.old_value, occurrences);
                let beyond = write.value - series.total;
                series.client_writes(write.value, now);
                beyond
            }
            Operation::Create => {
                let beyond = write.value - series.total - occurrences;
                series.create_again(occurrences, write.value, now);
                beyond
            }
        });
        if write.operation == Operation::Update || occurrences > 0 {
            self.scope.forget_newest(handle);
        }
        self.scope.counters.recovered += reported_again.unwrap_or(0).max(0).unsigned_abs();
        verdict(Disposition::Admitted, stage, occurrences, Answer::Allow)
    }
}
