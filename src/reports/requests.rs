//! The reads and writes of reports and receipts through the API server.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject, Status};
use kube::{Api, Client};
use serde_json::{Value, json};
use tracing::debug;

use crate::FIELD_MANAGER;
use crate::api::{DROP_REPORT, DropReport, EventDropReport};

use super::plan::KnownReport;
use super::receipts::Receipt;

/// Timeout of one call.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Why a call has failed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ReportFailure {
    /// The namespace is deleted.
    NoNamespace,
    /// The report was deleted, alone or with its namespace.
    Deleted,
    /// There is no such object, or its CustomResourceDefinition is not installed.
    NotFound,
    /// Any other error.
    Failed(String),
}

/// Returns the report in the cluster; an empty one if there is none, or if a person has made it unreadable.
pub(super) async fn read(client: &Client, namespace: &str) -> Result<KnownReport, ReportFailure> {
    let Some(report) = within(reports(client, namespace).get_opt(DROP_REPORT)).await? else {
        return Ok(KnownReport::default());
    };
    let content = serde_json::from_value(report.data).unwrap_or_else(|error| {
        debug!(namespace, %error, "unreadable report, starting anew");
        DropReport::default()
    });
    Ok(KnownReport { uid: report.metadata.uid.unwrap_or_default(), content })
}

/// Writes the report with this uid, or creates it if the uid is empty. Returns its uid.
pub(super) async fn write(
    client: &Client,
    namespace: &str,
    uid: &str,
    report: &DropReport,
) -> Result<String, ReportFailure> {
    let resource = resource();
    let mut body = json!({
        "apiVersion": resource.api_version, "kind": resource.kind,
        "metadata": {"name": DROP_REPORT, "namespace": namespace},
    });
    let fields = serde_json::to_value(report).map_err(|error| ReportFailure::Failed(error.to_string()))?;
    if let (Value::Object(body), Value::Object(fields)) = (&mut body, fields) {
        body.extend(fields);
    }
    if !uid.is_empty() {
        // The API server refuses the write if the report is absent or has another uid.
        body["metadata"]["uid"] = uid.into();
    }
    let params = PatchParams::apply(FIELD_MANAGER).force();
    let patch = Patch::Apply(&body);
    let written = within(reports(client, namespace).patch(DROP_REPORT, &params, &patch)).await?;
    debug!(namespace, "report written");
    Ok(written.metadata.uid.unwrap_or_default())
}

/// Writes a receipt: updates the Event, or creates it if it does not exist.
pub(super) async fn write_receipt(
    client: &Client,
    receipt: &Receipt<'_>,
    now: Timestamp,
) -> Result<(), ReportFailure> {
    let events: Api<DynamicObject> =
        Api::namespaced_with(client.clone(), receipt.namespace, &ApiResource::erase::<Event>(&()));
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    let patch = Patch::Merge(receipt.patch(now));
    match within(events.patch(&receipt.name(), &params, &patch)).await {
        // An Event that expired, or was deleted.
        Err(ReportFailure::NotFound) => {}
        written => return written.map(|_| ()),
    }
    let event = serde_json::from_value(receipt.event(now));
    let event: DynamicObject = event.map_err(|error| ReportFailure::Failed(error.to_string()))?;
    let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
    within(events.create(&params, &event)).await.map(|_| ())
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
            Err(if kind == Some("namespaces") { ReportFailure::NoNamespace } else { ReportFailure::NotFound })
        }
        Ok(Err(kube::Error::Api(status))) if is_terminating(&status) => Err(ReportFailure::NoNamespace),
        Ok(Err(kube::Error::Api(status))) if status.code == 409 => Err(ReportFailure::Deleted),
        Ok(Err(error)) => Err(ReportFailure::Failed(error.to_string())),
        Err(_) => Err(ReportFailure::Failed(format!("no response within {} s", TIMEOUT.as_secs()))),
    }
}

/// Whether the API server refuses to create something because the namespace is being deleted.
fn is_terminating(status: &Status) -> bool {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    status.code == 403 && causes.into_iter().any(|cause| cause.reason == "NamespaceTerminating")
}
