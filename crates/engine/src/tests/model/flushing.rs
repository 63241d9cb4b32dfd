//! When the model flushes, and what.

use std::time::Duration;

use super::{ModelSeries, Moment, NaiveModel, Rules, SeriesRules};

/// A series whose stored Event has to be read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in super::super) struct Due {
    /// Name of the stored Event; of a summary only its beginning.
    pub(in super::super) name: String,
    pub(in super::super) number: usize,
}

/// The plan that the engine should return.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) enum Planned {
    Nothing,
    Write(i64),
    /// With the name of the witness, for a summary that was never stored.
    Create(i64, Option<String>),
    Wait,
    Lost(i64),
}

/// Time that the API server may need to store an admitted write.
const COMMIT_GRACE: Duration = Duration::from_secs(5);
/// The clocks of API servers may differ by this much.
const SKEW: Duration = Duration::from_secs(60);

impl NaiveModel {
    /// Returns what is due. Closes idle series and removes those with nothing to flush.
    pub(in super::super) fn tick(&mut self, now: Moment) -> Vec<Due> {
        let (rules, draining, closing) = (self.rules.clone(), self.draining, self.closing);
        if !draining {
            for series in &mut self.series {
                series.closing |= series.is_over(&rules, now);
            }
            self.keep(|series| !series.closing || series.in_flight || series.needs_flush());
        }
        let due = |series: &&mut ModelSeries| match draining {
            true => {
                let flushed = series.drained && !closing;
                series.needs_flush() && !flushed && !series.in_flight && series.retry_at <= now
            }
            false => series.is_to_be_read(&rules.timing(series.summary), now),
        };
        let due = self.series.iter_mut().filter(due).map(|series| {
            series.in_flight = true;
            Due { name: series.name.clone(), number: series.number }
        });
        due.collect()
    }

    /// Returns the plan for the found count and age.
    pub(in super::super) fn plan(
        &mut self,
        due: &Due,
        found: Option<(i64, Duration)>,
        now: Moment,
    ) -> Planned {
        let (rules, draining) = (self.rules.clone(), self.draining);
        let Some(series) = self.find_series(due.number) else { return Planned::Nothing };
        let too_early = !draining && now < series.not_before;
        let plan = if too_early {
            Planned::Nothing
        } else {
            series.plan(found, draining, &rules.timing(series.summary), now)
        };
        if found.is_some() && !too_early && !matches!(plan, Planned::Lost(_)) {
            let of_name = |it: &&mut super::Name| it.name == due.name && it.series == Some(due.number);
            self.names.iter_mut().filter(of_name).for_each(|name| name.owner_confirmed = true);
        }
        self.answered(due, &plan, now);
        plan
    }

    /// Returns whether a summary may be created, given the age of its stored witness.
    pub(in super::super) fn check_witness(
        &mut self,
        due: &Due,
        witness: Option<Duration>,
        now: Moment,
    ) -> Planned {
        let Some(series) = self.find_series(due.number) else { return Planned::Lost(0) };
        let Some((group, (name, admitted_at))) = series.witness.clone() else { return Planned::Lost(0) };
        let since = now.since(admitted_at);
        let plan = match witness {
            Some(age) if age <= since + SKEW => return Planned::Nothing,
            None if since < COMMIT_GRACE => Planned::Wait,
            _ => Planned::Lost(series.pending()),
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
        let Some(series) = self.find_series(due.number) else { return };
        series.in_flight = matches!(plan, Planned::Write(_) | Planned::Create(..));
        series.drained = draining && *plan == Planned::Nothing;
        series.failed &= *plan != Planned::Nothing;
        match plan {
            Planned::Wait => series.retry(now.plus(Duration::from_secs(1)), draining),
            Planned::Lost(_) => {
                self.keep(|series| series.number != due.number);
                self.written.remove(&due.number);
            }
            _ => self.forget_if_closed(due),
        }
    }

    pub(in super::super) fn ack(&mut self, due: &Due, value: i64, now: Moment) {
        let draining = self.draining;
        if let Some(series) = self.find_series(due.number) {
            series.seen_stored(value);
            (series.in_flight, series.written_at, series.drained, series.read) = (false, now, draining, true);
            series.witness = None;
            series.failed = false;
        }
        self.forget_if_closed(due);
    }

    /// The delay is random, so the engine chooses it.
    pub(in super::super) fn requeue_after(&mut self, due: &Due, pause: Duration, now: Moment) {
        let draining = self.draining;
        if let Some(series) = self.find_series(due.number) {
            series.in_flight = false;
            series.retry(now.plus(pause), draining);
            series.failed = true;
        }
    }

    /// Begins to drain: each pending series is flushed once, regardless of earlier failures.
    pub(in super::super) fn drain(&mut self) {
        if std::mem::replace(&mut self.draining, true) {
            return;
        }
        for series in &mut self.series {
            series.retry_at = Moment::default();
        }
    }

    /// No more writes arrive: what came while draining is flushed too.
    pub(in super::super) fn drain_remaining(&mut self) {
        self.drain();
        self.closing = true;
    }

    pub(in super::super) fn pending(&self) -> i64 {
        self.series.iter().map(ModelSeries::pending).sum()
    }

    fn forget_if_closed(&mut self, due: &Due) {
        let closed = |series: &ModelSeries| series.closing && !series.in_flight && !series.needs_flush();
        self.keep(|series| series.number != due.number || !closed(series));
    }
}

impl ModelSeries {
    pub(in super::super) fn pending(&self) -> i64 {
        self.total - self.stored
    }

    /// While draining, the retry replaces the grace time of a client's write.
    fn retry(&mut self, at: Moment, draining: bool) {
        (self.retry_at, self.deferred) = (at, draining);
        if draining {
            self.not_before = at;
        }
    }

    pub(super) fn needs_flush(&self) -> bool {
        self.pending() > 0 || self.unverified && self.merged
    }

    pub(super) fn is_over(&self, rules: &Rules, now: Moment) -> bool {
        now.since(self.seen) > rules.timing(self.summary).idle_timeout && now >= self.not_before
    }

    /// Whether a client's own write may be the next flush.
    pub(super) fn is_due(&self, timing: &SeriesRules, now: Moment) -> bool {
        self.pending() >= self.stored || now.since(self.written_at) >= timing.heartbeat_interval
    }

    /// Whether its stored count must be at least half its total, now that the writer has done what is due.
    pub(in super::super) fn is_to_be_shown(&self, now: Moment) -> bool {
        self.merged && !self.in_flight && now >= self.not_before && now >= self.retry_at
    }

    fn is_to_be_read(&self, timing: &SeriesRules, now: Moment) -> bool {
        if self.in_flight || now < self.not_before || now < self.retry_at || !self.needs_flush() {
            return false;
        }
        let half_unseen = self.total >= 2 * self.confirmed;
        self.closing || half_unseen || self.pending() > 0 && self.is_due(timing, now)
    }

    fn plan(
        &mut self,
        found: Option<(i64, Duration)>,
        draining: bool,
        timing: &SeriesRules,
        now: Moment,
    ) -> Planned {
        let since = now.since(self.written_at);
        let created_only = !self.read && self.confirmed == 0 && !self.summary;
        if found.is_some_and(|(_, age)| created_only && age > since + SKEW) {
            return Planned::Lost(self.pending());
        }
        if found.is_none() && !self.read && !self.summary {
            return if since < COMMIT_GRACE { Planned::Wait } else { Planned::Lost(self.pending()) };
        }
        if found.is_some() {
            (self.read, self.witness) = (true, None);
        }
        let found = found.map(|(count, _)| count);
        if found.is_some_and(|found| found > self.stored) {
            self.written_at = now;
        }
        if self.base_unknown && self.summary {
            let base = found.unwrap_or(0);
            self.base_unknown = false;
            self.total += base;
            (self.stored, self.confirmed) = (base, base);
        }
        self.finds_base(found.unwrap_or(0));
        let Some(found) = found else {
            let is_deleted_after_flush = self.pending() == 0 && self.confirmed > 0;
            if self.merged && !is_deleted_after_flush {
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
        if found >= self.stored && !self.closing && !draining && !self.is_due(timing, now) {
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
