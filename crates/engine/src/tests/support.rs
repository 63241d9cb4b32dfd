//! Helpers for the engine's own tests.

use std::sync::Arc;
use std::time::Duration;

use crate::state::capacity::Sizes;
use crate::state::scope::Scope;
use crate::testing::{by, named, rules, write};
use crate::{
    AggregationRules, Content, Counters, Disposition, Engine, EventView, FlushPlan, FlushTask, GroupBy,
    KnownPolicy, Moment, Observation, Rules, StoredEvent,
};

/// Returns the sum of all counters.
pub(crate) fn counters(engine: &Engine) -> Counters {
    counters_of([engine])
}

/// Returns the sum of all counters of several engines.
pub(crate) fn counters_of<'a>(engines: impl IntoIterator<Item = &'a Engine>) -> Counters {
    let mut all = Counters::default();
    for scope_counters in engines.into_iter().flat_map(Engine::counters) {
        all.add(&scope_counters.counters);
    }
    all
}

/// Returns the stored Event with this count and content.
pub(crate) fn stored(count: i64, event: &EventView<'_>) -> StoredEvent {
    StoredEvent { content: Some(Box::new(Content::of(event))), ..StoredEvent::with_count(count) }
}

/// Makes these rules those of the only policy, which is in the namespace of the writes.
pub(crate) fn revise(engine: &Engine, rules: &Rules, now: Moment) {
    let known_policy = KnownPolicy {
        policy: rules.policy.clone(),
        namespace: Some("shop".into()),
        rules: Some(Arc::new(rules.clone())),
    };
    engine.revise(&[known_policy], now);
}

/// Completes one task as the flush writer does, with the count `found` in etcd. Returns the written count.
pub(crate) fn flush(engine: &Engine, task: &FlushTask, found: Option<i64>, now: Moment) -> Option<i64> {
    let value = match planned(engine, task, found, now) {
        FlushPlan::Nothing | FlushPlan::Wait | FlushPlan::Lost { .. } => return None,
        FlushPlan::Write { value, .. } | FlushPlan::Create { value, .. } => value,
    };
    engine.ack(task, value, now);
    Some(value)
}

/// Rules under which every CREATE is merged into the summary once an Event of its group was admitted. Series
/// are disabled.
pub(crate) fn summing() -> Rules {
    let aggregation =
        AggregationRules { max_events: 1, idle_timeout: Duration::from_secs(600), group_by: GroupBy::Object };
    Rules { aggregation: Some(aggregation), series: None, ..rules() }
}

/// Admits an Event of the group as this user.
pub(crate) fn witness(engine: &Engine, rules: &Rules, user: &'static str, now: Moment) {
    let name = format!("witness.{user}.{}", now.milliseconds());
    let verdict = engine.decide(by(rules), &Observation { user, ..named(&name, write()) }, now);
    assert_eq!(verdict.disposition, Some(Disposition::Admitted));
}

/// Returns the plan for this found count. The witness of a summary is stored.
pub(crate) fn planned(engine: &Engine, task: &FlushTask, found: Option<i64>, now: Moment) -> FlushPlan {
    let plan = engine.plan(task, found.map(StoredEvent::with_count), now);
    if let FlushPlan::Create { witness: Some(_), .. } = &plan {
        assert_eq!(engine.check_witness(task, Some(StoredEvent::with_count(1)), now), FlushPlan::Nothing);
    }
    plan
}

impl Engine {
    /// Whether the incrementally updated sizes equal the sizes of the tables.
    pub(crate) fn is_counted_right(&self) -> bool {
        let (mut before, mut after) = (Sizes::default(), Sizes::default());
        for name in self.namespace_list.all() {
            let Some(mut namespace) = self.locked(&name) else { continue };
            before = before.and(&namespace.sizes());
            namespace.scopes.iter_mut().for_each(Scope::recount);
            after = after.and(&namespace.sizes());
        }
        self.usage.sizes() == before && before == after
    }
}
