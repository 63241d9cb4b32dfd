//! What the flush writer is to do about a stored Event that it has read.

use std::time::Duration;

use jiff::Timestamp;

use crate::flush::tasks::FIRST_RETRY;
use crate::model::content::Content;
use crate::state::live_series::Handle;
use crate::state::scope::Scope;
use crate::state::series::Series;
use crate::{Moment, SeriesRules};

/// How much older than its admission a new Event may look: its time of creation and that of the read are whole seconds.
const CREATION_ROUNDING: Duration = Duration::from_secs(1);

/// A stored Event, as it was read.
#[derive(Clone, Debug, Default)]
pub struct StoredEvent {
    /// The count that it shows.
    pub count: i64,
    /// How long ago it was created, by the clock of the API server that it was read from, if that is known.
    pub age: Option<Duration>,
    /// What it says; `None` where it is certain to be the Event that was meant.
    pub content: Option<Box<Content>>,
}

/// What is to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FlushPlan {
    /// Nothing; the order is answered.
    Nothing,
    /// The stored Event is to show `value`, last observed at `occurred_at` if that is later than it shows.
    Write {
        /// The count it is to show.
        value: i64,
        /// When the last folded occurrence happened.
        occurred_at: Timestamp,
        /// Of a summary: what it is to say from now on.
        content: Option<Box<Content>>,
    },
    /// There is no such Event: it is to be created with `value`.
    Create {
        /// The count it is to show.
        value: i64,
        /// When the last folded occurrence happened.
        occurred_at: Timestamp,
        /// What it is to say.
        content: Box<Content>,
        /// Of a summary that was never stored: the name of an admitted Event of its group. That Event has to be read first,
        /// and [`Engine::check_witness`] says whether it allows to create the summary.
        witness: Option<Box<str>>,
    },
    /// There is no such Event yet, but its client's write may still be stored; the order is answered, and given again.
    Wait,
    /// There is no such Event and never was, as far as squelch knows, or another one has its name: it is never written.
    /// The pending occurrences are lost and counted as that; the order is answered.
    Lost {
        /// How many occurrences are lost.
        occurrences: u64,
    },
}

impl StoredEvent {
    /// An Event that is certain to be the one that was meant.
    pub fn with_count(count: i64) -> Self {
        Self { count, age: None, content: None }
    }

    /// Whether it was there before an Event whose CREATE was admitted this long ago.
    pub(crate) fn is_older_than(&self, admitted: Duration) -> bool {
        self.age.is_some_and(|age| age > admitted + CREATION_ROUNDING)
    }
}

impl Scope {
    /// What the stored Event of a series lacks, given what was found under its name.
    pub(crate) fn plan(
        &mut self,
        handle: Handle,
        found: Option<StoredEvent>,
        deciding: bool,
        now: Moment,
    ) -> Option<FlushPlan> {
        let series = self.series.get(handle)?;
        if found.as_ref().is_some_and(|found| self.is_another(handle, &series, found, now)) {
            return Some(FlushPlan::Lost { occurrences: self.discard(handle)? });
        }
        if found.is_none() && !series.read && !series.summary {
            let plan = if series.may_still_be_stored(now) {
                FlushPlan::Wait
            } else {
                FlushPlan::Lost { occurrences: self.discard(handle)? }
            };
            return Some(plan);
        }
        let count = found.as_ref().map(|found| found.count);
        if let Some(read) = found {
            self.confirm(handle, &series, read, now);
        }
        let rules = self.rules.timing(series.summary);
        let content = self.series.content(handle).cloned();
        let planned =
            self.change(handle, now, |series| plan(series, content.as_ref(), &rules, count, !deciding, now));
        let witness = self.series.witness(handle).map(|(_, witness)| witness.name.clone());
        match planned? {
            FlushPlan::Create { value, occurred_at, content, .. } => {
                Some(FlushPlan::Create { value, occurred_at, content, witness })
            }
            planned => Some(planned),
        }
    }

    /// Whether what was found is not the Event of this series: it says something else, or is older than the CREATE that
    /// the series was opened by, which the API server has refused then.
    fn is_another(&self, handle: Handle, series: &Series, found: &StoredEvent, now: Moment) -> bool {
        // A summary's name is random: squelch has made what stands there, or somebody who knows what becomes of it.
        if series.summary {
            return false;
        }
        let claimed_only = series.is_claimed_only();
        let too_old = claimed_only && found.is_older_than(now.since(series.written_at));
        let Some(content) = &found.content else { return too_old };
        let Some(kept) = self.series.content(handle) else { return too_old };
        too_old || !kept.is_event_like(content, claimed_only)
    }

    /// squelch has read the stored Event: from now on it may create it again, as it was read.
    fn confirm(&mut self, handle: Handle, series: &Series, read: StoredEvent, now: Moment) {
        self.change(handle, now, |series| series.read = true);
        self.series.forget_witness(handle);
        if let Some(content) = read.content.filter(|_| series.merged && !series.summary) {
            self.remember(handle, *content);
        }
    }

    /// Takes the order as answered, where the plan says so.
    pub(crate) fn answer(
        &mut self,
        handle: Handle,
        plan: FlushPlan,
        deciding: bool,
        now: Moment,
    ) -> Option<FlushPlan> {
        self.change(handle, now, |series| match plan {
            FlushPlan::Write { .. } | FlushPlan::Create { .. } => {
                (series.in_flight, series.drained) = (true, false);
            }
            FlushPlan::Nothing => {
                (series.in_flight, series.drained, series.failures) = (false, !deciding, 0);
            }
            FlushPlan::Wait => {
                series.retry(now.plus(FIRST_RETRY), !deciding);
                series.drained = false;
            }
            FlushPlan::Lost { .. } => {}
        });
        if plan == FlushPlan::Nothing {
            self.finish(handle);
        }
        Some(plan)
    }

    /// Forgets the series of an order that was answered, if it was closing and owes nothing any more.
    pub(crate) fn finish(&mut self, handle: Handle) -> Option<()> {
        let series = self.series.get(handle)?;
        if series.closing && !series.in_flight && !series.needs_flush() {
            self.close(handle);
        }
        Some(())
    }
}

/// What one series' stored Event lacks, given what was found there.
pub(crate) fn plan(
    series: &mut Series,
    content: Option<&Content>,
    rules: &SeriesRules,
    found: Option<i64>,
    draining: bool,
    now: Moment,
) -> FlushPlan {
    let occurred_at = series.occurred_at;
    if series.base_unknown {
        series.rebase(found.unwrap_or(0));
    }
    match found {
        Some(found) if found >= series.total => series.confirm(found),
        Some(found)
            if found >= series.stored && !series.closing && !draining && !series.is_due(rules, now) =>
        {
            // Only the doubt brought us here, and what the client was believed to have paid is there.
            series.stored = found;
            series.confirmed = found;
            series.unverified = false;
        }
        Some(_) => {
            let content = content.filter(|_| series.summary).map(|content| Box::new(content.clone()));
            return FlushPlan::Write { value: series.total, occurred_at, content };
        }
        None => match content {
            // Someone deleted what had been seen, and nothing is owed: it stays deleted.
            Some(_) if series.pending() == 0 && series.confirmed > 0 => series.confirm(series.total),
            Some(content) => {
                let content = Box::new(content.clone());
                return FlushPlan::Create { value: series.total, occurred_at, content, witness: None };
            }
            // Nothing was folded: whether its client's write was committed is the client's affair.
            None => series.confirm(series.total),
        },
    }
    FlushPlan::Nothing
}
