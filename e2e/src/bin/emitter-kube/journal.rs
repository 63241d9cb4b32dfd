//! The lines on standard output, in the format and field order of `emitter-go`.

use std::{
    collections::BTreeMap,
    io::Write,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use anyhow::{Context, Result};
use http::{Method, StatusCode};
use serde::{Deserialize, Serialize};
use tower::BoxError;

/// One attempt at an API call.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Call {
    line: &'static str,
    seq: u64,
    at: f64,
    latency_ms: f64,
    verb: &'static str,
    api: String,
    namespace: String,
    name: String,
    status: u16,
    reason: String,
    sent_count: Option<i32>,
    sent_series_count: Option<i32>,
    returned_count: Option<i32>,
    returned_series_count: Option<i32>,
    resource_version: String,
    error: String,
}

#[derive(Serialize)]
struct Log<'a> {
    line: &'static str,
    at: f64,
    level: &'static str,
    message: &'a str,
    error: &'a str,
}

/// The summary of one object.
#[derive(Serialize)]
pub(crate) struct ObjectTotal {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) occurrences: u64,
    pub(crate) sent: i64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Summary<'a> {
    line: &'static str,
    emitter: &'static str,
    recorder: &'static str,
    namespace: &'a str,
    seconds: f64,
    occurrences: u64,
    sent: i64,
    calls: &'a BTreeMap<&'static str, BTreeMap<String, u64>>,
    error_lines: u64,
    settled: bool,
    objects: Vec<ObjectTotal>,
}

/// The fields that are read from an Event, a patch and a Status.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Body {
    kind: String,
    metadata: Metadata,
    #[serde(alias = "deprecatedCount")]
    count: Option<i32>,
    series: Option<Series>,
    reason: String,
    message: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    name: String,
    resource_version: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Series {
    count: Option<i32>,
}

impl Call {
    /// Creates a call from its request line.
    pub(crate) fn new(method: &Method, path: &str) -> Self {
        let verb = match *method {
            Method::POST => "create",
            Method::PATCH => "patch",
            Method::PUT => "update",
            Method::DELETE => "delete",
            _ => "get",
        };
        let (api, namespace, name) = parse_path(path);
        Self {
            line: "call",
            seq: 0,
            at: 0.0,
            latency_ms: 0.0,
            verb,
            api,
            namespace,
            name,
            status: 0,
            reason: String::new(),
            sent_count: None,
            sent_series_count: None,
            returned_count: None,
            returned_series_count: None,
            resource_version: String::new(),
            error: String::new(),
        }
    }

    pub(crate) fn sent(&mut self, body: &[u8]) {
        if body.is_empty() {
            return;
        }
        match serde_json::from_slice::<Body>(body) {
            Ok(body) => {
                if self.name.is_empty() {
                    self.name = body.metadata.name;
                }
                self.sent_count = body.count;
                self.sent_series_count = body.series.and_then(|series| series.count);
            }
            Err(error) => self.error = format!("the request is not JSON: {error}"),
        }
    }

    pub(crate) fn answered(&mut self, status: StatusCode, body: &[u8]) {
        self.status = status.as_u16();
        match serde_json::from_slice::<Body>(body) {
            Ok(body) if body.kind == "Status" => {
                self.reason = body.reason;
                self.error = body.message;
            }
            Ok(body) => {
                self.returned_count = body.count;
                self.returned_series_count = body.series.and_then(|series| series.count);
                self.resource_version = body.metadata.resource_version;
            }
            Err(error) => self.error = format!("the answer is not JSON: {error}"),
        }
    }

    pub(crate) fn failed(&mut self, error: &BoxError) {
        self.error = error.to_string();
    }

    /// Whether a webhook can have seen the call: not without an answer, with 404 of a missing Event, or with 429 of
    /// priority and fairness.
    fn reached_admission(&self) -> bool {
        !matches!(self.status, 0 | 404 | 429)
    }
}

/// Prints the lines and adds up the totals.
pub(crate) struct Journal {
    start: Instant,
    totals: Mutex<Totals>,
}

#[derive(Default)]
struct Totals {
    seq: u64,
    calls: BTreeMap<&'static str, BTreeMap<String, u64>>,
    error_lines: u64,
    emitted: BTreeMap<String, u64>,
    /// The highest count sent, by Event name.
    sent: BTreeMap<String, i32>,
    failed: Option<anyhow::Error>,
}

impl Journal {
    /// Starts the clock of the "at" fields.
    pub(crate) fn new() -> Self {
        Self { start: Instant::now(), totals: Mutex::default() }
    }

    /// Records an occurrence of an object.
    pub(crate) fn emitted(&self, object: &str) {
        *self.totals().emitted.entry(object.to_owned()).or_default() += 1;
    }

    /// Prints the line of an answered call.
    pub(crate) fn call(&self, mut call: Call, sent_at: Instant) {
        let mut totals = self.totals();
        call.seq = totals.seq;
        call.at = round((sent_at - self.start).as_secs_f64());
        call.latency_ms = round(sent_at.elapsed().as_secs_f64() * 1000.0);
        totals.seq += 1;
        *totals.calls.entry(call.verb).or_default().entry(call.status.to_string()).or_default() += 1;
        if call.reached_admission() {
            let value = call.sent_series_count.or(call.sent_count).unwrap_or(1).max(1);
            let highest = totals.sent.entry(call.name.clone()).or_default();
            *highest = value.max(*highest);
        }
        totals.print(&call);
    }

    /// Prints an error that a program would log.
    pub(crate) fn logged(&self, message: &str, error: &str) {
        let mut totals = self.totals();
        totals.error_lines += 1;
        totals.print(&Log { line: "log", at: self.elapsed(), level: "error", message, error });
    }

    /// Prints the last line. Returns the error of the first line that could not be printed.
    pub(crate) fn summarize(
        &self,
        namespace: &str,
        settled: bool,
        objects: impl Iterator<Item = ObjectTotal>,
    ) -> Result<()> {
        let mut totals = self.totals();
        let objects: Vec<_> = objects
            .map(|object| ObjectTotal {
                occurrences: totals.emitted.get(&object.name).copied().unwrap_or(0),
                sent: totals.sent_about(&object.name),
                ..object
            })
            .collect();
        let calls = std::mem::take(&mut totals.calls);
        let summary = Summary {
            line: "summary",
            emitter: "kube-rs",
            recorder: "kube",
            namespace,
            seconds: self.elapsed(),
            occurrences: objects.iter().map(|object| object.occurrences).sum(),
            sent: objects.iter().map(|object| object.sent).sum(),
            calls: &calls,
            error_lines: totals.error_lines,
            settled,
            objects,
        };
        totals.print(&summary);
        totals.failed.take().map_or(Ok(()), Err)
    }

    fn totals(&self) -> MutexGuard<'_, Totals> {
        self.totals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn elapsed(&self) -> f64 {
        round(self.start.elapsed().as_secs_f64())
    }
}

impl Totals {
    /// Event names are the object's name, a dot and hex digits.
    fn sent_about(&self, object: &str) -> i64 {
        let about = |name: &str| name.rsplit_once('.').is_some_and(|(stem, _)| stem == object);
        self.sent.iter().filter(|(name, _)| about(name)).map(|(_, value)| i64::from(*value)).sum()
    }

    fn print(&mut self, line: &impl Serialize) {
        let printed = serde_json::to_string(line)
            .context("encoding a line")
            .and_then(|text| writeln!(std::io::stdout().lock(), "{text}").context("printing a line"));
        if let Err(error) = printed {
            self.failed.get_or_insert(error);
        }
    }
}

fn round(x: f64) -> f64 {
    (x * 1000.0).round() / 1000.0
}

/// Splits `/apis/GROUP/VERSION/namespaces/NS/events/NAME`, the only form that the recorder uses.
fn parse_path(path: &str) -> (String, String, String) {
    let parts: Vec<_> = path.trim_matches('/').split('/').collect();
    match parts[..] {
        ["apis", group, version, "namespaces", namespace, _, ref name @ ..] => {
            (format!("{group}/{version}"), namespace.to_owned(), name.join("/"))
        }
        _ => (path.to_owned(), String::new(), String::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_holds_its_request_and_its_answer() {
        let mut call = Call::new(&Method::PATCH, "/apis/events.k8s.io/v1/namespaces/ns/events/pod-0.1f");
        call.sent(br#"{"metadata":{"name":"pod-0.1f"},"series":{"count":7,"lastObservedTime":"t"}}"#);
        let answer =
            br#"{"kind":"Event","metadata":{"name":"pod-0.1f","resourceVersion":"12"},"series":{"count":3}}"#;
        call.answered(StatusCode::OK, answer);
        assert_eq!((call.api.as_str(), call.namespace.as_str()), ("events.k8s.io/v1", "ns"));
        assert_eq!((call.name.as_str(), call.resource_version.as_str()), ("pod-0.1f", "12"));
        assert_eq!((call.sent_series_count, call.returned_series_count), (Some(7), Some(3)));
    }

    #[test]
    fn a_refusal_holds_its_reason() {
        let mut call = Call::new(&Method::POST, "/apis/events.k8s.io/v1/namespaces/ns/events");
        call.sent(br#"{"metadata":{"name":"pod-0.1f"}}"#);
        call.answered(StatusCode::CONFLICT, br#"{"kind":"Status","reason":"AlreadyExists","message":"no"}"#);
        assert_eq!((call.name.as_str(), call.status), ("pod-0.1f", 409));
        assert_eq!((call.reason.as_str(), call.error.as_str()), ("AlreadyExists", "no"));
    }

    #[test]
    fn the_sent_count_is_the_highest_count_of_each_name() {
        let totals = Totals {
            sent: BTreeMap::from([("p-0.1a".into(), 5), ("p-0.2b".into(), 1), ("p-01.1a".into(), 9)]),
            ..Totals::default()
        };
        assert_eq!(totals.sent_about("p-0"), 6);
    }
}
