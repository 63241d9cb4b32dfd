//! The writes: new Events, repeats of a few Events, or the storm.

use std::time::Duration;

use e2e::storm::churn::{self, Churn};
use http::Request;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};

use crate::SEED;

/// The kind of writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum Work {
    /// A new Event about a new object: always admitted.
    Creates,
    /// The same, of a type that no policy matches.
    Unmatched,
    /// The next count of one of a few Events, as client-go's legacy recorder and kube's Recorder report it.
    HotLoop,
    /// The same with several occurrences in each write.
    Batches,
    /// The storm of kubernetes#141022.
    Storm,
}

/// The API of the writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum EventApi {
    Core,
    New,
}

/// The rate of the writes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) enum Pace {
    /// Each worker sends when it has its last answer.
    Closed,
    /// A fixed rate per second, independent of the answers.
    PerSecond(u32),
    /// At the times of the storm.
    Recorded,
}

/// Number of concurrent workers.
const CLOSED: u32 = 8;
const PACED: u32 = 16;
/// Events of the hot loop, one per worker.
const LOOPS: u32 = 8;
/// Occurrences in each write of [`Work::Batches`].
pub(crate) const BATCH: i64 = 8;

/// One write of one worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Write {
    /// A new Event about this object.
    Create { object: String },
    /// The same, if the policy does not match it.
    Unmatched { object: String },
    /// The Event about this object with this count. `occurrences`: the difference from the previous count.
    Repeat { object: String, count: i64, occurrences: i64 },
    /// A write of the storm.
    Of(churn::Write),
    /// An Event that every policy matches and admits.
    Sentinel { object: String },
}

/// The writes of one worker with their due times: after the previous write, or at a fixed time.
pub(crate) type Worker = Box<dyn Iterator<Item = (Option<Duration>, Write)> + Send>;

impl Work {
    /// Writes that must precede the measurement.
    pub(crate) fn before(self) -> Vec<Write> {
        let objects = match self {
            Self::HotLoop | Self::Batches => (0..LOOPS).map(looping).collect(),
            Self::Creates | Self::Unmatched | Self::Storm => Vec::new(),
        };
        objects.into_iter().map(|object| Write::Create { object }).collect()
    }

    /// The writes of each worker; endless except for the storm.
    pub(crate) fn workers(self, pace: Pace) -> Vec<Worker> {
        let workers = match (self, pace) {
            (Self::HotLoop | Self::Batches, _) => LOOPS,
            (_, Pace::Closed) => CLOSED,
            _ => PACED,
        };
        (0..workers).map(|worker| self.worker(worker, workers, pace)).collect()
    }

    fn worker(self, worker: u32, workers: u32, pace: Pace) -> Worker {
        let due = move |n: u32| match pace {
            Pace::PerSecond(rate) => Some(Duration::from_secs_f64(
                (f64::from(n) * f64::from(workers) + f64::from(worker)) / f64::from(rate),
            )),
            Pace::Closed | Pace::Recorded => None,
        };
        match self {
            Self::Creates => {
                Box::new((0..).map(move |n| (due(n), Write::Create { object: format!("web-{worker}-{n}") })))
            }
            Self::Unmatched => Box::new(
                (0..).map(move |n| (due(n), Write::Unmatched { object: format!("web-{worker}-{n}") })),
            ),
            Self::HotLoop | Self::Batches => {
                let occurrences = if self == Self::Batches { BATCH } else { 1 };
                Box::new((0..).map(move |n| {
                    // 1 was created before.
                    let count = 1 + (i64::from(n) + 1) * occurrences;
                    (due(n), Write::Repeat { object: looping(worker), count, occurrences })
                }))
            }
            // The worker that created an Event also repeats it.
            Self::Storm => {
                let own = Churn::whole(SEED).writes().filter(move |write| write.pod % workers == worker);
                Box::new(own.map(move |write| {
                    (if pace == Pace::Recorded { Some(write.at) } else { None }, Write::Of(write))
                }))
            }
        }
    }
}

fn looping(worker: u32) -> String {
    format!("loop-{worker}")
}

impl Write {
    /// The occurrences that it reports.
    pub(crate) fn occurrences(&self) -> i64 {
        match self {
            Self::Repeat { occurrences, .. } => *occurrences,
            Self::Create { .. } | Self::Unmatched { .. } | Self::Of(_) | Self::Sentinel { .. } => 1,
        }
    }

    /// Whether the policy of the measurement matches it.
    pub(crate) fn is_governed(&self) -> bool {
        match self {
            Self::Of(write) => !write.step.is_warning(),
            Self::Unmatched { .. } => false,
            Self::Create { .. } | Self::Repeat { .. } | Self::Sentinel { .. } => true,
        }
    }

    /// The request to the API server.
    pub(crate) fn request(&self, namespace: &str, api: EventApi) -> http::Result<Request<Vec<u8>>> {
        let now = Timestamp::now();
        match self {
            Self::Create { object } | Self::Unmatched { object } => {
                create(namespace, &event(namespace, object, api, now))
            }
            Self::Repeat { object, count, .. } => repeat(namespace, &name(object), *count, api, now),
            Self::Sentinel { object } => {
                let mut event = event(namespace, object, api, now);
                event["type"] = "Normal".into();
                create(namespace, &event)
            }
            Self::Of(write) if write.count == 1 => create(namespace, &write.event(namespace, now)),
            Self::Of(write) => repeat(namespace, &write.name(), write.count.into(), EventApi::Core, now),
        }
    }
}

fn name(object: &str) -> String {
    format!("{object}.1898f75582430001")
}

fn path(api_version: &str, namespace: &str) -> String {
    let group = if api_version == "v1" { "/api/v1".to_owned() } else { format!("/apis/{api_version}") };
    format!("{group}/namespaces/{namespace}/events")
}

fn create(namespace: &str, event: &Value) -> http::Result<Request<Vec<u8>>> {
    let path = path(event["apiVersion"].as_str().unwrap_or_default(), namespace);
    Request::post(path).header("content-type", "application/json").body(event.to_string().into_bytes())
}

fn repeat(
    namespace: &str,
    name: &str,
    count: i64,
    api: EventApi,
    now: Timestamp,
) -> http::Result<Request<Vec<u8>>> {
    let (api_version, change) = match api {
        EventApi::Core => ("v1", json!({ "count": count, "lastTimestamp": format!("{now:.0}") })),
        EventApi::New => (
            "events.k8s.io/v1",
            json!({ "series": { "count": count, "lastObservedTime": format!("{now:.6}") } }),
        ),
    };
    Request::patch(format!("{}/{name}", path(api_version, namespace)))
        .header("content-type", "application/strategic-merge-patch+json")
        .body(change.to_string().into_bytes())
}

/// The Event of a kubelet, or of a controller of events.k8s.io, about a pod.
fn event(namespace: &str, object: &str, api: EventApi, now: Timestamp) -> Value {
    let mut regarding = json!({ "apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": object,
        "uid": format!("5f0c2d1e-77aa-4b6e-9c1d-{object}"), "resourceVersion": "84211" });
    let metadata = json!({ "name": name(object), "namespace": namespace });
    let message =
        format!("Back-off restarting failed container app in pod {object}_{namespace}(5f0c2d1e-77aa-4b6e)");
    match api {
        EventApi::Core => {
            regarding["fieldPath"] = "spec.containers{app}".into();
            json!({ "apiVersion": "v1", "kind": "Event", "metadata": metadata, "involvedObject": regarding,
                "type": "Warning", "reason": "BackOff", "message": message, "count": 1,
                "source": { "component": "kubelet", "host": "node-017" }, "reportingComponent": "kubelet",
                "reportingInstance": "node-017", "firstTimestamp": format!("{now:.0}"),
                "lastTimestamp": format!("{now:.0}") })
        }
        EventApi::New => json!({ "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": metadata,
            "regarding": regarding, "type": "Warning", "reason": "BackOff", "note": message, "action": "Restarting",
            "reportingController": "sync.example.com", "reportingInstance": "sync-0",
            "eventTime": format!("{now:.6}") }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_share_a_rate_evenly() {
        let mut due: Vec<_> = Work::Creates
            .workers(Pace::PerSecond(484))
            .into_iter()
            .flat_map(|worker| worker.take(100))
            .collect();
        due.sort_by_key(|(due, _)| *due);
        let apart = |pair: &[(Option<Duration>, Write)]| pair[1].0.unwrap() - pair[0].0.unwrap();
        assert!(
            due.windows(2)
                .all(|pair| apart(pair).abs_diff(Duration::from_secs(1) / 484) < Duration::from_micros(1))
        );
        let objects: std::collections::BTreeSet<_> =
            due.iter().map(|(_, write)| format!("{write:?}")).collect();
        assert_eq!(objects.len(), due.len(), "each write has its own object");
    }

    #[test]
    fn a_hot_loop_continues_the_counts_of_the_prepared_events() {
        for (work, occurrences) in [(Work::HotLoop, 1), (Work::Batches, BATCH)] {
            let there = work.before();
            let workers = work.workers(Pace::Closed);
            assert_eq!(there.len(), workers.len());
            for (created, mut worker) in there.into_iter().zip(workers) {
                let Write::Create { object } = created else { panic!("{created:?}") };
                for count in [1 + occurrences, 1 + 2 * occurrences] {
                    let repeat = Write::Repeat { object: object.clone(), count, occurrences };
                    assert_eq!(worker.next(), Some((None, repeat)));
                }
            }
        }
    }

    #[test]
    fn the_workers_write_the_whole_storm_and_repeats_follow_their_event() {
        let mut writes = 0;
        for worker in Work::Storm.workers(Pace::Recorded) {
            let mut created = std::collections::BTreeSet::new();
            for (due, write) in worker {
                let Write::Of(write) = write else { panic!("{write:?}") };
                assert_eq!(due, Some(write.at));
                assert_eq!(created.insert(write.name()), write.count == 1);
                writes += 1;
            }
        }
        assert_eq!(writes, 145_000);
    }
}
