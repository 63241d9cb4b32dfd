//! Writes of Events in an audit log.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::api::ListParams;
use kube::{Api, Client};
use serde_json::Value;

use crate::wait::{GENEROUS, not_yet, wait_for};

/// The webhook entry whose reviews squelch decides.
const WEBHOOK: &str = "events.squelch.dev";

/// The audit log of an API server, from a point in time on.
pub struct AuditLog {
    path: PathBuf,
    from: u64,
}

/// One write of an Event, as the API server was asked for it and as it answered.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Write {
    /// The user.
    pub user: String,
    /// `create`, `update`, `patch` or `delete`.
    pub verb: String,
    /// `v1` or `events.k8s.io/v1`.
    pub api: String,
    /// The namespace.
    pub namespace: String,
    /// The Event's name; empty if it was to be generated and the write was refused.
    pub name: String,
    /// The `count` or `series.count` in the request, whichever is larger.
    pub sent_count: Option<i64>,
    /// The time of the last occurrence in the request.
    pub sent_time: Option<String>,
    /// The HTTP status.
    pub code: u16,
    /// The message of a refusal.
    pub message: String,
    /// The count in the answer.
    pub returned_count: Option<i64>,
    /// The `resourceVersion` in the answer.
    pub version: String,
    /// Whether squelch answered.
    pub is_reviewed: bool,
    /// Whether the API server called squelch without an answer.
    pub failed_open: bool,
}

impl AuditLog {
    /// The rest of this log, from now on.
    ///
    /// # Errors
    /// If the file does not exist.
    pub fn from_now(path: &Path) -> Result<Self> {
        let metadata = std::fs::metadata(path)
            .with_context(|| format!("{}: start the cluster with --audit-policy", path.display()))?;
        Ok(Self { path: path.to_owned(), from: metadata.len() })
    }

    /// The writes of the Events of a namespace, in the order of their answers. Waits until the log has all requests
    /// that were answered before this call.
    ///
    /// # Errors
    /// If the log is unreadable, or does not have a new request in time.
    pub async fn writes(&self, client: &Client, namespace: &str) -> Result<Vec<Write>> {
        // The log policy has this request as well; the entries of one log are in the order of their answers.
        let marker = format!("metadata.name=marker-{:016x}", fastrand::u64(..));
        let events: Api<Event> = Api::namespaced(client.clone(), namespace);
        events.list_metadata(&ListParams::default().fields(&marker)).await?;
        let marker = marker.replace('=', "%3D");
        let text = wait_for("a request to be in the audit log", GENEROUS, async || {
            let text = self.text().map_err(not_yet)?;
            if text.contains(&marker) { Ok(text) } else { Err(format!("{} bytes", text.len())) }
        })
        .await?;
        writes_in(&text, namespace)
    }

    /// The milliseconds that the answered writes of a resource, such as "leases", took, if they are by users that
    /// `is_asked` selects.
    ///
    /// # Errors
    /// If the log is unreadable.
    pub fn latencies(&self, resource: &str, is_asked: impl Fn(&str) -> bool) -> Result<Vec<f64>> {
        latencies_in(&self.text()?, resource, is_asked)
    }

    fn text(&self) -> Result<String> {
        let mut file = File::open(&self.path).with_context(|| self.path.display().to_string())?;
        file.seek(SeekFrom::Start(self.from))?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        Ok(text)
    }
}

/// The entries whose lines contain `word`. The last line may be incomplete.
fn entries<'a>(log: &'a str, word: &'a str) -> impl Iterator<Item = Result<Value>> + 'a {
    let whole = log.rfind('\n').map_or("", |end| &log[..end]);
    whole
        .lines()
        .filter(move |line| line.contains(word))
        .map(|line| serde_json::from_str(line).with_context(|| format!("an audit entry: {line}")))
}

/// The writes of the Events of `namespace`.
fn writes_in(log: &str, namespace: &str) -> Result<Vec<Write>> {
    let mut writes = Vec::new();
    for entry in entries(log, namespace) {
        let entry = entry?;
        let object = &entry["objectRef"];
        let is_write = ["create", "update", "patch", "delete"].contains(&text(&entry["verb"]));
        if object["resource"] == "events" && object["namespace"] == namespace && is_write {
            writes.push(Write::of(&entry).with_context(|| format!("an audit entry: {entry}"))?);
        }
    }
    Ok(writes)
}

fn latencies_in(log: &str, resource: &str, is_asked: impl Fn(&str) -> bool) -> Result<Vec<f64>> {
    let mut all = Vec::new();
    for entry in entries(log, resource) {
        let entry = entry?;
        let is_write = ["create", "update", "patch"].contains(&text(&entry["verb"]));
        if is_write
            && entry["objectRef"]["resource"] == resource
            && is_asked(text(&entry["user"]["username"]))
        {
            let [began, ended] =
                ["requestReceivedTimestamp", "stageTimestamp"].map(|it| text(&entry[it]).parse());
            let (began, ended): (Timestamp, Timestamp) = (began?, ended?);
            all.push(ended.duration_since(began).as_secs_f64() * 1000.0);
        }
    }
    Ok(all)
}

impl Write {
    fn of(entry: &Value) -> Result<Self> {
        let (object, status) = (&entry["objectRef"], &entry["responseStatus"]);
        let (request, response) = (&entry["requestObject"], &entry["responseObject"]);
        let names = [&object["name"], &response["metadata"]["name"], &request["metadata"]["name"]];
        let name = names.into_iter().map(text).find(|name| !name.is_empty()).unwrap_or_default();
        let is_stored = response["kind"] == "Event";
        let group = text(&object["apiGroup"]);
        let version = text(&object["apiVersion"]);
        let annotations = entry["annotations"].as_object().into_iter().flatten();
        let by_squelch = |prefix: &'static str| {
            annotations.clone().any(|(key, value)| key.starts_with(prefix) && text(value).contains(WEBHOOK))
        };
        Ok(Self {
            user: text(&entry["user"]["username"]).to_owned(),
            verb: text(&entry["verb"]).to_owned(),
            api: if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") },
            namespace: text(&object["namespace"]).to_owned(),
            name: name.to_owned(),
            sent_count: count(request),
            sent_time: last_time(request),
            code: u16::try_from(status["code"].as_i64().context("an entry without a status code")?)?,
            message: text(&status["message"]).to_owned(),
            returned_count: is_stored.then(|| count(response).unwrap_or(1)),
            version: if is_stored {
                text(&response["metadata"]["resourceVersion"]).to_owned()
            } else {
                String::new()
            },
            is_reviewed: by_squelch("mutation.webhook.admission.k8s.io/"),
            failed_open: by_squelch("failed-open.mutation.webhook.admission.k8s.io/"),
        })
    }

    /// Whether the API server answered with success.
    pub fn succeeded(&self) -> bool {
        (200..300).contains(&self.code)
    }

    /// Whether the API server answered with success and a lower count than was sent.
    pub fn is_restored(&self) -> bool {
        self.succeeded() && self.returned_count < self.sent_count
    }

    /// Whether the write came as far as admission: not if the API server refused the user, had too many requests, or
    /// found no Event to change.
    pub fn reached_admission(&self) -> bool {
        self.is_reviewed || self.failed_open || !matches!(self.code, 401 | 403 | 404 | 429)
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The larger of `count` (in `events.k8s.io`: `deprecatedCount`) and `series.count` in an Event, in a merge patch or
/// in a JSON patch.
fn count(body: &Value) -> Option<i64> {
    let fields =
        [field(body, &["count"]), field(body, &["deprecatedCount"]), field(body, &["series", "count"])];
    fields.into_iter().flatten().filter_map(Value::as_i64).max()
}

/// `series.lastObservedTime`, else `lastTimestamp`, else `eventTime`.
fn last_time(body: &Value) -> Option<String> {
    let fields = [
        field(body, &["series", "lastObservedTime"]),
        field(body, &["lastTimestamp"]),
        field(body, &["deprecatedLastTimestamp"]),
        field(body, &["eventTime"]),
    ];
    fields.into_iter().flatten().find_map(Value::as_str).map(str::to_owned)
}

/// A field of an object, or what the operations of a JSON patch set it to.
fn field<'a>(body: &'a Value, path: &[&str]) -> Option<&'a Value> {
    let Some(operations) = body.as_array() else { return member(body, path) };
    operations.iter().rev().find_map(|operation| {
        let set: Vec<_> = text(&operation["path"]).split('/').skip(1).collect();
        member(operation.get("value")?, path.strip_prefix(set.as_slice())?)
    })
}

fn member<'a>(value: &'a Value, path: &[&str]) -> Option<&'a Value> {
    let Some((name, rest)) = path.split_first() else { return Some(value) };
    member(value.get(name)?, rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn entry(verb: &str, code: u16, request: &Value, response: &Value) -> Value {
        json!({
            "verb": verb, "user": { "username": "u" },
            "objectRef": { "resource": "events", "namespace": "shop", "name": "", "apiVersion": "v1" },
            "responseStatus": { "code": code }, "requestObject": request, "responseObject": response,
        })
    }

    #[test]
    fn a_refused_create_has_the_sent_count_and_no_returned_one() {
        let request = json!({ "metadata": { "name": "web.1" }, "count": 3, "lastTimestamp": "t" });
        let write = Write::of(&entry("create", 409, &request, &json!({ "kind": "Status" }))).unwrap();
        assert_eq!((&*write.name, write.sent_count, write.returned_count), ("web.1", Some(3), None));
        assert_eq!(write.sent_time.as_deref(), Some("t"));
        assert!(!write.succeeded() && write.reached_admission());
    }

    #[test]
    fn a_generated_name_is_that_of_the_answer() {
        let response = json!({ "kind": "Event", "metadata": { "name": "web.x", "resourceVersion": "7" } });
        let write = Write::of(&entry("create", 201, &json!({ "metadata": {} }), &response)).unwrap();
        assert_eq!((&*write.name, write.returned_count, &*write.version), ("web.x", Some(1), "7"));
    }

    #[test]
    fn counts_are_found_in_each_kind_of_patch() {
        assert_eq!(count(&json!({ "series": { "count": 4 }, "count": 1 })), Some(4));
        assert_eq!(count(&json!([{ "op": "replace", "path": "/count", "value": 5 }])), Some(5));
        assert_eq!(count(&json!([{ "op": "add", "path": "/series", "value": { "count": 6 } }])), Some(6));
        assert_eq!(count(&json!([{ "op": "replace", "path": "/message", "value": "m" }])), None);
        assert_eq!(count(&json!({ "deprecatedCount": 7 })), Some(7));
    }

    #[test]
    fn a_patch_without_an_event_did_not_reach_admission_but_a_refusal_by_squelch_did() {
        let mut entry = entry("patch", 404, &json!({}), &json!({}));
        assert!(!Write::of(&entry).unwrap().reached_admission());
        entry["responseStatus"]["code"] = 403.into();
        assert!(!Write::of(&entry).unwrap().reached_admission());
        entry["annotations"]["mutation.webhook.admission.k8s.io/round_0_index_0"] =
            r#"{"configuration":"squelch","webhook":"events.squelch.dev","mutated":false}"#.into();
        assert!(Write::of(&entry).unwrap().reached_admission());
    }

    #[test]
    fn the_latency_of_a_write_is_between_its_receipt_and_its_answer() {
        let of = |user: &str, verb: &str, ended: &str| {
            let mut entry = entry(verb, 200, &json!({}), &json!({}));
            entry["user"]["username"] = user.into();
            entry["objectRef"]["resource"] = "leases".into();
            entry["requestReceivedTimestamp"] = "2026-03-02T08:00:00.990000Z".into();
            entry["stageTimestamp"] = ended.into();
            entry
        };
        let log = [
            of("kwok", "update", "2026-03-02T08:00:01.002500Z"),
            of("squelch", "update", "2026-03-02T08:00:02.000000Z"),
            of("kwok", "get", "2026-03-02T08:00:03.000000Z"),
        ];
        let log = log.map(|entry| format!("{entry}\n")).concat();
        let took = latencies_in(&log, "leases", |user| user != "squelch").unwrap();
        assert_eq!(took.iter().map(|ms| (ms * 10.0).round() as i64).collect::<Vec<_>>(), [125]);
        assert_eq!(latencies_in(&log, "events", |_| true).unwrap().len(), 0);
    }

    #[test]
    fn other_namespaces_reads_and_an_incomplete_line_are_left_out() {
        let write = entry("create", 201, &json!({}), &json!({}));
        let mut read = write.clone();
        read["verb"] = "list".into();
        let mut other = write.clone();
        other["objectRef"]["namespace"] = "shop-2".into();
        let log = format!("{write}\n{read}\n{other}\n{}", &write.to_string()[..40]);
        assert_eq!(writes_in(&log, "shop").unwrap().len(), 1);
    }
}
