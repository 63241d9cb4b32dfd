//! What is written: new Events, the same few again and again, or the storm.

use std::time::Duration;

use e2e::storm::churn::{self, Churn};
use http::Request;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};

use crate::SEED;

/// What each write is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum Work {
    /// A new Event about an object of its own: nothing holds it back.
    Creates,
    /// The next count of one of a few Events, as client-go's legacy recorder and kube's tell it.
    HotLoop,
    /// The storm of kubernetes#141022.
    Storm,
}

/// Through which API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum Through {
    Core,
    New,
}

/// How fast.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) enum Pace {
    /// Each hand as soon as it has its answer.
    Closed,
    /// So many a second, whatever the answers take.
    PerSecond(u32),
    /// At the storm's own times.
    Recorded,
}

/// How many write at a time.
const CLOSED: u32 = 8;
const PACED: u32 = 16;
/// One Event each.
const LOOPS: u32 = 8;

/// One write of one hand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Write {
    /// A new Event about this object.
    Create { object: String },
    /// The Event about this object was told so often by now.
    Repeat { object: String, count: i64 },
    /// A write of the storm.
    Of(churn::Write),
    /// One that every policy here is for and lets pass.
    Sentinel { object: String },
}

/// What one hand writes, and when it is due: after the one before it, or at a time of its own.
pub(crate) type Hand = Box<dyn Iterator<Item = (Option<Duration>, Write)> + Send>;

impl Work {
    /// What has to be there first.
    pub(crate) fn before(self) -> Vec<Write> {
        let objects = match self {
            Self::HotLoop => (0..LOOPS).map(looping).collect(),
            Self::Creates | Self::Storm => Vec::new(),
        };
        objects.into_iter().map(|object| Write::Create { object }).collect()
    }

    /// What each hand writes, without end but for the storm.
    pub(crate) fn hands(self, pace: Pace) -> Vec<Hand> {
        let hands = match (self, pace) {
            (Self::HotLoop, _) => LOOPS,
            (_, Pace::Closed) => CLOSED,
            _ => PACED,
        };
        (0..hands).map(|hand| self.hand(hand, hands, pace)).collect()
    }

    fn hand(self, hand: u32, hands: u32, pace: Pace) -> Hand {
        let due = move |n: u32| match pace {
            Pace::PerSecond(rate) => Some(Duration::from_secs_f64(
                (f64::from(n) * f64::from(hands) + f64::from(hand)) / f64::from(rate),
            )),
            Pace::Closed | Pace::Recorded => None,
        };
        match self {
            Self::Creates => {
                Box::new((0..).map(move |n| (due(n), Write::Create { object: format!("web-{hand}-{n}") })))
            }
            Self::HotLoop => Box::new(
                (0..)
                    .map(move |n| (due(n), Write::Repeat { object: looping(hand), count: i64::from(n) + 2 })),
            ),
            // The repeats of an Event come from the hand that has created it.
            Self::Storm => {
                let own = Churn::whole(SEED).writes().filter(move |write| write.pod % hands == hand);
                Box::new(own.map(move |write| {
                    (if pace == Pace::Recorded { Some(write.at) } else { None }, Write::Of(write))
                }))
            }
        }
    }
}

fn looping(hand: u32) -> String {
    format!("loop-{hand}")
}

impl Write {
    /// Whether the policy for rollouts, or every policy, is for it.
    pub(crate) fn is_governed(&self) -> bool {
        !matches!(self, Self::Of(write) if write.step.is_warning())
    }

    /// As it goes to the API server now.
    pub(crate) fn request(&self, namespace: &str, through: Through) -> http::Result<Request<Vec<u8>>> {
        let now = Timestamp::now();
        match self {
            Self::Create { object } => create(namespace, &event(namespace, object, through, now)),
            Self::Repeat { object, count } => repeat(namespace, &name(object), *count, through, now),
            Self::Sentinel { object } => {
                let mut event = event(namespace, object, through, now);
                event["type"] = "Normal".into();
                create(namespace, &event)
            }
            Self::Of(write) if write.count == 1 => create(namespace, &write.event(namespace, now)),
            Self::Of(write) => repeat(namespace, &write.name(), write.count.into(), Through::Core, now),
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
    through: Through,
    now: Timestamp,
) -> http::Result<Request<Vec<u8>>> {
    let (api_version, change) = match through {
        Through::Core => ("v1", json!({ "count": count, "lastTimestamp": format!("{now:.0}") })),
        Through::New => (
            "events.k8s.io/v1",
            json!({ "series": { "count": count, "lastObservedTime": format!("{now:.6}") } }),
        ),
    };
    Request::patch(format!("{}/{name}", path(api_version, namespace)))
        .header("content-type", "application/strategic-merge-patch+json")
        .body(change.to_string().into_bytes())
}

/// What a kubelet, or a controller of events.k8s.io, tells of a pod.
fn event(namespace: &str, object: &str, through: Through, now: Timestamp) -> Value {
    let mut regarding = json!({ "apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": object,
        "uid": format!("5f0c2d1e-77aa-4b6e-9c1d-{object}"), "resourceVersion": "84211" });
    let metadata = json!({ "name": name(object), "namespace": namespace });
    let message =
        format!("Back-off restarting failed container app in pod {object}_{namespace}(5f0c2d1e-77aa-4b6e)");
    match through {
        Through::Core => {
            regarding["fieldPath"] = "spec.containers{app}".into();
            json!({ "apiVersion": "v1", "kind": "Event", "metadata": metadata, "involvedObject": regarding,
                "type": "Warning", "reason": "BackOff", "message": message, "count": 1,
                "source": { "component": "kubelet", "host": "node-017" }, "reportingComponent": "kubelet",
                "reportingInstance": "node-017", "firstTimestamp": format!("{now:.0}"),
                "lastTimestamp": format!("{now:.0}") })
        }
        Through::New => json!({ "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": metadata,
            "regarding": regarding, "type": "Warning", "reason": "BackOff", "note": message, "action": "Restarting",
            "reportingController": "sync.example.com", "reportingInstance": "sync-0",
            "eventTime": format!("{now:.6}") }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hands_share_a_rate_evenly() {
        let mut due: Vec<_> =
            Work::Creates.hands(Pace::PerSecond(484)).into_iter().flat_map(|hand| hand.take(100)).collect();
        due.sort_by_key(|(due, _)| *due);
        let apart = |pair: &[(Option<Duration>, Write)]| pair[1].0.unwrap() - pair[0].0.unwrap();
        assert!(
            due.windows(2)
                .all(|pair| apart(pair).abs_diff(Duration::from_secs(1) / 484) < Duration::from_micros(1))
        );
        let objects: std::collections::BTreeSet<_> =
            due.iter().map(|(_, write)| format!("{write:?}")).collect();
        assert_eq!(objects.len(), due.len(), "each is about an object of its own");
    }

    #[test]
    fn a_hot_loop_counts_on_from_what_was_there_before() {
        let there = Work::HotLoop.before();
        let hands = Work::HotLoop.hands(Pace::Closed);
        assert_eq!(there.len(), hands.len());
        for (created, mut hand) in there.into_iter().zip(hands) {
            let Write::Create { object } = created else { panic!("{created:?}") };
            assert_eq!(hand.next(), Some((None, Write::Repeat { object: object.clone(), count: 2 })));
            assert_eq!(hand.next(), Some((None, Write::Repeat { object, count: 3 })));
        }
    }

    #[test]
    fn the_hands_together_write_the_whole_storm_and_a_repeat_follows_its_event() {
        let mut writes = 0;
        for hand in Work::Storm.hands(Pace::Recorded) {
            let mut created = std::collections::BTreeSet::new();
            for (due, write) in hand {
                let Write::Of(write) = write else { panic!("{write:?}") };
                assert_eq!(due, Some(write.at));
                assert_eq!(created.insert(write.name()), write.count == 1);
                writes += 1;
            }
        }
        assert_eq!(writes, 145_000);
    }
}
