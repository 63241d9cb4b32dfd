//! Counters of occurrences by disposition, for each namespace and policy.

use std::sync::Arc;

use crate::{Disposition, EventView, Mode, PolicyId, TopDropped};

/// Numbers of occurrences. They saturate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Counts by [`Disposition`], in the order of [`Disposition::ALL`].
    pub by_disposition: [u64; Disposition::ALL.len()],
    /// Occurrences that a client's absolute count reports again: they are stored, but were received before.
    pub recovered: u64,
    /// Pending occurrences that could never be written.
    pub lost: u64,
    /// Occurrences of Warnings among the dropped ones.
    pub dropped_warnings: u64,
}

impl Counters {
    /// Returns the count of one disposition.
    pub fn of(&self, disposition: Disposition) -> u64 {
        self.by_disposition[disposition as usize]
    }

    /// Returns the number of received occurrences: the sum over all dispositions.
    pub fn received(&self) -> u64 {
        self.by_disposition.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Adds `occurrences` to one disposition.
    pub fn count(&mut self, disposition: Disposition, occurrences: u64) {
        let slot = &mut self.by_disposition[disposition as usize];
        *slot = slot.saturating_add(occurrences);
    }

    /// Counts the occurrences of a dropped Event if it is a Warning.
    pub(crate) fn count_dropped_warning(&mut self, event: &EventView<'_>, occurrences: u64) {
        if event.is_warning() {
            self.dropped_warnings = self.dropped_warnings.saturating_add(occurrences);
        }
    }

    /// Adds the counts of `other`.
    pub fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.by_disposition.iter_mut().zip(other.by_disposition) {
            *mine = mine.saturating_add(theirs);
        }
        self.recovered = self.recovered.saturating_add(other.recovered);
        self.lost = self.lost.saturating_add(other.lost);
        self.dropped_warnings = self.dropped_warnings.saturating_add(other.dropped_warnings);
    }
}

/// Counters of one scope: one policy in one namespace, in one mode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScopeCounters {
    /// Namespace of the scope. Empty for deleted namespaces.
    pub namespace: Arc<str>,
    /// Policy of the scope.
    pub policy: PolicyId,
    /// Mode in which these occurrences were counted.
    pub mode: Mode,
    /// Counts since the process started.
    pub counters: Counters,
    /// Breakdown of the dropped occurrences. Its sum equals theirs.
    pub dropped: TopDropped,
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::time::Duration;

    use super::*;
    use crate::state::top_dropped;
    use crate::testing::{at, by, engine, named, rules, write};
    use crate::{BucketRules, Engine, Governing, Observation, Per, Rules, SpamFilterRules, Treatment};

    /// Rules with one token an hour for each reason, and a budget of three.
    fn limited(mode: Mode) -> Rules {
        let bucket = |burst| BucketRules {
            burst: NonZeroU32::new(burst).unwrap(),
            refill_interval: Duration::from_secs(3600),
        };
        let per = Per { emitter: false, object: false, event_type: false, reason: true };
        let spam_filter = Some(SpamFilterRules { bucket: bucket(1), per });
        Rules { mode, series: None, spam_filter, budget: Some(bucket(3)), ..rules() }
    }

    fn with<'a>(reason: &'a str, event_type: &'a str, value: i64, name: &'a str) -> Observation<'a> {
        let mut write = named(name, write());
        (write.event.reason, write.event.event_type, write.value) = (reason.into(), event_type.into(), value);
        write
    }

    fn scope_counters(engine: &Engine) -> ScopeCounters {
        engine.counters().remove(0)
    }

    #[test]
    fn dropped_occurrences_are_broken_down_in_both_modes() {
        for mode in [Mode::Enforce, Mode::Observe] {
            let (engine, rules) = (engine(), limited(mode));
            for (at_name, (reason, event_type, value)) in [
                ("A", "Warning", 1), // the first of a reason passes the filter, and three of them the budget
                ("B", "Warning", 1),
                ("C", "Normal", 1),
                ("D", "Warning", 2),  // throttled
                ("A", "Warning", 10), // filtered
                ("A", "Warning", 20),
                ("B", "Normal", 100),
            ]
            .into_iter()
            .enumerate()
            {
                let name = format!("event.{at_name}");
                // The repeated write carries no occurrence and is counted once.
                for _ in 0..2 {
                    engine.decide(by(&rules), &with(reason, event_type, value, &name), at(1));
                }
            }
            let ScopeCounters { counters, dropped, .. } = scope_counters(&engine);
            let mut reported: Vec<_> =
                dropped.entries.iter().map(|it| (it.disposition.as_str(), it.reason(), it.count)).collect();
            reported.sort_unstable();
            assert_eq!(reported, [("filtered", "A", 30), ("filtered", "B", 100), ("throttled", "D", 2)]);
            assert_eq!((dropped.others, dropped.sum()), (0, 132));
            assert_eq!(counters.of(Disposition::Filtered), 130);
            assert_eq!(counters.dropped_warnings, 32);
        }
    }

    #[test]
    fn admitted_and_merged_occurrences_are_not_dropped() {
        let engine = engine();
        let rules =
            Rules { spam_filter: None, budget: None, series: rules().series, ..limited(Mode::Enforce) };
        engine.decide(by(&rules), &write(), at(0));
        engine.decide(by(&rules), &named("cart.2", write()), at(1));
        engine.decide(
            Some(Governing { rules: &rules, treatment: Treatment::Exempt }),
            &named("cart.3", write()),
            at(2),
        );
        engine.fail_open(by(&rules), &named("cart.4", write()), at(3));
        let ScopeCounters { counters, dropped, .. } = scope_counters(&engine);
        assert_eq!((counters.received(), counters.of(Disposition::Compacted)), (4, 1));
        assert_eq!((dropped, counters.dropped_warnings), (TopDropped::default(), 0));
    }

    #[test]
    fn ten_thousand_namespaces_share_the_capacity_for_top_dropped() {
        let (engine, rules) = (engine(), limited(Mode::Enforce));
        let reasons: Vec<String> = (0..40).map(|reason| format!("Reason{reason}")).collect();
        let namespaces: Vec<String> = (0..10_000).map(|number| format!("team-{number}")).collect();
        for namespace in &namespaces {
            for reason in &reasons {
                let write = Observation { name: None, namespace, ..with(reason, "Warning", 1, "") };
                engine.decide(by(&rules), &write, at(1));
            }
        }
        // While namespaces keep arriving, each holds more than its fair share, which shrinks.
        assert!(engine.gauges().dropped < 3 * top_dropped::MAX_IN_ALL);
        for _ in 0..top_dropped::MAX_RANKED {
            engine.tick(at(1), 1);
        }
        let counters = engine.counters();
        let usage: usize = counters.iter().map(|scope_counters| scope_counters.dropped.entries.len()).sum();
        assert_eq!(usage, engine.gauges().dropped);
        assert!(usage <= top_dropped::MAX_IN_ALL, "{usage} entries");
        assert!(
            counters.iter().all(|scope_counters| scope_counters.dropped.entries.len() >= 4),
            "each has its share"
        );
        let dropped = |ScopeCounters { counters, .. }: &ScopeCounters| {
            counters.of(Disposition::Filtered) + counters.of(Disposition::Throttled)
        };
        assert!(
            counters.iter().all(|scope_counters| scope_counters.dropped.sum() == dropped(scope_counters)),
            "none is forgotten"
        );
    }
}
