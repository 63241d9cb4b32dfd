//! The CustomResourceDefinitions, applied and moved to a new version as docs/releases.md says.

use anyhow::{Context, Result, bail, ensure};
use e2e::cluster::checkout;
use e2e::documents::{block_with, lines, pasted};
use e2e::wait::not_yet;
use e2e::{GENEROUS, Test, wait_for};
use serde_json::{Value, json};

const DEFINITIONS: [&str; 3] = [
    "crd/eventpolicies.squelch.dev",
    "crd/clustereventpolicies.squelch.dev",
    "crd/eventdropreports.squelch.dev",
];

/// Deletes the definitions with all policies and reports.
async fn delete_definitions(test: &Test) -> Result<()> {
    let delete = ["delete", "--ignore-not-found", "--wait", "--timeout=300s"];
    test.cluster.kubectl.run(&[&delete[..], &DEFINITIONS].concat()).await.map(drop)
}

#[tokio::test]
async fn the_definitions_are_applied_client_side() -> Result<()> {
    let test = Test::begin("definitions").await?;
    delete_definitions(&test).await?;
    let block = block_with("docs/releases.md", "squelch crds |")?;
    let [command] = &lines(&block, "squelch crds")[..] else { bail!("{block}") };
    for result in ["created", "unchanged"] {
        let said = pasted(&test.cluster, command).await?;
        ensure!(
            said.lines().count() == DEFINITIONS.len() && said.lines().all(|line| line.ends_with(result)),
            "{said}"
        );
    }
    // Another manager takes them over.
    test.cluster.install().await?;
    test.passed()
}

/// Applies the definitions with copies of their version under these names. The last one is the storage version.
async fn apply_versions(test: &Test, names: &[&str]) -> Result<()> {
    let mut definitions = Vec::new();
    for file in std::fs::read_dir(checkout("crds"))? {
        let mut definition: Value = serde_saphyr::from_str(&std::fs::read_to_string(file?.path())?)?;
        let version = definition["spec"]["versions"][0].clone();
        ensure!(version["name"] == "v1alpha1", "{}", version["name"]);
        let versions = names.iter().map(|name| {
            let mut version = version.clone();
            version["name"] = json!(name);
            version["storage"] = json!(names.last() == Some(name));
            version
        });
        definition["spec"]["versions"] = versions.collect();
        definitions.push(definition);
    }
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": definitions });
    let apply = ["apply", "--server-side", "--force-conflicts", "--filename=-"];
    test.cluster.kubectl.run_with(&apply, list.to_string()).await?;
    test.cluster.kubectl.established(&DEFINITIONS).await?;
    // The API server lists a version before it serves it.
    for resource in ["eventpolicies", "clustereventpolicies", "eventdropreports"] {
        let version = names.last().context("no version")?;
        let path = format!("/apis/squelch.dev/{version}/{resource}");
        wait_for("the version to be served", GENEROUS, async || {
            test.cluster.kubectl.run(&["get", "--raw", &path]).await.map(drop).map_err(not_yet)
        })
        .await?;
    }
    Ok(())
}

#[tokio::test]
async fn policies_move_to_a_new_version() -> Result<()> {
    let test = Test::begin("versions").await?;
    let spec = json!({ "series": { "idleTimeout": "7m0s" } });
    let policy = |kind: &str, name: &str| {
        json!({
            "apiVersion": "squelch.dev/v1alpha1", "kind": kind, "metadata": { "name": name }, "spec": spec,
        })
    };
    test.kubectl().apply(&policy("EventPolicy", "moved")).await?;
    test.cluster.kubectl.apply(&policy("ClusterEventPolicy", &test.namespace)).await?;

    apply_versions(&test, &["v1alpha1", "v1beta1"]).await?;
    let refused = apply_versions(&test, &["v1beta1"]).await;
    let refused = refused.err().context("a stored version was removed")?;
    ensure!(format!("{refused:#}").contains("storedVersions"), "{refused:#}");
    pasted(&test.cluster, &block_with("docs/releases.md", "storedVersions")?).await?;
    apply_versions(&test, &["v1beta1"]).await?;

    for (resource, name) in [("eventpolicies", "moved"), ("clustereventpolicies", &test.namespace)] {
        let resource = format!("{resource}.v1beta1.squelch.dev");
        let read = test.kubectl().run(&["get", &resource, name, "--output=json"]).await?;
        let read: Value = serde_json::from_str(&read)?;
        ensure!(read["spec"]["series"]["idleTimeout"] == "7m0s", "{resource}: {}", read["spec"]);
    }
    // Other tests need the version that squelch reads.
    delete_definitions(&test).await?;
    test.cluster.install().await?;
    test.passed()
}
