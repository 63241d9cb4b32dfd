//! The example policies: the effect of each policy of `examples/policies` on its trace matches its comment.
//! tests/gallery generates the traces; `./justw generate` writes them.

#![expect(clippy::unwrap_used, reason = "a test, also in the functions around it")]

#[path = "gallery/clients.rs"]
mod clients;
#[path = "gallery/cluster.rs"]
mod cluster;
#[path = "gallery/correlator.rs"]
mod correlator;
#[path = "gallery/effects.rs"]
mod effects;
#[path = "gallery/storms.rs"]
mod storms;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde_json::Value;

use clients::{Clients, Emitter, MINUTE, Object, Occurrence, Recorder, trace};
use cluster::Dice;

/// Maximum size of a trace in the repository.
const LARGEST: usize = 200_000;

/// Each file of `examples/traces` and its occurrences.
fn happenings() -> BTreeMap<&'static str, Vec<Occurrence>> {
    let mut dice = Dice::new(35);
    let dice = &mut dice;
    let mut mixed = storms::crash_loops(dice, "shop", 5, 30 * MINUTE);
    mixed.extend(storms::failing_probes(dice, "orders", 8, 30 * MINUTE));
    mixed.extend(storms::cron_jobs(dice, "reports", 2, 5, 30));
    BTreeMap::from([
        ("argo-cd", storms::argo_cd(&mut Dice::new(39), "argocd", 40, 120 * MINUTE)),
        ("crash-loops", storms::crash_loops(dice, "shop", 20, 60 * MINUTE)),
        ("cron-jobs", storms::cron_jobs(dice, "reports", 20, 15, 120)),
        ("failed-scheduling", storms::failed_scheduling(dice, "batch", 200, 45 * MINUTE)),
        ("failing-probes", storms::failing_probes(dice, "shop", 30, 30 * MINUTE)),
        ("flux-reconciliations", storms::flux_reconciliations(&mut Dice::new(37), "flux-system", 40, 3)),
        ("image-pulls", storms::image_pulls(&mut Dice::new(38), "shop", 100)),
        ("java-operators", storms::java_operator(&mut Dice::new(42), "data", 30, 60 * MINUTE)),
        ("karpenter", storms::karpenter(&mut Dice::new(41), 25, 120 * MINUTE)),
        ("kube-system", storms::kube_system(dice, 60 * MINUTE)),
        ("mixed", mixed),
        ("node-not-ready", storms::node_not_ready(&mut Dice::new(40), 3, 80, 5)),
        ("nodes-in-trouble", storms::nodes_in_trouble(&mut Dice::new(36), 6, 60 * MINUTE)),
        ("noisy-tenant", storms::noisy_tenant(dice, "team-red", 120)),
        ("rollout", storms::rollout(dice, "shop", 500, 17)),
    ])
}

/// Parses a line of `tests/vectors`.
fn occurrence(line: &Value) -> Occurrence {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let (emitter, about) = (&line["emitter"], &line["regarding"]);
    Occurrence {
        at: (line["at"].as_f64().unwrap() * 1000.0).round() as u64,
        by: Emitter {
            recorder: Recorder::Legacy,
            user: String::new(),
            component: text(&emitter["component"]),
            instance: text(&emitter["host"]),
        },
        about: Object {
            api_version: text(&about["apiVersion"]).leak(),
            kind: text(&about["kind"]).leak(),
            namespace: text(&about["namespace"]),
            name: text(&about["name"]),
            uid: text(&about["uid"]),
            field_path: text(&about["fieldPath"]),
        },
        event_type: text(&line["type"]).leak(),
        reason: text(&line["reason"]).leak(),
        action: "",
        message: text(&line["message"]),
    }
}

#[test]
fn the_trace_clients_drop_and_aggregate_as_client_go_does() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors");
    let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let files: Vec<PathBuf> = files.filter(|path| path.to_string_lossy().contains("/default-")).collect();
    assert_eq!(files.len(), 5);
    for path in files {
        let mut clients = Clients::default();
        for line in unpacked(&path).lines().skip(1) {
            let line: Value = serde_json::from_str(line).unwrap();
            let written = clients.report(&occurrence(&line));
            let write: Value =
                if written.is_empty() { Value::Null } else { serde_json::from_str(written).unwrap() };
            let count = write["object"]["count"].as_i64().unwrap_or(0);
            assert_eq!(count, line["expect"]["count"].as_i64().unwrap(), "{}: {line}", path.display());
            if count > 0 {
                let message = write["object"]["message"].as_str().unwrap();
                let aggregated = message.starts_with("(combined from similar events): ");
                assert_eq!(
                    aggregated,
                    line["expect"]["outcome"] == "aggregated",
                    "{}: {line}",
                    path.display()
                );
            }
        }
    }
}

fn examples() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("examples")
}

/// The stems of the files in an example folder.
fn stems(folder: &str, suffix: &str) -> BTreeSet<String> {
    let files = fs::read_dir(examples().join(folder)).unwrap();
    files
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .map(|name| name.strip_suffix(suffix).unwrap_or(&name).to_owned())
        .collect()
}

fn recorded(name: &str) -> String {
    unpacked(&examples().join(format!("traces/{name}.jsonl.gz")))
}

fn unpacked(path: &Path) -> String {
    let mut text = String::new();
    GzDecoder::new(fs::File::open(path).unwrap()).read_to_string(&mut text).unwrap();
    text
}

#[test]
fn the_traces_match_the_storms() {
    for (name, happened) in happenings() {
        let generated = trace(happened);
        let path = examples().join(format!("traces/{name}.jsonl.gz"));
        if std::env::var_os("SQUELCH_GENERATE").is_some() {
            let mut packed = GzEncoder::new(Vec::new(), Compression::best());
            packed.write_all(generated.as_bytes()).unwrap();
            let packed = packed.finish().unwrap();
            assert!(packed.len() < LARGEST, "{name} has {} bytes", packed.len());
            fs::write(path, packed).unwrap();
        }
        assert!(
            recorded(name) == generated,
            "{name} differs from the generated trace: run `./justw generate` and commit it"
        );
    }
    let expected: BTreeSet<String> = happenings().into_keys().map(str::to_owned).collect();
    assert_eq!(stems("traces", ".jsonl.gz"), expected);
}

/// The effect of a policy on its trace.
struct Replayed {
    report: Value,
    /// Each line of the trace with its decision.
    writes: Vec<(Value, Value)>,
    /// The text of the comment.
    said: Vec<String>,
}

/// Runs the commands in the comment of a policy unchanged; returns them with the text below each.
fn replayed(policy: &str) -> Vec<Replayed> {
    let text = fs::read_to_string(examples().join(format!("policies/{policy}.yaml"))).unwrap();
    let comment = text.lines().take_while(|line| line.starts_with('#')).map(|line| line[1..].trim());
    let paragraphs = comment.collect::<Vec<_>>();
    let paragraphs = paragraphs.split(|line| line.is_empty());
    let replays = paragraphs.filter(|lines| lines[0].starts_with("gzip -dc "));
    replays
        .map(|lines| {
            let end = lines.iter().position(|line| line.ends_with(" -")).unwrap() + 1;
            let said = lines[end..].iter().map(|line| (*line).to_owned()).collect();
            let (report, writes) = run(&lines[..end].join("\n"));
            Replayed { report, writes, said }
        })
        .collect()
}

fn run(command: &str) -> (Value, Vec<(Value, Value)>) {
    let trace = command.split(['/', '.']).nth(2).unwrap();
    let decisions = tempfile();
    let command = command.strip_suffix(" -").unwrap();
    let program = PathBuf::from(env!("CARGO_BIN_EXE_squelch"));
    let path = format!("{}:{}", program.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let mut shell = Command::new("sh");
    shell.args(["-e", "-c", &format!("{command} -o json --decisions {} -", decisions.display())]);
    let output = shell.current_dir(env!("CARGO_MANIFEST_DIR")).env("PATH", path).output().unwrap();
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    let lines = |text: &str| text.lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<_>>();
    let decided = lines(&fs::read_to_string(&decisions).unwrap());
    fs::remove_file(decisions).unwrap();
    let writes = lines(&recorded(trace));
    assert_eq!(writes.len(), decided.len());
    (serde_json::from_slice(&output.stdout).unwrap(), writes.into_iter().zip(decided).collect())
}

fn tempfile() -> PathBuf {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("squelch-gallery-{}-{number}", std::process::id()))
}

/// 1,234.
fn grouped(number: &Value) -> String {
    let digits = number.as_u64().unwrap().to_string();
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// A report in the format of the comments.
fn figures(report: &Value) -> Vec<String> {
    let (occurrences, writes) = (&report["total"]["occurrences"], &report["total"]["writes"]);
    let dispositions =
        ["admitted", "compacted", "aggregated", "filtered", "throttled", "muted", "failedOpen"];
    let parts = dispositions.iter().filter(|of| occurrences[**of] != 0);
    let parts: Vec<String> = parts.map(|of| format!("{} {of}", grouped(&occurrences[*of]))).collect();
    let (without, with) = (grouped(&writes["etcdWithout"]), grouped(&writes["etcdWith"]));
    vec![
        format!("{} occurrences: {}", grouped(&occurrences["received"]), parts.join(", ")),
        format!("writes to etcd: {without} without squelch, {with} with"),
    ]
}

#[test]
fn the_figures_in_the_comments_match_replay() {
    let policies = stems("policies", ".yaml");
    assert!(policies.len() >= 9, "{policies:?}");
    for policy in policies {
        let replays = replayed(&policy);
        assert!(!replays.is_empty(), "{policy} has no replay command in its comment");
        for replay in replays {
            assert_eq!(replay.said, figures(&replay.report), "{policy}");
        }
    }
}

#[test]
fn the_documents_show_every_policy_with_its_figures() {
    let document = include_str!("../docs/policies.md");
    for policy in stems("policies", ".yaml") {
        let writes = &replayed(&policy).pop().unwrap().report["total"]["writes"];
        let figures = [&writes["etcdWithout"], &writes["etcdWith"]].map(grouped).join(" | ");
        let mut rows =
            document.lines().filter(|line| line.contains(&format!("(../examples/policies/{policy}.yaml)")));
        let row = rows.next().unwrap_or_default();
        assert!(
            row.ends_with(&format!("| {figures} |")),
            "{policy} is {figures}, docs/policies.md says {row:?}"
        );
    }
}
