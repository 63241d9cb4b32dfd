//! An oracle outside of the engine. It sees what clients ask of the API server, what the API server answers, and
//! what etcd stores. From this it computes how much must be stored, and how much may be. It reads no counter of
//! the engine. Of a verdict it uses the disposition, to distinguish a dropped write from a merged one.
//!
//! An occurrence is a name and an index: the third occurrence under `l.1` is the one that raises the client's own
//! count to 3. Sums are compared by user, so that nothing can be written into the Event of another one.
//!
//! `high` is an upper bound of the stored occurrences and is checked at each write to etcd. `low` is a lower bound
//! and is checked at rest. In a life without faults they are equal. Each fault moves them apart by what
//! docs/promises.md allows; the place names the sentence.

mod ledger;
mod reviews;
mod storage;

use std::collections::{BTreeMap, BTreeSet};

use super::clients::{Client, Request, USERS};
use super::steps::as_compared;

use super::*;
use ledger::Ledger;

/// The sums of one user.
#[derive(Clone, Copy, Debug, Default)]
struct UserSums {
    /// Occurrences in etcd, and in Events that were deleted or expired.
    stored: i64,
    low: i64,
    high: i64,
    /// Occurrences merged into summaries.
    aggregated: i64,
    /// Whether an Event was refused, deleted or expired, so that a summary can lack its witness.
    lacks_events: bool,
    /// Occurrences that a former replica may still flush, although clients report them to the next one.
    handed_over: i64,
}

/// The names that the Event of a series can have. One, if its name is certain.
type Events = BTreeSet<String>;

/// A series as it is visible from outside: the name of its Event, and its last write.
struct Visible {
    events: Events,
    last: Moment,
}

/// Where an occurrence was merged.
enum Target {
    /// A series. Its Event is one of these.
    Series(Events),
    Summary,
}

/// A decision as the oracle sees it.
pub(super) struct Decided {
    pub(super) disposition: Disposition,
    /// Whether the API server was asked to store the write.
    pub(super) passes: bool,
    /// Whether it passes because the replica drains, so that it opens no series.
    pub(super) opens_nothing: bool,
    /// The name that squelch gave to a CREATE with `generateName`.
    pub(super) minted: Option<String>,
    /// The count that the API server showed squelch.
    pub(super) old: Option<i64>,
    pub(super) replica: usize,
    /// Whether the Event began before the replica became active.
    pub(super) began_before: bool,
}

#[derive(Default)]
pub(super) struct Oracle {
    /// Whether one summary can contain Events of several users. They share one sum then.
    is_shared: bool,
    names: BTreeMap<String, Ledger>,
    sums: BTreeMap<&'static str, UserSums>,
    /// The live series of a replica, by user and message.
    series: BTreeMap<(usize, &'static str, &'static str), Visible>,
    /// By replica and name, the Event that the last write was merged into.
    joined: BTreeMap<(usize, String), Events>,
    /// By Event, user and message of the client's CREATE that is stored.
    owners: BTreeMap<String, (&'static str, &'static str)>,
    /// By Event that a tenant has stored under a former name, those of the former Event.
    former_owners: BTreeMap<String, (&'static str, &'static str)>,
    /// By Event, occurrences merged into it since it was last written.
    merged_into: BTreeMap<String, i64>,
    /// Events that the API server refused, that are deleted or expired, or that squelch takes for those of others.
    absent: BTreeSet<String>,
    /// By Event, the highest count that was stored before it was deleted or expired.
    floors: BTreeMap<String, i64>,
    /// Values of CREATEs of the tenant that were merged while nothing of the tenant was stored.
    tenant: i64,
    tenant_is_stored: bool,
    /// Names that the tenant asked for. A replica may know them as the tenant's.
    claimed: BTreeSet<String>,
    /// Whether some fault made the bounds differ.
    disturbed: bool,
    /// Whether the engine can have forgotten names or series.
    pub(super) is_blind: bool,
}

impl Oracle {
    pub(super) fn new(is_shared: bool) -> Self {
        Self { is_shared, ..Self::default() }
    }

    fn sums_of(&mut self, user: &'static str) -> &mut UserSums {
        let user = if self.is_shared { "all" } else { user };
        self.sums.entry(user).or_default()
    }

    fn ledger(&mut self, name: &str) -> &mut Ledger {
        self.names.entry(name.to_owned()).or_default()
    }

    /// Returns the number of names that clients used.
    pub(super) fn names(&self) -> usize {
        self.names.len()
    }

    /// Returns user and message of a client's Event; `None` for a summary.
    pub(super) fn content_of(&self, name: &str) -> Option<(&'static str, &'static str)> {
        self.owners.get(name).copied()
    }

    /// Whether the tenant asked for this name.
    pub(super) fn is_claimed(&self, name: &str) -> bool {
        self.claimed.contains(name)
    }

    /// Returns the broken laws. `low` counts only at rest.
    pub(super) fn broken(&self, at_rest: bool) -> Vec<String> {
        if self.is_blind {
            return Vec::new();
        }
        let of = |(user, sums): (&&str, &UserSums)| {
            let UserSums { stored, low, high, .. } = *sums;
            let is_broken = stored > high || at_rest && stored < low;
            is_broken.then(|| format!("{user}: {stored} stored, from outside {low} to {high}"))
        };
        self.sums.iter().filter_map(of).collect()
    }
}
