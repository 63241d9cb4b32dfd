//! The API server and squelch accept every example policy. tests/gallery.rs checks their effects with `squelch
//! replay`.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use e2e::Test;
use e2e::cluster::checkout;

#[tokio::test]
async fn every_policy_of_the_gallery_is_accepted() -> Result<()> {
    let test = Test::begin("gallery").await?;
    let squelch = test.squelch().await?;
    let mut files: BTreeMap<bool, Vec<String>> = BTreeMap::new();
    for entry in std::fs::read_dir(checkout("examples/policies"))? {
        let path = entry?.path();
        let names_a_namespace = std::fs::read_to_string(&path)?.contains("\n  namespace: ");
        files.entry(names_a_namespace).or_default().push(format!("--filename={}", path.display()));
    }
    ensure!(files.values().flatten().count() >= 9, "only {files:?}");
    for (names_a_namespace, files) in files {
        let kubectl = if names_a_namespace { test.cluster.kubectl.clone() } else { test.kubectl() };
        let run = async |arguments: &[&str]| {
            let files = files.iter().map(String::as_str);
            kubectl.run(&arguments.iter().copied().chain(files).collect::<Vec<_>>()).await
        };
        let applied = run(&["apply", "--server-side"]).await;
        let accepted = run(&["wait", "--for=condition=Accepted", "--timeout=60s"]).await;
        // Later tests share the cluster.
        run(&["delete", "--ignore-not-found"]).await?;
        let (applied, accepted) = (applied?.lines().count(), accepted?.lines().count());
        ensure!(applied == accepted && applied >= files.len(), "{applied} applied, {accepted} accepted");
    }
    squelch.stop().await?;
    test.passed()
}
