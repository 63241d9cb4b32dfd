//! The reads and writes of reports through the API server.

use std::time::Duration;

use kube::api::{Patch, PatchParams};
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, Client};
use serde_json::{Value, json};
use tracing::debug;

use crate::FIELD_MANAGER;
use crate::api::{DROP_REPORT, DropReport, EventDropReport};

/// Timeout of one call.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Why a call has failed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ReportFailure {
    /// The namespace is deleted.
    NoNamespace,
    /// The CustomResourceDefinition is not installed.
    NotInstalled,
    /// Any other error.
    Failed(String),
}

/// Returns the report in the cluster; an empty one if there is none, or if a person has made it unreadable.
pub(super) async fn read(client: &Client, namespace: &str) -> Result<DropReport, ReportFailure> {
    match within(reports(client, namespace).get_opt(DROP_REPORT)).await? {
        Some(report) => Ok(serde_json::from_value(report.data).unwrap_or_else(|error| {
            debug!(namespace, %error, "unreadable report, starting anew");
            DropReport::default()
        })),
        None => Ok(DropReport::default()),
    }
}

/// Writes the report.
pub(super) async fn write(
    client: &Client,
    namespace: &str,
    report: &DropReport,
) -> Result<(), ReportFailure> {
    let resource = resource();
    let mut body = json!({
        "apiVersion": resource.api_version, "kind": resource.kind,
        "metadata": {"name": DROP_REPORT, "namespace": namespace},
    });
    let fields = serde_json::to_value(report).map_err(|error| ReportFailure::Failed(error.to_string()))?;
    if let (Value::Object(body), Value::Object(fields)) = (&mut body, fields) {
        body.extend(fields);
    }
    let params = PatchParams::apply(FIELD_MANAGER).force();
    within(reports(client, namespace).patch(DROP_REPORT, &params, &Patch::Apply(&body))).await?;
    debug!(namespace, "report written");
    Ok(())
}

fn resource() -> ApiResource {
    ApiResource::erase::<EventDropReport>(&())
}

fn reports(client: &Client, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), namespace, &resource())
}

async fn within<T>(call: impl Future<Output = kube::Result<T>>) -> Result<T, ReportFailure> {
    match tokio::time::timeout(TIMEOUT, call).await {
        Ok(Ok(response)) => Ok(response),
        Ok(Err(kube::Error::Api(status))) if status.code == 404 => {
            let kind = status.details.as_ref().map(|details| details.kind.as_str());
            Err(if kind == Some("namespaces") {
                ReportFailure::NoNamespace
            } else {
                ReportFailure::NotInstalled
            })
        }
        Ok(Err(error)) => Err(ReportFailure::Failed(error.to_string())),
        Err(_) => Err(ReportFailure::Failed(format!("no response within {} s", TIMEOUT.as_secs()))),
    }
}
