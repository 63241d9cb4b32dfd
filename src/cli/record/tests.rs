use kube::api::WatchEvent;
use serde_json::{Value, json};
use squelch_engine::Moment;

use super::recording::Recording;
use super::*;
use crate::output::OutputFormat;
use crate::replay::{self, ClientBehavior};

const POLICY: &str = "
apiVersion: squelch.dev/v1alpha1
kind: EventPolicy
metadata: {name: compact, namespace: shop}
spec: {}
";

fn stored(name: &str, version: u64, count: i64, api: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": {
            "name": name, "namespace": "shop", "uid": name, "resourceVersion": version.to_string(),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "managedFields": [{ "manager": "kubelet", "apiVersion": api, "time": "2026-01-01T00:00:00Z" }],
        },
        "involvedObject": { "apiVersion": "v1", "kind": "Pod", "namespace": "shop", "name": name, "uid": name },
        "reason": "BackOff", "type": "Warning", "message": "Back-off restarting \u{1b}[31mfailed container",
        "source": { "component": "kubelet" }, "count": count,
        "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:00Z",
    })
}

fn at(seconds: u64) -> Moment {
    Moment::from_epoch(Duration::from_secs(60 + seconds))
}

/// A recording of a storm with a gap.
fn storm() -> String {
    let list = |recording: &mut Recording, version: u64, items: &[Value], now| {
        let page = json!({ "metadata": { "resourceVersion": version.to_string() }, "items": items });
        recording.begin_list();
        recording.page(serde_json::from_value(page).unwrap(), now)
    };
    let mut recording = Recording::default();
    let mut trace = list(&mut recording, 100, &[stored("old", 90, 7, "v1")], at(0));
    let mut watched =
        |recording: &mut Recording, event, seconds| trace += &recording.watched(event, at(seconds));
    watched(&mut recording, WatchEvent::Modified(stored("old", 101, 8, "v1")), 1);
    watched(&mut recording, WatchEvent::Added(stored("a", 102, 1, "v1")), 1);
    watched(&mut recording, WatchEvent::Added(stored("b", 103, 1, "events.k8s.io/v1")), 2);
    for count in 2..=20 {
        let seconds = u64::try_from(count).unwrap();
        watched(&mut recording, WatchEvent::Modified(stored("a", 110, count, "v1")), seconds);
        watched(&mut recording, WatchEvent::Modified(stored("b", 111, count, "events.k8s.io/v1")), seconds);
    }
    recording.expired(at(30));
    let items = [stored("old", 101, 8, "v1"), stored("a", 210, 50, "v1"), stored("c", 211, 4, "v1")];
    trace += &list(&mut recording, 300, &items, at(40));
    trace
}

#[test]
fn a_recording_replays_with_a_policy() {
    let folder = std::env::temp_dir().join(format!("squelch-recording-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (trace, policy) = (folder.join("trace.jsonl"), folder.join("policy.yaml"));
    std::fs::write(&trace, storm()).unwrap();
    std::fs::write(&policy, POLICY).unwrap();
    for clients in [ClientBehavior::Recorded, ClientBehavior::Adapted] {
        let options = replay::Options {
            input: trace.clone(),
            policies: vec![policy.clone()],
            against: Vec::new(),
            namespace: "default".to_owned(),
            all_namespaces: false,
            namespaces: None,
            as_enforced: false,
            own_user: "system:serviceaccount:squelch:squelch".to_owned(),
            format: None,
            clients,
            skip_bad: false,
            output: OutputFormat::Json,
            decisions: None,
        };
        let report = serde_json::to_value(replay::replay(&options).unwrap()).unwrap();
        assert_eq!((&report["input"]["format"], &report["input"]["entries"]), (&json!("trace"), &json!(43)));
        assert_eq!(report["input"]["leftOut"], json!({}));
        let row = &report["policies"][0];
        // One of "old", 50 of "a" although 30 were in the gap, 20 of "b", 4 of "c".
        assert_eq!(row["occurrences"]["received"], 1 + 50 + 20 + 4, "{row}");
        assert!(row["occurrences"]["compacted"].as_i64().unwrap() > 20, "{row}");
        assert!(
            row["writes"]["restored"].as_i64().unwrap() > 5,
            "updates of events.k8s.io are restored: {row}"
        );
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn the_flags_are_those_of_kubectl() {
    let record = |flags: &[&str]| {
        let arguments = ["squelch", "record"].iter().chain(flags);
        match <crate::config::Cli as clap::Parser>::try_parse_from(arguments)
            .map_err(|error| error.to_string())?
            .command
        {
            crate::config::Command::Record(options) => Ok(options),
            other => Err(format!("{other:?}")),
        }
    };
    let options = record(&[]).unwrap();
    assert!(is_standard_output(&options.file) && !options.all_namespaces && !options.force);
    assert_eq!((options.duration, options.cluster.namespace), (None, None));
    let options = record(&["-A", "-n", "shop", "--for", "1h30m", "-f", "trace.jsonl", "--force"]).unwrap();
    assert!(options.all_namespaces && options.force);
    assert_eq!(options.duration, Some(Duration::from_secs(5_400)));
    assert_eq!(output::name(&options.file), "trace.jsonl");
    for (value, expected) in [("0s", "longer than 0"), ("10", "such as 6m or 1h30m")] {
        let refused = record(&["--for", value]).unwrap_err();
        assert!(refused.contains(expected), "{refused}");
    }
}
