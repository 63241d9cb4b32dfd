//! Who reports what under which policy.

use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};

use crate::Emission;

/// What writes the Events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    /// client-go's legacy recorder: an absolute count under one name for each message.
    Legacy,
    /// client-go's new recorder: a CREATE, one PATCH with the count 2, then silence.
    New,
    /// kube's Recorder: an absolute count under one name, but a refused CREATE is forgotten.
    Kube,
    /// One CREATE per occurrence.
    Creates,
}

/// What the policy does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Row {
    /// Folds repeats, and nothing else.
    Series,
    /// Merges look-alikes about one object.
    ByObject,
    /// Merges look-alikes about objects of one kind.
    ByKind,
    /// Drops bursts about one object.
    Filtered,
    /// Drops bursts of the namespace.
    Throttled,
}

/// One kind of client under one kind of policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// What writes.
    pub client: Client,
    /// What the policy does.
    pub row: Row,
}

impl Client {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Legacy, Self::New, Self::Kube, Self::Creates];

    /// Its counts are absolute under each name: a write that was held back is told again by the next one.
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
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Series, Self::ByObject, Self::ByKind, Self::Filtered, Self::Throttled];

    /// Most series live through; those of the slowest clients are closed and opened again. A group outlives every
    /// pause of its clients, and its summary is closed when it ends.
    pub fn policy(self) -> Value {
        let off = || json!({ "disabled": true });
        let group = |by: &str| json!({ "maxEvents": 4, "interval": "12s", "groupBy": by });
        let mut spec = json!({
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

    /// It drops writes: they are stored nowhere.
    pub fn drops(self) -> bool {
        matches!(self, Self::Filtered | Self::Throttled)
    }
}

/// How many different things a client says about one object, where the policy is about that.
const MESSAGES: usize = 12;
/// The same where each of them takes a process: these recorders do not tell Events apart by their message.
const PROCESSES: usize = 5;
/// Occurrences a second of each cell. (Twenty cells on two cores: far below what the API server takes.)
const RATE: u32 = 8;

impl Cell {
    /// Every client under these policies.
    pub fn of_rows(rows: &[Row]) -> Vec<Self> {
        let of = |row: &Row| Client::ALL.map(|client| Self { client, row: *row });
        rows.iter().flat_map(of).collect()
    }

    /// What its clients do for about `time`.
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
                // kube's Recorder would not tell them apart.
                let objects = if self.client == Client::Kube && several { 6 } else { objects };
                let emission = self.client.emission().with("--messages", &messages);
                vec![paced(emission, objects, f64::from(RATE), time)]
            }
        }
    }

    /// Each Event of the new recorder is written twice, so it takes many. Its third occurrence is kept back.
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

/// So many objects, as often as the rate allows in that time.
fn paced(emission: Emission, objects: usize, rate: f64, time: Duration) -> Emission {
    let each = (rate * time.as_secs_f64() / objects as f64).ceil();
    emission.about("pod", objects).count(each as i64).with("--rate", &rate.to_string())
}

/// One of several processes that report different things about the same objects.
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
