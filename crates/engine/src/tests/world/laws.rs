//! The laws that every run must keep, and the kinds of runs.

use proptest::option::of;
use proptest::prelude::*;

use super::steps::{
    MESSAGES, calm, harsh, steps_of_kinds, with_crashes, with_early_reads, with_everything,
    with_late_reviews, with_lost_answers, with_others, with_oversights, with_restarts,
};
use super::*;
use crate::Mask;
use crate::testing::{cases, rules};

impl World {
    /// Returns the sum of the counters of all replicas.
    pub(super) fn counters(&self) -> Counters {
        counters_of(self.replicas.iter().map(|replica| &replica.engine))
    }

    /// The sum over the dispositions equals the received occurrences, which equal the truth. The pending
    /// occurrences equal those of the model.
    pub(super) fn check_each_step(&mut self) {
        let received = self.counted.received() as i64;
        if received != self.balance.truth {
            self.break_law(format!("{received} received, of {}", self.balance.truth));
        }
        let Some(Replica { engine, model, over: false, .. }) = self.replicas.last() else { return };
        let (gauges, expected) = (engine.gauges(), model.as_ref().map(NaiveModel::pending));
        // A name was evicted, so the occurrences of its next value are unknown.
        self.names_are_forgotten |= gauges.names_evicted > 0;
        self.balance.disturbed |= self.names_are_forgotten;
        let pending = gauges.pending_occurrences as i64;
        if let Some(expected) = expected
            && pending != expected
        {
            self.break_law(format!("{pending} pending, and should be {expected}"));
        }
    }

    /// The engine's verdict equals the model's.
    pub(super) fn compare_with_model(
        &mut self,
        treatment: Treatment,
        asked: &Observation<'_>,
        verdict: &Verdict,
        recovered: i64,
    ) {
        let now = self.now;
        let Some(Replica { model: Some(model), .. }) = self.replicas.last_mut() else { return };
        let before = model.recovered;
        let minted = match &verdict.answer {
            Answer::AllowNamed(name) => Some(&**name),
            _ => None,
        };
        let expected = model.decide(asked, treatment, minted, now);
        let should_be = model.recovered - before;
        if expected != *verdict {
            self.break_law(format!("{verdict:?}, and should be {expected:?}"));
        }
        if recovered != should_be {
            self.break_law(format!("{recovered} recovered, and should be {should_be}"));
        }
    }

    /// A policy drops no Warning unless it says so, and what it mutes is dropped.
    pub(super) fn check_drops(&mut self, asked: &Observation<'_>, verdict: &Verdict) {
        let Some(disposition) = verdict.disposition else { return };
        let keeps_warnings = self.rules.warning_policy == WarningPolicy::NeverDrop;
        let is_kept = keeps_warnings && asked.event.event_type == "Warning";
        if is_kept && disposition.is_dropped() {
            self.break_law(format!("a Warning is {}", disposition.as_str()));
        }
        let is_muted = self.mutes(asked) && !is_kept;
        if is_muted != (disposition == Disposition::Muted) && self.webhook == Webhook::Active {
            self.break_law(format!("it is {}, and muted should be {is_muted}", disposition.as_str()));
        }
    }

    /// Called after the writer did what is due: no Event shows less than half of its total.
    pub(super) fn check_what_is_shown(&mut self) {
        // Writes without a review may lower a count. While draining, squelch flushes each Event once before the
        // end.
        if self.balance.unseen > 0 || self.webhook != Webhook::Active {
            return;
        }
        let Some(Replica { model: Some(model), over: false, .. }) = self.replicas.last() else { return };
        let shown = model.series.iter().filter(|series| series.is_to_be_shown(self.now) && !series.summary);
        let short = shown.filter_map(|series| {
            let count = self.etcd.get(&series.name)?.count;
            (2 * count < series.total).then(|| format!("{} shows {count} of {}", series.name, series.total))
        });
        let under_way = |short: &String| {
            !self.pending.iter().any(|request| short.starts_with(&format!("{} ", request.stored_name())))
        };
        for short in short.filter(under_way).collect::<Vec<_>>() {
            self.break_law(short);
        }
    }

    /// The stored counts equal what was admitted, compacted, aggregated and recovered, except for what ended
    /// replicas and undecided writes changed. Skipped if that is unknown.
    fn check_what_is_stored(&mut self) {
        let counters = self.counters();
        let stored = [Disposition::Admitted, Disposition::Compacted, Disposition::Aggregated];
        let law = (stored.iter().map(|it| counters.of(*it)).sum::<u64>() + counters.recovered) as i64;
        let Balance { lost, reported_again, unseen, refused, .. } = self.balance;
        let within = law - lost - reported_again - refused - counters.lost as i64..=law + unseen;
        if !self.balance.disturbed && !within.contains(&self.etcd.gained) {
            let gained = self.etcd.gained;
            self.break_law(format!("{gained} stored, and should be {within:?}: {counters:?}"));
        }
    }

    /// What the oracle computed from outside. `at_rest`: everything is flushed.
    pub(super) fn check_oracle(&mut self, at_rest: bool) {
        // Each replica remembers twice as many names as series. "After its name is evicted, an Event is counted
        // from its stored count."
        self.oracle.is_blind |= self.oracle.names() > 2 * self.max_series;
        for broken in self.oracle.broken(at_rest) {
            self.break_law(broken);
        }
    }

    fn check_that_nothing_is_left(&mut self) {
        for at in 0..self.replicas.len() {
            let Replica { engine, over, .. } = &self.replicas[at];
            let (gauges, unflushed) = (engine.gauges(), engine.unflushed());
            let active = self.webhook == Webhook::Active && at + 1 == self.replicas.len();
            if !over && (gauges.pending_occurrences > 0 || unflushed > 0 || active && gauges.series > 0) {
                self.break_law(format!("at rest, replica {at} has {unflushed} to flush: {gauges:?}"));
            }
        }
    }

    /// Returns an error with the trace if a law was broken.
    pub(super) fn judge(&self) -> Result<(), TestCaseError> {
        let Some(first) = self.broken.first() else { return Ok(()) };
        let reported =
            format!("{first}\n\n{}\n\n{:?}\n{:?}", self.trace.join("\n"), self.rules, self.balance);
        Err(TestCaseError::fail(reported))
    }

    /// Runs the steps and comes to rest.
    pub(super) fn run_to_end(&mut self, steps: &[Step]) -> Result<(), TestCaseError> {
        for step in steps {
            self.run(*step);
            self.judge()?;
        }
        self.come_to_rest();
        self.check_each_step();
        self.check_what_is_stored();
        self.check_oracle(true);
        self.check_that_nothing_is_left();
        self.judge()
    }
}

/// The default rules with other times, in seconds.
pub(super) fn rules_with(idle_timeout: u64, heartbeat_interval: u64) -> Rules {
    let series = SeriesRules {
        idle_timeout: Duration::from_secs(idle_timeout),
        heartbeat_interval: Duration::from_secs(heartbeat_interval),
    };
    Rules { series: Some(series), ..rules() }
}

/// A policy: its rules, and the message that it mutes.
#[derive(Clone, Debug)]
pub(super) struct Policy {
    pub(super) rules: Rules,
    pub(super) muted: Option<&'static str>,
}

/// Policies with every choice of stages.
fn policy() -> impl Strategy<Value = Policy> {
    let bucket = (1u32..6, prop_oneof![Just(30u64), Just(900)]).prop_map(|(burst, seconds)| BucketRules {
        burst: burst.try_into().unwrap(),
        refill_interval: Duration::from_secs(seconds),
    });
    let group_by = prop_oneof![Just(GroupBy::Object), Just(GroupBy::Kind)];
    let aggregation = (1u32..4, group_by).prop_map(|(max_events, group_by)| AggregationRules {
        max_events,
        idle_timeout: Duration::from_secs(600),
        group_by,
    });
    let per = any::<[bool; 4]>().prop_map(|[emitter, object, event_type, reason]| Per {
        emitter,
        object,
        event_type,
        reason,
    });
    let spam_filter = (bucket.clone(), per).prop_map(|(bucket, per)| SpamFilterRules { bucket, per });
    let rejection = prop_oneof![Just(Rejection::AlreadyExists), Just(Rejection::Forbidden)];
    let warning_policy = prop_oneof![Just(WarningPolicy::NeverDrop), Just(WarningPolicy::Limit)];
    let muted = prop::option::weighted(0.2, prop::sample::select(&MESSAGES));
    let stages = (prop::bool::weighted(0.8), of(aggregation), of(spam_filter), of(bucket));
    let masks = prop::collection::vec(Just(Mask::Durations), 0..2);
    (stages, rejection, warning_policy, muted, masks).prop_map(
        |((series, aggregation, spam_filter, budget), rejection, warning_policy, muted, masks)| {
            let rules = rules();
            let series = rules.series.filter(|_| series);
            let normalize = masks.into_iter().collect();
            let limits = Rules { spam_filter, budget, rejection, ..rules };
            let rules = Rules { warning_policy, normalize, series, aggregation, ..limits };
            Policy { rules, muted }
        },
    )
}

/// Number of laws.
const LAWS: u32 = 14;

/// 10,000 lives in all, or `SQUELCH_PROPTEST_CASES` for each law. `./justw test-lives` runs a million.
fn lives() -> ProptestConfig {
    cases(10_000 / LAWS)
}

proptest! {
    #![proptest_config(lives())]

    #[test]
    fn clients_of_every_kind_keep_the_laws(
        idle_timeout in prop_oneof![Just(2), Just(360)], steps in steps_of_kinds(calm())
    ) {
        World::new(rules_with(idle_timeout, 1800)).run_to_end(&steps)?;
    }

    #[test]
    fn policies_of_every_kind_keep_the_laws(policy in policy(), steps in steps_of_kinds(calm())) {
        World::under(policy).run_to_end(&steps)?;
    }

    #[test]
    fn refusals_deletes_and_expiry_lower_nothing(
        policy in policy(), ttl in prop_oneof![120u64..900, Just(3600)], steps in steps_of_kinds(harsh())
    ) {
        let world = World::under(policy);
        world.expiring(Duration::from_secs(ttl)).run_to_end(&steps)?;
    }

    #[test]
    fn unusual_clients_keep_the_laws(policy in policy(), steps in steps_of_kinds(with_others())) {
        World::under(policy).run_to_end(&steps)?;
    }

    #[test]
    fn series_alone_keep_the_laws_among_unusual_clients(steps in steps_of_kinds(with_others())) {
        World { with_tools: false, ..World::new(rules()) }.run_to_end(&steps)?;
    }

    #[test]
    fn the_shortest_times_keep_the_laws(
        heartbeat_interval in prop_oneof![Just(1), Just(1800)], steps in steps_of_kinds(harsh())
    ) {
        World { with_tools: false, ..World::new(rules_with(1, heartbeat_interval)) }.run_to_end(&steps)?;
    }

    #[test]
    fn a_table_at_capacity_keeps_the_laws(max_series in 1usize..4, steps in steps_of_kinds(calm())) {
        let mut world = World { max_series, with_tools: false, with_model: false, ..World::new(rules()) };
        world.replicas.clear();
        world.start_replica(Timestamp::UNIX_EPOCH);
        world.run_to_end(&steps)?;
    }

    #[test]
    fn orderly_restarts_keep_the_laws(policy in policy(), steps in steps_of_kinds(with_restarts())) {
        World::under(policy).run_to_end(&steps)?;
    }

    #[test]
    fn crashes_lose_at_most_the_pending_occurrences(policy in policy(), steps in steps_of_kinds(with_crashes())) {
        World::under(policy).run_to_end(&steps)?;
    }

    #[test]
    fn undecided_writes_do_no_lasting_harm(steps in steps_of_kinds(with_oversights())) {
        World { with_tools: false, ..World::new(rules()) }.run_to_end(&steps)?;
    }

    #[test]
    fn late_reviews_are_counted_once(policy in policy(), steps in steps_of_kinds(with_late_reviews())) {
        World::under(policy).run_to_end(&steps)?;
    }

    #[test]
    fn a_lost_answer_counts_one_write_twice(policy in policy(), steps in steps_of_kinds(with_lost_answers())) {
        World::under(policy).run_to_end(&steps)?;
    }

    #[test]
    fn writes_between_read_and_review_lose_nothing(policy in policy(), steps in steps_of_kinds(with_early_reads())) {
        World::under(policy).run_to_end(&steps)?;
    }

    #[test]
    fn every_client_among_every_fault_keeps_the_laws(
        policy in policy(), ttl in of(120u64..4000), steps in steps_of_kinds(with_everything())
    ) {
        let mut world = World::under(policy);
        world.etcd.ttl = ttl.map(Duration::from_secs);
        world.run_to_end(&steps)?;
    }
}
