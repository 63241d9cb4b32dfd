//! Where as many series owe as may, or where there is no room to keep what is needed to pay, a write that would make
//! one more owe is let through in place of being folded.

use crate::decide::pipeline::Decision;
use crate::state::live_series::Handle;
use crate::state::names::Carried;

impl Decision<'_> {
    /// Whether to fold this write would make one more series owe than may. A series that owes already goes on
    /// folding: its debt takes no more room for being larger. Likewise one of which is kept what its Event says; for
    /// another there has to be room, or one of the oldest of this scope that owes nothing can spare its own.
    pub(crate) fn is_over_pending_limit(&mut self, series: Option<Handle>, carried: &Carried) -> bool {
        if carried.occurrences == 0 || !(self.at_capacity.pending_series || self.at_capacity.text) {
            return false;
        }
        let series = series.and_then(|handle| self.scope.series.get(handle));
        let owes = series.is_some_and(|series| series.pending() > 0);
        let kept = series.is_some_and(|series| series.merged);
        self.at_capacity.pending_series && !owes
            || self.at_capacity.text && !kept && !self.scope.evict_content(self.now)
    }

    /// The same of a write that then goes through whatever it is: it is counted.
    pub(crate) fn refuses_pending(&mut self, series: Option<Handle>, carried: &Carried) -> bool {
        let refuses = self.is_over_pending_limit(series, carried);
        self.pending_refused += u64::from(refuses);
        refuses
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use crate::testing::{at, by, counters, flush, named, rules, update, write};
    use crate::{
        AggregationRules, Answer, Api, Denial, Disposition, Engine, GroupBy, Observation, Rules, Settings,
        Stage, Verdict,
    };

    /// One series may owe; that of `write()` does not, and another does.
    fn crowded(rules: &Rules) -> Engine {
        let began = Timestamp::UNIX_EPOCH;
        let engine = Engine::new(Settings { seed: [3, 4], max_series: 100, max_pending_series: 1, began });
        for name in ["other.1", "other.2"] {
            engine.decide(by(rules), &other(name), at(1));
        }
        engine.decide(by(rules), &write(), at(2));
        assert_eq!((engine.gauges().pending_series, engine.gauges().pending_refused), (1, 0));
        engine
    }

    fn other(name: &'static str) -> Observation<'static> {
        Observation { user: "other", ..named(name, write()) }
    }

    fn admitted(occurrences: i64) -> Verdict {
        let disposition = Some(Disposition::Admitted);
        Verdict { disposition, stage: Stage::Series, occurrences, answer: Answer::Allow }
    }

    #[test]
    fn a_create_that_would_make_one_more_series_owe_is_admitted() {
        let rules = rules();
        let engine = crowded(&rules);
        assert_eq!(engine.decide(by(&rules), &named("cart.2", write()), at(3)), admitted(1));
        assert_eq!(
            (
                engine.gauges().pending_series,
                engine.gauges().pending_occurrences,
                engine.gauges().pending_refused
            ),
            (1, 1, 1)
        );
        // The same write seen again tells of nothing: it takes no room.
        let again = engine.decide(by(&rules), &named("cart.2", write()), at(4));
        assert_eq!((again.disposition, again.occurrences), (Some(Disposition::Compacted), 0));
    }

    #[test]
    fn a_series_that_owes_already_goes_on_folding() {
        let rules = rules();
        let engine = crowded(&rules);
        let again = engine.decide(by(&rules), &other("other.3"), at(3));
        assert_eq!(again.disposition, Some(Disposition::Compacted));
        assert_eq!(
            (
                engine.gauges().pending_series,
                engine.gauges().pending_occurrences,
                engine.gauges().pending_refused
            ),
            (1, 2, 0)
        );
    }

    #[test]
    fn room_comes_back_when_a_debt_is_paid() {
        let rules = rules();
        let engine = crowded(&rules);
        let task = engine.tick(at(3000), 10).remove(0);
        assert_eq!(flush(&engine, &task, Some(1), at(3001)), Some(2));
        assert_eq!(engine.gauges().pending_series, 0);
        let merged = engine.decide(by(&rules), &named("cart.2", write()), at(3002));
        assert_eq!(merged.disposition, Some(Disposition::Compacted));
    }

    #[test]
    fn an_update_goes_through_where_the_stored_count_then_tells_everything() {
        let rules = rules();
        let engine = crowded(&rules);
        let mut stored = 1;
        for value in 2..=40 {
            let verdict = engine.decide(by(&rules), &update(value, stored), at(value as u64));
            assert_eq!(verdict, admitted(1), "{value}");
            stored = value;
        }
        assert_eq!((engine.gauges().pending_occurrences, counters(&engine).recovered), (1, 0), "the other's");
        // The first doubles what is stored: it goes through in any case.
        assert_eq!(engine.gauges().pending_refused, 38);
    }

    #[test]
    fn what_would_lower_a_count_or_leave_something_out_is_folded_even_then() {
        let rules = rules();
        let engine = crowded(&rules);
        let lowering = engine.decide(by(&rules), &named("cart.5", update(3, 8)), at(3));
        assert_eq!(lowering.answer, Answer::Deny(Denial::AlreadyExists));
        let through_events =
            Observation { api: Api::Events, has_series: true, ..named("cart.5", update(4, 8)) };
        assert_eq!(engine.decide(by(&rules), &through_events, at(4)).answer, Answer::Restore);
        assert_eq!(counters(&engine).of(Disposition::Compacted), 3);

        let engine = crowded(&rules);
        // Three occurrences, of which the client's own count shows one more than what is stored.
        engine.decide(by(&rules), &named("cart.7", Observation { value: 1, ..write() }), at(3));
        let short = engine.decide(by(&rules), &named("cart.7", update(4, 3)), at(4));
        assert_eq!((short.disposition, short.occurrences), (Some(Disposition::Compacted), 3));
    }

    #[test]
    fn a_summary_that_may_not_owe_takes_nothing() {
        let aggregation = AggregationRules {
            max_events: 1,
            interval: std::time::Duration::from_secs(600),
            group_by: GroupBy::Object,
        };
        let plain = rules();
        let engine = crowded(&plain);
        let summing = Rules { aggregation: Some(aggregation), ..plain };
        for (name, message) in [("cart.2", "another"), ("cart.3", "one more")] {
            let mut news = named(name, write());
            news.event.message = message.into();
            assert_eq!(engine.decide(by(&summing), &news, at(3)).stage, Stage::Admit);
        }
        assert_eq!(engine.gauges().pending_refused, 1);
    }

    #[test]
    fn one_namespaces_debts_leave_every_other_its_share() {
        let rules = rules();
        let began = Timestamp::UNIX_EPOCH;
        let engine = Engine::new(Settings { seed: [3, 4], max_series: 1000, max_pending_series: 10, began });
        let merged = |namespace: &'static str, story: usize| {
            let mut last = None;
            for twice in 0..2 {
                let name = format!("{story}.{twice}");
                let mut write = Observation { namespace, name: Some(name.into()), ..write() };
                write.event.message = story.to_string().into();
                last = engine.decide(by(&rules), &write, at(1)).disposition;
            }
            last == Some(Disposition::Compacted)
        };
        assert_eq!((0..20).filter(|story| merged("hostile", *story)).count(), 10);
        assert_eq!((0..20).filter(|story| merged("shop", *story)).count(), 5);
    }
}
