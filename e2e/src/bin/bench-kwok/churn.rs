//! The load: Deployments whose pods are all replaced again and again.

use std::time::Duration;

use anyhow::Result;
use e2e::node::is_rolled_out;
use e2e::wait::{not_yet, pass};
use e2e::{STORM, wait_for};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;

/// The size of the load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Churn {
    pub(crate) deployments: usize,
    /// Pods of each Deployment.
    pub(crate) replicas: i32,
    /// How often all pods are replaced.
    pub(crate) rollouts: usize,
}

impl Churn {
    /// Pods that are started and run at the same time.
    pub(crate) fn pods(self) -> usize {
        self.deployments * usize::try_from(self.replicas).unwrap_or(0)
    }

    /// Creates the Deployments, waits until all pods run, and replaces all of them `rollouts` times.
    pub(crate) async fn run(self, client: &Client, namespace: &str) -> Result<()> {
        let api: Api<Deployment> = Api::namespaced(client.clone(), namespace);
        for number in 0..self.deployments {
            api.create(&PostParams::default(), &self.deployment(number)?).await?;
        }
        self.rolled_out(client, namespace).await?;
        for rollout in 0..self.rollouts {
            let annotation = json!({ "example.com/rollout": rollout.to_string() });
            let change = json!({ "spec": { "template": { "metadata": { "annotations": annotation } } } });
            for number in 0..self.deployments {
                api.patch(&name(number), &PatchParams::default(), &Patch::Merge(&change)).await?;
            }
            self.rolled_out(client, namespace).await?;
        }
        Ok(())
    }

    fn deployment(self, number: usize) -> serde_json::Result<Deployment> {
        let labels = json!({ "app": name(number) });
        serde_json::from_value(json!({
            "metadata": { "name": name(number) },
            "spec": {
                "replicas": self.replicas,
                "selector": { "matchLabels": labels },
                "template": {
                    "metadata": { "labels": labels },
                    "spec": {
                        // kwok ends a pod within its grace period.
                        "terminationGracePeriodSeconds": 5,
                        "containers": [{ "name": "app", "image": "app.example.com/app:1",
                            "resources": { "requests": { "cpu": "100m", "memory": "64Mi" } } }],
                    },
                },
            },
        }))
    }

    /// Waits until all Deployments are rolled out, and the pods are gone that they replaced.
    async fn rolled_out(self, client: &Client, namespace: &str) -> Result<()> {
        let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
        let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
        let all = ListParams::default();
        wait_for("the Deployments to be rolled out", STORM, async || {
            pass(Duration::from_secs(1)).await;
            let deployments = deployments.list(&all).await.map_err(not_yet)?.items;
            let done = deployments.into_iter().filter_map(|it| is_rolled_out(it).ok()).count();
            if done < self.deployments {
                return Err(format!("{done} of {} are rolled out", self.deployments));
            }
            let pods = pods.list_metadata(&all).await.map_err(not_yet)?.items.len();
            if pods == self.pods() { Ok(()) } else { Err(format!("{pods} pods of {}", self.pods())) }
        })
        .await
    }
}

fn name(number: usize) -> String {
    format!("web-{number}")
}
