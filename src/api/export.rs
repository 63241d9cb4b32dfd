//! `spec.export`: which Event writes are exported. `kubectl explain` shows the doc comments of the fields.

#![expect(unreachable_pub, reason = "the derive of KubeSchema repeats each struct inside a function")]

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Export of Event writes to the exporters of squelch.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Export {
    /// The writes that are exported. `None`: none. `Dropped`: those that are filtered, throttled or muted. `Suppressed`: those,
    /// and those that are compacted or aggregated. `All`: all that the policy counts as received. Default: None.
    #[serde(default)]
    pub include: ExportInclude,
}

/// `spec.export.include`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ExportInclude {
    /// None.
    #[default]
    None,
    /// Those that are dropped.
    Dropped,
    /// Those that are dropped, compacted or aggregated.
    Suppressed,
    /// All that are counted.
    All,
}
