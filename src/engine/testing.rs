//! What the engine's tests share.

use std::time::Duration;

use jiff::Timestamp;
use proptest::prelude::ProptestConfig;
use proptest::test_runner::RngSeed;

use super::held::Sizes;
use super::scope::Scope;
use super::{
    AggregationRules, Api, Counters, Disposition, Engine, EventView, Found, Governing, GroupBy, Mode, Moment,
    ObjectReference, Observation, Operation, Order, Plan, PolicyId, Rejection, Rules, SeriesRules, Settings,
};

/// A CREATE of the first Event of a crash-looping Pod.
pub(crate) fn write() -> Observation<'static> {
    Observation {
        operation: Operation::Create,
        api: Api::Core,
        user: "system:node:n1",
        own: false,
        dry_run: false,
        namespace: "shop",
        name: Some("cart.1".into()),
        generate_name: "".into(),
        event: EventView {
            regarding: ObjectReference {
                api_version: "v1".into(),
                kind: "Pod".into(),
                namespace: "shop".into(),
                name: "cart".into(),
                uid: "0a1b".into(),
                field_path: "spec.containers{app}".into(),
            },
            event_type: "Warning".into(),
            reason: "BackOff".into(),
            message: "Back-off restarting failed container".into(),
            reporting_component: "kubelet".into(),
            reporting_instance: "n1".into(),
            source_component: "kubelet".into(),
            source_host: "n1".into(),
            ..EventView::default()
        },
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

/// The same as an UPDATE from `old_value` to `value`.
pub(crate) fn update(value: i64, old_value: i64) -> Observation<'static> {
    Observation { operation: Operation::Update, value, old_value, ..write() }
}

/// The default rules, in Enforce.
pub(crate) fn rules() -> Rules {
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

pub(crate) fn engine() -> Engine {
    Engine::new(Settings { seed: [3, 4], max_series: 1000, max_owing: 100_000, began: Timestamp::UNIX_EPOCH })
}

pub(crate) fn by(rules: &Rules) -> Option<Governing<'_>> {
    Some(Governing { rules, exempt: false })
}

pub(crate) fn at(milliseconds: u64) -> Moment {
    Moment::from_epoch(Duration::from_millis(milliseconds))
}

/// The same write under another name.
pub(crate) fn named<'a>(name: &'a str, write: Observation<'a>) -> Observation<'a> {
    Observation { name: Some(name.into()), ..write }
}

/// All counters together.
pub(crate) fn counters(engine: &Engine) -> Counters {
    counters_of([engine])
}

/// The same of several engines.
pub(super) fn counters_of<'a>(engines: impl IntoIterator<Item = &'a Engine>) -> Counters {
    let mut all = Counters::default();
    for account in engines.into_iter().flat_map(Engine::accounts) {
        all.add(&account.counters);
    }
    all
}

/// How many cases a property is tried on: as many as it says, always the same; or as `SQUELCH_PROPTEST_CASES` says,
/// other ones each time (of the seed `PROPTEST_RNG_SEED`, if that is given). So a change is judged by what it
/// changes, and whoever looks for faults finds new cases; what was once found is kept as a test of its own.
pub(crate) fn cases(by_default: u32) -> ProptestConfig {
    let found_anew = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    match std::env::var("SQUELCH_PROPTEST_CASES") {
        Ok(cases) => {
            let cases = cases.parse().expect("SQUELCH_PROPTEST_CASES is a number");
            ProptestConfig { cases, ..found_anew }
        }
        Err(_) => ProptestConfig { cases: by_default, rng_seed: RngSeed::Fixed(1), ..found_anew },
    }
}

/// Drives one order as the writer would, with `found` in etcd; returns what it wrote.
pub(crate) fn pay(engine: &Engine, order: &Order, found: Option<i64>, now: Moment) -> Option<i64> {
    let value = match planned(engine, order, found, now) {
        Plan::Nothing | Plan::Wait | Plan::Lost { .. } => return None,
        Plan::Write { value, .. } | Plan::Create { value, .. } => value,
    };
    engine.settle(order, value, now);
    Some(value)
}

/// Rules under which every CREATE goes into the summary once an Event of its group was admitted; no series but that.
pub(crate) fn summing() -> Rules {
    let aggregation =
        AggregationRules { max_events: 1, interval: Duration::from_secs(600), group_by: GroupBy::Object };
    Rules { aggregation: Some(aggregation), series: None, ..rules() }
}

/// Admits an Event of the group, as this user.
pub(crate) fn witness(engine: &Engine, rules: &Rules, user: &'static str, now: Moment) {
    let name = format!("witness.{user}.{}", now.milliseconds());
    let verdict = engine.decide(by(rules), &Observation { user, ..named(&name, write()) }, now);
    assert_eq!(verdict.disposition, Some(Disposition::Admitted));
}

/// What is planned where this count is found; the witness of a summary is stored.
pub(crate) fn planned(engine: &Engine, order: &Order, found: Option<i64>, now: Moment) -> Plan {
    let plan = engine.plan(order, found.map(Found::counting), now);
    if let Plan::Create { witness: Some(_), .. } = &plan {
        assert_eq!(engine.testify(order, Some(Found::counting(1)), now), Plan::Nothing);
    }
    plan
}

impl Engine {
    /// Whether what is counted as the tables change is what they hold.
    pub(crate) fn is_counted_right(&self) -> bool {
        let (mut before, mut after) = (Sizes::default(), Sizes::default());
        for name in self.roster.all() {
            let Some(mut namespace) = self.locked(&name) else { continue };
            before = before.and(&namespace.sizes());
            namespace.scopes.iter_mut().for_each(Scope::recount);
            after = after.and(&namespace.sizes());
        }
        self.held.sizes() == before && before == after
    }
}
