//! The consumers and what they recorded: the counts of each object, in order.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use e2e::cluster::given;
use e2e::otlp::{array, attribute, log_records};
use e2e::process::Process;
use e2e::wait::not_yet;
use e2e::writes::Kind;
use e2e::{GENEROUS, Test, Writes, events, wait_for};
use k8s_openapi::api::core::v1::Event;
use kube::Api;
use kube::api::ListParams;
use serde_json::Value;

use crate::storm::{OCCURRENCES, Object};

/// A consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Consumer {
    /// `kubectl get events -w`.
    GetWatch,
    /// `kubectl events --for`, after the storm.
    EventsFor,
    /// `kubectl describe`, after the storm.
    Describe,
    /// The request of Argo CD's UI, after the storm.
    ArgoCd,
    /// An informer that ignores what is older than 5 s.
    AgeFilter,
    /// OpenTelemetry's `k8s_events` receiver.
    OtelEvents,
    /// OpenTelemetry's `k8sobjects` receiver.
    OtelObjects,
    /// A watcher that counts what it sees, as Prometheus exporters do.
    Sightings,
}

impl Consumer {
    /// All of them, in the order of the table.
    pub(crate) const ALL: [Self; 8] = [
        Self::GetWatch,
        Self::EventsFor,
        Self::Describe,
        Self::ArgoCd,
        Self::AgeFilter,
        Self::OtelEvents,
        Self::OtelObjects,
        Self::Sightings,
    ];
}

impl fmt::Display for Consumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::GetWatch => "`kubectl get events -w`",
            Self::EventsFor => "`kubectl events --for`",
            Self::Describe => "`kubectl describe`",
            Self::ArgoCd => "the list of Argo CD's UI",
            Self::AgeFilter => "an exporter that ignores Events older than 5 s",
            Self::OtelEvents => "OpenTelemetry `k8s_events`",
            Self::OtelObjects => "OpenTelemetry `k8sobjects`",
            Self::Sightings => "a watcher that counts sightings",
        })
    }
}

/// Running consumers.
pub(crate) struct Running {
    namespace: String,
    processes: Vec<(Consumer, Process)>,
    writes: Writes,
    otel: PathBuf,
}

/// What the consumers recorded.
#[derive(Default)]
pub(crate) struct Recordings(BTreeMap<(Consumer, Object), Vec<i64>>);

/// Starts the consumers that watch, and waits until they do.
pub(crate) async fn start(test: &Test) -> Result<Running> {
    let (kubeconfig, folder) = (&test.cluster.kubeconfig, test.folder());
    let otel = folder.join("otel");
    std::fs::create_dir_all(&otel)?;
    let columns = "custom-columns=O:.involvedObject.name,S:.series.count,C:.count";
    let mut kubectl = Command::new("kubectl");
    kubectl.args(["get", "events", "--watch", "--no-headers", "--output", columns]);
    kubectl.args(["--namespace", &test.namespace]).arg("--kubeconfig").arg(kubeconfig);
    let mut filter = Command::new(given("SQUELCH_PROGRAM_AGE_FILTER")?);
    filter.arg("--kubeconfig").arg(kubeconfig).args(["--namespace", &test.namespace]);
    let mut collector = Command::new(given("SQUELCH_PROGRAM_OTEL_COLLECTOR")?);
    collector.env("KUBECONFIG", kubeconfig).env("CONSUMER_OUT", &otel).arg("--config");
    collector.arg(e2e::cluster::checkout("e2e/consumers/otel-collector/config.yaml"));
    let processes = vec![
        (Consumer::GetWatch, Process::start("kubectl", &mut kubectl, folder)?),
        (Consumer::AgeFilter, Process::start("age-filter", &mut filter, folder)?),
        (Consumer::OtelEvents, Process::start("otel-collector", &mut collector, folder)?),
    ];
    let (namespace, writes) = (test.namespace.clone(), test.writes().await?);
    let running = Running { namespace, processes, writes, otel };
    wait_for("the consumers to watch", GENEROUS, async || {
        // Again and again, because a watch that begins later does not see it, and a receiver ignores what is older than
        // itself.
        test.kubectl().apply(&first_event(&test.namespace)).await.map_err(not_yet)?;
        let missing: Vec<_> =
            [Consumer::GetWatch, Consumer::AgeFilter, Consumer::OtelEvents, Consumer::OtelObjects]
                .into_iter()
                .filter(|consumer| !running.text(*consumer).is_ok_and(|text| text.contains(FIRST)))
                .collect();
        if missing.is_empty() { Ok(()) } else { Err(format!("not yet: {missing:?}")) }
    })
    .await?;
    Ok(running)
}

/// The name of the Event, and of its object, by which a test sees that a consumer takes Events of this second.
const FIRST: &str = "first-event";

fn first_event(namespace: &str) -> Value {
    // In whole seconds, as all times of `v1`.
    let last = format!("{:.0}", jiff::Timestamp::now());
    serde_json::json!({
        "apiVersion": "v1", "kind": "Event", "metadata": { "name": FIRST, "namespace": namespace },
        "involvedObject": { "apiVersion": "v1", "kind": "ConfigMap", "name": FIRST, "namespace": namespace },
        "reason": "First", "message": FIRST, "type": "Normal", "count": 1,
        "firstTimestamp": last, "lastTimestamp": last, "source": { "component": "test" },
    })
}

impl Running {
    /// What a consumer has written so far.
    fn text(&self, consumer: Consumer) -> Result<String> {
        let path = match consumer {
            Consumer::OtelEvents => self.otel.join("k8s_events.jsonl"),
            Consumer::OtelObjects => self.otel.join("k8sobjects.jsonl"),
            _ => {
                let process = self.processes.iter().find(|(it, _)| *it == consumer);
                process.context("a consumer without a process")?.1.output.clone()
            }
        };
        Ok(std::fs::read_to_string(path).unwrap_or_default())
    }

    /// Waits until the consumers have seen what is stored, and returns their recordings.
    pub(crate) async fn finish(self, test: &Test) -> Result<Recordings> {
        let stored: Api<Event> = Api::namespaced(test.client(), &test.namespace);
        let mut recorded = wait_for("the consumers to see the last write", GENEROUS, async || {
            let recorded = self.recorded().await.map_err(not_yet)?;
            let all = stored.list(&ListParams::default()).await.map_err(not_yet)?.items;
            let objects = Object::ALL.map(|object| {
                let of_object = all.iter().filter(|event| events::object(event) == object.name());
                (object, of_object.map(events::value).max().unwrap_or_default())
            });
            for (object, value) in objects {
                for consumer in [Consumer::GetWatch, Consumer::OtelObjects, Consumer::Sightings] {
                    if recorded.last(consumer, object) != value {
                        return Err(format!("{consumer}, {object}: not yet {value}"));
                    }
                }
            }
            Ok(recorded)
        })
        .await?;
        for object in Object::ALL {
            recorded.add_views(test, object).await?;
        }
        Ok(recorded)
    }

    async fn recorded(&self) -> Result<Recordings> {
        let mut recorded = Recordings::default();
        for line in self.text(Consumer::GetWatch)?.lines() {
            if let [object, series, count] = line.split_whitespace().collect::<Vec<_>>()[..] {
                let count = [series, count].iter().find_map(|text| text.parse().ok());
                recorded.note(Consumer::GetWatch, object, count);
            }
        }
        for line in json_lines(&self.text(Consumer::AgeFilter)?) {
            if line["line"] == "delivered" {
                let name = line["name"].as_str().unwrap_or_default();
                let counts = [&line["seriesCount"], &line["count"]];
                let count = counts.into_iter().filter_map(Value::as_i64).find(|count| *count > 0);
                // The name of an Event begins with that of its object.
                recorded.note(Consumer::AgeFilter, name.split('.').next().unwrap_or_default(), count);
            }
        }
        for line in json_lines(&self.text(Consumer::OtelEvents)?) {
            for resource in array(&line["resourceLogs"]) {
                let object = attribute(&resource["resource"], "k8s.object.name");
                let logs = array(&resource["scopeLogs"]).flat_map(|scope| array(&scope["logRecords"]));
                for log in logs.filter(|log| attribute(log, "k8s.namespace.name") == *self.namespace) {
                    let count = attribute(log, "k8s.event.count").as_str().and_then(|text| text.parse().ok());
                    recorded.note(Consumer::OtelEvents, object.as_str().unwrap_or_default(), count);
                }
            }
        }
        for line in json_lines(&self.text(Consumer::OtelObjects)?) {
            for log in log_records(&line) {
                // The collector watches all namespaces, also those of former tests that are being deleted.
                let event = &plain(&log["body"])["object"];
                if event["metadata"]["namespace"] != *self.namespace {
                    continue;
                }
                let counts = [&event["series"]["count"], &event["count"]];
                let count = counts.into_iter().filter_map(as_number).next();
                let object = event["involvedObject"]["name"].as_str().unwrap_or_default();
                recorded.note(Consumer::OtelObjects, object, count);
            }
        }
        for write in self.writes.so_far().await? {
            if write.kind != Kind::Deleted {
                let value = events::value(&write.event);
                recorded.note(Consumer::Sightings, events::object(&write.event), Some(value));
            }
        }
        Ok(recorded)
    }
}

impl Recordings {
    fn note(&mut self, consumer: Consumer, object: &str, count: Option<i64>) {
        if let Some(object) = Object::ALL.into_iter().find(|it| it.name() == object) {
            self.0.entry((consumer, object)).or_default().push(count.unwrap_or(0));
        }
    }

    /// Adds what a person sees after the storm.
    async fn add_views(&mut self, test: &Test, object: Object) -> Result<()> {
        let name = object.name();
        let about = format!("configmap/{name}");
        for (consumer, arguments) in [
            (Consumer::EventsFor, ["events", "--for", &about]),
            (Consumer::Describe, ["describe", "configmap", &name]),
        ] {
            let text = test.kubectl().run(&arguments).await?;
            eprintln!("kubectl {}:\n{text}", arguments.join(" "));
            // "4s (x45 over 24s)"; without parentheses it is 1.
            let counts = text.lines().filter(|line| line.contains("Warning")).map(|line| {
                let count = line.split_once("(x").and_then(|(_, rest)| rest.split(' ').next());
                count.and_then(|count| count.parse().ok()).unwrap_or(1)
            });
            self.0.insert((consumer, object), counts.collect());
        }
        let fields = format!("involvedObject.name={name},involvedObject.namespace={}", test.namespace);
        let api: Api<Event> = Api::namespaced(test.client(), &test.namespace);
        let listed = api.list(&ListParams::default().fields(&fields)).await?.items;
        // It shows `count` and ignores `series`.
        let counts = listed.iter().map(|event| event.count.map_or(0, i64::from)).collect();
        self.0.insert((Consumer::ArgoCd, object), counts);
        Ok(())
    }

    /// The counts that a consumer saw of an object.
    pub(crate) fn counts(&self, consumer: Consumer, object: Object) -> String {
        let counts = self.0.get(&(consumer, object)).map(Vec::as_slice).unwrap_or_default();
        let shown: Vec<_> = counts.iter().map(ToString::to_string).collect();
        format!("{} records: {}", counts.len(), shown.join(" "))
    }

    /// The highest count that a consumer saw of an object.
    pub(crate) fn last(&self, consumer: Consumer, object: Object) -> i64 {
        self.0.get(&(consumer, object)).and_then(|counts| counts.iter().max()).copied().unwrap_or_default()
    }

    /// What a consumer knows of the number of occurrences in the end.
    pub(crate) fn verdict(&self, consumer: Consumer, object: Object) -> &'static str {
        let counts = self.0.get(&(consumer, object)).map(Vec::as_slice).unwrap_or_default();
        let is_each = counts.len() as i64 == OCCURRENCES && counts.iter().all(|count| *count == 1);
        // The first messages are stored beside the summary.
        let distinct = counts.iter().filter(|count| **count == 1).count() as i64;
        let highest = counts.iter().max().copied().unwrap_or_default();
        match object {
            _ if is_each => "each occurrence",
            _ if highest == OCCURRENCES => "final count",
            Object::Similar if highest + distinct >= OCCURRENCES && highest > 1 => "final count",
            _ if highest == 0 && !counts.is_empty() => "no count",
            _ => "a lower count",
        }
    }
}

fn json_lines(text: &str) -> impl Iterator<Item = Value> {
    // The last line may be incomplete.
    text.lines().filter_map(|line| serde_json::from_str(line).ok())
}

/// An OTLP value as JSON.
fn plain(value: &Value) -> Value {
    let Some((kind, content)) = value.as_object().and_then(|value| value.iter().next()) else {
        return Value::Null;
    };
    match kind.as_str() {
        "kvlistValue" => {
            let entries = array(&content["values"]);
            entries
                .map(|entry| (entry["key"].as_str().unwrap_or_default().to_owned(), plain(&entry["value"])))
                .collect()
        }
        "arrayValue" => array(&content["values"]).map(plain).collect(),
        _ => content.clone(),
    }
}

/// OTLP writes 64-bit integers as text.
fn as_number(value: &Value) -> Option<i64> {
    value
        .as_i64()
        .or_else(|| value.as_f64().map(|number| number as i64))
        .or_else(|| value.as_str()?.parse().ok())
}
