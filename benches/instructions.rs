//! Repeats one decision, one review or one policy selection for an instruction counter: see hack/instructions.
//!
//! `instructions NAME NUMBER` repeats the operation NUMBER times. Without arguments it prints the names.

#![expect(clippy::print_stdout, reason = "a program that reports")]

use std::process::ExitCode;

use bytes::Bytes;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::core::{ApiResource, DynamicObject};
use mimalloc::MiMalloc;
use serde_json::{Value, json};
use squelch::api::{ClusterEventPolicy, EventPolicy};
use squelch::policy::{Index, Set};
use squelch_engine::{Api, EventView, Observation, Operation, Treatment};

#[allow(dead_code, reason = "other programs need more of it")]
mod load;
#[allow(dead_code, reason = "other programs need more of it")]
mod served;

use load::Load;
use served::{Asked, Served};

/// The allocator of `squelch`.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Few series: most of the counted instructions then belong to the measured operation.
const LIVE: usize = 1_000;

type Decision = (&'static str, fn(usize) -> Load, for<'a> fn(&'a Load) -> Observation<'a>);

const DECISIONS: [Decision; 6] = [
    ("merge", Load::merged, Load::repeat),
    ("merge-create", Load::repeated, Load::repeat_by_create),
    ("new-series", Load::full, Load::newcomer),
    ("aggregate", Load::aggregated, Load::similar_write),
    ("filter", Load::filtered, Load::similar_write),
    ("throttle", Load::throttled, Load::similar_write),
];

/// A name, a review, and the masks of its policy.
type MeasuredReview = (&'static str, Asked, &'static [&'static str]);

const REVIEWS: [MeasuredReview; 4] = [
    ("review-core-create", Asked::CoreCreate, &[]),
    ("review-core-create-masked", Asked::CoreCreate, &MASKS),
    ("review-core-update", Asked::CoreUpdate, &[]),
    ("review-events-update", Asked::EventsUpdate, &[]),
];

/// All masks.
const MASKS: [&str; 7] = ["Durations", "Numbers", "UUIDs", "Hashes", "IPs", "Quantities", "ObjectNames"];

/// A name, and a function that returns policies and the text of each field of a write.
type Selection = (&'static str, fn() -> (Set, String));

/// The selection among the slowest policies that the API server and the limits of a namespace allow.
const SELECTIONS: [Selection; 2] =
    [("select-worst-globs", worst_globs), ("select-worst-exact", worst_exact_texts)];

fn main() -> ExitCode {
    // `cargo bench` adds a flag.
    let arguments: Vec<_> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let [name, number] = &arguments[..] else {
        let names = DECISIONS.map(|(name, ..)| name).into_iter().chain(REVIEWS.map(|(name, ..)| name));
        let names = names.chain(SELECTIONS.map(|(name, _)| name));
        names.for_each(|name| println!("{name}"));
        return ExitCode::SUCCESS;
    };
    let number = number.parse().expect("NUMBER is a number of repetitions");
    if let Some((_, load, write)) = DECISIONS.into_iter().find(|(of, ..)| of == name) {
        decide(&load(LIVE), write, number);
    } else if let Some((_, asked, masks)) = REVIEWS.into_iter().find(|(of, ..)| of == name) {
        review(asked, masks, number);
    } else if let Some((_, worst)) = SELECTIONS.into_iter().find(|(of, _)| of == name) {
        select(worst, number);
    } else {
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// Creating the write is counted too: its cost is constant.
fn decide(load: &Load, write: fn(&Load) -> Observation<'_>, number: usize) {
    for _ in 0..number {
        load.decide(&write(load));
    }
}

fn review(asked: Asked, masks: &[&str], number: usize) {
    // The deadline of the body needs a runtime.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let _entered = runtime.enter();
    let spec = if masks.is_empty() { json!({}) } else { json!({ "normalize": masks }) };
    let served = Served::warmed_by(&spec, asked);
    let bytes = Bytes::from(asked.bytes());
    for _ in 0..number {
        served.answer(served.request(bytes.clone()));
    }
}

fn select(worst: fn() -> (Set, String), number: usize) {
    let (set, text) = worst();
    assert!(set.policies().iter().all(|policy| set.is_effective(policy)), "the limits allow all of them");
    let write = write(&text);
    for _ in 0..number {
        let governing = std::hint::black_box(&set).governing(std::hint::black_box(&write));
        assert!(
            governing.is_some_and(|governing| governing.treatment == Treatment::Stages),
            "every text must be compared"
        );
    }
}

/// Globs that fail to match only at their last character.
fn worst_globs() -> (Set, String) {
    let text = |length: usize| format!("*{}y*", "x".repeat(length - 3));
    let set = set_of(&json!({"reasons": [text(21)]}), &json!([{"reasons": vec![text(128); 15]}]));
    (set, "x".repeat(256))
}

/// As many exact texts as the limits allow. They fail to match only at their last character.
fn worst_exact_texts() -> (Set, String) {
    let text = format!("{}y", "x".repeat(62));
    let mut reasons = vec![text.clone(); 31];
    reasons.push("x*".to_owned());
    let entry = json!({"reasons": reasons, "reportingComponents": reasons, "users": vec![&text; 32]});
    let shorter = &text[2..];
    let set = set_of(&json!({"users": vec![shorter; 32]}), &Value::from(vec![entry; 16]));
    (set, "x".repeat(63))
}

/// 64 policies of the namespace and 64 of the cluster. Only the last one matches, and its exemptions do not. The `y`
/// of `match` is replaced by three unique characters, so that no policy is overridden.
fn set_of(matching: &Value, exempt: &Value) -> Set {
    let some = |tail: String| {
        let text = matching.to_string().replace('y', &tail);
        json!({ "match": [serde_json::from_str::<Value>(&text).expect("it was JSON")] })
    };
    let last = json!({ "priority": -1, "exempt": exempt });
    let mut index = Index::default();
    index.apply_namespace("ci", "1", [].into());
    for at in 0..64 {
        let cluster = DynamicObject::new(&format!("c{at}"), &ApiResource::erase::<ClusterEventPolicy>(&()));
        let some_of_cluster = some(format!("w{at:02x}"));
        index.apply(&object(cluster, if at < 63 { &some_of_cluster } else { &last }));
        let own = DynamicObject::new(&format!("p{at}"), &ApiResource::erase::<EventPolicy>(&()));
        index.apply(&object(own.within("ci"), &some(format!("y{at:02x}"))));
    }
    index.set()
}

fn object(mut object: DynamicObject, spec: &Value) -> DynamicObject {
    let metadata = &mut object.metadata;
    metadata.uid = metadata.name.clone();
    metadata.generation = Some(1);
    metadata.creation_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    object.data(json!({ "spec": spec }))
}

fn write(text: &str) -> Observation<'_> {
    Observation {
        operation: Operation::Create,
        api: Api::Core,
        user: text,
        own: false,
        dry_run: false,
        namespace: "ci",
        name: Some("pod.1".into()),
        generate_name: "".into(),
        event: EventView {
            event_type: "Normal".into(),
            reason: text.into(),
            reporting_component: text.into(),
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
