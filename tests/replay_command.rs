//! `squelch replay` as a command: inputs, outputs, and error messages.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test, also in the functions around it")]

mod command_folder;
#[path = "replay_command/errors.rs"]
mod errors;
#[path = "replay_command/inputs.rs"]
mod inputs;

use std::ops::Deref;

use command_folder::CommandFolder;
use serde_json::{Value, json};

const POLICY: &str =
    "apiVersion: squelch.dev/v1alpha1\nkind: EventPolicy\nmetadata: {name: team}\nspec: {}\n";

/// A folder with the policy.
struct Folder(CommandFolder);

impl Folder {
    fn new() -> Self {
        let folder = CommandFolder::new("replay");
        folder.write("policy.yaml", POLICY);
        Self(folder)
    }

    /// Runs `squelch replay` in the folder. Returns exit code, standard output, standard error.
    fn replay(&self, arguments: &[&str], input: &str) -> (i32, String, String) {
        self.run(&[&["replay"], arguments].concat(), input)
    }

    /// Replays standard input with the policy in namespace shop. Returns the report and the decisions.
    fn report(&self, arguments: &[&str], input: &str) -> (Value, Vec<Value>) {
        let fixed = ["--policy", "policy.yaml", "-n", "shop", "-o", "json", "--decisions", "d", "-"];
        let (code, out, err) = self.replay(&[&fixed, arguments].concat(), input);
        assert_eq!((code, err.as_str()), (0, ""));
        let decisions = self.read("d").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        (serde_json::from_str(&out).unwrap(), decisions)
    }

    /// Returns the error for an input that cannot be read.
    fn refusal(&self, input: &str) -> String {
        let (code, out, err) = self.replay(&["--policy", "policy.yaml", "-"], input);
        assert_eq!((code, out.as_str()), (1, ""), "{err}");
        err.strip_prefix("squelch: standard input").unwrap_or_else(|| panic!("{err}")).to_owned()
    }
}

impl Deref for Folder {
    type Target = CommandFolder;

    fn deref(&self) -> &CommandFolder {
        &self.0
    }
}

/// A legacy Event with this count.
fn event(name: &str, count: i64) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": {"name": name, "namespace": "shop"},
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", "name": "cart", "namespace": "shop"},
        "type": "Warning", "reason": "BackOff", "message": "Back-off",
        "source": {"component": "kubelet", "host": "n1"},
        "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:00Z", "count": count,
    })
}

/// Same through events.k8s.io.
fn new_event(name: &str, count: i64) -> Value {
    let mut event = json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event",
        "metadata": {"name": name, "namespace": "shop"},
        "regarding": {"apiVersion": "v1", "kind": "Pod", "name": "cart", "namespace": "shop"},
        "type": "Warning", "reason": "SyncFailed", "note": "cannot sync", "action": "Sync",
        "reportingController": "example.com/c", "reportingInstance": "c-1",
        "eventTime": "2026-01-01T00:00:00.000000Z",
    });
    if count > 1 {
        event["series"] = json!({"count": count, "lastObservedTime": "2026-01-01T00:10:00.000000Z"});
    }
    event
}

fn line(at: f64, operation: &str, object: &Value, old_object: Option<&Value>) -> String {
    let mut line = json!({"at": at, "operation": operation, "user": "system:node:n1", "object": object});
    if let Some(old) = old_object {
        line["oldObject"] = old.clone();
    }
    format!("{line}\n")
}

fn lines<'a>(lines: impl IntoIterator<Item = &'a Value>) -> String {
    lines.into_iter().map(|line| format!("{line}\n")).collect()
}

#[test]
fn each_line_of_a_trace_is_decided_in_order() {
    let folder = Folder::new();
    let (one, two, three) = (event("a", 1), event("a", 2), event("a", 3));
    let mut labelled = event("a", 1);
    labelled["metadata"]["labels"] = json!({"seen": "yes"});
    let mut elsewhere = event("a", 1);
    elsewhere["metadata"]["namespace"] = json!("other");
    let own =
        r#"{"at": 2.5, "operation": "CREATE", "user": "system:serviceaccount:squelch:squelch", "object": "#;
    let dry = r#"{"at": 3, "operation": "CREATE", "dryRun": true, "object": "#;
    let trace = [
        line(0.5, "CREATE", &one, None),
        line(1.0, "CREATE", &event("b", 1), None),
        line(2.0, "UPDATE", &labelled, Some(&one)),
        format!("{own}{one}}}\n\n"),
        format!("{dry}{one}}}\n"),
        line(3.0, "UPDATE", &two, Some(&one)),
        line(4.0, "UPDATE", &three, Some(&two)),
        line(4.0, "CREATE", &new_event("n", 1), None),
        line(5.0, "UPDATE", &new_event("n", 2), Some(&new_event("n", 1))),
        line(6.0, "CREATE", &new_event("m", 2), None),
        line(7.0, "CREATE", &elsewhere, None),
    ]
    .concat();
    let (report, decisions) = folder.report(&[], &trace);
    let policy = json!("shop/team");
    let expected = [
        (0.5, "a", "admitted", "admit", 1, "allow", &policy),
        (1.0, "b", "compacted", "series", 1, "409", &policy),
        (2.0, "a", "passed", "edit", 0, "allow", &policy),
        (2.5, "a", "passed", "own", 0, "allow", &Value::Null),
        (3.0, "a", "passed", "dry-run", 0, "allow", &policy),
        (3.0, "a", "compacted", "series", 1, "409", &policy),
        (4.0, "a", "compacted", "series", 1, "409", &policy),
        (4.0, "n", "admitted", "admit", 1, "allow", &policy),
        (5.0, "n", "admitted", "series", 1, "allow", &policy),
        (6.0, "m", "compacted", "series", 2, "403", &policy),
        (7.0, "a", "passed", "no-policy", 0, "allow", &Value::Null),
    ];
    let expected: Vec<Value> = expected
        .iter()
        .map(|(at, name, disposition, stage, occurrences, answer, policy)| {
            let namespace = if *at > 6.5 { "other" } else { "shop" };
            json!({"at": at, "namespace": namespace, "name": name, "disposition": disposition, "stage": stage,
                   "occurrences": occurrences, "answer": answer, "policy": policy})
        })
        .collect();
    assert_eq!(decisions, expected);
    assert_eq!(report["input"]["format"], "trace");
    assert_eq!((&report["input"]["entries"], &report["input"]["writes"]), (&json!(11), &json!(11)));
    let row = &report["policies"][0];
    assert_eq!(row["occurrences"]["received"], 8);
    assert_eq!(row["occurrences"]["compacted"], 5);
    assert_eq!(report["passed"], json!({"dry-run": 1, "edit": 1, "no-policy": 1, "own": 1}));
    let writes = &row["writes"];
    assert_eq!((&writes["etcdWithout"], &writes["allowed"]), (&json!(8), &json!(5)));
    let flushes = writes["flushes"].as_u64().unwrap();
    assert!(flushes > 0, "{row}");
    // Without the dry run, which is allowed and not stored.
    assert_eq!(writes["etcdWith"].as_u64().unwrap(), 4 + flushes);
}

#[test]
fn clients_can_be_adapted_to_the_policies() {
    let folder = Folder::new();
    let mut trace = line(0.0, "CREATE", &event("a", 1), None);
    for count in 2..=200 {
        trace += &line(count as f64, "UPDATE", &event("a", count), Some(&event("a", count - 1)));
    }
    let writes = |arguments: &[&str]| folder.report(arguments, &trace).0["total"]["writes"].clone();
    let (recorded, adapted) = (writes(&[]), writes(&["--clients", "adapted"]));
    assert_eq!(recorded["etcdWithout"], 200);
    // The CREATE, log2(200) doublings by the client or by squelch, and the closing.
    let with = adapted["etcdWith"].as_u64().unwrap();
    assert!((8..=10).contains(&with), "{adapted}");
    assert!(recorded["etcdWith"].as_u64().unwrap() < with, "{recorded}");
    let note = |arguments: &[&str]| {
        folder.report(arguments, &trace).0["notes"].to_string().contains("--clients adapted")
    };
    assert!(note(&[]) && !note(&["--clients", "adapted"]));
}

#[test]
fn the_same_input_gives_the_same_output_and_the_table_is_plain() {
    let folder = Folder::new();
    let trace: String =
        (0..50).map(|n| line(f64::from(n), "CREATE", &event(&format!("e.{n}"), 1), None)).collect();
    let table = || folder.replay(&["--policy", "policy.yaml", "-A", "--clients", "adapted", "-"], &trace);
    let (code, out, err) = table();
    assert_eq!((code, err.as_str()), (0, ""));
    assert_eq!(table().1, out);
    let expected = "\
Replayed 50 writes over 49.000s from standard input (trace).

OCCURRENCES  POLICY     MODE     RECEIVED  ADMITTED  COMPACTED  AGGREGATED  FILTERED  THROTTLED  MUTED
shop         shop/team  Enforce        50         1         49           0         0          0      0
all                                    50         1         49           0         0          0      0

WRITES TO ETCD  POLICY     WITHOUT  WITH  BY SQUELCH  409  403  RESTORED  BYTES SAVED
shop            shop/team       50     7           6   49    0         0     14.9 KiB
all                             50     7           6   49    0         0     14.9 KiB
";
    assert_eq!(out, expected);
}

#[test]
fn two_sets_of_policies_are_compared() {
    let folder = Folder::new();
    let spec = "spec: {warningPolicy: Limit, series: {mode: Disabled}, spamFilter: {burst: 3}}";
    folder.write("other.yaml", &POLICY.replace("spec: {}", spec));
    let mut elsewhere = event("a", 1);
    elsewhere["metadata"]["namespace"] = json!("other");
    let trace = (0..50).map(|n| line(f64::from(n), "CREATE", &event(&format!("e.{n}"), 1), None));
    let trace = trace.collect::<String>() + &line(50.0, "CREATE", &elsewhere, None);
    let compared = ["--policy", "policy.yaml", "--against", "other.yaml", "-n", "shop", "-"];
    let (code, out, err) = folder.replay(&compared, &trace);
    assert_eq!((code, err.as_str()), (0, ""));
    let expected = "\
Replayed 51 writes over 50.000s from standard input (trace).

OCCURRENCES  POLICY  AGAINST  DIFFERENCE
received         50       50           0
admitted          1        3          -2
compacted        49        0         +49
aggregated        0        0           0
filtered          0       47         -47
throttled         0        0           0
muted             0        0           0

WRITES TO ETCD      POLICY   AGAINST  DIFFERENCE
without squelch         51        51           0
with squelch             8         4          +4
by squelch               6         0          +6
refused with 409        49        47          +2
refused with 403         0         0           0
restored                 0         0           0
no policy                1         1           0
bytes saved       14.9 KiB  16.2 KiB    -1.4 KiB

SAVED WRITES  POLICY  AGAINST  DIFFERENCE
shop              43       47          -4

DROPPED  REASON   KIND  COMPONENT  BY        POLICY  AGAINST  DIFFERENCE
shop     BackOff  Pod   kubelet    filtered       0       47         -47

note: the recorded clients ran without these policies, so each oldObject shows a higher count than squelch
  would have stored, and BY SQUELCH is too low; --clients adapted corrects this
";
    assert_eq!(out, expected);
    // Each result is that of the same policies alone.
    let report = |arguments: &[&str]| {
        let (code, out, err) =
            folder.replay(&[arguments, &["-n", "shop", "-o", "json", "-"]].concat(), &trace);
        assert_eq!((code, err.as_str()), (0, ""));
        serde_json::from_str::<Value>(&out).unwrap()
    };
    let mut both = report(&["--policy", "policy.yaml", "--against", "other.yaml"]);
    assert_eq!(both["against"].take(), report(&["--policy", "other.yaml"]));
    both.as_object_mut().unwrap().remove("against");
    assert_eq!(both, report(&["--policy", "policy.yaml"]));

    for (arguments, code) in [
        (&["--against", "other.yaml", "--decisions", "d", "trace"][..], 2),
        (&["--against", "-", "-"], 1),
        (&["--against", "missing.yaml", "-"], 1),
    ] {
        let (found, out, err) = folder.replay(&[&["--policy", "policy.yaml"], arguments].concat(), &trace);
        assert_eq!((found, out.as_str()), (code, ""), "{err}");
    }
}

#[test]
fn observe_admits_everything_and_as_enforced_does_not() {
    let folder = Folder::new();
    folder.write("policy.yaml", &POLICY.replace("spec: {}", "spec: {mode: Observe}"));
    let trace: String =
        (0..50).map(|n| line(f64::from(n), "CREATE", &event(&format!("e.{n}"), 1), None)).collect();
    let row = |arguments: &[&str]| folder.report(arguments, &trace).0["policies"][0].clone();
    let (observe, enforce) = (row(&[]), row(&["--as-enforced"]));
    assert_eq!((&observe["mode"], &enforce["mode"]), (&json!("Observe"), &json!("Enforce")));
    assert_eq!(observe["occurrences"], enforce["occurrences"]);
    assert_eq!(observe["writes"]["etcdWith"], 50);
    assert_eq!(enforce["writes"]["allowed"], 1);
}

#[test]
fn dropped_events_and_summaries_are_listed_and_sanitised() {
    let folder = Folder::new();
    let spec =
        "spec: {warningPolicy: Limit, aggregation: {maxEvents: 2}, spamFilter: {burst: 3, per: [Reason]}}";
    folder.write("policy.yaml", &POLICY.replace("spec: {}", spec));
    let write = |n: u32, message: String, reason: &str, object: &str| {
        let mut event = event(&format!("e.{n}"), 1);
        (event["message"], event["reason"]) = (json!(message), json!(reason));
        event["involvedObject"]["name"] = json!(object);
        line(f64::from(n), "CREATE", &event, None)
    };
    let alike = (0..10).map(|n| write(n, format!("at \u{1b}[31m{n}\u{202e}"), "BackOff", "cart"));
    let many = (10..30).map(|n| write(n, "m".to_owned(), "Un\u{7}healthy", &format!("pod-{n}")));
    let (report, decisions) = folder.report(&[], &alike.chain(many).collect::<String>());
    let of = |disposition: &str| decisions.iter().filter(|it| it["disposition"] == disposition).count();
    assert_eq!((of("admitted"), of("aggregated"), of("filtered")), (4, 9, 17));

    let summary = &report["summaries"][0];
    assert_eq!((report["summaries"].as_array().unwrap().len(), &summary["count"]), (1, &json!(9)));
    assert_eq!(summary["message"], "(combined from similar events): at  [31m9 ");
    assert!(summary["name"].as_str().unwrap().starts_with("cart."), "{summary}");
    let expected = json!([{"namespace": "shop", "policy": "shop/team", "reason": "Un healthy", "kind": "Pod",
                           "component": "kubelet", "disposition": "filtered", "count": 17}]);
    assert_eq!((&report["dropped"], &report["droppedNotListed"]), (&expected, &json!(0)));
}

#[test]
fn a_cluster_policy_applies_where_the_labels_match() {
    let folder = Folder::new();
    let policy = "apiVersion: squelch.dev/v1alpha1\nkind: ClusterEventPolicy\nmetadata: {name: shops}\nspec: \
                  {namespaceSelector: {matchLabels: {team: shop}}}\n";
    folder.write("policy.yaml", policy);
    let namespace = json!({"kind": "Namespace", "metadata": {"name": "shop", "labels": {"team": "shop"}}});
    folder.write("namespaces.json", &json!({"kind": "List", "items": [namespace]}).to_string());
    let mut elsewhere = event("a", 1);
    elsewhere["metadata"]["namespace"] = json!("other");
    let trace = line(1.0, "CREATE", &event("a", 1), None) + &line(2.0, "CREATE", &elsewhere, None);
    for more in [&[][..], &["-A"]] {
        let arguments =
            [&["--policy", "policy.yaml", "--namespaces", "namespaces.json", "-o", "json", "-"], more];
        let (code, out, err) = folder.replay(&arguments.concat(), &trace);
        assert_eq!((code, err.as_str()), (0, ""));
        let report: Value = serde_json::from_str(&out).unwrap();
        let policies = report["policies"].as_array().unwrap();
        let said: Vec<_> = policies.iter().map(|policy| (&policy["namespace"], &policy["policy"])).collect();
        assert_eq!(said, [(&json!("shop"), &json!("shops"))]);
        assert_eq!(report["total"]["ungoverned"]["received"], 1);
    }
    let (code, _, err) = folder.replay(&["--policy", "policy.yaml", "-"], &trace);
    assert_eq!(code, 1);
    assert!(err.contains("--namespaces FILE"), "{err}");
    // Standard input is read once, for both sets of policies.
    folder.write("trace", &trace);
    let compared = ["--policy", "policy.yaml", "--against", "policy.yaml", "--namespaces", "-", "trace"];
    let (code, _, err) = folder.replay(&compared, &folder.read("namespaces.json"));
    assert_eq!((code, err.as_str()), (0, ""));
}

#[test]
fn the_summaries_with_the_highest_counts_are_listed_and_the_others_counted() {
    let folder = Folder::new();
    folder.write("policy.yaml", &POLICY.replace("spec: {}", "spec: {aggregation: {maxEvents: 2}}"));
    let mut trace = String::new();
    for object in 0..1_002 {
        let last = object == 1_001;
        for number in 0..if last { 50 } else { 5 } {
            let mut event = event(&format!("e{object}.{number}"), 1);
            event["involvedObject"]["name"] = json!(format!("pod-{object}"));
            event["message"] = json!(format!("message {number}"));
            trace += &line(f64::from(object), "CREATE", &event, None);
        }
    }
    let report = folder.report(&[], &trace).0;
    let summaries = report["summaries"].as_array().unwrap();
    assert_eq!((summaries.len(), &report["summariesNotListed"]), (1_000, &json!(2)));
    let counts: Vec<_> = summaries.iter().map(|summary| summary["count"].as_i64().unwrap()).collect();
    assert!(counts[0] >= 48 && counts.is_sorted_by(|one, next| one >= next), "{:?}", &counts[..5]);
}

#[test]
fn a_comparison_shows_only_what_differs() {
    let folder = Folder::new();
    folder.write("policy.yaml", &POLICY.replace("spec: {}", "spec: {mute: [{types: [Normal]}]}"));
    let exempt = "spec: {mute: [{types: [Normal]}], exempt: [{reasons: [R0-0, R12-7]}]}";
    folder.write("other.yaml", &POLICY.replace("spec: {}", exempt));
    let mut trace = String::new();
    for number in 0..1_040 {
        let (namespace, reason) = (number % 13, number / 13 % 8);
        let mut event = event(&format!("e.{number}"), 1);
        event["metadata"]["namespace"] = json!(format!("ns{namespace}"));
        event["type"] = json!("Normal");
        event["reason"] = json!(format!("R{namespace}-{reason}"));
        trace += &line(f64::from(number), "CREATE", &event, None);
    }
    let compared = ["--policy", "policy.yaml", "--against", "other.yaml", "-A", "-"];
    let (code, out, err) = folder.replay(&compared, &trace);
    assert_eq!((code, err.as_str()), (0, ""));
    let table: Vec<_> = out.lines().skip_while(|line| !line.starts_with("DROPPED")).skip(1).collect();
    let differing: Vec<_> = table.iter().map_while(|line| line.split_whitespace().nth(1)).collect();
    assert_eq!(differing, ["R0-0", "R12-7"], "{out}");
}

#[test]
fn texts_of_an_input_move_no_cursor() {
    let folder = Folder::new();
    folder.write(
        "policy.yaml",
        &POLICY.replace("spec: {}", "spec: {warningPolicy: Limit, mute: [{types: [Warning]}]}"),
    );
    let mut hostile = event("a", 1);
    hostile["metadata"]["namespace"] = json!("x\u{1b}[2J\u{7}\u{202e}");
    let trace = line(1.0, "CREATE", &hostile, None);
    for format in ["table", "json"] {
        let arguments = ["--policy", "policy.yaml", "-A", "-o", format, "-"];
        let (code, out, err) = folder.replay(&arguments, &trace);
        assert_eq!((code, err.as_str()), (0, ""));
        assert!(!out.contains(['\u{1b}', '\u{7}', '\u{202e}']) && !out.contains("\\u001b"), "{out}");
    }
}
