//! Compiled policies: validated and defaulted.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use crate::text::{cut, truncate};
use crate::{Api, Disposition, EventView, Masks, Observation};

/// Identifies a policy. The uid distinguishes a policy from a later one of the same name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PolicyId {
    /// `namespace/name`, or `name` for a cluster-scoped policy. Shown in metrics and answers.
    pub display: Arc<str>,
    /// `metadata.uid`.
    pub uid: Arc<str>,
}

impl PolicyId {
    /// Whether it identifies a ClusterEventPolicy.
    pub fn is_cluster_scoped(&self) -> bool {
        is_cluster_scoped(&self.display)
    }
}

/// The namespace, if any, and the name of a policy displayed by this name ([`PolicyId::display`]).
pub fn split_display(display: &str) -> (Option<&str>, &str) {
    display.split_once('/').map_or((None, display), |(namespace, name)| (Some(namespace), name))
}

/// Whether a policy displayed by this name ([`PolicyId::display`]) is a ClusterEventPolicy.
pub fn is_cluster_scoped(display: &str) -> bool {
    split_display(display).0.is_none()
}

/// `spec.mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mode {
    /// Refuses or changes writes according to the decision.
    Enforce,
    /// Counts the same decisions and lets every write pass unchanged.
    Observe,
}

impl Mode {
    /// Its value in `spec.mode`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Enforce => "Enforce",
            Self::Observe => "Observe",
        }
    }
}

/// `spec.warningPolicy`: whether squelch may drop Warnings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WarningPolicy {
    /// Spam filter, budget and mute drop Normal Events only. Warnings take no token.
    NeverDrop,
    /// They treat Warnings like Normal Events.
    Limit,
}

/// `spec.export.include`: the writes that are exported. The engine does not read it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Exported {
    /// None.
    #[default]
    None,
    /// Those that are dropped.
    Dropped,
    /// Those that are suppressed: merged or dropped.
    Suppressed,
    /// All that are counted.
    All,
}

impl Exported {
    /// Whether writes with this disposition are exported.
    pub fn includes(self, disposition: Disposition) -> bool {
        match self {
            Self::None => false,
            Self::Dropped => disposition.is_dropped(),
            Self::Suppressed => disposition.is_suppressed(),
            Self::All => true,
        }
    }
}

/// `spec.rejection`: how a write is refused where its client accepts a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// 409: client-go drops the Event silently.
    AlreadyExists,
    /// 403: every client logs it.
    Forbidden,
}

/// `spec.series`, if enabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeriesRules {
    /// A series without a write for longer than this is closed.
    pub idle_timeout: Duration,
    /// Maximum time between two flushes of a series with pending occurrences.
    pub heartbeat_interval: Duration,
}

impl SeriesRules {
    /// Timing of summaries if series are disabled: the defaults of the API.
    const DEFAULT: Self =
        Self { idle_timeout: Duration::from_secs(6 * 60), heartbeat_interval: Duration::from_secs(30 * 60) };
}

/// Size and refill rate of a token bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketRules {
    /// Number of tokens in a full bucket.
    pub burst: NonZeroU32,
    /// Time until one token returns.
    pub refill_interval: Duration,
}

/// `spec.aggregation`, if enabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AggregationRules {
    /// Ordinal of the first distinct message of a group that is merged into the summary.
    pub max_events: u32,
    /// A group without a write for longer than this is reset.
    pub idle_timeout: Duration,
    /// The fields that define a group.
    pub group_by: GroupBy,
}

/// `spec.aggregation.groupBy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupBy {
    /// Emitter, regarding object, type and reason: the group of client-go.
    Object,
    /// Component, kind of the regarding objects, type and reason, across objects and instances.
    Kind,
}

/// `spec.spamFilter`, if enabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpamFilterRules {
    /// Size and rate of each bucket.
    pub bucket: BucketRules,
    /// The fields that select the bucket.
    pub per: Per,
}

/// `spec.spamFilter.per`: the fields of the bucket's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Per {
    /// The emitter.
    pub emitter: bool,
    /// The regarding object without its field path.
    pub object: bool,
    /// The type.
    pub event_type: bool,
    /// The reason.
    pub reason: bool,
}

/// The rules of one policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// The policy.
    pub policy: PolicyId,
    /// Enforce or Observe.
    pub mode: Mode,
    /// Whether Warnings may be dropped.
    pub warning_policy: WarningPolicy,
    /// Parts of messages that do not distinguish Events.
    pub normalize: Masks,
    /// Maximum length of a message in bytes. Longer ones are cut, and compared as they are stored; see
    /// [`Self::max_message`].
    pub max_message_bytes: Option<usize>,
    /// Series compaction; `None` if disabled.
    pub series: Option<SeriesRules>,
    /// Aggregation; `None` if disabled.
    pub aggregation: Option<AggregationRules>,
    /// The spam filter; `None` if disabled.
    pub spam_filter: Option<SpamFilterRules>,
    /// The budget of the scope; `None` if not set.
    pub budget: Option<BucketRules>,
    /// How writes are refused.
    pub rejection: Rejection,
    /// The writes that are exported.
    pub export: Exported,
}

impl Rules {
    /// Returns the maximum length of a message that is written through this API. Through events.k8s.io a message is never
    /// cut: the API server accepts no other message later, and a client that still has the whole one would fail while
    /// squelch does not decide.
    pub(crate) fn max_message(&self, api: Api) -> Option<usize> {
        self.max_message_bytes.filter(|_| api == Api::Core)
    }

    /// Returns the message as it is stored: cut at a character boundary if it is too long.
    pub fn stored_message<'a>(&self, api: Api, message: &'a str) -> &'a str {
        self.max_message(api).map_or(message, |max| truncate(message, max))
    }

    /// Returns the write with the message as it is stored; `None` if that is the same.
    pub(crate) fn with_stored_message<'a>(&self, write: &Observation<'a>) -> Option<Observation<'a>> {
        let length = self.stored_message(write.api, &write.event.message).len();
        (length < write.event.message.len()).then(|| {
            let mut shorter = write.clone();
            cut(&mut shorter.event.message, length);
            shorter
        })
    }

    /// Whether spam filter, budget and mute may drop the Event.
    pub(crate) fn may_drop(&self, event: &EventView<'_>) -> bool {
        self.warning_policy == WarningPolicy::Limit || !event.is_warning()
    }

    /// Returns idle timeout and heartbeat interval of a client's series or of a summary.
    pub(crate) fn timing(&self, summary: bool) -> SeriesRules {
        let mut timing = self.series.unwrap_or(SeriesRules::DEFAULT);
        if let Some(aggregation) = self.aggregation.filter(|_| summary) {
            // A summary must live as long as its group: its successor would start to count from zero.
            timing.idle_timeout = timing.idle_timeout.max(aggregation.idle_timeout);
        }
        timing
    }
}

/// A policy that exists in the cluster, whether it governs writes or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownPolicy {
    /// The policy.
    pub policy: PolicyId,
    /// Its namespace; `None` if cluster-scoped.
    pub namespace: Option<Arc<str>>,
    /// Its rules; `None` if it is invalid.
    pub rules: Option<Arc<Rules>>,
}

/// The relation of a policy to a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applicability {
    /// The policy can govern writes there.
    Governs,
    /// The policy governs no write there: it does not select the namespace, or policies of higher precedence
    /// do.
    NotApplicable,
    /// The namespace is unknown: just created, or deleted.
    Unknown,
}

/// The policy that governs a write.
#[derive(Clone, Copy, Debug)]
pub struct Governing<'p> {
    /// Its rules.
    pub rules: &'p Rules,
    /// What the lists `exempt` and `mute` say about the write.
    pub treatment: Treatment,
}

/// What a policy does with a write that it governs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Treatment {
    /// The stages decide.
    Stages,
    /// It matches an entry of `spec.exempt`: it is counted and never suppressed.
    Exempt,
    /// It matches an entry of `spec.mute` and none of `spec.exempt`: it is dropped, unless it is a Warning that the
    /// policy never drops.
    Mute,
}
