//! The steps of a decision, in order: the first that answers ends it.

use super::approach::Keys;
use super::key::Hasher;
use super::live::Handle;
use super::names::{Carried, Names};
use super::owing::DebtsRefused;
use super::scope::Scope;
use super::series::Series;
use super::table::At;
use super::{
    Answer, Api, Denial, Disposition, Governing, Mode, Moment, Observation, Operation, Rejection, Rules,
    Stage, Verdict,
};

/// Tables that hold as many entries in all as they may: to add one, the scope must give one of its own up.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Full {
    pub(super) names: bool,
    pub(super) series: bool,
    pub(super) text: bool,
    pub(super) groups: bool,
    pub(super) fingerprints: bool,
    pub(super) ended: bool,
    pub(super) buckets: bool,
    /// As many series owe as may.
    pub(super) owing: bool,
    pub(super) dropped: bool,
}

/// What a decision may use: the engine's constants and the namespace's state, under its lock.
pub(super) struct Deciding<'a> {
    pub(super) hasher: &'a Hasher,
    pub(super) names: &'a mut Names,
    pub(super) scope: &'a mut Scope,
    /// The namespace's other scopes.
    pub(super) others: [&'a mut [Scope]; 2],
    /// What there is no room for one more of.
    pub(super) full: Full,
    /// SIGTERM came: fold nothing more, but see [`lowers`].
    pub(super) draining: bool,
    /// The Event happened first before this engine began to decide.
    pub(super) began_before: bool,
    /// A number that no other decision gets: names are minted from it.
    pub(super) number: u64,
    /// Writes that were let through because as many series owe as may.
    pub(super) debts_refused: DebtsRefused,
    pub(super) now: Moment,
    /// Of the write that is decided.
    pub(super) keys: Keys,
    /// The limits hold few tokens once this write is admitted.
    pub(super) few_tokens: bool,
}

/// An UPDATE that would lower what is stored. It never goes through where series are on: what others folded into
/// the Event would be lost.
pub(super) fn lowers(write: &Observation<'_>) -> bool {
    write.operation == Operation::Update && write.value < write.old_value
}

/// How a write is answered that is held back, so that its client takes it well.
pub(super) fn refusal(rules: &Rules, write: &Observation<'_>) -> Answer {
    match (write.operation, write.api) {
        (Operation::Create, _) if write.has_series && !write.begins_at_one() => {
            Answer::Deny(Denial::Forbidden)
        }
        (Operation::Create, _) => Answer::Deny(match rules.rejection {
            Rejection::AlreadyExists => Denial::AlreadyExists,
            Rejection::Forbidden => Denial::Forbidden,
        }),
        (Operation::Update, Api::Events) if !write.begins_at_one() => Answer::Restore,
        (Operation::Update, _) => Answer::Deny(Denial::AlreadyExists),
    }
}

impl Deciding<'_> {
    /// Decides a write that a policy governs, and that is neither squelch's own, nor a dry run, nor an edit of
    /// anything but its count.
    pub(super) fn decide(&mut self, governing: Governing<'_>, write: &Observation<'_>) -> Verdict {
        let rules = governing.rules;
        self.approach(rules, write);
        if self.full.ended {
            self.scope.evict_ended();
        }
        if self.tells_nothing(write) {
            return Verdict::passed(Stage::Edit);
        }
        let carried = self.carry(write);
        let verdict = if carried.foreign {
            self.pass_foreign(governing, write, &carried)
        } else if governing.exempt {
            self.pass_beside(write, &carried, Stage::Exempt)
        } else if self.draining && !held_back_while_draining(rules, write, carried.occurrences) {
            self.pass_beside(write, &carried, Stage::Standby)
        } else {
            self.steps(rules, write, &carried)
        };
        if let Some(disposition) = verdict.disposition {
            self.count(disposition, write, verdict.occurrences.unsigned_abs());
        }
        verdict
    }

    /// Enters what became of a write into the accounts.
    fn count(&mut self, disposition: Disposition, write: &Observation<'_>, occurrences: u64) {
        let event = &write.event;
        self.scope.counters.count(disposition, occurrences);
        if disposition.is_dropped() && occurrences > 0 {
            self.scope.counters.count_dropped_warning(event, occurrences);
            let key = self.hasher.dropped(event, disposition);
            self.scope.count_dropped(key, event, disposition, occurrences, self.full.dropped);
        }
    }

    /// Counts a write that goes through undecided. The series of its Event adds its occurrences: what others reported
    /// stays pending, whatever absolute count this write stores.
    pub(super) fn fail_open(&mut self, write: &Observation<'_>) {
        if self.tells_nothing(write) {
            return;
        }
        let carried = self.carry(write);
        if !carried.foreign {
            self.pass_beside(write, &carried, Stage::Admit);
        }
        self.scope.counters.count(Disposition::FailedOpen, carried.occurrences.unsigned_abs());
    }

    /// An UPDATE that is no occurrence.
    fn tells_nothing(&self, write: &Observation<'_>) -> bool {
        write.unchanged && !self.names.tells_more(self.hasher, self.keys.name, write)
    }

    fn carry(&mut self, write: &Observation<'_>) -> Carried {
        let name = self.keys.name;
        let carried =
            self.names.carry(self.hasher, name, write, self.began_before, self.full.names, self.now);
        if let Some(displaced) = carried.displaced {
            self.discard(displaced);
        }
        carried
    }

    /// Discards a series, of whatever scope: its stored Event is another user's. Its pending occurrences are lost.
    fn discard(&mut self, handle: Handle) {
        let [earlier, later] = &mut self.others;
        let others = earlier.iter_mut().chain(later.iter_mut());
        for scope in others.chain(std::iter::once(&mut *self.scope)) {
            scope.discard(handle);
        }
    }

    /// A CREATE of a name that belongs to another user: the API server refuses it if that user's Event is stored.
    /// Only the limits act on it, so that it changes nothing for that user, and stores no more than any other CREATE.
    fn pass_foreign(
        &mut self,
        governing: Governing<'_>,
        write: &Observation<'_>,
        carried: &Carried,
    ) -> Verdict {
        let stage = if governing.exempt {
            Stage::Exempt
        } else if self.draining {
            Stage::Standby
        } else {
            self.fetch_limits(governing.rules, write);
            if let Some(limited) = self.limit(governing.rules, write, carried) {
                return limited;
            }
            Stage::Admit
        };
        verdict(Disposition::Admitted, stage, carried.occurrences, Answer::Allow)
    }

    /// Steps 5 to 9: the first that answers ends it.
    fn steps(&mut self, rules: &Rules, write: &Observation<'_>, carried: &Carried) -> Verdict {
        if rules.series.is_none() && write.operation == Operation::Update && self.of_living_series(carried) {
            return self.pass_beside(write, carried, Stage::Admit);
        }
        if let Some(compacted) = self.compact(rules, write, carried) {
            return compacted;
        }
        self.approach_steps(rules, write);
        if let Some(aggregated) = self.aggregate(rules, write, carried) {
            return aggregated;
        }
        if let Some(limited) = self.limit(rules, write, carried) {
            return limited;
        }
        self.admit(rules, write, carried)
    }

    /// Series are off, but this name's still lives, because it is to be paid.
    fn of_living_series(&self, carried: &Carried) -> bool {
        let series = carried.name.and_then(|name| self.names.series_of(name));
        series.is_some_and(|series| self.scope.series.get(series).is_some())
    }

    /// Nothing held it back. A CREATE opens its series, unless it carries nothing: then it is a retry, and what its Event
    /// shows is not known, as that may be stored already.
    fn admit(&mut self, rules: &Rules, write: &Observation<'_>, carried: &Carried) -> Verdict {
        let mut admitted = self.pass_outside(write, carried, Stage::Admit);
        if write.operation == Operation::Update && rules.series.is_some() && rules.mode == Mode::Enforce {
            // There was no room for a series that would owe what the stored Event will not show.
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
        let opens = rules.series.is_some() && carried.occurrences > 0 && self.may_open();
        let is_named = write.name.is_some() || rules.mode == Mode::Observe;
        let minted = (!is_named && (opens || self.keys.group.is_some()))
            .then(|| minted_name(&write.generate_name, self.hasher.minted(self.number)));
        let stored_name = write.name.as_deref().or(minted.as_deref()).unwrap_or_default();
        if let (Some(group), Some(aggregation)) = (self.keys.group, &rules.aggregation) {
            let says = || self.hasher.witness(&write.event);
            let at_once = self.few_tokens;
            self.scope.admitted_of_group(group, stored_name, says, aggregation, at_once, self.now);
        }
        // The name that squelch gives belongs to the user of the write, as one that the client gave does.
        let entry = match &minted {
            Some(minted) => {
                let key = Some(self.hasher.name(minted));
                self.names.carry(self.hasher, key, write, false, self.full.names, self.now).name
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

    /// Opens the series of an admitted CREATE, whose Event gets this name.
    fn open_by_create(&mut self, write: &Observation<'_>, entry: Option<At>, name: &str) {
        let series = Series::opened_by_create(write.value, write.occurred_at, self.now);
        let key = self.series_key(write);
        let handle = self.open(key, name, &series);
        self.names.join(entry, handle, true);
    }

    /// Lets a write through outside any series. What a client's absolute value tells beyond what it carries is
    /// stored a second time: it is recovered.
    pub(super) fn pass_outside(
        &mut self,
        write: &Observation<'_>,
        carried: &Carried,
        stage: Stage,
    ) -> Verdict {
        let told_again = match write.operation {
            Operation::Create => write.value - carried.occurrences,
            Operation::Update => write.value - write.old_value - carried.occurrences,
        };
        self.scope.counters.recovered += told_again.max(0).unsigned_abs();
        verdict(Disposition::Admitted, stage, carried.occurrences, Answer::Allow)
    }

    /// Lets a write through whatever series there is: it is exempt, series are off, or the engine drains. What
    /// is written to the stored Event of a series that lives still counts for it: its last payment must neither
    /// fall short nor tell anything twice.
    fn pass_beside(&mut self, write: &Observation<'_>, carried: &Carried, stage: Stage) -> Verdict {
        let (now, occurrences) = (self.now, carried.occurrences);
        let handle = carried.name.and_then(|name| self.names.series_of(name));
        let handle = handle.and_then(|handle| self.living(handle));
        let Some(handle) = handle.filter(|handle| self.is_stored_name(*handle, write, carried)) else {
            return self.pass_outside(write, carried, stage);
        };
        let told_again = self.scope.change(handle, now, |series| match write.operation {
            Operation::Update => {
                series.resync(write.old_value, occurrences);
                let beyond = write.value - series.total;
                series.client_pays(write.value, now);
                beyond
            }
            Operation::Create => {
                let beyond = write.value - series.total - occurrences;
                series.create_again(occurrences, write.value, now);
                beyond
            }
        });
        self.scope.counters.recovered += told_again.unwrap_or(0).max(0).unsigned_abs();
        verdict(Disposition::Admitted, stage, occurrences, Answer::Allow)
    }
}

/// While draining nothing is folded but what would be lost or would lose something: an UPDATE that lowers what is
/// stored, and one that tells of an occurrence and would leave the stored count as it is.
fn held_back_while_draining(rules: &Rules, write: &Observation<'_>, occurrences: i64) -> bool {
    let adds_nothing =
        write.operation == Operation::Update && write.value == write.old_value && occurrences > 0;
    rules.series.is_some() && rules.mode == Mode::Enforce && (lowers(write) || adds_nothing)
}

pub(super) fn verdict(disposition: Disposition, stage: Stage, occurrences: i64, answer: Answer) -> Verdict {
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
