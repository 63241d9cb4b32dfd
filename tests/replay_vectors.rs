//! The decisions of the real client-go, event by event (`tests/vectors`), as traces through `squelch replay`.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test, also in the functions around it")]

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

/// An option with this value disables the stage.
const OUT_OF_THE_WAY: u64 = 1_000_000;

/// A file of vectors: its options and its lines.
struct Vectors {
    name: String,
    options: Value,
    lines: Vec<Value>,
}

/// The files with these name prefixes.
fn vectors(families: &[&str]) -> Vec<Vectors> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors");
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    let name = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
    paths.retain(|path| families.iter().any(|family| name(path).starts_with(family)));
    paths.sort();
    assert!(!paths.is_empty(), "no vectors of {families:?}");
    let read = |path: &PathBuf| {
        let unpacked = flate2::read::GzDecoder::new(std::fs::File::open(path).unwrap());
        let lines =
            BufReader::new(unpacked).lines().map(|line| serde_json::from_str(&line.unwrap()).unwrap());
        let mut lines: Vec<Value> = lines.collect();
        let options = lines.remove(0)["options"].clone();
        Vectors { name: name(path), options, lines }
    };
    paths.iter().map(read).collect()
}

impl Vectors {
    /// A spec without series, with the options of the file.
    fn classic(&self) -> Value {
        let number = |option: &str| self.options[option].as_u64().unwrap();
        let aggregation = match number("maxEvents") {
            OUT_OF_THE_WAY.. => json!({ "mode": "Disabled" }),
            most => json!({"maxEvents": most, "idleTimeout": format!("{}s", number("intervalSeconds"))}),
        };
        let spam_filter = match number("burst") {
            OUT_OF_THE_WAY.. => json!({ "mode": "Disabled" }),
            burst => json!({"burst": burst, "refillInterval": self.refill_interval()}),
        };
        json!({"warningPolicy": "Limit", "series": { "mode": "Disabled" }, "aggregation": aggregation,
            "spamFilter": spam_filter})
    }

    fn refill_interval(&self) -> String {
        let milliseconds = (self.options["refillSeconds"].as_f64().unwrap() * 1000.0).round() as u64;
        if milliseconds.is_multiple_of(1000) {
            format!("{}s", milliseconds / 1000)
        } else {
            format!("{milliseconds}ms")
        }
    }

    /// Each line as a CREATE under a new name.
    fn trace(&self) -> String {
        let line = |(number, line): (usize, &Value)| {
            let (emitter, about) = (&line["emitter"], &line["regarding"]);
            let event = json!({
                "apiVersion": "v1", "kind": "Event",
                "metadata": {"name": format!("e.{number}"), "namespace": "vectors"},
                "involvedObject": about, "type": line["type"], "reason": line["reason"],
                "message": line["message"], "source": emitter, "count": 1,
                "reportingComponent": emitter["component"], "reportingInstance": emitter["host"],
            });
            let write = json!({"at": line["at"], "operation": "CREATE", "user": "kubelet", "object": event});
            format!("{write}\n")
        };
        self.lines.iter().enumerate().map(line).collect()
    }

    /// The decision on each line.
    fn decisions(&self, spec: &Value) -> Vec<Value> {
        let folder =
            std::env::temp_dir().join(format!("squelch-vectors-{}-{}", std::process::id(), self.name));
        std::fs::create_dir_all(&folder).unwrap();
        let policy = json!({
            "apiVersion": "squelch.dev/v1alpha1", "kind": "EventPolicy",
            "metadata": {"name": "p", "namespace": "vectors"}, "spec": spec,
        });
        std::fs::write(folder.join("policy"), policy.to_string()).unwrap();
        std::fs::File::create(folder.join("trace")).unwrap().write_all(self.trace().as_bytes()).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_squelch"));
        command.current_dir(&folder);
        command.args(["replay", "--policy", "policy", "--decisions", "decisions", "trace"]);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}: {}", self.name, String::from_utf8_lossy(&output.stderr));
        let decisions = std::fs::read_to_string(folder.join("decisions")).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        let decisions: Vec<Value> =
            decisions.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(decisions.len(), self.lines.len(), "{}", self.name);
        decisions
    }
}

/// The disposition of client-go's outcome.
fn theirs(line: &Value) -> &'static str {
    let expected = &line["expect"];
    match expected["outcome"].as_str().unwrap() {
        "plain" => "admitted",
        "aggregated" => "aggregated",
        "skipped" if expected["aggregated"] == true => "aggregated",
        "skipped" => "filtered",
        other => panic!("no outcome: {other}"),
    }
}

#[test]
fn aggregation_and_spam_filter_decide_each_event_as_client_go_does() {
    let (mut compared, mut witnesses) = (0, 0);
    for vectors in vectors(&["aggregation-", "spam-", "classic-"]) {
        let decisions = vectors.decisions(&vectors.classic());
        for (number, (line, decision)) in vectors.lines.iter().zip(&decisions).enumerate() {
            // A summary needs a stored Event of its group: the first one is not aggregated.
            let witness = vectors.name.contains("-max1-") && decision["disposition"] == "admitted";
            let same = decision["disposition"] == theirs(line);
            assert!(witness || same, "{}, event {number}: {decision} for {line}", vectors.name);
            compared += 1;
            witnesses += u64::from(witness);
        }
    }
    assert_eq!((compared, witnesses), (7555, 68), "events compared, and those that only squelch stores");
}

#[test]
fn a_series_has_the_counts_of_client_go() {
    let forever = json!({"idleTimeout": "8760h", "heartbeatInterval": "8760h"});
    let off = json!({ "mode": "Disabled" });
    let spec = json!({"series": forever, "aggregation": off, "spamFilter": off});
    let mut compared = 0;
    for vectors in vectors(&["dedup-"]) {
        let mut counts: HashMap<String, i64> = HashMap::new();
        for (line, decision) in vectors.lines.iter().zip(vectors.decisions(&spec)) {
            let key =
                json!([line["emitter"], line["regarding"], line["type"], line["reason"], line["message"]]);
            let count = counts.entry(key.to_string()).or_default();
            let expected = if *count == 0 { "admitted" } else { "compacted" };
            assert_eq!(decision["disposition"], expected, "{}: {line}", vectors.name);
            *count += decision["occurrences"].as_i64().unwrap();
            assert_eq!(line["expect"]["count"], *count, "{}: {line}", vectors.name);
            compared += 1;
        }
    }
    assert_eq!(compared, 1050, "events compared");
}

#[test]
fn the_defaults_admit_everything_that_client_go_admits() {
    let (mut compared, mut more) = (0, 0);
    for vectors in vectors(&["default-"]) {
        let decisions =
            vectors.decisions(&json!({"warningPolicy": "Limit", "series": { "mode": "Disabled" }}));
        for (number, (line, decision)) in vectors.lines.iter().zip(&decisions).enumerate() {
            let better = theirs(line) == "filtered" && decision["disposition"] == "admitted";
            let same = decision["disposition"] == theirs(line);
            assert!(same || better, "{}, event {number}: {decision} for {line}", vectors.name);
            compared += 1;
            more += u64::from(better);
        }
    }
    // In client-go an aggregated Event also takes a token; in squelch merges are free.
    assert_eq!((compared, more), (2986, 10), "events compared, and those that only squelch admits");
}
