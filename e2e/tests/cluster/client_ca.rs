//! Mutual TLS with a real API server, set up with the files of docs/client-certificates.md.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use e2e::cluster::checkout;
use e2e::wait::not_yet;
use e2e::{Cluster, Emission, GENEROUS, Policy, Test, wait_for};
use serde_json::json;

/// A client certificate of the cluster's own authority, and the name in it.
const SHOWN: (&str, &str) = ("apiserver-etcd", "kube-apiserver-etcd-client");

/// The YAML blocks of the page.
fn files() -> Result<[String; 2]> {
    let page = std::fs::read_to_string(checkout("docs/client-certificates.md"))?;
    let mut blocks =
        page.split("```yaml\n").skip(1).filter_map(|rest| Some(rest.split_once("```")?.0.to_owned()));
    match (blocks.next(), blocks.next(), blocks.next()) {
        (Some(admission), Some(kubeconfig), None) => Ok([admission, kubeconfig]),
        _ => anyhow::bail!("the page has other files than the two"),
    }
}

/// Writes the page's files with the paths of this cluster; returns the flag that names them.
fn write_files(cluster: &Cluster, host: &str) -> Result<String> {
    let [admission, kubeconfig] = files()?;
    let folder = cluster.folder.join("webhooks");
    std::fs::create_dir_all(&folder)?;
    let put = |name: &str, text: &str, changes: &[(&str, &str)]| {
        let mut text = text.to_owned();
        for (from, to) in changes {
            ensure!(text.contains(from), "{name} does not name {from}");
            text = text.replace(from, to);
        }
        let path = folder.join(name);
        std::fs::write(&path, text)?;
        Ok(path.display().to_string())
    };
    let pki =
        |extension: &str| cluster.folder.join(format!("pki/{}.{extension}", SHOWN.0)).display().to_string();
    let changes = [
        ("squelch.squelch.svc", host),
        ("/etc/kubernetes/pki/webhooks.crt", &pki("crt")),
        ("/etc/kubernetes/pki/webhooks.key", &pki("key")),
    ];
    let kubeconfig = put("webhooks.kubeconfig", &kubeconfig, &changes)?;
    let admission =
        put("admission.yaml", &admission, &[("/etc/kubernetes/webhooks.kubeconfig", &kubeconfig)])?;
    Ok(format!("--admission-control-config-file={admission}"))
}

/// Whether curl gets an answer of the webhook, with the API server's client certificate or without one.
async fn curl(url: &str, shown: Option<&Path>) -> Result<bool> {
    let mut command = Command::new("curl");
    // As the API server calls. (Over HTTP/2 some versions of curl treat an answer before the body as an error.)
    command.args([
        "--silent",
        "--show-error",
        "--http1.1",
        "--insecure",
        "--max-time",
        "10",
        "--data",
        "{}",
        url,
    ]);
    if let Some(pki) = shown {
        let file = |extension: &str| pki.join(format!("{}.{extension}", SHOWN.0));
        command.arg("--cert").arg(file("crt")).arg("--key").arg(file("key"));
    }
    let output = tokio::task::spawn_blocking(move || command.output()).await??;
    if !output.status.success() {
        eprintln!("curl: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim_end());
    }
    Ok(output.status.success())
}

#[tokio::test]
async fn only_callers_with_a_client_certificate_are_served() -> Result<()> {
    let test = Test::begin("client-ca").await?;
    let pki = test.cluster.folder.join("pki");
    let authority = pki.join("ca.crt").display().to_string();
    let flags = ["--client-ca-file", authority.as_str(), "--client-subject", SHOWN.1];
    let squelch = test.squelch_with(&flags).await?;
    let refused = async || {
        Ok::<_, anyhow::Error>(squelch.metrics().await?.sum("squelch_tls_handshake_failures_total", &[]))
    };

    // The API server shows no certificate: Events are written, and the webhook is not armed.
    let policy = Policy::named(test.client(), &test.namespace, "policy");
    policy.put(&test.kubectl(), &json!({ "mode": "Enforce" })).await?;
    policy.says("Effective", "False", "WebhookNotArmed", "").await?;
    wait_for("a caller to be refused", GENEROUS, async || {
        let number = refused().await.map_err(not_yet)?;
        if number > 0.0 { Ok(()) } else { Err("none".to_owned()) }
    })
    .await?;
    let repeats = |about| Emission::legacy().about(about, 1).count(5).rate(20);
    test.emit(&repeats("before"))?.finish(GENEROUS).await?;
    test.one_event("before-0", 5).await?;
    ensure!(policy.counters().await?.received == 0, "a disarmed webhook has counted");

    // The same API server with the files of the page.
    let host = squelch.webhook.strip_prefix("https://").context("an https URL")?;
    let flag = write_files(&test.cluster, host)?;
    test.cluster.restart_apiserver(false, &[&flag]).await?;
    policy.effective().await?;
    test.emit(&repeats("after"))?.finish(GENEROUS).await?;
    let counters = policy.received(5).await?;
    ensure!(counters.compacted > 0, "nothing was compacted: {counters:?}");

    // Other callers are refused and counted.
    let before = refused().await?;
    ensure!(!curl(&squelch.webhook, None).await?, "a caller without a certificate is answered");
    ensure!(curl(&squelch.webhook, Some(&pki)).await?, "a caller with the certificate is not answered");
    ensure!(refused().await? == before + 1.0, "not exactly one was refused");
    squelch.stop_after_trouble().await?;
    test.cluster.restart_apiserver(false, &[]).await?;
    test.passed()
}
