//! An engine with many live series and writes for it: Events of crash-looping Pods as kubelets report them, a hundred
//! series per namespace.

mod events;
mod policies;
mod writes;

use std::cell::Cell;
use std::time::Duration;

use jiff::Timestamp;
use squelch_engine::{
    Disposition, Engine, FlushTask, Governing, KnownPolicy, Moment, Observation, Rules, Settings, Treatment,
    Verdict,
};

use policies::{aggregation, bucket, repeats_merged, spam_filter};

/// Default number of live series per namespace.
const PER_NAMESPACE: usize = 100;

/// With few repeated series, one series in this many repeats.
pub(crate) const REPEATED: usize = 10;

/// Distinct messages about one object: client-go's limit, from which on Events are aggregated.
const PER_OBJECT: usize = 10;

/// Number of series in a storm.
const STORMY: usize = 1000;

/// The stored count of a repeated series. It is so high that no repeat doubles it: every repeat is merged.
const STORED: i64 = 1_000_000_000;

/// Interval between two repeats of a series.
const EVERY: Duration = Duration::from_secs(2);

/// Step from one series to the next, so that consecutive writes do not touch adjacent memory. It is coprime to powers
/// of ten: every series is visited.
const STRIDE: usize = 618_033_989;

/// The engine and the position of its emitters.
pub(crate) struct Load {
    engine: Engine,
    rules: Rules,
    namespaces: Vec<String>,
    per_namespace: usize,
    series: usize,
    turn: Cell<usize>,
    round: Cell<u32>,
}

impl Load {
    /// An engine without series, with a capacity of `series`. Only repeats are merged.
    pub(crate) fn new(series: usize) -> Self {
        Self::by(repeats_merged(), series)
    }

    /// Same as `new`, with a capacity of `max_series` and `per_namespace` series per namespace.
    pub(crate) fn in_namespaces(series: usize, per_namespace: usize, max_series: usize) -> Self {
        Self::by_in(repeats_merged(), series, per_namespace, max_series)
    }

    fn by(rules: Rules, series: usize) -> Self {
        Self::by_in(rules, series, PER_NAMESPACE, series)
    }

    fn by_in(rules: Rules, series: usize, per_namespace: usize, max_series: usize) -> Self {
        let namespaces = (0..series.div_ceil(per_namespace)).map(|number| format!("team-{number:05}"));
        Self {
            engine: Engine::new(Settings {
                seed: [3, 4],
                max_series,
                // Pending series have their own limit, which is not measured here.
                max_pending_series: max_series,
                began: Timestamp::UNIX_EPOCH,
            }),
            rules,
            namespaces: namespaces.collect(),
            per_namespace,
            series,
            turn: Cell::new(0),
            round: Cell::new(0),
        }
    }

    /// An engine with `series` live series that all have merged occurrences. It has capacity for more: it must keep
    /// the data to create each Event again, with capacity for one series in four.
    pub(crate) fn merged(series: usize) -> Self {
        let load = Self::in_namespaces(series, PER_NAMESPACE, 4 * series);
        for _ in 0..series {
            load.expect(&load.repeat(), Some(Disposition::Compacted));
        }
        load
    }

    /// An engine at capacity in series and names, where one series in [`REPEATED`] has merged occurrences.
    pub(crate) fn repeated(series: usize) -> Self {
        let load = Self::new(series);
        for turn in 0..series {
            load.expect(&load.create(turn, 0), Some(Disposition::Admitted));
        }
        for _ in 0..series + series / 10 {
            load.expect(&load.repeat_by_create(), Some(Disposition::Compacted));
        }
        load
    }

    /// An engine at capacity in series, names, groups and buckets, with every stage enabled: each new series evicts
    /// another.
    pub(crate) fn full(series: usize) -> Self {
        // Tokens are refilled at once, so that old buckets are full and can be evicted, as happens within hours in
        // production.
        let spam_filter = Some(spam_filter(25, Duration::from_micros(1)));
        let budget = Some(bucket(500, Duration::from_micros(1)));
        let aggregation = Some(aggregation());
        let load = Self::by(Rules { aggregation, spam_filter, budget, ..repeats_merged() }, series);
        for _ in 0..2 * series {
            load.expect(&load.newcomer(), Some(Disposition::Admitted));
        }
        load
    }

    /// An engine full of groups above `maxEvents`: every write is aggregated.
    pub(crate) fn aggregated(series: usize) -> Self {
        Self::of_similar_writes(Rules { aggregation: Some(aggregation()), ..repeats_merged() }, series)
    }

    /// An engine in which the bucket of every object is empty.
    pub(crate) fn filtered(series: usize) -> Self {
        let spam_filter = Some(spam_filter(PER_OBJECT, Duration::from_secs(300)));
        Self::of_similar_writes(Rules { spam_filter, ..repeats_merged() }, series)
    }

    /// An engine in which the budget of every namespace is exhausted; the buckets of its objects are not.
    pub(crate) fn throttled(series: usize) -> Self {
        let spam_filter = Some(spam_filter(25, Duration::from_secs(300)));
        let budget = Some(bucket(PER_NAMESPACE, Duration::from_secs(3600)));
        Self::of_similar_writes(Rules { spam_filter, budget, ..repeats_merged() }, series)
    }

    /// The maximum number of live series, ten per object, and the maximum number of remembered names.
    fn of_similar_writes(rules: Rules, series: usize) -> Self {
        let load = Self::by(rules, series);
        for _ in 0..2 * series {
            load.decide(&load.similar_write());
        }
        assert_eq!(load.engine.gauges().series, series);
        load
    }

    /// The number of the namespace of a series.
    pub(crate) fn namespace_of(&self, turn: usize) -> usize {
        turn / self.per_namespace
    }

    /// The number of namespaces.
    pub(crate) fn namespaces(&self) -> usize {
        self.namespaces.len()
    }

    /// The engine.
    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The policy with a shorter heartbeat interval, as stored in the cluster.
    pub(crate) fn hasty(&self) -> KnownPolicy {
        let mut rules = self.rules.clone();
        if let Some(series) = &mut rules.series {
            series.heartbeat_interval = Duration::from_secs(1);
        }
        KnownPolicy { policy: rules.policy.clone(), namespace: None, rules: Some(rules.into()) }
    }

    /// Decides on a write at the simulated time.
    pub(crate) fn decide(&self, write: &Observation<'_>) -> Verdict {
        self.decide_at(write, self.now())
    }

    /// Decides on a write at `now`.
    pub(crate) fn decide_at(&self, write: &Observation<'_>, now: Moment) -> Verdict {
        self.engine.decide(Some(Governing { rules: &self.rules, treatment: Treatment::Stages }), write, now)
    }

    /// Returns the flush tasks that are due now.
    pub(crate) fn tick(&self, budget: usize) -> Vec<FlushTask> {
        self.engine.tick(self.now(), budget)
    }

    /// The simulated time. Each series repeats every two seconds, so that the write rate grows with the number of
    /// series. No heartbeat comes due, which would admit a repeat.
    fn now(&self) -> Moment {
        let since = EVERY.as_nanos() as u64 / self.series as u64 * u64::from(self.round.get());
        Moment::from_epoch(Duration::from_secs(60) + Duration::from_nanos(since))
    }

    /// Decides on a write and asserts its disposition.
    pub(crate) fn expect(&self, write: &Observation<'_>, disposition: Option<Disposition>) {
        assert_eq!(self.decide(write).disposition, disposition, "round {}", self.round.get());
    }

    /// The next series, and a number that no earlier write had.
    fn next(&self) -> (usize, u32) {
        self.turn.set((self.turn.get() + STRIDE) % self.series);
        self.round.set(self.round.get() + 1);
        (self.turn.get(), self.round.get())
    }
}
