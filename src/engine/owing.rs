//! Where as many series owe as may, or where there is no room to keep what is needed to pay, a write that would make
//! one more owe is let through in place of being folded.

use std::ops::AddAssign;

use super::decide::Deciding;
use super::live::Handle;
use super::names::Carried;

/// A limit on what is pending, which a write would exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PendingLimit {
    /// The number of series with pending occurrences: [`super::Settings::max_owing`].
    Series,
    /// The text that is kept of stored Events: [`super::Gauges::text`].
    Text,
}

/// How many writes were let through because of each limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DebtsRefused {
    /// Because of [`PendingLimit::Series`].
    pub series: u64,
    /// Because of [`PendingLimit::Text`].
    pub text: u64,
}

impl AddAssign<PendingLimit> for DebtsRefused {
    fn add_assign(&mut self, limit: PendingLimit) {
        match limit {
            PendingLimit::Series => self.series += 1,
            PendingLimit::Text => self.text += 1,
        }
    }
}

impl Deciding<'_> {
    /// The limit that folding this write would exceed. A series that owes already goes on
    /// folding: its debt takes no more room for being larger. Likewise one of which is kept what its Event says; for
    /// another there has to be room, or one of the oldest of this scope that owes nothing can spare its own.
    pub(super) fn owes_one_too_many(
        &mut self,
        series: Option<Handle>,
        carried: &Carried,
    ) -> Option<PendingLimit> {
        if carried.occurrences == 0 || !(self.full.owing || self.full.text) {
            return None;
        }
        let series = series.and_then(|handle| self.scope.series.get(handle));
        let owes = series.is_some_and(|series| series.owed() > 0);
        let kept = series.is_some_and(|series| series.folded);
        if self.full.owing && !owes {
            Some(PendingLimit::Series)
        } else if self.full.text && !kept && !self.scope.spare_a_content(self.now) {
            Some(PendingLimit::Text)
        } else {
            None
        }
    }

    /// The same of a write that then goes through whatever it is: it is counted.
    pub(super) fn refuses_debt(&mut self, series: Option<Handle>, carried: &Carried) -> bool {
        let exceeded = self.owes_one_too_many(series, carried);
        if let Some(limit) = exceeded {
            self.debts_refused += limit;
        }
        exceeded.is_some()
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::super::testing::{at, by, counters, named, pay, rules, update, write};
    use super::super::{
        AggregationRules, Answer, Api, DebtsRefused, Denial, Disposition, Engine, GroupBy, Observation,
        Rules, Settings, Stage, Verdict,
    };

    /// One series may owe; that of `write()` does not, and another does.
    fn crowded(rules: &Rules) -> Engine {
        let began = Timestamp::UNIX_EPOCH;
        let engine = Engine::new(Settings { seed: [3, 4], max_series: 100, max_owing: 1, began });
        for name in ["other.1", "other.2"] {
            engine.decide(by(rules), &other(name), at(1));
        }
        engine.decide(by(rules), &write(), at(2));
        assert_eq!((engine.gauges().owing, engine.gauges().debts_refused), (1, refused(0)));
        engine
    }

    fn other(name: &'static str) -> Observation<'static> {
        Observation { user: "other", ..named(name, write()) }
    }

    /// As many writes, because of the number of series.
    fn refused(series: u64) -> DebtsRefused {
        DebtsRefused { series, text: 0 }
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
            (engine.gauges().owing, engine.gauges().owed, engine.gauges().debts_refused),
            (1, 1, refused(1))
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
            (engine.gauges().owing, engine.gauges().owed, engine.gauges().debts_refused),
            (1, 2, refused(0))
        );
    }

    #[test]
    fn room_comes_back_when_a_debt_is_paid() {
        let rules = rules();
        let engine = crowded(&rules);
        let order = engine.tick(at(3000), 10).remove(0);
        assert_eq!(pay(&engine, &order, Some(1), at(3001)), Some(2));
        assert_eq!(engine.gauges().owing, 0);
        let folded = engine.decide(by(&rules), &named("cart.2", write()), at(3002));
        assert_eq!(folded.disposition, Some(Disposition::Compacted));
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
        assert_eq!((engine.gauges().owed, counters(&engine).recovered), (1, 0), "the other's");
        // The first doubles what is stored: it goes through in any case.
        assert_eq!(engine.gauges().debts_refused, refused(38));
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
        assert_eq!(engine.gauges().debts_refused, refused(1));
    }

    #[test]
    fn one_namespaces_debts_leave_every_other_its_share() {
        let rules = rules();
        let began = Timestamp::UNIX_EPOCH;
        let engine = Engine::new(Settings { seed: [3, 4], max_series: 1000, max_owing: 10, began });
        let folded = |namespace: &'static str, story: usize| {
            let mut last = None;
            for twice in 0..2 {
                let name = format!("{story}.{twice}");
                let mut write = Observation { namespace, name: Some(name.into()), ..write() };
                write.event.message = story.to_string().into();
                last = engine.decide(by(&rules), &write, at(1)).disposition;
            }
            last == Some(Disposition::Compacted)
        };
        assert_eq!((0..20).filter(|story| folded("hostile", *story)).count(), 10);
        assert_eq!((0..20).filter(|story| folded("shop", *story)).count(), 5);
    }
}
