//! An engine with many live series, and the writes that it is asked about: crash-looping Pods as kubelets tell of
//! them, a hundred series in each namespace.

use std::borrow::Cow;
use std::cell::Cell;
use std::time::Duration;

use jiff::Timestamp;
use squelch::engine::{
    Api, Disposition, Engine, EventView, Governing, Mode, Moment, ObjectReference, Observation, Operation,
    PolicyId, Rejection, Rules, SeriesRules, Settings, Standing, Verdict,
};

/// Live series in each namespace, if nothing else is said.
const PER_NAMESPACE: usize = 100;

/// Where not all series are told of again, one of so many is.
pub(crate) const REPEATED: usize = 10;

/// What is stored of a series that is repeated. So much that no repeat doubles it: every one is folded.
const STORED: i64 = 1_000_000_000;

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
    /// An engine with no series yet, for `series` of them; no more than that can live.
    pub(crate) fn new(series: usize) -> Self {
        Self::in_namespaces(series, PER_NAMESPACE, series)
    }

    /// An engine with room for `max_series`, for so many series in each namespace.
    pub(crate) fn in_namespaces(series: usize, per_namespace: usize, max_series: usize) -> Self {
        let namespaces = (0..series.div_ceil(per_namespace)).map(|number| format!("team-{number:05}"));
        Self {
            engine: Engine::new(Settings { seed: [3, 4], max_series, began: Timestamp::UNIX_EPOCH }),
            rules: rules(),
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

    /// An engine as full as it may be, of series and of names: each new series takes the place of another.
    pub(crate) fn full(series: usize) -> Self {
        let load = Self::new(series);
        for _ in 0..2 * series {
            load.expect(&load.fresh(), Some(Disposition::Admitted));
        }
        load
    }

    /// An UPDATE of the next series that tells of one more occurrence: folded.
    pub(crate) fn repeat(&self) -> Observation<'_> {
        let (turn, round) = self.next();
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

    /// A CREATE of what nobody has told yet: admitted, and opens a series.
    pub(crate) fn fresh(&self) -> Observation<'_> {
        let (turn, round) = self.next();
        self.write(turn, format!("{}.{round:x}", pod(turn)), format!("{}, try {round}", message(turn)))
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

    /// The policy as it stands in the cluster.
    pub(crate) fn standing(&self) -> Standing {
        let rules = Some(self.rules.clone().into());
        Standing { policy: self.rules.policy.clone(), namespace: None, rules }
    }

    /// The policy with a shorter heartbeat.
    pub(crate) fn hasty(&self) -> Rules {
        let series = self
            .rules
            .series
            .map(|series| SeriesRules { heartbeat_interval: Duration::from_secs(1), ..series });
        Rules { series, ..self.rules.clone() }
    }

    /// Decides. Time stands still: a heartbeat that comes due would let a repeat through.
    pub(crate) fn decide(&self, write: &Observation<'_>) -> Verdict {
        self.decide_at(write, Moment::from_epoch(Duration::from_secs(60)))
    }

    /// Decides at this moment.
    pub(crate) fn decide_at(&self, write: &Observation<'_>, now: Moment) -> Verdict {
        self.engine.decide(Some(Governing { rules: &self.rules, exempt: false }), write, now)
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
            first_seen: None,
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

fn rules() -> Rules {
    Rules {
        policy: PolicyId { display: "shop/quiet".into(), uid: "p1".into() },
        mode: Mode::Enforce,
        series: Some(SeriesRules {
            idle_timeout: Duration::from_secs(360),
            heartbeat_interval: Duration::from_secs(1800),
        }),
        aggregation: None,
        spam_filter: None,
        budget: None,
        rejection: Rejection::AlreadyExists,
    }
}
