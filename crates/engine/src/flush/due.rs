//! The next due time of a namespace, for callers that move time by hand (`squelch replay`).
//!
//! It is part of the engine because it reads the timers and the order of a scope's series.

use std::sync::Arc;
use std::time::Duration;

use crate::flush::tasks::FlushTask;
use crate::flush::tick::SLICE;
use crate::state::scope::Scope;
use crate::{Engine, Moment};

/// Number of waiting series that are checked: as many as in a tick.
const MAX_SCANNED: usize = SLICE;

/// A timeout has passed this much after its last instant.
const JUST: Duration = Duration::from_nanos(1);

impl Engine {
    /// Like [`Self::tick`], for one namespace: returns everything that is due there.
    pub fn tick_in(&self, namespace: &str, now: Moment, budget: usize) -> Vec<FlushTask> {
        let name: Arc<str> = namespace.into();
        let mut tasks = Vec::new();
        loop {
            let processed = self.tick_namespace(&name, now, budget, &mut tasks);
            if processed == 0 || tasks.len() >= budget {
                return tasks;
            }
        }
    }

    /// Returns when [`Self::tick_in`] will next find a series to flush or close, if no write comes before and
    /// it was called for `now`. `None` if time alone changes nothing there.
    pub fn next_due(&self, namespace: &str, now: Moment) -> Option<Moment> {
        let entry = self.locked(namespace)?;
        entry.scopes.iter().filter_map(|scope| scope.next_due(now)).min()
    }

    /// Returns the earliest time at which a write at `now` can have made something due. Cheaper than
    /// [`Self::next_due`], if the result of that was known before the write. Nothing may be due at that time.
    pub fn due_since_write(&self, namespace: &str, now: Moment) -> Option<Moment> {
        let entry = self.locked(namespace)?;
        entry.scopes.iter().map(|scope| scope.due_since_write(now)).min()
    }
}

impl Scope {
    fn due_since_write(&self, now: Moment) -> Moment {
        let flush = self.series.first_timer().map(|(due, _)| due);
        let over = now.plus(self.rules.timing(false).idle_timeout).plus(JUST);
        flush.map_or(over, |flush| flush.min(over))
    }

    fn next_due(&self, now: Moment) -> Option<Moment> {
        let flush = self.series.first_timer().map(|(due, _)| due);
        let closing = if self.retired { None } else { self.next_closing(now) };
        flush.into_iter().chain(closing).min()
    }

    /// A tick checks the oldest series first and stops at one that is not idle, because none after it can be.
    /// Those before it wait: summaries for the interval of their group, others for their timer.
    fn next_closing(&self, now: Moment) -> Option<Moment> {
        let ordinary = self.rules.timing(false).idle_timeout;
        let mut next = None;
        let mut cursor = self.series.oldest();
        for _ in 0..MAX_SCANNED {
            let Some(handle) = cursor else { break };
            cursor = self.series.next_newer(handle);
            let Some(series) = self.series.get(handle) else { break };
            let idle = series.seen.plus(ordinary).plus(JUST);
            if idle > now {
                next = next.into_iter().chain([idle]).min();
                if next.is_some_and(|next| next.plus(self.ordered_by()) <= idle) {
                    break;
                }
                continue;
            }
            let over = series.seen.plus(self.rules.timing(series.summary).idle_timeout).plus(JUST);
            let over = over.max(series.not_before);
            next = next.into_iter().chain([over]).filter(|over| *over > now).min();
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Observation;
    use crate::testing::{at, by, engine, flush, named, rules, summing, witness, write};

    /// Returns all flushes until nothing is due any more: time and written count.
    fn course(engine: &Engine, from: Moment) -> Vec<(Moment, i64)> {
        let (mut now, mut flushed, mut stored) = (from, Vec::new(), Some(1));
        while let Some(due) = engine.next_due("shop", now) {
            assert!(due > now || now == from, "{due:?} after {now:?}");
            now = due;
            for task in engine.tick_in("shop", now, 100) {
                if let Some(value) = flush(engine, &task, stored, now) {
                    stored = Some(value);
                    flushed.push((now, value));
                }
            }
        }
        flushed
    }

    #[test]
    fn time_can_jump_from_one_due_time_to_the_next() {
        let (engine, rules) = (engine(), rules());
        for (second, name) in [(0, "a.1"), (1, "a.2"), (2, "a.3")] {
            engine.decide(by(&rules), &named(name, write()), at(second * 1000));
        }
        // Doubled, but not before the grace time of the client's write. It is closed later without another
        // flush.
        assert_eq!(course(&engine, at(2000)), [(at(2000), 3)]);
        assert_eq!(engine.gauges().series, 0);
        assert_eq!(engine.next_due("elsewhere", at(0)), None);
    }

    #[test]
    fn a_waiting_summary_does_not_hide_later_due_times() {
        let (engine, rules) = (engine(), summing());
        witness(&engine, &rules, write().user, at(0));
        engine.decide(by(&rules), &named("a.1", write()), at(0));
        assert_eq!(engine.tick_in("shop", at(0), 100).len(), 1);
        engine.tick_in("shop", at(400_000), 100);
        witness(&engine, &rules, "another", at(500_000));
        engine.decide(by(&rules), &Observation { user: "another", ..named("b.1", write()) }, at(500_000));
        engine.tick_in("shop", at(500_000), 100);
        // The first summary is over together with its group. The second was seen later.
        assert_eq!(engine.next_due("shop", at(500_000)), Some(at(600_000).plus(JUST)));
    }
}
