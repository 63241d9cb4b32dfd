//! What the engine answers.

/// What became of an occurrence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Disposition {
    /// Went on to be stored as the client wrote it.
    Admitted,
    /// Folded into its series.
    Compacted,
    /// Folded into the summary of its group.
    Aggregated,
    /// Dropped by the spam filter.
    Filtered,
    /// Dropped by the budget.
    Throttled,
    /// Let through undecided.
    FailedOpen,
}

impl Disposition {
    /// Every disposition, in the order of the law of conservation.
    pub const ALL: [Self; 6] = [
        Self::Admitted,
        Self::Compacted,
        Self::Aggregated,
        Self::Filtered,
        Self::Throttled,
        Self::FailedOpen,
    ];

    /// Whether the occurrence is told nowhere: a limit dropped it. What is compacted or aggregated is in the count
    /// of a stored Event.
    pub fn is_dropped(self) -> bool {
        matches!(self, Self::Filtered | Self::Throttled)
    }

    /// The word used in metrics, answers and reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Admitted => "admitted",
            Self::Compacted => "compacted",
            Self::Aggregated => "aggregated",
            Self::Filtered => "filtered",
            Self::Throttled => "throttled",
            Self::FailedOpen => "failed_open",
        }
    }
}

/// The step that ended a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stage {
    /// squelch's own write.
    Own,
    /// No policy governs it.
    NoPolicy,
    /// A dry run: nothing will be stored.
    DryRun,
    /// An edit, not an occurrence, or a stale UPDATE, which the API server refuses.
    Edit,
    /// `spec.exempt`.
    Exempt,
    /// Series compaction.
    Series,
    /// Aggregation.
    Aggregation,
    /// The spam filter.
    SpamFilter,
    /// The budget.
    Budget,
    /// Nothing held it back.
    Admit,
    /// The engine is draining, or not the active one: only what would lower a stored count is held back.
    Standby,
}

impl Stage {
    /// The word used in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::NoPolicy => "no-policy",
            Self::DryRun => "dry-run",
            Self::Edit => "edit",
            Self::Exempt => "exempt",
            Self::Series => "series",
            Self::Aggregation => "aggregation",
            Self::SpamFilter => "spam-filter",
            Self::Budget => "budget",
            Self::Admit => "admit",
            Self::Standby => "standby",
        }
    }
}

/// The HTTP status with which a write is denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Denial {
    /// 409 `AlreadyExists`: client-go gives up quietly.
    AlreadyExists,
    /// 403 `Forbidden`: client-go says so once and gives up.
    Forbidden,
}

/// What the emitter is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Allowed, unchanged.
    Allow,
    /// Allowed, under this name in place of `generateName`.
    AllowNamed(String),
    /// Denied.
    Deny(Denial),
    /// Allowed, and patched back to `oldObject`, so that nothing is stored.
    Restore,
}

/// The decision on one write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// What became of its occurrences; `None`: it passed uncounted.
    pub disposition: Option<Disposition>,
    /// The step that ended the decision.
    pub stage: Stage,
    /// How many occurrences it carried.
    pub occurrences: i64,
    /// What the emitter is answered. In Observe always [`Answer::Allow`].
    pub answer: Answer,
}

impl Verdict {
    /// Passes, uncounted, for the reason that `stage` names.
    pub fn passed(stage: Stage) -> Self {
        Self { disposition: None, stage, occurrences: 0, answer: Answer::Allow }
    }
}
