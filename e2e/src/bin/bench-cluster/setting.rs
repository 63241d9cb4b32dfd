//! The admission setting of a measurement.

use serde::Serialize;

/// One configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub(crate) enum Setting {
    /// No webhook.
    None,
    /// A minimal webhook in Go that allows everything.
    Go,
    /// squelch with a policy in Observe.
    Observe,
    /// squelch with a policy in Enforce.
    Enforce,
    /// Upstream's EventRateLimit.
    Limiter,
}

impl Setting {
    /// The title in tables.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::None => "no webhook",
            Self::Go => "minimal Go webhook",
            Self::Observe => "squelch, Observe",
            Self::Enforce => "squelch, Enforce",
            Self::Limiter => "EventRateLimit",
        }
    }

    /// The mode of squelch's policy, if the setting has one.
    pub(crate) fn mode(self) -> Option<&'static str> {
        match self {
            Self::Observe => Some("Observe"),
            Self::Enforce => Some("Enforce"),
            Self::None | Self::Go | Self::Limiter => None,
        }
    }
}
