//! The rules of a decision once more, as plainly as they can be said: lists that are searched from the front, keys
//! that are lists of strings, nothing hashed, nothing bounded, nothing put off. What the engine decides is held
//! against it, write by write.

mod keys;
mod limits;
mod paying;
mod story;

use std::collections::BTreeMap;
use std::time::Duration;

use super::*;
use keys::{emitter, first_repeat_of_an_old_client, group_of, key_of, object, refused};
use limits::Bucket;
pub(super) use paying::{Due, Planned};
use story::{Fate, Story};

/// How long squelch keeps away from an Event whose client's write it has admitted.
const SETTLE: Duration = Duration::from_secs(2);

/// What is known in one namespace under one policy.
pub(super) struct Naive {
    rules: Rules,
    began: Timestamp,
    pub(super) draining: bool,
    /// No write is reviewed any more.
    closing: bool,
    names: Vec<Name>,
    pub(super) series: Vec<Story>,
    /// What several told of a series that has ended, and the name of its Event.
    past: BTreeMap<usize, (String, i64)>,
    groups: Vec<Group>,
    buckets: Vec<(Key, Bucket)>,
    budget: Option<Bucket>,
    made: usize,
    pub(super) recovered: i64,
    /// After the last write that they let through, the limits held fewer than four tokens.
    few_tokens: bool,
}

/// What makes two things the same: its fields, one by one.
type Key = Vec<String>;

struct Name {
    name: String,
    highest: i64,
    user: String,
    seen: Moment,
    story: Option<usize>,
    /// The latest time that a write of it has said that it happened.
    latest: Option<Timestamp>,
    /// Its user counts by reading what is stored and adding one.
    reads: bool,
    /// Its user has updated it.
    proven: bool,
}

/// What a write carries.
struct Carried {
    occurrences: i64,
    seen_before: Option<Moment>,
    /// It is a CREATE of a name that is another user's.
    foreign: bool,
}

struct Group {
    key: Key,
    messages: Vec<Key>,
    seen: Moment,
    /// The name of the last Event of it that was admitted, and when.
    witness: Option<Witness>,
}

/// The name of an admitted Event of a group, and when it was admitted.
type Witness = (String, Moment);

impl Naive {
    pub(super) fn new(rules: Rules, began: Timestamp) -> Self {
        Self {
            rules,
            began,
            draining: false,
            closing: false,
            names: Vec::new(),
            series: Vec::new(),
            past: BTreeMap::new(),
            groups: Vec::new(),
            buckets: Vec::new(),
            budget: None,
            made: 0,
            recovered: 0,
            few_tokens: false,
        }
    }

    /// The verdict on a write. `minted` is the name that the engine has made up for it, if it has.
    pub(super) fn decide(
        &mut self,
        write: &Observation<'_>,
        exempt: bool,
        minted: Option<&str>,
        now: Moment,
    ) -> Verdict {
        if write.edited || write.stale || write.unchanged && !self.is_above_its_own(write) {
            return Verdict::passed(Stage::Edit);
        }
        let Carried { occurrences: carried, seen_before, foreign } = self.carried(write, now);
        let update = write.operation == Operation::Update;
        if foreign {
            return self.foreign(write, exempt, now);
        }
        if exempt {
            return self.beside(write, carried, Stage::Exempt, now);
        }
        if self.draining && !(self.folds() && update && self.must_not_pass(write, carried)) {
            return self.beside(write, carried, Stage::Standby, now);
        }
        if self.rules.series.is_some()
            && let Some(verdict) = self.in_series(write, carried, seen_before, now)
        {
            return verdict;
        }
        if let Some(verdict) = self.in_summary(write, carried, now) {
            return verdict;
        }
        if let Some((disposition, stage)) = self.limited(write, now) {
            return verdict(disposition, stage, carried, refused(&self.rules, write));
        }
        self.admitted(write, carried, minted, now)
    }

    /// The namespace is another one.
    pub(super) fn forget(&mut self) {
        let rules = self.rules.clone();
        let kept = (self.draining, self.closing, self.recovered, self.made);
        *self = Self::new(rules, self.began);
        (self.draining, self.closing, self.recovered, self.made) = kept;
    }

    fn folds(&self) -> bool {
        self.rules.series.is_some() && self.rules.mode == Mode::Enforce
    }

    /// While draining: it would lower what is stored, or leave it as it is and tell of something.
    fn must_not_pass(&self, write: &Observation<'_>, carried: i64) -> bool {
        write.value < write.old_value || write.value == write.old_value && carried > 0
    }

    fn named(&mut self, write: &Observation<'_>) -> Option<&mut Name> {
        let name = write.name.as_deref()?;
        self.names.iter_mut().find(|known| known.name == name)
    }

    fn is_above_its_own(&mut self, write: &Observation<'_>) -> bool {
        self.named(write).is_some_and(|name| write.value > name.highest && name.user == write.user)
    }

    /// A CREATE of another user's name: limited, and else let through; it opens nothing.
    fn foreign(&mut self, write: &Observation<'_>, exempt: bool, now: Moment) -> Verdict {
        let stage = match (exempt, self.draining) {
            (true, _) => Stage::Exempt,
            (_, true) => Stage::Standby,
            _ => {
                if let Some((disposition, stage)) = self.limited(write, now) {
                    return verdict(disposition, stage, 1, refused(&self.rules, write));
                }
                Stage::Admit
            }
        };
        verdict(Disposition::Admitted, stage, 1, Answer::Allow)
    }

    /// Who takes a name by a CREATE has to give it back to a user who updates its Event, and the series that is stored
    /// under it is gone.
    fn give_name_back(&mut self, write: &Observation<'_>) {
        let Some(at) = self.names.iter().position(|known| write.name.as_deref() == Some(&*known.name)) else {
            return;
        };
        let taken = write.operation == Operation::Update
            && self.names[at].user != write.user
            && !self.names[at].proven;
        if taken {
            let name = self.names.remove(at);
            self.series.retain(|story| Some(story.number) != name.story || story.name != name.name);
        }
    }

    /// How many occurrences it carries, and when its name was seen before.
    fn carried(&mut self, write: &Observation<'_>, now: Moment) -> Carried {
        let by = |occurrences, seen_before| Carried { occurrences, seen_before, foreign: false };
        let Some(name) = write.name.clone() else { return by(write.value, None) };
        let update = write.operation == Operation::Update;
        self.give_name_back(write);
        if let Some(known) = self.named(write) {
            if !update && known.user != write.user {
                return Carried { foreign: true, ..by(1, None) };
            }
            let one_more = update && write.value == write.old_value + 1;
            let later = write.last_observed.is_some() && write.last_observed > known.latest;
            let another = known.user != write.user;
            known.reads |= one_more && !another && later && write.value <= known.highest;
            let beyond = (write.value - known.highest).max(0);
            let reads = known.reads || another;
            let carried = if one_more && reads { i64::from(later || beyond > 0) } else { beyond };
            if beyond > 0 {
                known.reads &= known.user == write.user;
                (known.highest, known.user) = (write.value, write.user.to_owned());
            }
            known.latest = known.latest.max(write.last_observed);
            known.proven |= update;
            return by(carried, Some(std::mem::replace(&mut known.seen, now)));
        }
        self.names.push(Name {
            name: name.into(),
            highest: write.value,
            user: write.user.to_owned(),
            seen: now,
            story: None,
            latest: write.last_observed,
            reads: false,
            proven: update,
        });
        let older = write.first_seen.is_some_and(|first| first < self.began);
        let carried = match write.operation {
            Operation::Create => {
                if older {
                    1
                } else {
                    write.value
                }
            }
            Operation::Update => (write.value - write.old_value).max(1),
        };
        by(carried, None)
    }

    /// Step 5.
    fn in_series(
        &mut self,
        write: &Observation<'_>,
        carried: i64,
        seen_before: Option<Moment>,
        now: Moment,
    ) -> Option<Verdict> {
        let story = match write.operation {
            Operation::Create => self.living_by_key(write, now)?,
            Operation::Update => {
                let by_name = self.living_by_name(write, now);
                by_name.or_else(|| self.living_by_key(write, now)).unwrap_or_else(|| {
                    let name = write.name.clone().unwrap_or_default().into_owned();
                    let number = self.open(key_of(write), name, write.old_value, now);
                    let former = self.named(write).and_then(|name| name.story);
                    let of_all = former.and_then(|former| self.past.get(&former)).cloned();
                    let of_all = of_all.filter(|(name, _)| write.name.as_deref() == Some(name));
                    if let Some(story) = self.story(number).filter(|_| seen_before.is_some()) {
                        let told = of_all.as_ref().map_or(write.value - carried, |(_, told)| *told);
                        story.untold = (write.old_value - told).max(0);
                        story.shared = of_all.is_some();
                    }
                    number
                })
            }
        };
        self.join(write, story);
        let pace = self.rules.series?;
        let holds_back = write.operation == Operation::Update
            && write.api == Api::Events
            && !first_repeat_of_an_old_client(write)
            && (carried > 1 || seen_before.is_none_or(|seen| now.since(seen) > pace.idle_timeout));
        let story = self.story(story)?;
        (story.seen, story.closing) = (now, false);
        let own = write.name.as_deref() == Some(&*story.name);
        let fate = match write.operation {
            Operation::Create => story.created(write, own, carried, now),
            Operation::Update => story.updated(write, own, carried, holds_back, &pace, now),
        };
        Some(match fate {
            Fate::Through => verdict(Disposition::Admitted, Stage::Series, carried, Answer::Allow),
            Fate::Folded => {
                let held = Answer::Deny(Denial::Forbidden);
                let answer = if holds_back { held } else { refused(&self.rules, write) };
                verdict(Disposition::Compacted, Stage::Series, carried, answer)
            }
        })
    }

    /// Step 6.
    fn in_summary(&mut self, write: &Observation<'_>, carried: i64, now: Moment) -> Option<Verdict> {
        let rules = self.rules.aggregation?;
        if rules.group_by == GroupBy::Kind && carried > super::hold::MOST_AT_ONCE {
            return None;
        }
        if write.operation == Operation::Update || write.event.message.starts_with(AGGREGATE_PREFIX) {
            return None;
        }
        let (key, message) = group_of(write, rules.group_by);
        self.groups.retain(|group| now.since(group.seen) <= rules.interval);
        let at = self.groups.iter().position(|group| group.key == key).unwrap_or_else(|| {
            self.groups.push(Group { key: key.clone(), messages: Vec::new(), seen: now, witness: None });
            self.groups.len() - 1
        });
        let group = &mut self.groups[at];
        group.seen = now;
        if group.messages.contains(&message) {
            return None;
        }
        if group.messages.len() < rules.max_events as usize - 1 {
            group.messages.push(message);
            return None;
        }
        let witness = group.witness.clone()?;
        let group_key = key.clone();
        let key = [vec!["summary".to_owned()], key].concat();
        let summary = self.living(now, |story| story.key == key).unwrap_or_else(|| {
            let begins = format!("{}.", write.event.regarding.name);
            let number = self.open(key, begins, 0, now);
            if let Some(story) = self.story(number) {
                (story.summary, story.base_unknown) = (true, true);
                story.witness = Some((group_key, witness));
            }
            number
        });
        let story = self.story(summary)?;
        (story.seen, story.closing, story.folded) = (now, false, true);
        story.total += carried;
        Some(verdict(Disposition::Aggregated, Stage::Aggregation, carried, refused(&self.rules, write)))
    }

    /// Step 9. A CREATE opens its series, if it carries anything.
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
            let number = self.open(key_of(write), name.to_owned(), write.value, now);
            if let Some(story) = self.story(number) {
                (story.confirmed, story.unverified, story.not_before) = (0, true, now.plus(SETTLE));
            }
            self.join(named.as_ref().unwrap_or(write), number);
        }
        if let Some(minted) = minted {
            admitted.answer = Answer::AllowNamed(minted.to_owned());
        }
        admitted
    }

    /// The Event may be the witness of its group, from the second message on.
    fn admitted_of_group(&mut self, write: &Observation<'_>, minted: Option<&str>, now: Moment) {
        let Some(rules) = self.rules.aggregation else { return };
        if write.event.message.starts_with(AGGREGATE_PREFIX) {
            return;
        }
        let (key, _) = group_of(write, rules.group_by);
        let few_tokens = self.few_tokens;
        let name = write.name.as_deref().or(minted).unwrap_or_default();
        for group in self.groups.iter_mut().filter(|group| group.key == key) {
            let kept = |(_, at): &Witness| now.since(*at) < Duration::from_secs(300);
            let needed = few_tokens
                || group.messages.len() > 1
                || group.messages.len() + 1 >= rules.max_events as usize;
            if needed && !group.witness.as_ref().is_some_and(kept) {
                group.witness = Some((name.to_owned(), now));
            }
        }
    }

    /// Beside any series, but a write of a stored Event that is paid for counts there.
    fn beside(&mut self, write: &Observation<'_>, carried: i64, stage: Stage, now: Moment) -> Verdict {
        let number = self.living_by_name(write, now);
        let story = number.and_then(|number| self.story(number));
        let Some(story) = story.filter(|story| write.name.as_deref() == Some(&*story.name)) else {
            return self.outside(write, carried, stage);
        };
        let beyond = match write.operation {
            Operation::Update => {
                story.reads(write.old_value, carried);
                let beyond = write.value - story.total;
                story.paid_by_client(write.value, now);
                beyond
            }
            Operation::Create => {
                let beyond = write.value - story.total - carried;
                story.creates(write, carried, now);
                beyond
            }
        };
        self.recovered += beyond.max(0);
        verdict(Disposition::Admitted, stage, carried, Answer::Allow)
    }

    fn outside(&mut self, write: &Observation<'_>, carried: i64, stage: Stage) -> Verdict {
        self.recovered += (write.value - write.old_value - carried).max(0);
        verdict(Disposition::Admitted, stage, carried, Answer::Allow)
    }

    fn join(&mut self, write: &Observation<'_>, story: usize) {
        if let Some(name) = self.named(write) {
            name.story = Some(story);
        }
    }

    fn story(&mut self, number: usize) -> Option<&mut Story> {
        self.series.iter_mut().find(|story| story.number == number)
    }

    fn living_by_name(&mut self, write: &Observation<'_>, now: Moment) -> Option<usize> {
        let number = self.named(write)?.story?;
        self.living(now, |story| story.number == number)
    }

    fn living_by_key(&mut self, write: &Observation<'_>, now: Moment) -> Option<usize> {
        let key = key_of(write);
        self.living(now, |story| story.key == key)
    }

    /// The series that is meant, if it lives: what is over and has nothing to be paid is forgotten.
    fn living(&mut self, now: Moment, meant: impl Fn(&Story) -> bool) -> Option<usize> {
        let rules = self.rules.clone();
        self.keep(|story| story.closing || story.needs_payment() || !story.is_over(&rules, now));
        self.series.iter().find(|story| meant(story)).map(|story| story.number)
    }

    /// Those that are not kept have ended.
    pub(super) fn keep(&mut self, kept: impl Fn(&Story) -> bool) {
        for story in self.series.iter().filter(|story| story.shared && !kept(story)) {
            self.past.insert(story.number, (story.name.clone(), story.total - story.untold));
        }
        self.series.retain(kept);
    }

    fn open(&mut self, key: Key, name: String, stored: i64, now: Moment) -> usize {
        self.made += 1;
        self.series.push(Story::new(self.made, key, name, stored, now));
        self.made
    }
}

fn verdict(disposition: Disposition, stage: Stage, occurrences: i64, answer: Answer) -> Verdict {
    Verdict { disposition: Some(disposition), stage, occurrences, answer }
}
