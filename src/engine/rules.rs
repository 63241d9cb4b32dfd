//! A policy as the engine needs it: checked, defaulted, nothing left to parse.

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

/// The rules of one policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Which policy.
    pub policy: PolicyId,
    /// Enforce or Observe.
    pub mode: Mode,
    /// Series compaction; `None` when disabled.
    pub series: Option<SeriesRules>,
    /// How a refusal looks.
    pub rejection: Rejection,
}

/// A policy as it stands in the cluster, whether it governs anything or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Which policy.
    pub policy: PolicyId,
    /// Its namespace; `None` for a cluster-scoped policy.
    pub namespace: Option<Arc<str>>,
    /// Its rules; `None` while it is invalid.
    pub rules: Option<Arc<Rules>>,
}

/// The one policy that governs a write.
#[derive(Clone, Copy, Debug)]
pub struct Governing<'p> {
    /// Its rules.
    pub rules: &'p Rules,
    /// The write is in `spec.exempt`.
    pub exempt: bool,
}
