//! A restored UPDATE: the patch always applies, and always results in the stored Event.

#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use serde_json::{Map, Value, json};
use squelch_fuzz::{Answer, NAMESPACE, Served};

/// The fields of an Event that a repeat may change, with unusual values.
#[derive(Arbitrary, Debug)]
struct Shown {
    count: Odd,
    series: Series,
    last_timestamp: Odd,
    message: Odd,
    managed_fields: Odd,
}

#[derive(Arbitrary, Debug)]
enum Series {
    Absent,
    Null,
    Of { count: Odd, last: Odd },
}

#[derive(Arbitrary, Debug)]
enum Odd {
    Absent,
    Null,
    Number(i32),
    Text(String),
    List(Vec<String>),
}

#[derive(Arbitrary, Debug)]
struct Update {
    name: String,
    reason: String,
    stored: Shown,
    written: Vec<Shown>,
}

fuzz_target!(|update: Update| {
    let served =
        Served::new(&json!({ "aggregation": { "mode": "Disabled" }, "spamFilter": { "mode": "Disabled" } }));
    let old = update.event(&update.stored);
    for written in update.written.iter().take(4) {
        let mut object = update.event(written);
        let review = json!({
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "request": {
                "uid": "u1",
                "kind": {"group": "", "version": "v1", "kind": "Event"},
                "requestKind": {"group": "events.k8s.io", "version": "v1", "kind": "Event"},
                "name": update.name,
                "namespace": NAMESPACE,
                "operation": "UPDATE",
                "userInfo": {"username": "system:node:n1"},
                "object": object,
                "oldObject": old,
                "dryRun": false,
            },
        });
        let (status, body) = served.ask(review.to_string().as_bytes());
        assert_eq!(status, 200);
        let answer = Answer::read(&body);
        if let Some(patch) = answer.patch {
            json_patch::patch(&mut object, &patch).expect("the patch applies");
            assert_eq!(object, old);
        }
    }
});

impl Update {
    fn event(&self, shown: &Shown) -> Value {
        let mut metadata = Map::from_iter([
            ("name".to_owned(), json!(self.name)),
            ("namespace".to_owned(), json!(NAMESPACE)),
        ]);
        shown.managed_fields.put(&mut metadata, "managedFields");
        let mut event = Map::from_iter([
            ("metadata".to_owned(), Value::Object(metadata)),
            ("reason".to_owned(), json!(self.reason)),
            ("involvedObject".to_owned(), json!({"kind": "Pod", "name": "p", "namespace": NAMESPACE})),
        ]);
        shown.count.put(&mut event, "count");
        shown.last_timestamp.put(&mut event, "lastTimestamp");
        shown.message.put(&mut event, "message");
        match &shown.series {
            Series::Absent => {}
            Series::Null => drop(event.insert("series".to_owned(), Value::Null)),
            Series::Of { count, last } => {
                let mut series = Map::new();
                count.put(&mut series, "count");
                last.put(&mut series, "lastObservedTime");
                event.insert("series".to_owned(), Value::Object(series));
            }
        }
        Value::Object(event)
    }
}

impl Odd {
    fn put(&self, into: &mut Map<String, Value>, field: &str) {
        let value = match self {
            Self::Absent => return,
            Self::Null => Value::Null,
            Self::Number(number) => json!(number),
            Self::Text(text) => json!(text),
            Self::List(list) => json!(list),
        };
        into.insert(field.to_owned(), value);
    }
}
