//! A policy as the engine needs it: checked, defaulted, nothing left to parse.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

/// Which policy: enough to keep a scope apart from that of a policy re-created under the same name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PolicyId {
    /// `namespace/name`, or `name` for a cluster-scoped policy: what metrics and answers show.
    pub display: Arc<str>,
    /// `metadata.uid`.
    pub uid: Arc<str>,
}

impl PolicyId {
    /// Whether it is the id of a ClusterEventPolicy.
    pub fn is_cluster_scoped(&self) -> bool {
        is_cluster_scoped(&self.display)
    }
}

/// Whether a policy that is shown by this name ([`PolicyId::display`]) is a ClusterEventPolicy.
pub fn is_cluster_scoped(display: &str) -> bool {
    !display.contains('/')
}

/// `spec.mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mode {
    /// Writes are held back.
    Enforce,
    /// The same decisions are counted; every write goes through unchanged.
    Observe,
}

/// `spec.rejection`: how a held-back write is refused where the client takes a refusal well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// 409: client-go takes it quietly.
    AlreadyExists,
    /// 403: said aloud by every client.
    Forbidden,
}

/// `spec.series`, when it is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeriesRules {
    /// A series that was not seen for longer is closed.
    pub idle_timeout: Duration,
    /// A series that owes is paid at least this often.
    pub heartbeat_interval: Duration,
}

impl SeriesRules {
    /// What summaries go by where series are switched off: the defaults of the API.
    const DEFAULT: Self =
        Self { idle_timeout: Duration::from_secs(6 * 60), heartbeat_interval: Duration::from_secs(30 * 60) };
}

/// The size and the rate of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketRules {
    /// So many tokens a full bucket holds.
    pub burst: NonZeroU32,
    /// One token comes back after each.
    pub refill_interval: Duration,
}

/// `spec.aggregation`, when it is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AggregationRules {
    /// The distinct message of a group that is the first to be folded into its summary.
    pub max_events: u32,
    /// A group that was silent for longer starts anew.
    pub interval: Duration,
    /// What makes a group.
    pub group_by: GroupBy,
}

/// `spec.aggregation.groupBy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupBy {
    /// Emitter, regarded object, type and reason: client-go's group.
    Object,
    /// Component, kind of the regarded objects, type and reason, across objects and instances.
    Kind,
}

/// `spec.spamFilter`, when it is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpamFilterRules {
    /// Size and rate of each bucket.
    pub bucket: BucketRules,
    /// What has a bucket of its own.
    pub per: Per,
}

/// `spec.spamFilter.per`: the parts of the bucket's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Per {
    /// Who reports.
    pub emitter: bool,
    /// The regarded object, without its field path.
    pub regarding: bool,
    /// The type.
    pub event_type: bool,
    /// The reason.
    pub reason: bool,
}

/// The rules of one policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Which policy.
    pub policy: PolicyId,
    /// Enforce or Observe.
    pub mode: Mode,
    /// Series compaction; `None` when disabled.
    pub series: Option<SeriesRules>,
    /// Aggregation; `None` when disabled.
    pub aggregation: Option<AggregationRules>,
    /// The spam filter; `None` when disabled.
    pub spam_filter: Option<SpamFilterRules>,
    /// The budget of the whole scope; `None` unless given.
    pub budget: Option<BucketRules>,
    /// How a refusal looks.
    pub rejection: Rejection,
}

impl Rules {
    /// How long a series lives and how often it is paid at least, be it a client's or a summary.
    pub(crate) fn timing(&self, summary: bool) -> SeriesRules {
        let mut timing = self.series.unwrap_or(SeriesRules::DEFAULT);
        if let Some(aggregation) = self.aggregation.filter(|_| summary) {
            // A summary must not be forgotten while its group lives: the next one would count from its start.
            timing.idle_timeout = timing.idle_timeout.max(aggregation.interval);
        }
        timing
    }
}

/// A policy as it stands in the cluster, whether it governs anything or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownPolicy {
    /// Which policy.
    pub policy: PolicyId,
    /// Its namespace; `None` for a cluster-scoped policy.
    pub namespace: Option<Arc<str>>,
    /// Its rules; `None` while it is invalid.
    pub rules: Option<Arc<Rules>>,
}

/// What a policy has to do with a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applicability {
    /// Writes there can be governed by it.
    Governs,
    /// No write there is: it is not for that namespace, or policies of higher precedence leave it none.
    NotApplicable,
    /// Nobody knows of such a namespace: it was made a moment ago, or it is gone.
    Unknown,
}

/// The one policy that governs a write.
#[derive(Clone, Copy, Debug)]
pub struct Governing<'p> {
    /// Its rules.
    pub rules: &'p Rules,
    /// The write is in `spec.exempt`.
    pub exempt: bool,
}
