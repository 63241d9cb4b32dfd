//! `squelch suggest` as a command: the policies save what it says, by `squelch replay`, and drop no Warning.

#![expect(clippy::unwrap_used, reason = "a test, also in the functions around it")]

mod command_folder;

use std::fs;
use std::io::Read as _;
use std::ops::Deref;
use std::path::Path;

use command_folder::CommandFolder;
use flate2::read::GzDecoder;
use serde_json::{Value, json};

struct Folder(CommandFolder);

impl Folder {
    fn new() -> Self {
        Self(CommandFolder::new("suggest"))
    }

    fn succeed(&self, arguments: &[&str], input: &str) -> String {
        let (code, out, err) = self.run(arguments, input);
        assert_eq!((code, err.as_str()), (0, ""), "{arguments:?}");
        out
    }

    /// Suggests policies for `trace.jsonl`, and writes them to `policies.yaml`. Returns the same as JSON.
    fn suggest(&self, arguments: &[&str]) -> Value {
        let yaml = self.succeed(&[&["suggest", "trace.jsonl"], arguments].concat(), "");
        self.write("policies.yaml", &yaml);
        let json = self.succeed(&[&["suggest", "-o", "json", "trace.jsonl"], arguments].concat(), "");
        serde_json::from_str(&json).unwrap()
    }

    /// Replays `policies.yaml` on `trace.jsonl`, and checks the figures of the suggestions, in JSON and in the comments.
    fn confirm(&self, suggestions: &Value) -> Value {
        let replay = |clients: &str| {
            let policies = ["replay", "--policy", "policies.yaml", "-o", "json", "trace.jsonl"];
            let more = ["--decisions", "decisions", "--clients", clients];
            serde_json::from_str::<Value>(&self.succeed(&[&policies[..], &more].concat(), "")).unwrap()
        };
        let total = |report: &Value, field: &str| {
            let writes = ["writes", "ungoverned"].map(|of| report["total"][of][field].as_u64().unwrap());
            json!(writes[0] + writes[1])
        };
        let yaml = self.read("policies.yaml").replace("\n#   ", " ");
        let recorded = replay("recorded");
        self.no_warning_is_dropped();
        let shown = &suggestions["writesWithRecordedClients"];
        if shown.is_null() {
            assert_eq!(suggestions["total"]["writesWith"], total(&recorded, "etcdWith"));
        } else {
            assert_eq!(*shown, total(&recorded, "etcdWith"));
            assert!(
                yaml.contains(&format!("Without --clients adapted it shows {} writes", grouped(shown))),
                "{yaml}"
            );
        }
        let report = replay("adapted");
        for suggestion in suggestions["policies"].as_array().unwrap() {
            let rows = report["policies"].as_array().unwrap().iter();
            let rows: Vec<_> = rows.filter(|row| row["policy"] == suggestion["name"]).collect();
            let sum = |list: &str, field: &str| {
                rows.iter().map(|row| row[list][field].as_u64().unwrap()).sum::<u64>()
            };
            let dropped =
                ["filtered", "throttled", "muted"].map(|by| sum("occurrences", by)).iter().sum::<u64>();
            let figures = json!({
                "writesWithout": sum("writes", "etcdWithout"), "writesWith": sum("writes", "etcdWith"),
                "eventsWithout": sum("writes", "eventsWithout"), "eventsWith": sum("writes", "eventsWith"),
                "dropped": dropped, "droppedWarnings": sum("occurrences", "droppedWarnings"),
            });
            assert_eq!(suggestion["figures"], figures, "{}", suggestion["name"]);
            let said = format!(
                "# Writes to etcd: {} without this policy, {} with it. Stored Events: {} without, {} with. Dropped: \
                 {}. Warnings dropped: {}.",
                grouped(&figures["writesWithout"]),
                grouped(&figures["writesWith"]),
                grouped(&figures["eventsWithout"]),
                grouped(&figures["eventsWith"]),
                grouped(&figures["dropped"]),
                grouped(&figures["droppedWarnings"]),
            );
            assert!(yaml.contains(&said), "{said} is not in\n{yaml}");
            let specified: Vec<Value> = serde_saphyr::from_multiple(&yaml).unwrap();
            assert!(specified.contains(&suggestion["policy"]), "{}", suggestion["policy"]);
        }
        assert_eq!(suggestions["total"]["writesWithout"], total(&report, "etcdWithout"));
        assert_eq!(suggestions["total"]["writesWith"], total(&report, "etcdWith"));
        assert_eq!(suggestions["total"]["eventsWith"], total(&report, "eventsWith"));
        self.no_warning_is_dropped();
        report
    }

    /// Checks each decision of the replay on a Warning.
    fn no_warning_is_dropped(&self) {
        let (trace, decisions) = (self.read("trace.jsonl"), self.read("decisions"));
        assert_eq!(trace.lines().count(), decisions.lines().count());
        for (write, decision) in trace.lines().zip(decisions.lines()) {
            let [write, decision] =
                [write, decision].map(|line| serde_json::from_str::<Value>(line).unwrap());
            if write["object"]["type"] != "Normal" {
                let disposition = decision["disposition"].as_str().unwrap();
                assert!(!["filtered", "throttled", "muted"].contains(&disposition), "{decision}: {write}");
            }
        }
    }
}

impl Deref for Folder {
    type Target = CommandFolder;

    fn deref(&self) -> &CommandFolder {
        &self.0
    }
}

/// 1,234.
fn grouped(number: &Value) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// A CREATE of an Event by a controller.
fn create(at: u64, namespace: &str, event_type: &str, reason: &str, object: &str, message: &str) -> String {
    let name = format!("{object}.{reason}.{at}.{}", message.len());
    let time = format!("2026-01-01T{:02}:{:02}:{:02}Z", at / 3600 % 24, at / 60 % 60, at % 60);
    let event = json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": {"name": name, "namespace": namespace},
        "involvedObject": {"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
                           "name": object, "namespace": namespace, "uid": object},
        "type": event_type, "reason": reason, "message": message,
        "source": {"component": "kustomize-controller"},
        "firstTimestamp": time, "lastTimestamp": time, "count": 1,
    });
    json!({"at": at, "operation": "CREATE", "user": "flux", "object": event}).to_string() + "\n"
}

/// 30 Kustomizations that are reconciled every ten minutes for ten hours.
fn reconciliations(namespace: &str) -> String {
    let mut writes: Vec<(u64, String)> = Vec::new();
    for object in 0..30_u64 {
        for round in 0..60 {
            let at = round * 600 + object * 7 + round * object % 5;
            let (whole, part) = (1 + (round + object) % 9, (round * 37 + object * 11) % 1000);
            let message = format!("Reconciliation finished in {whole}.{part}s, next run in 10m0s");
            let name = format!("apps-{object}");
            writes.push((at, create(at, namespace, "Normal", "ReconciliationSucceeded", &name, &message)));
        }
    }
    writes.sort_by_key(|(at, _)| *at);
    writes.into_iter().map(|(_, line)| line).collect()
}

#[test]
fn reconciliations_become_one_event_for_each_object() {
    let folder = Folder::new();
    folder.write("trace.jsonl", &reconciliations("flux-system"));
    let suggestions = folder.suggest(&[]);
    let policies = suggestions["policies"].as_array().unwrap();
    assert_eq!(policies.len(), 1, "{suggestions:#}");
    let expected = json!({
        "apiVersion": "squelch.dev/v1alpha1", "kind": "EventPolicy",
        "metadata": {"name": "suggested-kustomize-controller", "namespace": "flux-system"},
        "spec": {
            "mode": "Enforce",
            "match": [{"types": ["Normal"], "reasons": ["ReconciliationSucceeded"],
                       "reportingComponents": ["kustomize-controller"], "regarding": [{"kind": "Kustomization"}]}],
            "normalize": ["Durations"],
            "series": {"idleTimeout": "15m"},
            "aggregation": {"mode": "Disabled"},
            "spamFilter": {"mode": "Disabled"},
        },
    });
    assert_eq!(policies[0]["policy"], expected);
    let figures = &policies[0]["figures"];
    assert_eq!((&figures["writesWithout"], &figures["eventsWithout"]), (&json!(1800), &json!(1800)));
    assert_eq!((&figures["eventsWith"], &figures["dropped"]), (&json!(30), &json!(0)));
    assert!(figures["writesWith"].as_u64().unwrap() < 800, "{figures}");
    let report = folder.confirm(&suggestions);
    assert_eq!(report["total"]["occurrences"]["compacted"], 1800 - 30);
    let yaml = folder.read("policies.yaml");
    for said in [
        "The messages differ in durations, which normalize masks.",
        "These figures are those of: squelch replay --policy POLICIES --clients adapted trace.jsonl",
        "mode: Observe",
    ] {
        assert!(yaml.contains(said), "{said} is not in\n{yaml}");
    }
}

#[test]
fn each_trace_of_the_gallery_is_replayed_as_suggested() {
    let traces = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/traces");
    let mut saving = 0;
    for trace in fs::read_dir(traces).unwrap().map(|entry| entry.unwrap().path()) {
        let folder = Folder::new();
        let mut text = String::new();
        GzDecoder::new(fs::File::open(&trace).unwrap()).read_to_string(&mut text).unwrap();
        folder.write("trace.jsonl", &text);
        let suggestions = folder.suggest(&[]);
        if suggestions["policies"].as_array().unwrap().is_empty() {
            assert!(folder.read("policies.yaml").contains("Nothing to suggest"), "{}", trace.display());
            continue;
        }
        let report = folder.confirm(&suggestions);
        assert_eq!(report["total"]["occurrences"]["droppedWarnings"], 0, "{}", trace.display());
        let total = &suggestions["total"];
        let writes = ["writesWithout", "writesWith"].map(|field| total[field].as_u64().unwrap());
        println!("{}: {writes:?}", trace.display());
        saving += u32::from(writes[1] * 10 <= writes[0] * 9);
    }
    assert!(saving >= 10, "{saving} traces save a tenth of their writes");
}

#[test]
fn nothing_is_suggested_without_noise() {
    let folder = Folder::new();
    let rare: String = (0..50_u64)
        .map(|n| create(n * 600, "shop", "Normal", "Applied", &format!("app-{n}"), &format!("revision {n}")))
        .collect();
    folder.write("trace.jsonl", &rare);
    let suggestions = folder.suggest(&[]);
    assert_eq!(suggestions["policies"], json!([]));
    assert_eq!(suggestions["total"]["writesWith"], 50);
    let yaml = folder.read("policies.yaml");
    assert!(yaml.starts_with("# Replayed 50 writes over 8h10m from trace.jsonl (trace).\n"), "{yaml}");
    assert!(yaml.contains("# Nothing to suggest: no policy saves at least 20 writes"), "{yaml}");
    assert!(yaml.lines().all(|line| line.starts_with('#')), "{yaml}");
    assert!(yaml.contains("Applied"), "{yaml}");
}

#[test]
fn warnings_about_many_objects_are_summarised_and_normal_events_filtered() {
    let folder = Folder::new();
    let write = |event_type: &str, reason: &str| {
        let lines = (0..400_u64).map(|n| {
            let (at, object) = (n / 20, format!("pod-{n}"));
            (at, create(at, "shop", event_type, reason, &object, "has happened"))
        });
        lines.collect::<Vec<_>>()
    };
    let mut writes = [write("Warning", "Failed"), write("Normal", "Pulled")].concat();
    writes.sort_by_key(|(at, _)| *at);
    folder.write("trace.jsonl", &writes.into_iter().map(|(_, line)| line).collect::<String>());
    let suggestions = folder.suggest(&[]);
    folder.confirm(&suggestions);
    let policies = suggestions["policies"].as_array().unwrap();
    let of = |reason: &str| {
        let policy =
            policies.iter().find(|policy| policy["policy"]["spec"]["match"][0]["reasons"] == json!([reason]));
        policy.unwrap_or(&Value::Null)["policy"]["spec"].clone()
    };
    assert_eq!(of("Failed")["aggregation"]["groupBy"], "Kind");
    assert_eq!(of("Failed")["spamFilter"], json!({"mode": "Disabled"}));
    assert_eq!(of("Pulled")["spamFilter"]["refillInterval"], "1s");
    assert_eq!(of("Pulled")["mute"], Value::Null);
    assert!(suggestions["total"]["dropped"].as_u64().unwrap() > 200, "{suggestions:#}");
}

#[test]
fn muting_has_to_be_allowed() {
    let folder = Folder::new();
    let slow: String = (0..100_u64)
        .map(|n| create(n * 60, "shop", "Normal", "Applied", &format!("app-{n}"), "applied"))
        .collect();
    folder.write("trace.jsonl", &slow);
    assert_eq!(folder.suggest(&[])["policies"], json!([]));
    let suggestions = folder.suggest(&["--allow-mute"]);
    let spec = &suggestions["policies"][0]["policy"]["spec"];
    assert_eq!(spec["mute"], spec["match"]);
    assert_eq!(suggestions["total"]["writesWith"], 0);
    folder.confirm(&suggestions);
    assert_eq!(folder.suggest(&["--allow-mute", "--min-saved", "101"])["policies"], json!([]));
}

#[test]
fn the_same_events_in_several_namespaces_are_a_cluster_policy() {
    let folder = Folder::new();
    let mut lines: Vec<String> = ["red", "blue"]
        .iter()
        .flat_map(|namespace| reconciliations(namespace).lines().map(str::to_owned).collect::<Vec<_>>())
        .collect();
    let at = |line: &String| serde_json::from_str::<Value>(line).unwrap()["at"].as_u64();
    lines.sort_by_key(at);
    let trace = lines.join("\n") + "\n";
    folder.write("trace.jsonl", &trace);
    let suggestions = folder.suggest(&[]);
    assert_eq!(suggestions["policies"][0]["policy"]["kind"], "ClusterEventPolicy", "{suggestions:#}");
    assert_eq!(suggestions["total"]["eventsWith"], 60);
    folder.confirm(&suggestions);

    let of_red = folder.suggest(&["-n", "red"]);
    let policy = &of_red["policies"][0]["policy"];
    assert_eq!((&policy["kind"], &policy["metadata"]["namespace"]), (&json!("EventPolicy"), &json!("red")));
    assert_eq!(of_red["policies"][0]["figures"]["eventsWith"], 30);
    folder.confirm(&of_red);

    // Standard input is read once, and examined in the same way.
    let piped = folder.succeed(&["suggest", "-o", "json", "-"], &trace);
    assert_eq!(serde_json::from_str::<Value>(&piped).unwrap()["policies"], suggestions["policies"]);
}

#[test]
fn a_list_of_events_is_examined() {
    let folder = Folder::new();
    let events: Vec<Value> = reconciliations("flux-system")
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["object"].clone())
        .collect();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": events}).to_string();
    let out = folder.succeed(&["suggest", "-o", "json", "-"], &list);
    let suggestions: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(suggestions["policies"][0]["policy"]["spec"]["normalize"], json!(["Durations"]));
    assert_eq!(suggestions["total"]["eventsWith"], 30);
    assert!(suggestions["notes"].to_string().contains("one write per occurrence"), "{suggestions:#}");
}

#[test]
fn texts_of_tenants_cannot_leave_a_comment() {
    let folder = Folder::new();
    let evil = "fails\n---\nkind: Secret\u{1b}[2J";
    let trace: String = (0..100_u64)
        .map(|n| {
            create(n, "shop", "Warning", "Bad", "x", evil)
                + &create(n, "shop", "Warning", "Ba\nd: x", "x", "m")
        })
        .collect();
    folder.write("trace.jsonl", &trace);
    let suggestions = folder.suggest(&[]);
    assert_eq!(suggestions["policies"].as_array().unwrap().len(), 1);
    let yaml = folder.read("policies.yaml");
    assert!(!yaml.contains('\u{1b}') && !yaml.contains("\nkind: Secret") && yaml.contains("fails"), "{yaml}");
    assert!(yaml.contains("100 writes were not examined"), "{yaml}");
    folder.confirm(&suggestions);
}

#[test]
fn a_character_that_yaml_excludes_ends_no_suggestion() {
    let folder = Folder::new();
    let trace: String = (0..100_u64)
        .map(|n| {
            create(n, "shop", "Warning", "Bad", "x", "fails\u{ffff}")
                + &create(n, "shop", "Warning", "Ba\u{fffe}d", "x", "m")
        })
        .collect();
    folder.write("trace.jsonl", &trace);
    let suggestions = folder.suggest(&[]);
    assert_eq!(suggestions["policies"].as_array().unwrap().len(), 1);
    folder.confirm(&suggestions);
}

#[test]
fn an_input_that_cannot_be_read_is_refused_as_by_replay() {
    let folder = Folder::new();
    let policy = "apiVersion: squelch.dev/v1alpha1\nkind: EventPolicy\nmetadata: {name: p}\nspec: {}\n";
    folder.write("policy.yaml", policy);
    let good = create(1, "shop", "Normal", "Applied", "x", "applied");
    for (name, text) in [("empty", ""), ("yaml", "a: b"), ("line", &*format!("{good}{{\"at\": 2}}\n"))] {
        folder.write(name, text);
    }
    for name in ["empty", "yaml", "line", "missing"] {
        let (code, out, err) = folder.run(&["suggest", name], "");
        assert_eq!((code, out.as_str()), (1, ""), "{name}");
        assert_eq!(err, folder.run(&["replay", "--policy", "policy.yaml", name], "").2, "{name}");
        assert!(err.starts_with("squelch: ") && err.contains(name), "{err}");
    }
    let (code, _, err) = folder.run(&["suggest", "-A", "-n", "shop"], "");
    assert_eq!(code, 2, "{err}");
    let (code, _, err) = folder.run(&["suggest", "--kubeconfig", "missing"], "");
    assert_eq!(code, 1);
    assert!(err.contains("cannot read the kubeconfig missing"), "{err}");
    assert!(folder.succeed(&["suggest", "--skip-bad", "line"], "").contains("Nothing to suggest"));
}
