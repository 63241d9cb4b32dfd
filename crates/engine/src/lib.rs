//! The decision engine: decides each Event write, merges repeats, and says which stored Events to flush.
//!
//! The engine does no I/O, reads no clock, writes no logs and knows no Kubernetes types. The same calls give
//! the same answers. Wall-clock time appears only as data ([`Observation::occurred_at`]).

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
pub use decide::masks::{Mask, Masks, MessagePart};
pub use decide::standby::stand_by;
pub use flush::plan::{FlushPlan, Shown, StoredEvent};
pub use flush::tasks::FlushTask;
pub use model::content::Content;
pub use model::counters::{Counters, ScopeCounters};
pub use model::dropped::{Dropped, TopDropped};
pub use model::gauges::{Gauges, PendingLimit, PendingLimitAdmissions};
pub use model::observation::{Api, EventView, ObjectReference, Observation, Operation, is_namespace_name};
pub use model::rules::{
    AggregationRules, Applicability, BucketRules, Exported, Governing, GroupBy, KnownPolicy, Mode, Per,
    PolicyId, Rejection, Rules, SeriesRules, SpamFilterRules, Treatment, WarningPolicy, is_cluster_scoped,
    split_display,
};
pub use model::verdict::{Answer, Denial, Disposition, Stage, Verdict};
pub use state::namespace::NamespaceUids;
pub use text::{sanitise, truncate};
pub use time::Moment;

use decide::keys::{ByKey, Hasher, Key};
use state::capacity::Usage;
use state::namespace::Namespace;
use state::namespace_list::NamespaceList;
use state::retained_counters::GoneNamespaces;
use state::shared_rules::SharedRules;

/// Constants of one engine.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Key of every hash. Random per process, so that no client can construct a collision.
    pub seed: [u64; 2],
    /// Maximum number of live series in all namespaces. The engine remembers up to twice as many Event names.
    pub max_series: usize,
    /// Maximum number of series with pending occurrences. At the limit, a write that would add one more is
    /// admitted.
    pub max_pending_series: usize,
    /// When this engine became active, unless [`Engine::begin`] sets another time. A CREATE of an Event that
    /// first happened before then carries one occurrence, because an earlier process counted the rest.
    pub began: Timestamp,
}

/// Number of shards of the namespace map, each with its own lock. More than the number of threads that decide
/// at once.
const SHARDS: usize = 16;

/// Decides every write and keeps the pending occurrences.
pub struct Engine {
    hasher: Hasher,
    settings: Settings,
    /// Keyed by a hash of the name: comparing names would cost one more cache miss. Boxed, because a map
    /// reserves up to twice the slots that it uses.
    namespaces: DashMap<Key, Box<Namespace>, ByKey>,
    namespace_list: NamespaceList,
    usage: Usage,
    gone_namespaces: GoneNamespaces,
    shared_rules: SharedRules,
    numbers: AtomicU64,
    /// For [`PendingLimit::Series`] and [`PendingLimit::Text`].
    pending_limit_admissions: [AtomicU64; 2],
    phase: AtomicU8,
    /// Microseconds since the Unix epoch.
    began: AtomicI64,
    uids: Mutex<Arc<NamespaceUids>>,
}

impl Engine {
    /// Returns an engine without any state.
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
            pending_limit_admissions: Default::default(),
            phase: AtomicU8::new(flush::phase::DECIDING),
            began: AtomicI64::new(settings.began.as_microsecond()),
            uids: Mutex::default(),
        }
    }

    /// Sets the time at which this engine became active. Call it before the first decision.
    pub fn begin(&self, wall: Timestamp) {
        self.began.store(wall.as_microsecond(), Ordering::Relaxed);
    }

    /// Returns the counters of every scope and of the removed policies that are still retained, in no order.
    /// Locks one namespace at a time.
    pub fn counters(&self) -> Vec<ScopeCounters> {
        let mut counters = Vec::new();
        for name in self.namespace_list.all() {
            let Some(namespace) = self.locked(&name) else { continue };
            counters.extend(namespace.scopes.iter().map(|scope| scope.scope_counters(&namespace.name)));
            counters.extend(namespace.gone_policies.lines());
        }
        counters
    }

    /// Like [`Self::counters`], with one more entry for each cluster-scoped policy: what it counted in deleted
    /// namespaces. The namespace of that entry is empty. The sum over a policy's entries never decreases.
    pub fn all_counters(&self) -> Vec<ScopeCounters> {
        self.gone_namespaces.with(|| self.counters())
    }

    /// Returns the sizes of all tables. Locks no namespace.
    pub fn gauges(&self) -> Gauges {
        let sizes = self.usage.sizes();
        Gauges {
            namespaces: self.namespace_list.len(),
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
            pending_limit_admissions: PendingLimitAdmissions {
                series: self.pending_limit_admissions[0].load(Ordering::Relaxed),
                text: self.pending_limit_admissions[1].load(Ordering::Relaxed),
            },
            series_evicted: sizes.series_evicted as u64,
            contents_evicted: sizes.contents_evicted as u64,
            names_evicted: sizes.names_evicted as u64,
            groups_evicted: sizes.groups_evicted as u64,
            buckets_evicted: sizes.buckets_evicted as u64,
            dropped_evicted: sizes.dropped_evicted as u64,
        }
    }
}
