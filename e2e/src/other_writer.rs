//! Other writers of squelch's webhook configuration, each with a user and a field manager of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Result;
use kube::Api;
use kube::api::{DynamicObject, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, Config};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::Cluster;
use crate::proxy::add_expression;

/// The time between two looks of a writer at the configuration.
const INTERVAL: Duration = Duration::from_millis(200);

/// The annotation by which a webhook configuration opts out of AKS's admissions enforcer.
const OPT_OUT: &str = "admissions.enforcer/disabled";

/// What a writer changes. Returns whether it has changed anything.
type Change = Box<dyn Fn(&mut DynamicObject) -> bool + Send>;

/// A writer that reads the configuration five times a second, and writes it if it is not as the writer wants it.
pub struct OtherWriter {
    writes: Arc<AtomicUsize>,
    writing: JoinHandle<()>,
}

/// The expression of [`OtherWriter::admissions_enforcer`]: namespaces with this label are those of the platform.
pub fn platform_expression() -> Value {
    json!({ "key": "control-plane", "operator": "DoesNotExist" })
}

impl OtherWriter {
    /// A stand-in for AKS's admissions enforcer: adds [`platform_expression`] to each entry whenever it is missing,
    /// unless the configuration has the annotation that opts out.
    ///
    /// # Errors
    /// If the administrator's kubeconfig is unusable.
    pub async fn admissions_enforcer(cluster: &Cluster) -> Result<Self> {
        let add = |object: &mut DynamicObject| {
            let annotations = object.metadata.annotations.as_ref();
            if annotations
                .and_then(|annotations| annotations.get(OPT_OUT))
                .is_some_and(|value| value == "true")
            {
                return false;
            }
            let mut has_added = false;
            for entry in object.data["webhooks"].as_array_mut().into_iter().flatten() {
                has_added |= add_expression(entry, &platform_expression());
            }
            has_added
        };
        Self::start(cluster, "admissionsenforcer", Box::new(add)).await
    }

    /// A stand-in for Argo CD with self-heal: puts the entries of its rendering back, without a pause of its own.
    ///
    /// # Errors
    /// If the administrator's kubeconfig is unusable.
    pub async fn argo_cd(cluster: &Cluster, rendered: Value) -> Result<Self> {
        let heal = move |object: &mut DynamicObject| {
            let differs = object.data["webhooks"] != rendered["webhooks"];
            object.data["webhooks"] = rendered["webhooks"].clone();
            differs
        };
        Self::start(cluster, "argocd-application-controller", Box::new(heal)).await
    }

    async fn start(cluster: &Cluster, name: &'static str, change: Change) -> Result<Self> {
        let configurations = configurations(cluster, name).await?;
        let writes = Arc::new(AtomicUsize::new(0));
        let counted = writes.clone();
        let parameters = PostParams { field_manager: Some(name.to_owned()), ..PostParams::default() };
        let writing = tokio::spawn(async move {
            loop {
                // A failed read or a conflict is tried again.
                if let Ok(mut object) = configurations.get("squelch").await
                    && change(&mut object)
                    && configurations.replace("squelch", &parameters, &object).await.is_ok()
                {
                    counted.fetch_add(1, Ordering::Relaxed);
                }
                tokio::time::sleep(INTERVAL).await;
            }
        });
        Ok(Self { writes, writing })
    }

    /// The number of its writes.
    pub fn writes(&self) -> usize {
        self.writes.load(Ordering::Relaxed)
    }
}

impl Drop for OtherWriter {
    fn drop(&mut self) {
        self.writing.abort();
    }
}

/// The webhook configurations for a user of this name, who may do everything.
async fn configurations(cluster: &Cluster, name: &str) -> Result<Api<DynamicObject>> {
    let read = Kubeconfig::read_from(&cluster.kubeconfig)?;
    let mut config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?;
    config.auth_info.impersonate = Some(name.to_owned());
    config.auth_info.impersonate_groups = Some(vec!["system:masters".to_owned()]);
    let kind = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", "MutatingWebhookConfiguration");
    let resource = ApiResource::from_gvk_with_plural(&kind, "mutatingwebhookconfigurations");
    Ok(Api::all_with(Client::try_from(config)?, &resource))
}

/// The number of successful applies of webhook configurations since the start of the API server, by its own metrics.
/// Only squelch writes by server-side apply.
///
/// # Errors
/// If the metrics cannot be read.
pub async fn applies(cluster: &Cluster) -> Result<usize> {
    let metrics = cluster.metrics().await?;
    let with = |code| {
        let labels = [("resource", "mutatingwebhookconfigurations"), ("verb", "APPLY"), ("code", code)];
        metrics.sum("apiserver_request_total", &labels)
    };
    Ok((with("200") + with("201")) as usize)
}

/// The configuration as it is stored.
///
/// # Errors
/// What kubectl reports.
pub async fn stored(cluster: &Cluster) -> Result<Value> {
    let arguments = ["get", "mutatingwebhookconfiguration", "squelch", "--output=json"];
    Ok(serde_json::from_str(&cluster.kubectl.run(&arguments).await?)?)
}

/// The requirements of the entry for Event writes.
pub fn requirements(configuration: &Value) -> Vec<Value> {
    let selector = &configuration["webhooks"][0]["namespaceSelector"];
    selector["matchExpressions"].as_array().cloned().unwrap_or_default()
}
