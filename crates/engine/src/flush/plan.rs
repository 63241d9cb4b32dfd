//! What the flush writer does with a stored Event.

use std::time::Duration;

use jiff::Timestamp;

use crate::flush::tasks::FIRST_RETRY;
use crate::model::content::Content;
use crate::state::live_series::Handle;
use crate::state::scope::Scope;
use crate::state::series::Series;
use crate::{EventView, Moment, SeriesRules};

/// Tolerance when comparing the age of an Event with its admission. The API server that admitted the CREATE wrote the
/// creation time, and another one may answer the read: their clocks may differ by several seconds, or one of them is set
/// in between. A smaller tolerance takes a client's own Event for another one, and its pending occurrences are lost.
/// Within the tolerance only the contents distinguish Events.
const CLOCK_SKEW: Duration = Duration::from_secs(60);

/// A stored Event as the flush writer read it.
#[derive(Clone, Debug, Default)]
pub struct StoredEvent {
    /// The count that it shows.
    pub count: i64,
    /// Its age by the clock of the API server, if known.
    pub age: Option<Duration>,
    /// Its content; `None` if it is certain to be the right Event.
    pub content: Option<Box<Content>>,
}

/// What the flush writer does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FlushPlan {
    /// Nothing. The task is completed.
    Nothing,
    /// Write `value`, and `occurred_at` if it is later than the stored time.
    Write {
        /// The count to write.
        value: i64,
        /// Time of the last merged occurrence.
        occurred_at: Timestamp,
        /// What else to write.
        shown: Shown,
    },
    /// Create the Event, which is not stored, with `value`.
    Create {
        /// The count to write.
        value: i64,
        /// Time of the last merged occurrence.
        occurred_at: Timestamp,
        /// The content to write.
        content: Box<Content>,
        /// For a summary that was never stored: the name of an admitted Event of its group. Read that Event
        /// first; [`Engine::check_witness`](crate::Engine::check_witness) says whether the summary may be
        /// created.
        witness: Option<Box<str>>,
    },
    /// Nothing yet: the Event is missing, but the API server may still store its client's write. The task is
    /// completed and issued again later.
    Wait,
    /// Nothing: the Event was never stored as far as squelch knows, or another Event has its name. Its pending
    /// occurrences are counted as lost. The task is completed.
    Lost {
        /// Number of lost occurrences.
        occurrences: u64,
    },
}

/// What a flush changes besides count and time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shown {
    /// Nothing.
    Count,
    /// The message: that of the newest merged Event, if the policy masks parts of messages.
    Message(Box<str>),
    /// Everything that a summary shows of the newest merged Event.
    Summary(Box<Content>),
}

impl StoredEvent {
    /// Returns an Event that is certain to be the right one.
    pub fn with_count(count: i64) -> Self {
        Self { count, age: None, content: None }
    }

    /// Whether it existed before an Event whose CREATE was admitted this long ago.
    pub(crate) fn is_older_than(&self, admitted: Duration) -> bool {
        self.age.is_some_and(|age| age > admitted + CLOCK_SKEW)
    }
}

impl Scope {
    /// Returns what to do for a series, given the Event found under its name.
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
        let is_read = found.as_ref().map_or(series.read, |found| found.content.is_some());
        if let Some(read) = found {
            self.confirm(handle, &series, read, now);
        }
        let rules = self.rules.timing(series.summary);
        let content = self.series.content(handle).cloned();
        let planned =
            self.change(handle, now, |series| plan(series, content.as_ref(), &rules, count, !deciding, now));
        let witness = self.series.witness(handle).map(|(_, witness)| witness.name.clone());
        let newest = || if is_read && !series.summary { self.replacing_message(handle) } else { None };
        match planned? {
            FlushPlan::Create { value, occurred_at, mut content, .. } => {
                if let Some(message) = newest() {
                    *content = Content::of(&EventView { message: (*message).into(), ..content.view() });
                }
                Some(FlushPlan::Create { value, occurred_at, content, witness })
            }
            FlushPlan::Write { value, occurred_at, shown: Shown::Count } => {
                let shown = newest().map_or(Shown::Count, Shown::Message);
                Some(FlushPlan::Write { value, occurred_at, shown })
            }
            planned => Some(planned),
        }
    }

    /// Whether the found Event is not the one of this series. Its content differs, or it is older than the
    /// CREATE that opened the series; the API server then refused that CREATE.
    fn is_another(&self, handle: Handle, series: &Series, found: &StoredEvent, now: Moment) -> bool {
        // A summary's name is random, so squelch created what is stored there, or a client copied the name on
        // purpose.
        if series.summary {
            return false;
        }
        let claimed_only = series.is_claimed_only();
        let too_old = claimed_only && found.is_older_than(now.since(series.written_at));
        let Some(content) = &found.content else { return too_old };
        let Some(kept) = self.series.content(handle) else { return too_old };
        too_old || !kept.is_event_like(content, claimed_only)
    }

    /// Records that squelch read the stored Event. From now on squelch may create it again with this content.
    fn confirm(&mut self, handle: Handle, series: &Series, read: StoredEvent, now: Moment) {
        self.change(handle, now, |series| series.read = true);
        self.series.forget_witness(handle);
        if let Some(read) = read.content.filter(|_| series.merged && !series.summary) {
            let content = self.series.content(handle).map(|kept| kept.reread(&read));
            self.remember(handle, content.unwrap_or(*read));
        }
    }

    /// Returns the message of the newest merged CREATE, if a flush is to write it.
    fn replacing_message(&self, handle: Handle) -> Option<Box<str>> {
        self.series.content(handle)?.replacing_message(self.rules.normalize).map(Into::into)
    }

    /// Completes the task if the plan does.
    pub(crate) fn complete(
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
            self.remove_if_closed(handle, now);
        }
        Some(plan)
    }

    /// Removes the series of a completed task if it is closing and has nothing to flush.
    pub(crate) fn remove_if_closed(&mut self, handle: Handle, now: Moment) -> Option<()> {
        let series = self.series.get(handle)?;
        if series.closing && !series.in_flight && !series.needs_flush() {
            self.end(handle, now);
        }
        Some(())
    }
}

/// Returns what to do for one series, given the found count.
pub(crate) fn plan(
    series: &mut Series,
    content: Option<&Content>,
    rules: &SeriesRules,
    found: Option<i64>,
    draining: bool,
    now: Moment,
) -> FlushPlan {
    let occurred_at = series.occurred_at;
    if found.is_some_and(|found| found > series.stored) {
        // By squelch, if the answer to its last write was lost.
        series.written_at = now;
    }
    // Only squelch writes a summary. A higher count was not written by squelch, unless the answer to its last write was lost.
    let known = if series.failures == 0 { series.stored } else { series.total };
    let raised = series.summary && found.is_some_and(|found| found > known);
    if series.summary && (series.base_unknown || raised) {
        series.rebase(found.unwrap_or(0));
    }
    series.find_base(found.unwrap_or(0));
    match found {
        Some(found) if found >= series.total => series.confirm(found),
        Some(found)
            if found >= series.stored && !series.closing && !draining && !series.is_due(rules, now) =>
        {
            // Only the unconfirmed client write was due, and it is stored.
            series.stored = found;
            series.confirmed = found;
            series.unverified = false;
        }
        Some(_) => {
            let summary = content.filter(|_| series.summary);
            let shown = summary.map_or(Shown::Count, |summary| Shown::Summary(Box::new(summary.clone())));
            return FlushPlan::Write { value: series.total, occurred_at, shown };
        }
        None => match content {
            // A client deleted the confirmed Event and nothing is pending: it stays deleted.
            Some(_) if series.pending() == 0 && series.confirmed > 0 => series.confirm(series.total),
            Some(content) => {
                let content = Box::new(content.clone());
                return FlushPlan::Create { value: series.total, occurred_at, content, witness: None };
            }
            // Nothing was merged. Whether the client's write was committed is not squelch's concern.
            None => series.confirm(series.total),
        },
    }
    FlushPlan::Nothing
}
