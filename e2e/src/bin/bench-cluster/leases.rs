//! Load that is unrelated to Events: Leases are renewed, as each kubelet renews its own.

use std::time::{Duration, Instant};

use anyhow::Result;
use e2e::kubectl::Kubectl;
use jiff::Timestamp;
use kube::Client;
use serde_json::json;

use crate::answers::Answered;

const NAMESPACE: &str = "kube-node-lease";
const LEASES: u32 = 4;
const PER_SECOND: u32 = 20;

/// Creates the Leases.
pub(crate) async fn make(kubectl: &Kubectl) -> Result<()> {
    for number in 0..LEASES {
        let metadata = json!({ "name": format!("bench-{number}"), "namespace": NAMESPACE });
        let spec = json!({ "holderIdentity": "bench", "leaseDurationSeconds": 40 });
        kubectl
            .apply(&json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata,
                "spec": spec }))
            .await?;
    }
    Ok(())
}

/// Renews the Leases, 20 renewals per second in total, for `time`.
pub(crate) async fn renew(client: Client, began: Instant, time: Duration) -> Vec<Answered> {
    let mut answered = Vec::new();
    for n in 0.. {
        let due = Duration::from_secs(1) * n / PER_SECOND;
        if due >= time {
            break;
        }
        let late = due <= began.elapsed();
        if !late {
            tokio::time::sleep_until((began + due).into()).await;
        }
        let after = if late { due } else { began.elapsed() };
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/bench-{}", n % LEASES);
        let body = json!({ "spec": { "renewTime": format!("{:.6}", Timestamp::now()) } }).to_string();
        let request = http::Request::patch(path).header("content-type", "application/merge-patch+json");
        let status = match request.body(body.into_bytes()) {
            Ok(request) => match client.request_text(request).await {
                Ok(_) => 200,
                Err(kube::Error::Api(status)) => status.code,
                Err(_) => 0,
            },
            Err(_) => 0,
        };
        let took = began.elapsed().saturating_sub(after);
        answered.push(Answered { after, took, status, occurrences: 0, governed: false });
    }
    answered
}
