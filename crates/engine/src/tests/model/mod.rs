//! A naive model of the decision rules: lists searched from the front, keys as lists of strings, no hashes, no
//! limits, no deferred work. Tests compare the engine with it, write by write.

mod flushing;
mod keys;
mod limits;
pub(crate) mod masks;
mod names;
mod series;
mod summaries;

use std::collections::BTreeMap;
use std::time::Duration;

use super::*;
use crate::decide::aggregation::MAX_OCCURRENCES_PER_WRITE;
pub(super) use flushing::{Due, Planned};
use keys::{emitter, first_repeat_of_an_old_client, group_of, key_of, object, refused};
use limits::Bucket;
use series::{ModelSeries, Outcome};

/// Minimum time between the admission of a client's write and a flush.
const CLIENT_WRITE_GRACE: Duration = Duration::from_secs(2);

/// Time after a flush in which a review may show the Event before it.
const EARLIER_READS: Duration = Duration::from_secs(10);

/// The state of one namespace under one policy.
pub(super) struct NaiveModel {
    rules: Rules,
    began: Timestamp,
    pub(super) draining: bool,
    /// No more writes arrive.
    closing: bool,
    names: Vec<Name>,
    pub(super) series: Vec<ModelSeries>,
    /// Name and reported occurrences of ended series with several reporters.
    past: BTreeMap<usize, (String, i64)>,
    /// Name, stored count and time of the last write of each ended series.
    written: BTreeMap<usize, (String, i64, Moment)>,
    groups: Vec<Group>,
    buckets: Vec<(Key, Bucket)>,
    budget: Option<Bucket>,
    made: usize,
    pub(super) recovered: i64,
    /// Occurrences that an earlier write of this name stored, but a later one carried.
    counted_early: BTreeMap<String, i64>,
    /// Whether the limits held fewer than four tokens after the last write that they passed.
    few_tokens: bool,
}

/// A key: its fields, one by one.
type Key = Vec<String>;

struct Name {
    name: String,
    highest: i64,
    user: String,
    seen: Moment,
    series: Option<usize>,
    /// Latest occurrence time of any write.
    latest: Option<Timestamp>,
    /// Whether its user reads the stored count and adds one.
    reads: bool,
    /// Whether several clients reported to the last series that was stored under this name.
    shared: bool,
    /// Whether its user has updated the Event.
    owner_confirmed: bool,
    /// Whether the last write was an admitted CREATE with the highest value, or a retry of it.
    created: bool,
}

/// The occurrences of a write.
struct Carried {
    occurrences: i64,
    seen_before: Option<Moment>,
    /// The value of the previous write, if that was an admitted CREATE with the highest one.
    created: i64,
    /// Whether it is a CREATE of another user's name.
    foreign: bool,
}

struct Group {
    key: Key,
    messages: Vec<Key>,
    seen: Moment,
    /// The witness of the group.
    witness: Option<Witness>,
}

/// Name of an admitted Event of a group, and when it was admitted.
type Witness = (String, Moment);

impl NaiveModel {
    pub(super) fn new(rules: Rules, began: Timestamp) -> Self {
        Self {
            rules,
            began,
            draining: false,
            closing: false,
            names: Vec::new(),
            series: Vec::new(),
            past: BTreeMap::new(),
            written: BTreeMap::new(),
            groups: Vec::new(),
            buckets: Vec::new(),
            budget: None,
            made: 0,
            recovered: 0,
            counted_early: BTreeMap::new(),
            few_tokens: false,
        }
    }

    /// Returns the verdict on a write. `minted`: the name that the engine generated.
    pub(super) fn decide(
        &mut self,
        write: &Observation<'_>,
        treatment: Treatment,
        minted: Option<&str>,
        now: Moment,
    ) -> Verdict {
        let mut write = write.clone();
        // The API server accepts no other message later.
        if let Some(max) = self.rules.max_message_bytes.filter(|_| write.api == Api::Core) {
            let mut message = write.event.message.into_owned();
            while message.len() > max {
                message.pop();
            }
            write.event.message = message.into();
        }
        let write = &write;
        if write.edited || write.stale || write.unchanged && !self.is_above_its_own(write) {
            return Verdict::passed(Stage::Edit);
        }
        let carried = self.carried(write, now);
        let Carried { occurrences, foreign, .. } = carried;
        let verdict = self.steps(write, treatment, carried, minted, now);
        let is_created =
            write.operation == Operation::Create && verdict.disposition == Some(Disposition::Admitted);
        if is_created
            && !foreign
            && occurrences > 0
            && let Some(name) = self.named(write)
        {
            name.created = true;
        }
        verdict
    }

    /// Returns the verdict on a write that is no edit.
    fn steps(
        &mut self,
        write: &Observation<'_>,
        treatment: Treatment,
        Carried { occurrences: carried, seen_before, created, foreign }: Carried,
        minted: Option<&str>,
        now: Moment,
    ) -> Verdict {
        let reads = self.named(write).is_some_and(|name| name.reads && name.user == write.user);
        let update = write.operation == Operation::Update;
        if foreign {
            return self.foreign(write, treatment, now);
        }
        let late_retry =
            self.named(write).is_some_and(|name| write.value < name.highest && name.user == write.user)
                && write.value <= write.old_value;
        let timing = self.rules.timing(false);
        let silent = seen_before.is_none_or(|seen| now.since(seen) > timing.idle_timeout);
        let collects = update
            && write.api == Api::Events
            && !first_repeat_of_an_old_client(write)
            && !reads
            && (carried > 1 || silent && !late_retry);
        let refused = refused(&self.rules, write, reads, collects);
        if treatment == Treatment::Exempt {
            return self.beside(write, carried, Stage::Exempt, now);
        }
        if self.draining && !(self.merges() && update && self.must_not_pass(write, carried)) {
            return self.beside(write, carried, Stage::Standby, now);
        }
        if treatment == Treatment::Mute && !self.draining && self.may_be_dropped(write) {
            return verdict(Disposition::Muted, Stage::Mute, carried, refused);
        }
        if self.rules.series.is_some()
            && let Some(verdict) =
                self.in_series(write, carried, (reads, collects), (seen_before, created), &refused, now)
        {
            return verdict;
        }
        if let Some(verdict) = self.in_summary(write, carried, &refused, now) {
            return verdict;
        }
        if let Some((disposition, stage)) = self.limited(write, now) {
            return verdict(disposition, stage, carried, refused);
        }
        self.admitted(write, carried, minted, now)
    }

    /// The namespace was deleted and created again.
    pub(super) fn forget(&mut self) {
        let rules = self.rules.clone();
        let kept = (self.draining, self.closing, self.recovered, self.made);
        *self = Self::new(rules, self.began);
        (self.draining, self.closing, self.recovered, self.made) = kept;
    }

    fn merges(&self) -> bool {
        self.rules.series.is_some() && self.rules.mode == Mode::Enforce
    }

    /// Whether it would lower the stored count, or add less to it than it carries.
    fn must_not_pass(&self, write: &Observation<'_>, carried: i64) -> bool {
        write.value < write.old_value || write.value - write.old_value < carried
    }

    /// A CREATE of another user's name: only mute and the limits apply, and it opens nothing.
    fn foreign(&mut self, write: &Observation<'_>, treatment: Treatment, now: Moment) -> Verdict {
        let stage = match (treatment, self.draining) {
            (Treatment::Exempt, _) => Stage::Exempt,
            (_, true) => Stage::Standby,
            (Treatment::Mute, _) if self.may_be_dropped(write) => {
                return verdict(
                    Disposition::Muted,
                    Stage::Mute,
                    1,
                    refused(&self.rules, write, false, false),
                );
            }
            _ => {
                if let Some((disposition, stage)) = self.limited(write, now) {
                    let refused = refused(&self.rules, write, false, false);
                    return verdict(disposition, stage, 1, refused);
                }
                Stage::Admit
            }
        };
        verdict(Disposition::Admitted, stage, 1, Answer::Allow)
    }

    /// Step 8.
    fn in_series(
        &mut self,
        write: &Observation<'_>,
        carried: i64,
        (reads, collects): (bool, bool),
        (seen_before, created): (Option<Moment>, i64),
        refused: &Answer,
        now: Moment,
    ) -> Option<Verdict> {
        let series = match write.operation {
            Operation::Create => self.living_by_key(write, now)?,
            Operation::Update => {
                let by_name = self.living_by_name(write, now);
                by_name.or_else(|| self.living_by_key(write, now)).unwrap_or_else(|| {
                    let name = write.name.clone().unwrap_or_default().into_owned();
                    let former = self.named(write).and_then(|name| name.series);
                    let written = former.and_then(|former| self.written.get(&former));
                    let newer = written.filter(|(of, _, at)| *of == name && now.since(*at) < EARLIER_READS);
                    let stored = newer.map_or(write.old_value, |(_, stored, _)| write.old_value.max(*stored));
                    let number = self.open(key_of(write, self.rules.normalize), name, stored, now);
                    let of_all = former.and_then(|former| self.past.get(&former)).cloned();
                    let of_all = of_all.filter(|(name, _)| write.name.as_deref() == Some(name));
                    let was_shared = self.named(write).is_some_and(|name| name.shared);
                    let highest = self.named(write).map_or(0, |name| name.highest);
                    if let Some(series) = self.find_series(number).filter(|_| seen_before.is_some()) {
                        let reported = match &of_all {
                            Some((_, reported)) => *reported,
                            None if was_shared => stored,
                            None if carried == 0 => highest,
                            None => write.value - carried,
                        };
                        series.unreported = (stored - reported).max(0);
                        series.shared = of_all.is_some() || was_shared;
                        series.total = stored.max(created);
                    }
                    number
                })
            }
        };
        self.join(write, series);
        let timing = self.rules.series?;
        let series = self.find_series(series)?;
        (series.seen, series.closing) = (now, false);
        let own = write.name.as_deref() == Some(&*series.name);
        let fate = match write.operation {
            Operation::Create => series.created(write, own, carried, now),
            Operation::Update => {
                series.updated(write, own, (carried, reads, created), collects, &timing, now)
            }
        };
        let (number, stored_name, shared) = (series.number, series.name.clone(), series.shared);
        let of_event = |known: &&mut Name| known.name == stored_name && known.series == Some(number);
        if let Some(name) = self.names.iter_mut().find(of_event) {
            name.shared = shared;
        }
        Some(match fate {
            Outcome::Passed => verdict(Disposition::Admitted, Stage::Series, carried, Answer::Allow),
            Outcome::Merged => verdict(Disposition::Compacted, Stage::Series, carried, refused.clone()),
        })
    }

    /// Step 12. A CREATE opens its series if it carries occurrences.
    fn admitted(
        &mut self,
        write: &Observation<'_>,
        carried: i64,
        minted: Option<&str>,
        now: Moment,
    ) -> Verdict {
        let mut admitted = self.outside(write, carried, Stage::Admit);
        if write.operation == Operation::Create {
            self.admitted_of_group(write, minted, now);
        }
        let named = minted.map(|minted| Observation { name: Some(minted.into()), ..write.clone() });
        if let Some(named) = &named {
            self.carried(named, now);
        }
        if write.operation == Operation::Create && carried > 0 && self.rules.series.is_some() {
            let name = write.name.as_deref().or(minted).unwrap_or_default();
            let number = self.open(key_of(write, self.rules.normalize), name.to_owned(), write.value, now);
            if let Some(series) = self.find_series(number) {
                (series.confirmed, series.unverified, series.base_unknown) = (0, true, true);
                series.not_before = now.plus(CLIENT_WRITE_GRACE);
            }
            let named = named.as_ref().unwrap_or(write);
            self.join(named, number);
            if let Some(name) = self.named(named) {
                name.shared = false;
            }
        }
        if let Some(minted) = minted {
            admitted.answer = Answer::AllowNamed(minted.to_owned());
        }
        admitted
    }

    /// Admits a write outside series compaction. A write to the stored Event of a live series updates the
    /// series.
    fn beside(&mut self, write: &Observation<'_>, carried: i64, stage: Stage, now: Moment) -> Verdict {
        let number = self.living_by_name(write, now);
        let series = number.and_then(|number| self.find_series(number));
        let Some(series) = series.filter(|series| write.name.as_deref() == Some(&*series.name)) else {
            return self.outside(write, carried, stage);
        };
        let beyond = match write.operation {
            Operation::Update => {
                series.reads(write.old_value, carried);
                let beyond = write.value - series.total;
                series.written_by_client(write.value, now);
                beyond
            }
            Operation::Create => {
                let beyond = write.value - series.total - carried;
                series.creates(write, carried, now);
                beyond
            }
        };
        self.recovered += beyond.max(0);
        verdict(Disposition::Admitted, stage, carried, Answer::Allow)
    }

    fn outside(&mut self, write: &Observation<'_>, carried: i64, stage: Stage) -> Verdict {
        let stores = write.value - write.old_value;
        let mut again = stores - carried;
        if write.operation == Operation::Update && stores >= 0 && (again < 0 || carried == 0) {
            let early = self.counted_early.entry(write.name.clone().unwrap_or_default().into()).or_default();
            again -= *early;
            *early = (-again).max(0);
        }
        self.recovered += again.max(0);
        verdict(Disposition::Admitted, stage, carried, Answer::Allow)
    }
}

fn verdict(disposition: Disposition, stage: Stage, occurrences: i64, answer: Answer) -> Verdict {
    Verdict { disposition: Some(disposition), stage, occurrences, answer }
}
