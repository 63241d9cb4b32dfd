//! What the README shows is what squelch understands.

#![expect(clippy::unwrap_used, reason = "a test, also in the functions around it")]

use serde_json::Value;
use squelch::api::{ClusterEventPolicySpec, EventPolicySpec};
use squelch::engine::PolicyId;
use squelch::policy::{compile, compile_cluster};

fn policies() -> Vec<Value> {
    let readme = include_str!("../README.md");
    let blocks = readme.split("```yaml\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    blocks.map(|block| serde_saphyr::from_str(block).unwrap()).collect()
}

/// Everything that `written` says is in `understood`.
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
fn every_policy_in_the_readme_is_understood_whole() {
    let policies = policies();
    assert!(!policies.is_empty());
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
        assert!(says_all_of(&understood, &policy["spec"]), "{policy} was understood as {understood}");
    }
}
