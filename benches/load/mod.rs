//! An engine with many live series and writes for it: Events of crash-looping Pods as kubelets report them, a hundred
//! series per namespace.

use std::borrow::Cow;
use std::cell::Cell;
use std::num::NonZeroU32;
use std::time::Duration;

use jiff::Timestamp;
use squelch::policy;
use squelch_engine::{
    AggregationRules, Api, BucketRules, Disposition, Engine, EventView, FlushTask, Governing, GroupBy,
    KnownPolicy, Moment, ObjectReference, Observation, Operation, Per, PolicyId, Rules, Settings,
    SpamFilterRules, Verdict,
};

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
    /// the data to create each Event again, with room for one series in four.
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

    /// An UPDATE of the next series with one more occurrence: merged.
    pub(crate) fn repeat(&self) -> Observation<'_> {
        let (turn, round) = self.next();
        self.repeat_of(turn, round)
    }

    /// Same as `repeat`, in a storm of a thousand series.
    pub(crate) fn repeat_in_storm(&self) -> Observation<'_> {
        let (turn, round) = self.next();
        self.repeat_of(turn % STORMY * (self.series / STORMY), round)
    }

    fn repeat_of(&self, turn: usize, round: u32) -> Observation<'_> {
        Observation {
            operation: Operation::Update,
            value: STORED + i64::from(round),
            old_value: STORED,
            ..self.write(turn, stored_name(turn), message(turn))
        }
    }

    /// A CREATE of one series in [`REPEATED`] under a new name: merged.
    pub(crate) fn repeat_by_create(&self) -> Observation<'_> {
        let (turn, round) = self.next();
        let turn = turn - turn % REPEATED;
        self.write(turn, format!("{}.{round:x}", pod(turn)), message(turn))
    }

    /// A CREATE about a new object: admitted, opens a series.
    pub(crate) fn newcomer(&self) -> Observation<'_> {
        let (turn, round) = self.next();
        let object = self.series + round as usize;
        Observation {
            event: event(object, message(object)),
            ..self.write(turn, format!("{}.{round:x}", pod(object)), String::new())
        }
    }

    /// A CREATE with a new message about the next object: aggregated after the first ten.
    pub(crate) fn similar_write(&self) -> Observation<'_> {
        let (turn, round) = self.next();
        let object = turn / PER_OBJECT * PER_OBJECT;
        let message = format!("{}, try {round}", message(object));
        self.write(object, format!("{}.{round:x}", pod(object)), message)
    }

    /// An UPDATE that changes only the message and reports no occurrence: passed.
    pub(crate) fn edit(&self) -> Observation<'_> {
        let (turn, _) = self.next();
        Observation {
            operation: Operation::Update,
            value: STORED,
            old_value: STORED,
            unchanged: true,
            ..self.write(turn, stored_name(turn), message(turn))
        }
    }

    /// A CREATE that reports a series under one of its names. The Event is stored under name 0 if that is written
    /// first.
    pub(crate) fn create(&self, turn: usize, name: usize) -> Observation<'_> {
        let name = format!("{}.{:016x}", pod(turn), 0x187a_2b3c_4d5e_6f70 + name);
        self.write(turn, name, message(turn))
    }

    /// A CREATE of a new key in the namespace of this number.
    pub(crate) fn invented(&self, namespace: usize, number: usize) -> Observation<'_> {
        let turn = namespace * self.per_namespace + number % self.per_namespace;
        let name = format!("{}.{:016x}", pod(turn), 0x2000_0000_0000_0000 + number);
        self.write(turn, name, format!("{}, try {number}", message(turn)))
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
        self.engine.decide(Some(Governing { rules: &self.rules, exempt: false }), write, now)
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

    fn write(&self, turn: usize, name: String, message: String) -> Observation<'_> {
        Observation {
            operation: Operation::Create,
            api: Api::Core,
            user: "system:node:node-17",
            own: false,
            dry_run: false,
            namespace: &self.namespaces[self.namespace_of(turn)],
            name: Some(name.into()),
            generate_name: "".into(),
            event: event(turn, message),
            value: 1,
            old_value: 0,
            has_series: false,
            edited: false,
            unchanged: false,
            stale: false,
            first_seen: None,
            last_observed: None,
            occurred_at: Timestamp::UNIX_EPOCH,
        }
    }
}

fn pod(number: usize) -> String {
    format!("checkout-{number:07}-x2x9k")
}

fn stored_name(number: usize) -> String {
    format!("{}.187a2b3c4d5e6f70", pod(number))
}

fn message(number: usize) -> String {
    format!("Back-off restarting failed container app in pod {}_shop({})", pod(number), uid(number))
}

fn uid(number: usize) -> String {
    format!("5b0f5d0e-94a6-4a58-9a0f-{number:012}")
}

fn event(number: usize, message: String) -> EventView<'static> {
    EventView {
        regarding: ObjectReference {
            api_version: "v1".into(),
            kind: "Pod".into(),
            namespace: "shop".into(),
            name: pod(number).into(),
            uid: uid(number).into(),
            field_path: "spec.containers{app}".into(),
        },
        event_type: "Warning".into(),
        reason: "BackOff".into(),
        message: Cow::Owned(message),
        reporting_component: "kubelet".into(),
        reporting_instance: "node-17".into(),
        source_component: "kubelet".into(),
        source_host: "node-17".into(),
        first_timestamp: "2026-11-21T08:54:00Z".into(),
        ..EventView::default()
    }
}

/// The defaults of the policy API, without aggregation and limits.
fn repeats_merged() -> Rules {
    let spec = serde_json::from_str("{}").expect("every field has a default");
    let policy = PolicyId { display: "shop/quiet".into(), uid: "p1".into() };
    let rules = policy::compile(policy, &spec).expect("the defaults are valid").rules;
    Rules { aggregation: None, spam_filter: None, budget: None, ..rules }
}

fn aggregation() -> AggregationRules {
    let max_events = u32::try_from(PER_OBJECT).expect("a small number");
    AggregationRules { max_events, interval: Duration::from_secs(600), group_by: GroupBy::Object }
}

fn spam_filter(burst: usize, refill_interval: Duration) -> SpamFilterRules {
    let per = Per { emitter: true, regarding: true, event_type: true, reason: false };
    SpamFilterRules { bucket: bucket(burst, refill_interval), per }
}

fn bucket(burst: usize, refill_interval: Duration) -> BucketRules {
    let burst = u32::try_from(burst).ok().and_then(NonZeroU32::new).expect("a small number, and not 0");
    BucketRules { burst, refill_interval }
}
