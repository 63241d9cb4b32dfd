//! An engine with many live series, and the writes that it is asked about: crash-looping Pods as kubelets tell of
//! them, a hundred series in each namespace.

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

/// Live series in each namespace, if nothing else is said.
const PER_NAMESPACE: usize = 100;

/// Where not all series are told of again, one of so many is.
pub(crate) const REPEATED: usize = 10;

/// So many different things are said about one object, where that matters: client-go's number, from which on what
/// comes is one too many.
const PER_OBJECT: usize = 10;

/// So many series are in a storm.
const STORMY: usize = 1000;

/// What is stored of a series that is repeated. So much that no repeat doubles it: every one is folded.
const STORED: i64 = 1_000_000_000;

/// A series is told of again after this long.
const EVERY: Duration = Duration::from_secs(2);

/// From one series to the next: neighbours in time are no neighbours in memory. It has no factor in common with a
/// power of ten, so that every series has its turn.
const STRIDE: usize = 618_033_989;

/// The engine, and where its emitters are.
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
    /// An engine with no series yet, for `series` of them; no more than that can live. Only repeats are folded.
    pub(crate) fn new(series: usize) -> Self {
        Self::by(repeats_folded(), series)
    }

    /// The same with room for `max_series`, and so many series in each namespace.
    pub(crate) fn in_namespaces(series: usize, per_namespace: usize, max_series: usize) -> Self {
        Self::by_in(repeats_folded(), series, per_namespace, max_series)
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
                // What is owed has a bound of its own, which is not what is measured.
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

    /// An engine with `series` that all live and have folded something. There is room for more of them: it has to
    /// keep what is needed to create each again, and there is room for that of one in four.
    pub(crate) fn folded(series: usize) -> Self {
        let load = Self::in_namespaces(series, PER_NAMESPACE, 4 * series);
        for _ in 0..series {
            load.expect(&load.repeat(), Some(Disposition::Compacted));
        }
        load
    }

    /// An engine as full as it may be, of series and of names, where one series in [`REPEATED`] has folded something.
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

    /// An engine as full as it may be, of series, names, groups and buckets, with every step in use: each newcomer
    /// takes the place of another.
    pub(crate) fn full(series: usize) -> Self {
        // Tokens come back at once, so that old buckets are full again and make room, as they do in hours.
        let spam_filter = Some(spam_filter(25, Duration::from_micros(1)));
        let budget = Some(bucket(500, Duration::from_micros(1)));
        let aggregation = Some(aggregation());
        let load = Self::by(Rules { aggregation, spam_filter, budget, ..repeats_folded() }, series);
        for _ in 0..2 * series {
            load.expect(&load.newcomer(), Some(Disposition::Admitted));
        }
        load
    }

    /// An engine full of groups that take no more messages: what comes goes into a summary.
    pub(crate) fn aggregated(series: usize) -> Self {
        Self::of_look_alikes(Rules { aggregation: Some(aggregation()), ..repeats_folded() }, series)
    }

    /// An engine in which the bucket of every object is empty.
    pub(crate) fn filtered(series: usize) -> Self {
        let spam_filter = Some(spam_filter(PER_OBJECT, Duration::from_secs(300)));
        Self::of_look_alikes(Rules { spam_filter, ..repeats_folded() }, series)
    }

    /// An engine in which the budget of every namespace is spent; the buckets of its objects are not.
    pub(crate) fn throttled(series: usize) -> Self {
        let spam_filter = Some(spam_filter(25, Duration::from_secs(300)));
        let budget = Some(bucket(PER_NAMESPACE, Duration::from_secs(3600)));
        Self::of_look_alikes(Rules { spam_filter, budget, ..repeats_folded() }, series)
    }

    /// As many series as may live, ten about each object; and as many names as are remembered.
    fn of_look_alikes(rules: Rules, series: usize) -> Self {
        let load = Self::by(rules, series);
        for _ in 0..2 * series {
            load.decide(&load.look_alike());
        }
        assert_eq!(load.engine.gauges().series, series);
        load
    }

    /// An UPDATE of the next series that tells of one more occurrence: folded.
    pub(crate) fn repeat(&self) -> Observation<'_> {
        let (turn, round) = self.next();
        self.repeat_of(turn, round)
    }

    /// The same in a storm of a thousand series, however many live.
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

    /// A CREATE of one series in [`REPEATED`] under a name of its own: folded.
    pub(crate) fn repeat_by_create(&self) -> Observation<'_> {
        let (turn, round) = self.next();
        let turn = turn - turn % REPEATED;
        self.write(turn, format!("{}.{round:x}", pod(turn)), message(turn))
    }

    /// A CREATE about an object that nobody has told of yet: admitted, and opens a series.
    pub(crate) fn newcomer(&self) -> Observation<'_> {
        let (turn, round) = self.next();
        let object = self.series + round as usize;
        Observation {
            event: event(object, message(object)),
            ..self.write(turn, format!("{}.{round:x}", pod(object)), String::new())
        }
    }

    /// A CREATE of what nobody has told yet about the next object: one too many, after the first ten.
    pub(crate) fn look_alike(&self) -> Observation<'_> {
        let (turn, round) = self.next();
        let object = turn / PER_OBJECT * PER_OBJECT;
        let message = format!("{}, try {round}", message(object));
        self.write(object, format!("{}.{round:x}", pod(object)), message)
    }

    /// An UPDATE that tells of no occurrence and changes the message alone: none of squelch's business.
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

    /// A CREATE by which a series is told under one of its names; it is stored under name 0, if that came first.
    pub(crate) fn create(&self, turn: usize, name: usize) -> Observation<'_> {
        let name = format!("{}.{:016x}", pod(turn), 0x187a_2b3c_4d5e_6f70 + name);
        self.write(turn, name, message(turn))
    }

    /// A CREATE of what nobody has told yet, in the namespace of this number.
    pub(crate) fn invented(&self, namespace: usize, number: usize) -> Observation<'_> {
        let turn = namespace * self.per_namespace + number % self.per_namespace;
        let name = format!("{}.{:016x}", pod(turn), 0x2000_0000_0000_0000 + number);
        self.write(turn, name, format!("{}, try {number}", message(turn)))
    }

    /// The number of the namespace that a series is in.
    pub(crate) fn namespace_of(&self, turn: usize) -> usize {
        turn / self.per_namespace
    }

    /// How many namespaces there are.
    pub(crate) fn namespaces(&self) -> usize {
        self.namespaces.len()
    }

    /// What decides.
    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The policy with a shorter heartbeat, as it stands in the cluster.
    pub(crate) fn hasty(&self) -> KnownPolicy {
        let mut rules = self.rules.clone();
        if let Some(series) = &mut rules.series {
            series.heartbeat_interval = Duration::from_secs(1);
        }
        KnownPolicy { policy: rules.policy.clone(), namespace: None, rules: Some(rules.into()) }
    }

    /// Decides.
    pub(crate) fn decide(&self, write: &Observation<'_>) -> Verdict {
        self.decide_at(write, self.now())
    }

    /// Decides at this moment.
    pub(crate) fn decide_at(&self, write: &Observation<'_>, now: Moment) -> Verdict {
        self.engine.decide(Some(Governing { rules: &self.rules, exempt: false }), write, now)
    }

    /// What is due now.
    pub(crate) fn tick(&self, budget: usize) -> Vec<FlushTask> {
        self.engine.tick(self.now(), budget)
    }

    /// Each series is told of every two seconds, however many live: the more there are, the more writes come in a
    /// second. No heartbeat comes due, which would let a repeat through.
    fn now(&self) -> Moment {
        let since = EVERY.as_nanos() as u64 / self.series as u64 * u64::from(self.round.get());
        Moment::from_epoch(Duration::from_secs(60) + Duration::from_nanos(since))
    }

    /// Decides, and makes sure of what becomes of the write.
    pub(crate) fn expect(&self, write: &Observation<'_>, disposition: Option<Disposition>) {
        assert_eq!(self.decide(write).disposition, disposition, "round {}", self.round.get());
    }

    /// The series whose turn it is, and a number that no write had yet.
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

/// The defaults of the policy API, but that nothing is aggregated or limited.
fn repeats_folded() -> Rules {
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
