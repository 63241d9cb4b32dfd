//! Every write of squelch is valid by the API server's rules, whatever a client has sent.

use std::time::Duration;

use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};
use squelch_engine::testing::{by, rules, write};
use squelch_engine::{
    AggregationRules, Api, Engine, EventView, FlushPlan, FlushTask, GroupBy, Moment, ObjectReference,
    Observation, Rules, Settings, StoredEvent,
};

use super::super::checks::{is_qualified_name, objections};
use super::super::event;
use super::super::stored::FetchedEvent;

/// Texts as clients may send them.
fn text() -> impl Strategy<Value = String> {
    let long = |text: &'static str| (1usize..2000).prop_map(move |times| text.repeat(times));
    prop_oneof![
        4 => "[a-z0-9]{1,20}",
        2 => Just(String::new()),
        2 => ".{0,40}",
        1 => "[-._A-Za-z0-9/]{1,300}",
        1 => Just("x".repeat(253)),
        1 => Just(format!("{}.{}", "a-".repeat(100), "-b".repeat(30))),
        1 => long("ü"),
        1 => long("🐙"),
        1 => long("\u{7}\n"),
        1 => Just("m".repeat(1 << 20)),
    ]
}

fn time() -> impl Strategy<Value = String> {
    let odd = [
        "",
        "",
        "",
        "9999-12-31T23:59:59Z",
        "10000-01-01T00:00:00Z",
        "0000-01-01T00:00:00Z",
        "-001-12-31T23:00:00Z",
        "0001-01-01T00:00:00.000000Z",
        "2026-01-01T00:00:00Z",
        "2026-01-01T00:00:00.000001Z",
    ];
    prop::sample::select(odd.map(str::to_owned).to_vec())
}

fn json_map() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        prop::collection::btree_map(text(), text(), 0..4).prop_map(|map| json!(map).to_string()),
    ]
}

/// An Event as a review may show it: not validated yet.
#[derive(Clone, Debug)]
struct Hostile {
    namespace: &'static str,
    about: [String; 6],
    related: Option<[String; 6]>,
    words: [String; 8],
    times: [String; 2],
    maps: [String; 2],
    occurred_at: Timestamp,
}

impl Hostile {
    fn view(&self) -> EventView<'_> {
        let [event_type, reason, action, message, component, instance, source, host] = &self.words;
        EventView {
            regarding: reference(&self.about),
            related: self.related.as_ref().map(reference),
            event_type: event_type.into(),
            reason: reason.into(),
            action: action.into(),
            message: message.into(),
            reporting_component: component.into(),
            reporting_instance: instance.into(),
            source_component: source.into(),
            source_host: host.into(),
            first_timestamp: (&self.times[0]).into(),
            event_time: (&self.times[1]).into(),
            labels: &self.maps[0],
            annotations: &self.maps[1],
        }
    }
}

fn reference(fields: &[String; 6]) -> ObjectReference<'_> {
    let [api_version, kind, namespace, name, uid, field_path] = fields;
    ObjectReference {
        api_version: api_version.into(),
        kind: kind.into(),
        namespace: namespace.into(),
        name: name.into(),
        uid: uid.into(),
        field_path: field_path.into(),
    }
}

fn hostile() -> impl Strategy<Value = Hostile> {
    let fields = || prop::array::uniform6(text());
    let namespace = prop::sample::select(vec!["shop", "default", "kube-system"]);
    let of = prop::sample::select(vec!["", "shop", "default", "kube-system", "other"]);
    let occurred_at = prop_oneof![
        Just(Timestamp::UNIX_EPOCH),
        Just(Timestamp::MAX),
        Just("0000-01-01T00:00:00Z".parse().unwrap()),
    ];
    let maps = [json_map(), json_map()];
    let words = prop::array::uniform8(text());
    (namespace, fields(), of, prop::option::of(fields()), words, [time(), time()], maps, occurred_at)
        .prop_map(|(namespace, mut about, of, related, words, times, maps, occurred_at)| {
            about[2] = of.to_owned();
            Hostile { namespace, about, related, words, times, maps, occurred_at }
        })
}

/// The flush task for what these writes were merged into, and its time.
fn merged(rules: &Rules, writes: [&Hostile; 2]) -> (Engine, FlushTask, Moment) {
    let settings =
        Settings { seed: [3, 4], max_series: 100, max_pending_series: 100, began: Timestamp::UNIX_EPOCH };
    let (engine, now) = (Engine::new(settings), Moment::from_epoch(Duration::from_secs(1)));
    for (number, hostile) in writes.into_iter().enumerate() {
        let (event, occurred_at) = (hostile.view(), hostile.occurred_at);
        let name = Some(format!("e.{number}").into());
        let write =
            Observation { name, event, occurred_at, namespace: hostile.namespace, api: Api::Core, ..write() };
        engine.decide(by(rules), &write, now);
    }
    let later = now.plus(Duration::from_secs(3));
    let task = engine.tick(later, 10).into_iter().next().expect("an occurrence is pending");
    (engine, task, later)
}

fn read(event: &Value) -> FetchedEvent {
    FetchedEvent::new(event.to_string().as_bytes(), None).unwrap()
}

/// The plan for an Event that was read once and then deleted.
fn gone(engine: &Engine, task: &FlushTask, now: Moment) -> FlushPlan {
    engine.plan(task, Some(StoredEvent::with_count(1)), now);
    engine.plan(task, None, now)
}

/// Rules that aggregate every CREATE but the first.
fn summing(group_by: GroupBy) -> Rules {
    let aggregation =
        Some(AggregationRules { max_events: 1, idle_timeout: Duration::from_secs(600), group_by });
    Rules { aggregation, series: None, ..rules() }
}

proptest! {
    #![proptest_config(squelch_engine::testing::cases(512))]

    #[test]
    fn a_summary_of_any_events_is_valid(first in hostile(), second in hostile(), kind in any::<bool>()) {
        let rules = summing(if kind { GroupBy::Kind } else { GroupBy::Object });
        let (engine, task, now) = merged(&rules, [&first, &first]);
        let FlushPlan::Create { value, occurred_at, content, .. } = engine.plan(&task, None, now) else {
            panic!("nothing to create");
        };
        let mut body = event::recreate(&task.namespace, &task.name, &content, value, occurred_at);
        prop_assert_eq!(objections(&body, &task.namespace), Vec::<String>::new(), "{}", body);
        prop_assert!(task.name.len() <= 253 && is_qualified_name(&format!("{}/x", task.name)), "{}", task.name);

        // The next merged Event changes the content.
        engine.ack(&task, value, now);
        let shown = squelch_engine::Shown::Summary(Box::new(squelch_engine::Content::of(&second.view())));
        body["metadata"]["resourceVersion"] = json!("1");
        let stored = read(&body);
        let patch = event::change(&stored, value + 1, second.occurred_at, &shown, &task.namespace);
        json_patch::merge(&mut body, &patch);
        prop_assert_eq!(objections(&body, &task.namespace), Vec::<String>::new(), "{}", body);
        prop_assert_eq!(read(&body).count, value + 1);
    }

    #[test]
    fn a_recreated_event_is_valid_whatever_was_merged_into_it(sent in hostile()) {
        let (engine, task, now) = merged(&rules(), [&sent, &sent]);
        let FlushPlan::Create { value: 2, occurred_at, content, .. } = gone(&engine, &task, now) else {
            panic!("nothing to create");
        };
        let mut body = event::recreate(&task.namespace, &task.name, &content, 2, occurred_at);
        prop_assert_eq!(objections(&body, &task.namespace), Vec::<String>::new(), "{}", body);
        body["metadata"]["resourceVersion"] = json!("1");
        prop_assert_eq!(read(&body).count, 2);
    }
}

/// One violation at a time.
#[test]
fn the_model_finds_each_violation() {
    let legacy = json!({"metadata": {"name": "e"}, "involvedObject": {"namespace": "shop"}});
    let new = json!({
        "metadata": {"name": "e"}, "involvedObject": {"namespace": "other"}, "reason": "R", "action": "A",
        "eventTime": "2026-01-01T00:00:00.000000Z", "reportingComponent": "c", "reportingInstance": "i",
    });
    let with = |event: &Value, pointer: &str, value: Value| {
        let mut event = event.clone();
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        event.pointer_mut(parent).unwrap()[field] = value;
        objections(&event, "shop")
    };
    assert_eq!((objections(&legacy, "shop"), objections(&new, "shop")), (vec![], vec![]));
    for (event, pointer, value) in [
        (&legacy, "/involvedObject/namespace", json!("other")),
        (&legacy, "/involvedObject/namespace", json!("")),
        (&legacy, "/firstTimestamp", json!("10000-01-01T00:00:00Z")),
        (&legacy, "/metadata/labels", json!({"a b": "c"})),
        (&legacy, "/metadata/annotations", json!({"a b": "c"})),
        (&legacy, "/metadata/name", json!("a/b")),
        (&new, "/involvedObject/namespace", json!("")),
        (&new, "/reportingComponent", json!("")),
        (&new, "/reportingComponent", json!("a/b/c")),
        (&new, "/reportingComponent", json!("a b")),
        (&new, "/reportingInstance", json!("")),
        (&new, "/reportingInstance", json!("i".repeat(129))),
        (&new, "/action", json!("")),
        (&new, "/reason", json!("R".repeat(129))),
        (&new, "/message", json!("m".repeat(1025))),
        (&new, "/eventTime", json!("2026-01-01T00:00:00Z")),
    ] {
        assert!(!with(event, pointer, value.clone()).is_empty(), "{pointer} {value}");
    }
}
