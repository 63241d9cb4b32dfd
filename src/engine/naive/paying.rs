//! When something is paid, and how much.

use std::time::Duration;

use super::{Moment, Naive, Rules, SeriesRules, Story};

/// A series whose stored Event is to be looked at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in super::super) struct Due {
    /// The name of the stored Event; of a summary: what it begins with.
    pub(in super::super) name: String,
    pub(in super::super) number: usize,
}

/// What the engine should plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) enum Planned {
    Nothing,
    Write(i64),
    /// With the name of the Event that has to be there first, for a summary that was never stored.
    Create(i64, Option<String>),
    Wait,
    Lost(i64),
}

/// An admitted write may be stored this much later.
const COMMITTED: Duration = Duration::from_secs(5);
/// The clocks of API servers may differ by this much.
const SKEW: Duration = Duration::from_secs(60);

impl Naive {
    /// What is due now. What is over is closed, and forgotten if there is nothing to be paid.
    pub(in super::super) fn tick(&mut self, now: Moment) -> Vec<Due> {
        let (rules, draining, closing) = (self.rules.clone(), self.draining, self.closing);
        if !draining {
            for story in &mut self.series {
                story.closing |= story.is_over(&rules, now);
            }
            self.keep(|story| !story.closing || story.ordered || story.needs_payment());
        }
        let due = |story: &&mut Story| match draining {
            true => {
                let paid = story.drained && !closing;
                story.needs_payment() && !paid && !story.ordered && story.retry_at <= now
            }
            false => story.is_to_be_read(&rules.pace(story.summary), now),
        };
        let due = self.series.iter_mut().filter(due).map(|story| {
            story.ordered = true;
            Due { name: story.name.clone(), number: story.number }
        });
        due.collect()
    }

    /// What the engine should plan, given the count that was found and its Event's age.
    pub(in super::super) fn plan(
        &mut self,
        due: &Due,
        found: Option<(i64, Duration)>,
        now: Moment,
    ) -> Planned {
        let (rules, draining) = (self.rules.clone(), self.draining);
        let Some(story) = self.story(due.number) else { return Planned::Nothing };
        let plan = if !draining && now < story.not_before {
            Planned::Nothing
        } else {
            story.plan(found, draining, &rules.pace(story.summary), now)
        };
        if found.is_some() && !matches!(plan, Planned::Lost(_)) {
            let of_name = |it: &&mut super::Name| it.name == due.name && it.story == Some(due.number);
            self.names.iter_mut().filter(of_name).for_each(|name| name.proven = true);
        }
        self.answered(due, &plan, now);
        plan
    }

    /// Whether the summary may be created, given the age of its witness if that is there.
    pub(in super::super) fn testify(&mut self, due: &Due, witness: Option<Duration>, now: Moment) -> Planned {
        let Some(story) = self.story(due.number) else { return Planned::Lost(0) };
        let Some((group, (name, admitted_at))) = story.witness.clone() else { return Planned::Lost(0) };
        let since = now.since(admitted_at);
        let plan = match witness {
            Some(age) if age <= since + SKEW => return Planned::Nothing,
            None if since < COMMITTED => Planned::Wait,
            _ => Planned::Lost(story.owed()),
        };
        if plan != Planned::Wait {
            for group in self.groups.iter_mut().filter(|it| it.key == group) {
                group.witness.take_if(|witness| *witness == (name.clone(), admitted_at));
            }
        }
        self.answered(due, &plan, now);
        plan
    }

    fn answered(&mut self, due: &Due, plan: &Planned, now: Moment) {
        let draining = self.draining;
        let Some(story) = self.story(due.number) else { return };
        story.ordered = matches!(plan, Planned::Write(_) | Planned::Create(..));
        story.drained = draining && *plan == Planned::Nothing;
        match plan {
            Planned::Wait => story.retry_at = now.plus(Duration::from_secs(1)),
            Planned::Lost(_) => self.keep(|story| story.number != due.number),
            _ => self.forget_if_closed(due),
        }
    }

    pub(in super::super) fn settle(&mut self, due: &Due, value: i64, now: Moment) {
        let draining = self.draining;
        if let Some(story) = self.story(due.number) {
            story.seen_stored(value);
            (story.ordered, story.paid_at, story.drained, story.read) = (false, now, draining, true);
            story.witness = None;
        }
        self.forget_if_closed(due);
    }

    /// How long a pause is depends on chance: it is the engine's.
    pub(in super::super) fn postpone(&mut self, due: &Due, pause: Duration, now: Moment) {
        if let Some(story) = self.story(due.number) {
            (story.ordered, story.retry_at) = (false, now.plus(pause));
        }
    }

    /// SIGTERM: each debt is to be paid once, and what failed before is tried now.
    pub(in super::super) fn drain(&mut self) {
        if std::mem::replace(&mut self.draining, true) {
            return;
        }
        for story in &mut self.series {
            story.retry_at = Moment::default();
        }
    }

    /// No write is reviewed any more: what came while draining is paid too.
    pub(in super::super) fn drain_the_rest(&mut self) {
        self.drain();
        self.closing = true;
    }

    pub(in super::super) fn owed(&self) -> i64 {
        self.series.iter().map(Story::owed).sum()
    }

    fn forget_if_closed(&mut self, due: &Due) {
        let closed = |story: &Story| story.closing && !story.ordered && !story.needs_payment();
        self.keep(|story| story.number != due.number || !closed(story));
    }
}

impl Story {
    pub(in super::super) fn owed(&self) -> i64 {
        self.total - self.stored
    }

    pub(super) fn needs_payment(&self) -> bool {
        self.owed() > 0 || self.unverified && self.folded
    }

    pub(super) fn is_over(&self, rules: &Rules, now: Moment) -> bool {
        now.since(self.seen) > rules.pace(self.summary).idle_timeout && now >= self.not_before
    }

    /// The next payment may be a client's own write.
    pub(super) fn is_due(&self, pace: &SeriesRules, now: Moment) -> bool {
        self.owed() >= self.stored || now.since(self.paid_at) >= pace.heartbeat_interval
    }

    /// Whether its count in etcd must be at least half its total, now that the writer has done what is due.
    pub(in super::super) fn is_to_be_shown(&self, now: Moment) -> bool {
        self.folded && !self.ordered && now >= self.not_before && now >= self.retry_at
    }

    fn is_to_be_read(&self, pace: &SeriesRules, now: Moment) -> bool {
        if self.ordered || now < self.not_before || now < self.retry_at || !self.needs_payment() {
            return false;
        }
        let half_unseen = self.total >= 2 * self.confirmed;
        self.closing || half_unseen || self.owed() > 0 && self.is_due(pace, now)
    }

    fn plan(
        &mut self,
        found: Option<(i64, Duration)>,
        draining: bool,
        pace: &SeriesRules,
        now: Moment,
    ) -> Planned {
        let since = now.since(self.paid_at);
        let created_only = !self.read && self.confirmed == 0 && !self.summary;
        if found.is_some_and(|(_, age)| created_only && age > since + SKEW) {
            return Planned::Lost(self.owed());
        }
        if found.is_none() && !self.read && !self.summary {
            return if since < COMMITTED { Planned::Wait } else { Planned::Lost(self.owed()) };
        }
        if found.is_some() {
            (self.read, self.witness) = (true, None);
        }
        let found = found.map(|(count, _)| count);
        if self.base_unknown {
            let base = found.unwrap_or(0);
            self.base_unknown = false;
            self.total += base;
            (self.stored, self.confirmed) = (base, base);
        }
        let Some(found) = found else {
            let deleted_and_paid = self.owed() == 0 && self.confirmed > 0;
            if self.folded && !deleted_and_paid {
                let witness = self.witness.as_ref().map(|(_, (name, _))| name.clone());
                return Planned::Create(self.total, witness);
            }
            self.seen_stored(self.total);
            return Planned::Nothing;
        };
        if found >= self.total {
            self.seen_stored(found);
            return Planned::Nothing;
        }
        if found >= self.stored && !self.closing && !draining && !self.is_due(pace, now) {
            (self.stored, self.confirmed, self.unverified) = (found, found, false);
            return Planned::Nothing;
        }
        Planned::Write(self.total)
    }

    fn seen_stored(&mut self, value: i64) {
        self.found(value);
        (self.stored, self.confirmed, self.unverified) = (value, value, false);
    }
}
