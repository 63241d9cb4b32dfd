//! Cells: a kind of client under a kind of policy.

use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};

use crate::Emission;

/// The client that writes the Events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    /// client-go's legacy recorder: an absolute count under one name per message.
    Legacy,
    /// client-go's new recorder: a CREATE, one PATCH with the count 2, then a refresh every 30 minutes.
    New,
    /// kube's Recorder: an absolute count under one name; it forgets a refused CREATE.
    Kube,
    /// One CREATE per occurrence.
    Creates,
}

/// The kind of policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Row {
    /// Compacts repeats only.
    Series,
    /// Aggregates Events about one object.
    ByObject,
    /// Aggregates Events about objects of one kind.
    ByKind,
    /// Drops bursts about one object.
    Filtered,
    /// Drops bursts of the namespace.
    Throttled,
}

/// One kind of client under one kind of policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// The client.
    pub client: Client,
    /// The kind of policy.
    pub row: Row,
}

impl Client {
    /// All variants.
    pub const ALL: [Self; 4] = [Self::Legacy, Self::New, Self::Kube, Self::Creates];

    /// Whether its counts are absolute per name: a suppressed occurrence is reported again by the next write.
    pub fn counts_absolutely(self) -> bool {
        self != Self::Creates
    }

    fn emission(self) -> Emission {
        match self {
            Self::Legacy => Emission::legacy(),
            Self::New => Emission::new_style(),
            Self::Kube => Emission::kube(),
            Self::Creates => Emission::creates_core(),
        }
    }
}

impl Row {
    /// All variants.
    pub const ALL: [Self; 5] = [Self::Series, Self::ByObject, Self::ByKind, Self::Filtered, Self::Throttled];

    /// The spec. Most series stay live; those of the slowest clients close and open again. A group outlives every
    /// pause of its clients, and closes at the end.
    pub fn policy(self) -> Value {
        let off = || json!({ "mode": "Disabled" });
        let group = |by: &str| json!({ "maxEvents": 4, "idleTimeout": "12s", "groupBy": by });
        let mut spec = json!({
            "warningPolicy": "Limit",
            "series": { "idleTimeout": "4s" },
            "aggregation": off(),
            "spamFilter": off(),
        });
        match self {
            Self::Series => {}
            Self::ByObject => spec["aggregation"] = group("Object"),
            Self::ByKind => spec["aggregation"] = group("Kind"),
            Self::Filtered => spec["spamFilter"] = json!({ "burst": 3, "refillInterval": "4s" }),
            Self::Throttled => spec["budget"] = json!({ "burst": 4, "refillInterval": "3s" }),
        }
        spec
    }

    /// Whether it drops occurrences.
    pub fn drops(self) -> bool {
        matches!(self, Self::Filtered | Self::Throttled)
    }
}

/// Distinct messages about one object, for policies per object.
const MESSAGES: usize = 12;
/// Same, for recorders that ignore the message: each takes its own process.
const PROCESSES: usize = 5;
/// Occurrences per second of each cell. (Twenty cells on two cores: far below the capacity of the API server.)
const RATE: u32 = 8;

impl Cell {
    /// Every client under these policies.
    pub fn of_rows(rows: &[Row]) -> Vec<Self> {
        let of = |row: &Row| Client::ALL.map(|client| Self { client, row: *row });
        rows.iter().flat_map(of).collect()
    }

    /// The emitters of a cell for about `time`.
    pub(super) fn emissions(self, time: Duration) -> Vec<Emission> {
        let one_object_matters = matches!(self.row, Row::ByObject | Row::Filtered);
        match self.client {
            Client::New => self.new_style(one_object_matters, time),
            Client::Kube if one_object_matters => (0..PROCESSES)
                .map(|nth| paced(speaks_of_its_own(self.client, nth), 2, f64::from(RATE) / 5.0, time))
                .collect(),
            _ => {
                let objects = if self.row == Row::ByKind { 6 } else { 2 };
                let several = one_object_matters || self.row == Row::Throttled;
                let messages = if several { MESSAGES.to_string() } else { "identical".to_owned() };
                // kube's Recorder ignores the message.
                let objects = if self.client == Client::Kube && several { 6 } else { objects };
                let emission = self.client.emission().with("--messages", &messages);
                vec![paced(emission, objects, f64::from(RATE), time)]
            }
        }
    }

    /// The new recorder writes each Event twice, so it needs many objects. It keeps the third occurrence back.
    fn new_style(self, one_object_matters: bool, time: Duration) -> Vec<Emission> {
        const EACH: i64 = 3;
        let slowly = |emission: Emission, objects: usize| {
            let rate = objects as f64 * EACH as f64 / time.as_secs_f64();
            emission.about("pod", objects).count(EACH).with("--rate", &format!("{rate:.2}"))
        };
        if one_object_matters {
            (0..PROCESSES).map(|nth| slowly(speaks_of_its_own(self.client, nth), 3)).collect()
        } else {
            vec![slowly(self.client.emission(), 15)]
        }
    }
}

/// Occurrences of `objects` objects at the rate for `time`.
fn paced(emission: Emission, objects: usize, rate: f64, time: Duration) -> Emission {
    let each = (rate * time.as_secs_f64() / objects as f64).ceil();
    emission.about("pod", objects).count(each as i64).with("--rate", &rate.to_string())
}

/// One of several processes with different reports about the same objects.
fn speaks_of_its_own(client: Client, nth: usize) -> Emission {
    client.emission().with("--action", &format!("Action{nth}")).message(&format!("message {nth}"))
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Legacy => "legacy",
            Self::New => "new",
            Self::Kube => "kube-rs",
            Self::Creates => "creates",
        })
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Series => "series",
            Self::ByObject => "by object",
            Self::ByKind => "by kind",
            Self::Filtered => "filtered",
            Self::Throttled => "throttled",
        })
    }
}
