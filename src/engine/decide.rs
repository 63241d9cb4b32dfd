//! The steps of a decision, in the order of DESIGN 2.

use super::key::Hasher;
use super::names::{Carried, Names};
use super::scope::{Scope, ScopeId, remember};
use super::series::{SETTLE, Series};
use super::table::Handle;
use super::{
    Answer, Api, Denial, Disposition, Governing, Mode, Moment, Observation, Operation, Rejection, Rules,
    SeriesRules, Stage, Verdict,
};

/// client-go's new recorder refreshes its series for the first time with this value, if nothing more happened.
const FIRST_REFRESH: i64 = 3;

/// What a decision may use: the engine's constants and the namespace's state, under its lock.
pub(super) struct Deciding<'a> {
    pub(super) hasher: &'a Hasher,
    pub(super) names: &'a mut Names,
    pub(super) scope: &'a mut Scope,
    /// As many series live as may: to open one, the namespace must give one up.
    pub(super) full: bool,
    /// SIGTERM came: fold nothing more, but see [`lowers`].
    pub(super) draining: bool,
    /// The Event happened first before this engine began to decide.
    pub(super) began_before: bool,
    /// A number that no other decision gets: names are minted from it.
    pub(super) number: u64,
    pub(super) now: Moment,
}

/// An UPDATE that would lower what is stored. It never goes through where series are on (DESIGN 2.2, last
/// point): what others folded into the Event would be lost.
pub(super) fn lowers(write: &Observation<'_>) -> bool {
    write.operation == Operation::Update && write.value < write.old_value
}

/// How a write is answered that is held back (DESIGN 3.1).
fn refusal(rules: &Rules, write: &Observation<'_>) -> Answer {
    match (write.operation, write.api) {
        (Operation::Create, _) if write.has_series => Answer::Deny(Denial::Forbidden),
        (Operation::Create, _) => Answer::Deny(match rules.rejection {
            Rejection::AlreadyExists => Denial::AlreadyExists,
            Rejection::Forbidden => Denial::Forbidden,
        }),
        (Operation::Update, Api::Core) => Answer::Deny(Denial::AlreadyExists),
        (Operation::Update, Api::Events) => Answer::Restore,
    }
}

impl Deciding<'_> {
    /// Decides a write that a policy governs, and that is neither squelch's own, nor a dry run, nor an edit of
    /// anything but its count.
    pub(super) fn decide(&mut self, governing: Governing<'_>, write: &Observation<'_>) -> Verdict {
        if write.unchanged && !self.names.tells_more(self.hasher, write) {
            return Verdict::passed(Stage::Edit);
        }
        let rules = governing.rules;
        let carried = self.names.carry(self.hasher, write, self.began_before, self.now);
        let verdict = if governing.exempt {
            self.pass_outside(write, &carried, Stage::Exempt)
        } else if self.draining && !(rules.series.is_some() && rules.mode == Mode::Enforce && lowers(write)) {
            self.pass_draining(write, &carried)
        } else {
            self.compact(rules, write, &carried)
        };
        if let Some(disposition) = verdict.disposition {
            self.scope.counters.count(disposition, verdict.occurrences.unsigned_abs());
        }
        verdict
    }

    /// Counts a write that goes through undecided.
    pub(super) fn fail_open(&mut self, write: &Observation<'_>) {
        if write.unchanged && !self.names.tells_more(self.hasher, write) {
            return;
        }
        let carried = self.names.carry(self.hasher, write, self.began_before, self.now);
        self.scope.counters.count(Disposition::FailedOpen, carried.occurrences.unsigned_abs());
    }

    /// Step 5, series compaction, and on to the steps after it.
    fn compact(&mut self, rules: &Rules, write: &Observation<'_>, carried: &Carried) -> Verdict {
        let Some(series) = rules.series else { return self.pass_outside(write, carried, Stage::Admit) };
        match write.operation {
            Operation::Create => {
                let key = self.hasher.series(write);
                let found = self.scope.series.find(key);
                match found.and_then(|handle| self.scope.living(handle, &series, self.now)) {
                    Some(handle) => self.create_in_series(rules, &series, handle, write, carried),
                    None => self.open_by_create(rules, key, write, carried),
                }
            }
            Operation::Update => self.update_in_series(rules, &series, write, carried),
        }
    }

    /// A CREATE of a series that lives.
    fn create_in_series(
        &mut self,
        rules: &Rules,
        series: &SeriesRules,
        handle: Handle,
        write: &Observation<'_>,
        carried: &Carried,
    ) -> Verdict {
        let (now, occurrences) = (self.now, carried.occurrences);
        self.scope.touch(handle, now);
        self.names.join(carried.name, self.scope.id, handle);
        let own = self.is_stored_name(handle, write);
        self.scope.change(handle, series, now, |series| {
            if own {
                // The stored Event is gone, and its client makes it again; or it tries again, and it is there.
                if occurrences > 0 {
                    series.add(occurrences);
                    series.client_pays(write.value, now);
                } else {
                    series.unverified = true;
                    series.not_before = now.plus(SETTLE);
                }
                series.confirmed = 0;
            } else {
                series.add(occurrences);
                remember(series, write);
            }
        });
        if own {
            return verdict(Disposition::Admitted, Stage::Series, occurrences, Answer::Allow);
        }
        verdict(Disposition::Compacted, Stage::Series, occurrences, refusal(rules, write))
    }

    /// A CREATE without a series that passed every step: it is admitted, and opens one.
    fn open_by_create(
        &mut self,
        rules: &Rules,
        key: u128,
        write: &Observation<'_>,
        carried: &Carried,
    ) -> Verdict {
        let mut admitted = self.pass_outside(write, carried, Stage::Admit);
        if !self.may_open() {
            return admitted;
        }
        let minted = (write.name.is_none() && rules.mode == Mode::Enforce)
            .then(|| minted_name(&write.generate_name, self.hasher.minted(self.number)));
        let stored_name = write.name.as_deref().or(minted.as_deref()).unwrap_or_default();
        let series = Series::opened_by_create(stored_name, write.value, write.occurred_at, self.now);
        let handle = self.scope.open(key, series);
        let name = match &minted {
            None => carried.name,
            Some(minted) => {
                let named = Observation { name: Some(minted.as_str().into()), ..write.clone() };
                self.names.carry(self.hasher, &named, false, self.now).name
            }
        };
        self.names.join(name, self.scope.id, handle);
        if let Some(minted) = minted {
            admitted.answer = Answer::AllowNamed(minted);
        }
        admitted
    }

    /// An UPDATE where series are on: folded, but for the payments that a client makes itself.
    fn update_in_series(
        &mut self,
        rules: &Rules,
        series: &SeriesRules,
        write: &Observation<'_>,
        carried: &Carried,
    ) -> Verdict {
        let (now, occurrences) = (self.now, carried.occurrences);
        let Some(handle) = self.series_of_update(series, write, carried) else {
            return self.pass_outside(write, carried, Stage::Admit);
        };
        let own = self.is_stored_name(handle, write);
        let silent = carried.seen_before.is_none_or(|seen| now.since(seen) > series.idle_timeout);
        let holds_back = write.api == Api::Events && (occurrences > 1 || silent);
        let passes = self.scope.change(handle, series, now, |series_state| {
            match rules.mode {
                Mode::Enforce if own => series_state.resync(write.old_value, occurrences),
                // Under Observe what is stored is what clients wrote: it says nothing of what Enforce would do.
                _ => series_state.add(occurrences),
            }
            let complete = own && write.value == series_state.total && !lowers(write);
            let raises = write.value > write.old_value;
            let refreshes = write.api == Api::Events && (holds_back || write.value == FIRST_REFRESH);
            let passes = complete && (refreshes || raises && series_state.due(series, now));
            if passes {
                series_state.client_pays(write.value, now);
            } else {
                remember(series_state, write);
            }
            passes
        });
        if passes == Some(true) {
            return verdict(Disposition::Admitted, Stage::Series, occurrences, Answer::Allow);
        }
        let answer = if holds_back { Answer::Deny(Denial::Forbidden) } else { refusal(rules, write) };
        verdict(Disposition::Compacted, Stage::Series, occurrences, answer)
    }

    /// The series that an UPDATE belongs to: that of its name, else that of its key, else a new one.
    fn series_of_update(
        &mut self,
        rules: &SeriesRules,
        write: &Observation<'_>,
        carried: &Carried,
    ) -> Option<Handle> {
        let scope: ScopeId = self.scope.id;
        let by_name = carried.name.and_then(|name| self.names.series_of(name));
        let by_name = by_name.filter(|(of, _)| *of == scope).map(|(_, handle)| handle);
        let living = by_name.and_then(|handle| self.scope.living(handle, rules, self.now)).or_else(|| {
            let handle = self.scope.series.find(self.hasher.series(write))?;
            self.scope.living(handle, rules, self.now)
        });
        let handle = match living {
            Some(handle) => handle,
            None if !self.may_open() && !lowers(write) => return None,
            None => {
                let name = write.name.as_deref().unwrap_or_default();
                let series = Series::opened_by_update(name, write.old_value, write.occurred_at, self.now);
                self.scope.open(self.hasher.series(write), series)
            }
        };
        self.scope.touch(handle, self.now);
        self.names.join(carried.name, scope, handle);
        Some(handle)
    }

    /// Lets a write through outside any series. What a client's absolute value tells beyond what it carries is
    /// stored a second time: it is recovered.
    fn pass_outside(&mut self, write: &Observation<'_>, carried: &Carried, stage: Stage) -> Verdict {
        let told_again = match write.operation {
            Operation::Create => write.value - carried.occurrences,
            Operation::Update => write.value - write.old_value - carried.occurrences,
        };
        self.scope.counters.recovered += told_again.max(0).unsigned_abs();
        verdict(Disposition::Admitted, stage, carried.occurrences, Answer::Allow)
    }

    /// While draining everything is admitted. What is written to a series' stored Event still counts for it:
    /// the last payment must not fall short.
    fn pass_draining(&mut self, write: &Observation<'_>, carried: &Carried) -> Verdict {
        let (now, occurrences) = (self.now, carried.occurrences);
        let of_name = carried.name.and_then(|name| self.names.series_of(name));
        let handle = of_name.filter(|(scope, _)| *scope == self.scope.id).map(|(_, handle)| handle);
        let Some((handle, rules)) =
            handle.zip(self.scope.rules.series).filter(|(handle, _)| self.is_stored_name(*handle, write))
        else {
            return self.pass_outside(write, carried, Stage::Standby);
        };
        self.scope.change(handle, &rules, now, |series| {
            match write.operation {
                Operation::Update => series.resync(write.old_value, occurrences),
                Operation::Create => series.add(occurrences),
            }
            // The API server has just seen all that was folded in etcd: whether this write gets there is its
            // client's own affair. (Were it verified too, a storm that goes on would put off the end.)
            let all_folded_is_stored = write.operation == Operation::Update && series.owed() <= occurrences;
            series.client_pays(write.value, now);
            series.unverified &= !all_folded_is_stored;
        });
        verdict(Disposition::Admitted, Stage::Standby, occurrences, Answer::Allow)
    }

    /// Whether a series may be opened. Where as many live as may, the oldest of this scope goes if it owes
    /// nothing; if it owes it is paid first, and this write opens none.
    fn may_open(&mut self) -> bool {
        if self.scope.retired {
            return false;
        }
        !self.full || self.scope.evict_oldest(self.now)
    }

    fn is_stored_name(&self, handle: Handle, write: &Observation<'_>) -> bool {
        let stored = self.scope.series.get(handle).map(|series| &*series.name);
        write.name.is_some() && stored == write.name.as_deref()
    }
}

fn verdict(disposition: Disposition, stage: Stage, occurrences: i64, answer: Answer) -> Verdict {
    Verdict { disposition: Some(disposition), stage, occurrences, answer }
}

/// The alphabet of the API server's own generated names (apimachinery, util/rand).
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
/// How many random characters a minted name ends with.
const MINTED: usize = 10;
/// The longest name of an object.
const MAX_NAME: usize = 253;

/// A name for an Event that came with `generateName`, so that its series knows where to pay.
fn minted_name(generate_name: &str, mut bits: u128) -> String {
    let mut name = super::content::cut(generate_name, MAX_NAME - MINTED).to_owned();
    for _ in 0..MINTED {
        name.push(char::from(ALPHABET[(bits % 27) as usize]));
        bits /= 27;
    }
    name
}
