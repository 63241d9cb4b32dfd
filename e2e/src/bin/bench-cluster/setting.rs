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
    /// squelch with a policy in Enforce, which sends each write to an OpenTelemetry collector.
    Export,
    /// The same while the collector does not run.
    ExportAway,
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
            Self::Export => "squelch, collector runs",
            Self::ExportAway => "squelch, collector is away",
        }
    }

    /// The mode of squelch's policy, if the setting has one.
    pub(crate) fn mode(self) -> Option<&'static str> {
        match self {
            Self::Observe => Some("Observe"),
            Self::Enforce | Self::Export | Self::ExportAway => Some("Enforce"),
            Self::None | Self::Go | Self::Limiter => None,
        }
    }

    /// Whether a promise compares it, in every round.
    pub(crate) fn has_promise(self) -> bool {
        self.exports() || matches!(self, Self::None | Self::Enforce)
    }

    /// Whether squelch exports.
    pub(crate) fn exports(self) -> bool {
        matches!(self, Self::Export | Self::ExportAway)
    }
}
