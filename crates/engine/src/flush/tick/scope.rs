//! The turn of one scope: due flushes, idle series, the drain.

use std::sync::Arc;

use super::{SLICE, WALK};
use crate::flush::phase::{DECIDING, DRAINING};
use crate::flush::plan::{FlushPlan, plan};
use crate::flush::tasks::FlushTask;
use crate::state::live_series::Handle;
use crate::state::scope::Scope;
use crate::state::series::Series;
use crate::{Mode, Moment};

/// The part of a tick for one scope.
pub(super) struct ScopeTick<'a> {
    pub(super) namespace: &'a Arc<str>,
    pub(super) scope: &'a mut Scope,
    pub(super) now: Moment,
    pub(super) tasks: &'a mut Vec<FlushTask>,
    /// Number of tasks at which the next scope has its turn.
    pub(super) share: usize,
    /// Number of processed entries.
    pub(super) processed: usize,
}

impl ScopeTick<'_> {
    pub(super) fn run(&mut self, phase: u8) {
        self.processed += self.scope.revise_series(SLICE, self.now);
        if phase == DECIDING {
            self.processed += self.scope.forget_expired(SLICE, self.now);
            self.close_idle();
            self.issue_due();
        } else {
            self.issue_all_pending(phase);
        }
    }

    fn issue_due(&mut self) {
        let mut scanned = 0;
        while self.tasks.len() < self.share
            && scanned < SLICE
            && let Some((due, handle)) = self.scope.series.first_timer()
            && due <= self.now
        {
            scanned += 1;
            self.scope.series.cancel_timer(handle);
            let Some(series) = self.scope.series.get(handle) else { continue };
            let timing = self.scope.rules.timing(series.summary);
            if series.next_flush(&timing, self.now).is_some_and(|flush| flush <= self.now) {
                self.issue(handle, false);
                self.scope.schedule(handle, self.now);
            } else if series.closing && !series.needs_flush() && !series.in_flight {
                // A client's write has flushed it meanwhile.
                self.scope.end(handle, self.now);
            } else {
                self.scope.schedule(handle, self.now);
            }
        }
        self.processed += scanned;
    }

    /// Removes series without a write for the idle timeout, and all series of a retired scope. A series with
    /// pending occurrences begins to close instead. Checks the oldest first. Waiting series keep their place,
    /// because a summary would otherwise be checked only after all newer ones. If there are many, they move to
    /// the end.
    fn close_idle(&mut self) {
        let ordinary = self.scope.rules.timing(false).idle_timeout;
        let ordered_by = self.scope.ordered_by();
        let mut waiting = Vec::new();
        let mut cursor = self.scope.series.oldest();
        for _ in 0..SLICE {
            let Some(handle) = cursor else { return };
            cursor = self.scope.series.next_newer(handle);
            let Some(series) = self.scope.series.get(handle) else { return };
            let idle = self.now.since(series.seen);
            if !self.scope.retired && idle <= ordinary {
                if idle + ordered_by <= ordinary {
                    return;
                }
                // One behind it may have been seen slightly earlier.
                continue;
            }
            let over =
                self.scope.retired || series.is_over(&self.scope.rules.timing(series.summary), self.now);
            if !over {
                waiting.push(handle);
                continue;
            }
            self.processed += 1;
            if series.in_flight || series.needs_flush() {
                self.scope.begin_closing(handle, self.now);
            } else {
                self.scope.end(handle, self.now);
            }
        }
        for handle in waiting {
            self.scope.series.move_to_newest(handle);
        }
    }

    /// Issues tasks from the last series to the first, some at a time.
    fn issue_all_pending(&mut self, phase: u8) {
        let all = u32::try_from(self.scope.series.len()).unwrap_or(u32::MAX);
        let mut walked = 0;
        while self.tasks.len() < self.share && walked < WALK.min(self.scope.series.len()) {
            walked += 1;
            let below = if self.scope.undrained_below == 0 { all } else { self.scope.undrained_below };
            self.scope.undrained_below = below - 1;
            let Some((handle, series)) = self.scope.series.nth(below - 1) else { continue };
            let waits = series.deferred && self.now < series.not_before;
            if is_to_be_drained(&series, phase) && !series.in_flight && !waits {
                self.issue(handle, true);
                self.processed += 1;
            }
        }
        self.processed += walked / SLICE;
    }

    /// Issues a task. In Observe it is acknowledged at once and nothing is written.
    fn issue(&mut self, handle: Handle, draining: bool) {
        if self.scope.rules.mode == Mode::Observe {
            self.acknowledge(handle, draining);
            return;
        }
        let in_flight = self.scope.change(handle, self.now, |series| series.in_flight = true);
        let name = self.scope.series.name(handle);
        if let (Some(()), Some(name)) = (in_flight, name) {
            self.tasks.push(FlushTask {
                namespace: self.namespace.clone(),
                name: name.into(),
                policy: self.scope.policy().clone(),
                scope: self.scope.id,
                series: handle,
            });
        }
    }

    fn acknowledge(&mut self, handle: Handle, draining: bool) {
        let now = self.now;
        let Some(series) = self.scope.series.get(handle) else { return };
        let timing = self.scope.rules.timing(series.summary);
        let content = self.scope.series.content(handle).cloned();
        self.scope.change(handle, now, |series| {
            let stored = Some(series.stored);
            let plan = plan(series, content.as_ref(), &timing, stored, draining, now);
            series.drained = draining;
            if plan != FlushPlan::Nothing {
                series.confirm(series.total);
                series.written_at = now;
            }
        });
        if series.closing {
            self.scope.end(handle, self.now);
        }
    }
}

/// Whether a series must be flushed in this phase of draining.
fn is_to_be_drained(series: &Series, phase: u8) -> bool {
    series.needs_flush() && !(series.drained && phase == DRAINING)
}
