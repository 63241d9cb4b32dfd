//! The answers of the engine.

/// The fate of an occurrence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Disposition {
    /// Passed to the API server as the client wrote it.
    Admitted,
    /// Merged into its series.
    Compacted,
    /// Merged into the summary of its group.
    Aggregated,
    /// Dropped by the spam filter.
    Filtered,
    /// Dropped by the budget.
    Throttled,
    /// Dropped because it matches `spec.mute`.
    Muted,
    /// Passed without a decision.
    FailedOpen,
}

impl Disposition {
    /// All dispositions. Their sum is what was received.
    pub const ALL: [Self; 7] = [
        Self::Admitted,
        Self::Compacted,
        Self::Aggregated,
        Self::Filtered,
        Self::Throttled,
        Self::Muted,
        Self::FailedOpen,
    ];

    /// Whether the policy dropped the occurrence, so that no stored Event counts it.
    pub fn is_dropped(self) -> bool {
        matches!(self, Self::Filtered | Self::Throttled | Self::Muted)
    }

    /// Whether the occurrence is missing in what the client wrote: it was merged or dropped.
    pub fn is_suppressed(self) -> bool {
        !matches!(self, Self::Admitted | Self::FailedOpen)
    }

    /// Returns the name used in metrics, answers and reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Admitted => "admitted",
            Self::Compacted => "compacted",
            Self::Aggregated => "aggregated",
            Self::Filtered => "filtered",
            Self::Throttled => "throttled",
            Self::Muted => "muted",
            Self::FailedOpen => "failed_open",
        }
    }
}

/// The stage that made the decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stage {
    /// A write of squelch itself.
    Own,
    /// No policy governs the write.
    NoPolicy,
    /// A dry run.
    DryRun,
    /// An edit instead of an occurrence, or a stale UPDATE that the API server refuses.
    Edit,
    /// `spec.exempt`.
    Exempt,
    /// `spec.mute`.
    Mute,
    /// Series compaction.
    Series,
    /// Aggregation.
    Aggregation,
    /// The spam filter.
    SpamFilter,
    /// The budget.
    Budget,
    /// No stage refused it.
    Admit,
    /// The engine drains or is a standby. It only refuses writes that would lower a stored count.
    Standby,
}

impl Stage {
    /// Returns the name used in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::NoPolicy => "no-policy",
            Self::DryRun => "dry-run",
            Self::Edit => "edit",
            Self::Exempt => "exempt",
            Self::Mute => "mute",
            Self::Series => "series",
            Self::Aggregation => "aggregation",
            Self::SpamFilter => "spam-filter",
            Self::Budget => "budget",
            Self::Admit => "admit",
            Self::Standby => "standby",
        }
    }
}

/// The HTTP status of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Denial {
    /// 409 `AlreadyExists`: client-go drops the Event silently.
    AlreadyExists,
    /// 403 `Forbidden`: client-go logs once and drops the Event.
    Forbidden,
}

/// The answer to the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Allowed unchanged.
    Allow,
    /// Allowed with this name instead of `generateName`.
    AllowNamed(String),
    /// Denied.
    Deny(Denial),
    /// Allowed and patched back to `oldObject`, so that nothing changes.
    Restore,
}

/// The decision on one write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The disposition of its occurrences; `None` if it passed uncounted.
    pub disposition: Option<Disposition>,
    /// The stage that decided.
    pub stage: Stage,
    /// Number of occurrences that the write carries.
    pub occurrences: i64,
    /// The answer to the client. Always [`Answer::Allow`] in Observe.
    pub answer: Answer,
}

impl Verdict {
    /// Returns a verdict that lets the write pass uncounted.
    pub fn passed(stage: Stage) -> Self {
        Self { disposition: None, stage, occurrences: 0, answer: Answer::Allow }
    }
}
