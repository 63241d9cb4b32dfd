//! squelch accepts the policies of README.md and docs/policies.md, and docs/replay.md shows what replay prints.

#![expect(clippy::unwrap_used, reason = "a test, also in the functions around it")]

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;
use squelch::api::{ClusterEventPolicySpec, EventPolicySpec};
use squelch::policy::{compile, compile_cluster};
use squelch_engine::PolicyId;

fn policies() -> Vec<Value> {
    let documents = [include_str!("../README.md"), include_str!("../docs/policies.md")];
    let blocks = documents.iter().flat_map(|document| document.split("```yaml\n").skip(1));
    let blocks = blocks.map(|rest| rest.split("```").next().unwrap());
    blocks.map(|block| serde_saphyr::from_str(block).unwrap()).collect()
}

/// Whether everything in `written` is in `understood`.
fn says_all_of(understood: &Value, written: &Value) -> bool {
    match (understood, written) {
        (Value::Object(understood), Value::Object(written)) => written
            .iter()
            .all(|(name, value)| understood.get(name).is_some_and(|found| says_all_of(found, value))),
        (Value::Array(understood), Value::Array(written)) => {
            understood.len() == written.len()
                && understood.iter().zip(written).all(|(a, b)| says_all_of(a, b))
        }
        _ => understood == written,
    }
}

#[test]
fn every_policy_in_the_documents_is_parsed_completely() {
    let policies = policies();
    assert_eq!(policies.len(), 3);
    for policy in policies {
        let id = PolicyId { display: "ci/readme".into(), uid: "uid".into() };
        let spec = policy["spec"].clone();
        let understood = if policy["kind"] == "ClusterEventPolicy" {
            let spec: ClusterEventPolicySpec = serde_json::from_value(spec).unwrap();
            compile_cluster(id, &spec).unwrap();
            serde_json::to_value(&spec).unwrap()
        } else {
            let spec: EventPolicySpec = serde_json::from_value(spec).unwrap();
            compile(id, &spec).unwrap();
            serde_json::to_value(&spec).unwrap()
        };
        assert!(says_all_of(&understood, &policy["spec"]), "{policy} was parsed as {understood}");
    }
}

const REPLAY: &str = "## Try a policy on the Events of your cluster";

/// The code blocks of this language under a heading.
fn blocks<'a>(heading: &str, language: &str) -> Vec<&'a str> {
    let section =
        include_str!("../docs/replay.md").split(heading).nth(1).unwrap().split("\n## ").next().unwrap();
    let fences: Vec<&str> = section.split("```").skip(1).step_by(2).collect();
    fences.iter().filter_map(|block| block.strip_prefix(&format!("{language}\n"))).collect()
}

/// Runs the commands with squelch in PATH and a stub of kubectl that prints recorded objects; returns their output.
fn run(commands: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("squelch-readme-{}-{number}", std::process::id()));
    let programs = folder.join("bin");
    std::fs::create_dir_all(&programs).unwrap();
    symlink(root.join("examples"), folder.join("examples")).unwrap();
    symlink(env!("CARGO_BIN_EXE_squelch"), programs.join("squelch")).unwrap();
    let kubectl = "#!/bin/sh\n\
        case \"$*\" in\n\
        'get events --all-namespaces -o json') exec cat \"$DUMP\" ;;\n\
        'get namespaces -o json') exec cat namespaces ;;\n\
        esac\nexit 1\n";
    for (program, script) in [("kubectl", kubectl), ("cargo", "#!/bin/sh\n")] {
        std::fs::write(programs.join(program), script).unwrap();
        std::fs::set_permissions(programs.join(program), Permissions::from_mode(0o755)).unwrap();
    }
    std::fs::write(folder.join("namespaces"), NAMESPACES).unwrap();
    let teams = policies().into_iter().find(|policy| policy["kind"] == "ClusterEventPolicy").unwrap();
    std::fs::write(folder.join("teams.yaml"), teams.to_string()).unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let mut shell = Command::new("sh");
    shell.args(["-e", "-c", commands]).current_dir(&folder);
    shell.env("PATH", path).env("DUMP", root.join("tests/replay/events.json"));
    let output = shell.output().unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn replay_prints_the_output_in_the_documents() {
    let printed = run(blocks(REPLAY, "sh")[0]);
    assert_eq!(blocks(REPLAY, ""), [printed.as_str()], "docs/replay.md differs from the output:\n{printed}");
}

#[test]
fn replay_prints_the_comparison_in_the_documents() {
    let heading = "## Compare two sets of policies";
    let dump = "kubectl get events --all-namespaces -o json > events.json\n";
    let printed = run(&format!("{dump}{}", blocks(heading, "sh")[0]));
    assert_eq!(blocks(heading, ""), [printed.as_str()], "docs/replay.md differs from the output:\n{printed}");
}

/// Output of `kubectl get namespaces -o json`, with one namespace of a team.
const NAMESPACES: &str = r#"{"kind": "List", "apiVersion": "v1", "items": [
    {"kind": "Namespace", "metadata": {"name": "shop", "labels": {"tier": "team", "kubernetes.io/metadata.name": "shop"}}},
    {"kind": "Namespace", "metadata": {"name": "orders", "labels": {"kubernetes.io/metadata.name": "orders"}}}
]}"#;

#[test]
fn the_cluster_policy_in_the_documents_is_replayed_with_namespace_labels() {
    let commands = blocks(REPLAY, "sh");
    assert_eq!(commands.len(), 2);
    let printed = run(&format!("kubectl get events --all-namespaces -o json > events.json\n{}", commands[1]));
    let governed =
        |namespace: &str| printed.lines().any(|line| line.starts_with(namespace) && line.contains(" teams "));
    assert!(governed("shop") && !governed("orders"), "{printed}");
}
