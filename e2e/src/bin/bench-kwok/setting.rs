//! What handles the Events.

use anyhow::Result;
use e2e::policy;
use serde::Serialize;
use serde_json::{Value, json};

/// One configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum Setting {
    /// No webhook.
    None,
    /// Upstream's EventRateLimit.
    Limiter,
    /// squelch with the defaults.
    Defaults,
    /// squelch with the example policy for rollouts.
    Rollout,
    /// squelch with one summary for each kind of object.
    ByKind,
}

impl Setting {
    /// In the order of measurement.
    pub(crate) const ALL: [Self; 5] =
        [Self::None, Self::Defaults, Self::Rollout, Self::ByKind, Self::Limiter];

    /// The title in tables.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::None => "no webhook",
            Self::Limiter => "EventRateLimit",
            Self::Defaults => "squelch, defaults",
            Self::Rollout => "squelch, `rollout.yaml`",
            Self::ByKind => "squelch, `groupBy: Kind`",
        }
    }

    /// The spec of squelch's policy, if the setting has one.
    pub(crate) fn spec(self) -> Result<Option<Value>> {
        Ok(match self {
            Self::None | Self::Limiter => None,
            Self::Defaults => Some(json!({})),
            Self::Rollout => Some(policy::in_file("examples/policies/rollout.yaml")?["spec"].take()),
            Self::ByKind => Some(json!({ "aggregation": { "groupBy": "Kind" } })),
        })
    }
}
