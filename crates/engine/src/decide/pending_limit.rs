//! The limits on pending occurrences. At the limit on pending series, or without capacity for the Event's
//! content, a write that would add a pending series is admitted instead of merged.

use crate::PendingLimit;
use crate::decide::pipeline::Decision;
use crate::state::live_series::Handle;
use crate::state::names::Carried;

impl Decision<'_> {
    /// Returns the limit that merging the write would exceed. A series that already has pending occurrences
    /// takes no more space when their number grows; the same holds for a series whose content is stored. For
    /// other series the content of one of the oldest must be evicted.
    pub(crate) fn exceeded_pending_limit(
        &mut self,
        series: Option<Handle>,
        carried: &Carried,
    ) -> Option<PendingLimit> {
        if carried.occurrences == 0 || !(self.at_capacity.pending_series || self.at_capacity.text) {
            return None;
        }
        let series = series.and_then(|handle| self.scope.series.get(handle));
        let is_pending = series.is_some_and(|series| series.pending() > 0);
        let kept = series.is_some_and(|series| series.merged);
        if self.at_capacity.pending_series && !is_pending {
            Some(PendingLimit::Series)
        } else if self.at_capacity.text && !kept && !self.scope.evict_content(self.now) {
            Some(PendingLimit::Text)
        } else {
            None
        }
    }

    /// Whether merging the write would exceed a limit. If so, counts the write as admitted because of it, unless a later step
    /// drops it.
    pub(crate) fn refuses_pending(&mut self, series: Option<Handle>, carried: &Carried) -> bool {
        let exceeded = self.exceeded_pending_limit(series, carried);
        if let Some(limit) = exceeded {
            self.pending_limit_admissions += limit;
        }
        exceeded.is_some()
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use crate::testing::{at, by, counters, flush, named, rules, update, write};
    use crate::{
        AggregationRules, Answer, Api, BucketRules, Denial, Disposition, Engine, GroupBy, Mode, Observation,
        PendingLimitAdmissions, Per, PolicyId, Rules, Settings, SpamFilterRules, Stage, Verdict,
    };

    /// An engine at its limit: another series is pending, that of `write()` is not.
    fn at_limit(rules: &Rules) -> Engine {
        let began = Timestamp::UNIX_EPOCH;
        let engine = Engine::new(Settings { seed: [3, 4], max_series: 100, max_pending_series: 1, began });
        for name in ["other.1", "other.2"] {
            engine.decide(by(rules), &other(name), at(1));
        }
        engine.decide(by(rules), &write(), at(2));
        assert_eq!(
            (engine.gauges().pending_series, engine.gauges().pending_limit_admissions),
            (1, admissions(0))
        );
        engine
    }

    fn other(name: &'static str) -> Observation<'static> {
        Observation { user: "other", ..named(name, write()) }
    }

    /// Returns this many admissions because of the limit on pending series.
    fn admissions(series: u64) -> PendingLimitAdmissions {
        PendingLimitAdmissions { series, text: 0 }
    }

    fn admitted(occurrences: i64) -> Verdict {
        let disposition = Some(Disposition::Admitted);
        Verdict { disposition, stage: Stage::Series, occurrences, answer: Answer::Allow }
    }

    #[test]
    fn a_create_beyond_the_limit_on_pending_series_is_admitted() {
        let rules = rules();
        let engine = at_limit(&rules);
        assert_eq!(engine.decide(by(&rules), &named("cart.2", write()), at(3)), admitted(1));
        assert_eq!(
            (
                engine.gauges().pending_series,
                engine.gauges().pending_occurrences,
                engine.gauges().pending_limit_admissions
            ),
            (1, 1, admissions(1))
        );
        // The repeated write carries no occurrence and needs no capacity.
        let again = engine.decide(by(&rules), &named("cart.2", write()), at(4));
        assert_eq!((again.disposition, again.occurrences), (Some(Disposition::Compacted), 0));
    }

    #[test]
    fn a_pending_series_keeps_merging_at_the_limit() {
        let rules = rules();
        let engine = at_limit(&rules);
        let again = engine.decide(by(&rules), &other("other.3"), at(3));
        assert_eq!(again.disposition, Some(Disposition::Compacted));
        assert_eq!(
            (
                engine.gauges().pending_series,
                engine.gauges().pending_occurrences,
                engine.gauges().pending_limit_admissions
            ),
            (1, 2, admissions(0))
        );
    }

    #[test]
    fn a_flush_makes_capacity_for_a_pending_series() {
        let rules = rules();
        let engine = at_limit(&rules);
        let task = engine.tick(at(3000), 10).remove(0);
        assert_eq!(flush(&engine, &task, Some(1), at(3001)), Some(2));
        assert_eq!(engine.gauges().pending_series, 0);
        let merged = engine.decide(by(&rules), &named("cart.2", write()), at(3002));
        assert_eq!(merged.disposition, Some(Disposition::Compacted));
    }

    #[test]
    fn at_the_limit_an_update_with_a_complete_count_passes() {
        let rules = rules();
        let engine = at_limit(&rules);
        let mut stored = 1;
        for value in 2..=40 {
            let verdict = engine.decide(by(&rules), &update(value, stored), at(value as u64));
            assert_eq!(verdict, admitted(1), "{value}");
            stored = value;
        }
        assert_eq!((engine.gauges().pending_occurrences, counters(&engine).recovered), (1, 0), "the other's");
        // The first of them doubles the stored count and passes in any case.
        assert_eq!(engine.gauges().pending_limit_admissions, admissions(38));
    }

    #[test]
    fn at_the_limit_an_update_that_lowers_or_omits_is_still_merged() {
        let rules = rules();
        let engine = at_limit(&rules);
        let lowering = engine.decide(by(&rules), &named("cart.5", update(3, 8)), at(3));
        assert_eq!(lowering.answer, Answer::Deny(Denial::AlreadyExists));
        let through_events =
            Observation { api: Api::Events, has_series: true, ..named("cart.5", update(4, 8)) };
        assert_eq!(engine.decide(by(&rules), &through_events, at(4)).answer, Answer::Restore);
        assert_eq!(counters(&engine).of(Disposition::Compacted), 3);

        let engine = at_limit(&rules);
        // It carries three occurrences, but its count is only one above the stored count.
        engine.decide(by(&rules), &named("cart.7", Observation { value: 1, ..write() }), at(3));
        let short = engine.decide(by(&rules), &named("cart.7", update(4, 3)), at(4));
        assert_eq!((short.disposition, short.occurrences), (Some(Disposition::Compacted), 3));
    }

    #[test]
    fn a_summary_beyond_the_limit_merges_nothing() {
        let aggregation = AggregationRules {
            max_events: 1,
            idle_timeout: std::time::Duration::from_secs(600),
            group_by: GroupBy::Object,
        };
        let plain = rules();
        let engine = at_limit(&plain);
        let summing = Rules { aggregation: Some(aggregation), ..plain };
        for (name, message) in [("cart.2", "another"), ("cart.3", "one more")] {
            let mut news = named(name, write());
            news.event.message = message.into();
            assert_eq!(engine.decide(by(&summing), &news, at(3)).stage, Stage::Admit);
        }
        assert_eq!(engine.gauges().pending_limit_admissions, admissions(1));
    }

    #[test]
    fn pending_series_of_one_namespace_leave_others_their_share() {
        let rules = rules();
        let began = Timestamp::UNIX_EPOCH;
        let engine = Engine::new(Settings { seed: [3, 4], max_series: 1000, max_pending_series: 10, began });
        let merged = |namespace: &'static str, message: usize| {
            let mut last = None;
            for twice in 0..2 {
                let name = format!("{message}.{twice}");
                let mut write = Observation { namespace, name: Some(name.into()), ..write() };
                write.event.message = message.to_string().into();
                last = engine.decide(by(&rules), &write, at(1)).disposition;
            }
            last == Some(Disposition::Compacted)
        };
        assert_eq!((0..20).filter(|message| merged("hostile", *message)).count(), 10);
        assert_eq!((0..20).filter(|message| merged("shop", *message)).count(), 5);
    }

    #[test]
    fn series_in_observe_are_not_pending() {
        let began = Timestamp::UNIX_EPOCH;
        let engine = Engine::new(Settings { seed: [3, 4], max_series: 100, max_pending_series: 1, began });
        let policy = PolicyId { display: "shop/observed".into(), uid: "p2".into() };
        let observing = Rules { policy, mode: Mode::Observe, ..rules() };
        for name in ["other.1", "other.2"] {
            engine.decide(by(&observing), &other(name), at(1));
        }
        assert_eq!((engine.gauges().pending_series, engine.gauges().pending_occurrences), (0, 0));
        let rules = rules();
        engine.decide(by(&rules), &write(), at(2));
        let merged = engine.decide(by(&rules), &named("cart.2", write()), at(3));
        assert_eq!(merged.disposition, Some(Disposition::Compacted));
        assert_eq!(engine.gauges().pending_limit_admissions, admissions(0));
    }

    #[test]
    fn a_write_that_the_limits_drop_is_not_admitted_because_of_pending_series() {
        let aggregation = AggregationRules {
            max_events: 1,
            idle_timeout: std::time::Duration::from_secs(600),
            group_by: GroupBy::Object,
        };
        let spam_filter = SpamFilterRules {
            bucket: BucketRules {
                burst: 1.try_into().unwrap(),
                refill_interval: std::time::Duration::from_secs(3600),
            },
            per: Per { emitter: true, object: true, event_type: true, reason: false },
        };
        let plain = rules();
        let engine = at_limit(&plain);
        let rules = Rules { aggregation: Some(aggregation), spam_filter: Some(spam_filter), ..plain };
        let decide = |name, message: &'static str| {
            let mut news = named(name, write());
            news.event.message = message.into();
            engine.decide(by(&rules), &news, at(3)).disposition
        };
        assert_eq!(decide("cart.2", "another"), Some(Disposition::Admitted));
        assert_eq!(decide("cart.3", "one more"), Some(Disposition::Filtered));
        assert_eq!(engine.gauges().pending_limit_admissions, admissions(0));
    }
}
