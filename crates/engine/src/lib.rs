//! The pure core: what becomes of a write, what is owed, and when it is to be paid.
//!
//! No I/O, no clock of its own, no logging, no Kubernetes types: the same inputs give the same outputs. Wall
//! time appears only as data ([`Observation::occurred_at`]).

mod decide;
mod flush;
mod model;
mod state;
mod store;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod text;
mod time;

use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use dashmap::DashMap;
use jiff::Timestamp;

pub use decide::keys::AGGREGATE_PREFIX;
pub use decide::standby::stand_by;
pub use flush::plan::{FlushPlan, StoredEvent};
pub use flush::tasks::FlushTask;
pub use model::content::Content;
pub use model::counters::{Counters, ScopeCounters};
pub use model::dropped::{Dropped, TopDropped};
pub use model::gauges::Gauges;
pub use model::observation::{Api, EventView, ObjectReference, Observation, Operation, is_namespace_name};
pub use model::rules::{
    AggregationRules, Applicability, BucketRules, Governing, GroupBy, KnownPolicy, Mode, Per, PolicyId,
    Rejection, Rules, SeriesRules, SpamFilterRules, is_cluster_scoped,
};
pub use model::verdict::{Answer, Denial, Disposition, Stage, Verdict};
pub use state::namespace::NamespaceUids;
pub use text::sanitise;
pub use time::Moment;

use decide::keys::{ByKey, Hasher, Key};
use state::capacity::Usage;
use state::namespace::Namespace;
use state::namespace_list::NamespaceList;
use state::retained_counters::GoneNamespaces;
use state::shared_rules::SharedRules;

/// What an engine is made with.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The key of every hash: random per process, so that nobody outside can aim at a collision.
    pub seed: [u64; 2],
    /// How many series may live in all; as many names are remembered beyond them.
    pub max_series: usize,
    /// How many series may owe in all: a write that would make one more owe is admitted.
    pub max_pending_series: usize,
    /// When this engine began to decide, unless [`Engine::begin`] says another time. A CREATE of something that
    /// happened first before carries one occurrence: a former life has seen the rest.
    pub began: Timestamp,
}

/// Namespaces fall into so many parts, each with a lock of its own: more than threads that decide at one moment.
const SHARDS: usize = 16;

/// Decides every write, and knows what is owed.
pub struct Engine {
    hasher: Hasher,
    settings: Settings,
    /// By a hash of their names: to compare those would be one look more at what is in no cache. In boxes: a map
    /// keeps room for up to twice as many as there are.
    namespaces: DashMap<Key, Box<Namespace>, ByKey>,
    namespace_list: NamespaceList,
    usage: Usage,
    gone_namespaces: GoneNamespaces,
    shared_rules: SharedRules,
    numbers: AtomicU64,
    pending_refused: AtomicU64,
    phase: AtomicU8,
    /// Microseconds of the Unix epoch.
    began: AtomicI64,
    uids: Mutex<Arc<NamespaceUids>>,
}

impl Engine {
    /// An engine that knows nothing yet.
    pub fn new(settings: Settings) -> Self {
        let hasher = Hasher::new(settings.seed);
        Self {
            namespaces: DashMap::with_hasher_and_shard_amount(ByKey, SHARDS),
            hasher,
            settings,
            namespace_list: NamespaceList::default(),
            usage: Usage::default(),
            gone_namespaces: GoneNamespaces::default(),
            shared_rules: SharedRules::default(),
            numbers: AtomicU64::new(0),
            pending_refused: AtomicU64::new(0),
            phase: AtomicU8::new(flush::phase::DECIDING),
            began: AtomicI64::new(settings.began.as_microsecond()),
            uids: Mutex::default(),
        }
    }

    /// It begins to decide now: before its first decision.
    pub fn begin(&self, wall: Timestamp) {
        self.began.store(wall.as_microsecond(), Ordering::Relaxed);
    }

    /// Every line of the accounts, in no order. Namespaces are locked one at a time.
    pub fn counters(&self) -> Vec<ScopeCounters> {
        let mut counters = Vec::new();
        for name in self.namespace_list.all() {
            let Some(namespace) = self.locked(&name) else { continue };
            counters.extend(namespace.scopes.iter().map(|scope| scope.scope_counters(&namespace.name)));
            counters.extend(namespace.gone_policies.lines());
        }
        counters
    }

    /// The same, and what cluster-scoped policies have counted in namespaces that are gone: one more line for each,
    /// whose namespace is empty. The sum of a policy's lines never falls.
    pub fn all_counters(&self) -> Vec<ScopeCounters> {
        self.gone_namespaces.with(|| self.counters())
    }

    /// How much it holds. Locks nothing.
    pub fn gauges(&self) -> Gauges {
        let sizes = self.usage.sizes();
        Gauges {
            series: sizes.series,
            names: sizes.names,
            groups: sizes.groups,
            buckets: sizes.buckets,
            dropped: sizes.dropped,
            text: sizes.text,
            fingerprints: sizes.fingerprints,
            ended: sizes.ended,
            ended_evicted: sizes.ended_evicted as u64,
            pending_occurrences: sizes.pending_occurrences as u64,
            pending_series: sizes.pending_series,
            pending_refused: self.pending_refused.load(Ordering::Relaxed),
            series_evicted: sizes.series_evicted as u64,
            contents_evicted: sizes.contents_evicted as u64,
            names_evicted: sizes.names_evicted as u64,
            groups_evicted: sizes.groups_evicted as u64,
            buckets_evicted: sizes.buckets_evicted as u64,
            dropped_evicted: sizes.dropped_evicted as u64,
        }
    }
}
