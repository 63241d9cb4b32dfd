//! What stands between an Event write and etcd.

use serde::Serialize;

/// One configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub(crate) enum Setting {
    /// Nothing.
    None,
    /// The smallest webhook in Go, which allows everything.
    Go,
    /// squelch with a policy that only counts.
    Observe,
    /// squelch with a policy.
    Enforce,
    /// Upstream's EventRateLimit.
    Limiter,
}

impl Setting {
    /// For tables.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::None => "no webhook",
            Self::Go => "smallest Go webhook",
            Self::Observe => "squelch, Observe",
            Self::Enforce => "squelch, Enforce",
            Self::Limiter => "EventRateLimit",
        }
    }

    /// The mode of squelch's policy, where there is one.
    pub(crate) fn mode(self) -> Option<&'static str> {
        match self {
            Self::Observe => Some("Observe"),
            Self::Enforce => Some("Enforce"),
            Self::None | Self::Go | Self::Limiter => None,
        }
    }
}
