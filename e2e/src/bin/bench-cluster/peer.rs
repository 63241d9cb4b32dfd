//! A minimal webhook in Go for Event writes.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use e2e::cluster::given;
use e2e::process::Process;
use e2e::wait::not_yet;
use e2e::{Cluster, GENEROUS, wait_for};
use serde_json::json;

const NAME: &str = "bench-webhook-go";

/// The running webhook, called for every Event write.
pub(crate) struct Peer {
    process: Process,
}

impl Peer {
    /// Starts it and registers it with the rules of squelch.
    pub(crate) async fn start(cluster: &Cluster, folder: &Path) -> Result<Self> {
        // The API server's certificate is valid for this address.
        let pki = cluster.folder.join("pki");
        let mut command = Command::new(given("SQUELCH_WEBHOOK_GO")?);
        command.arg("-certificate").arg(pki.join("apiserver.crt")).arg("-key").arg(pki.join("apiserver.key"));
        let process = Process::start(NAME, &mut command, folder)?;
        let address = wait_for("the webhook to listen", GENEROUS, async || {
            let said = std::fs::read_to_string(&process.output).map_err(not_yet)?;
            let address = said.lines().find_map(|line| line.strip_prefix("listening on "));
            address.map(str::to_owned).ok_or(said)
        })
        .await?;
        let authority = std::fs::read(pki.join("ca.crt")).context("the cluster's authority")?;
        cluster
            .kubectl
            .apply(&json!({
                "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
                "metadata": { "name": NAME },
                "webhooks": [{
                    "name": "events.webhook-go.example.com",
                    "clientConfig": { "url": format!("https://{address}/"), "caBundle": STANDARD.encode(authority) },
                    "rules": [{ "operations": ["CREATE", "UPDATE"], "apiGroups": [""], "apiVersions": ["v1"],
                        "resources": ["events"] }],
                    "failurePolicy": "Ignore", "timeoutSeconds": 1, "sideEffects": "None",
                    "matchPolicy": "Equivalent", "admissionReviewVersions": ["v1"],
                }],
            }))
            .await?;
        Ok(Self { process })
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Unregisters it and stops its process.
    pub(crate) async fn stop(mut self, cluster: &Cluster) -> Result<()> {
        cluster.kubectl.run(&["delete", "mutatingwebhookconfiguration", NAME]).await?;
        self.process.kill()
    }
}
