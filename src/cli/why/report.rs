//! The output of `squelch why`. Pure.

use serde::Serialize;

use super::conclusion::Findings;
use super::drops::{ReportedSuppression, suppression};
use super::facts::{Assumptions, WhyFacts};
use super::object::WhyObject;
use super::stored::{ObjectEvents, stored};
use super::verdict::{WhyPolicy, policies};

/// The answer.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WhyReport {
    /// The version of this structure. It rises with each incompatible change.
    pub schema_version: u32,
    /// The object.
    pub object: WhyObject,
    /// What the user assumes about the Events.
    pub assumed: Assumptions,
    /// Whether the CustomResourceDefinitions of squelch are installed, as far as the user may know.
    pub installed: bool,
    /// The answer in a few sentences.
    pub conclusion: String,
    /// What to do next.
    pub next: Vec<String>,
    /// The rights that the user lacks, and what is missing because of that.
    pub missing_rights: Vec<String>,
    /// Lists that were cut.
    pub truncated: Vec<&'static str>,
    /// The stored Events. `None` if they could not be listed.
    pub stored_events: Option<ObjectEvents>,
    /// The policies in order of precedence. `None` if they could not be listed.
    pub policies: Option<Vec<WhyPolicy>>,
    /// What was suppressed. `None` if the report could not be read.
    pub report: Option<ReportedSuppression>,
}

impl WhyReport {
    /// Returns the answer to what was read.
    pub(super) fn of(facts: &WhyFacts) -> Self {
        let (stored_events, policies, report) = (stored(facts), policies(facts), suppression(facts));
        let findings = Findings {
            facts,
            stored: stored_events.as_ref(),
            policies: policies.as_deref(),
            suppression: report.as_ref(),
        };
        let cut = [
            ("events", facts.events.as_ref().is_ok_and(|list| !list.complete)),
            ("eventpolicies", facts.event_policies.as_ref().is_ok_and(|list| !list.complete)),
            ("clustereventpolicies", facts.cluster_policies.as_ref().is_ok_and(|list| !list.complete)),
        ];
        Self {
            schema_version: 1,
            object: facts.object.clone(),
            assumed: facts.assumed.clone(),
            installed: !facts.not_installed(),
            conclusion: findings.conclusion(),
            next: findings.next(),
            missing_rights: facts.missing(),
            truncated: cut.into_iter().filter(|(_, is_cut)| *is_cut).map(|(list, _)| list).collect(),
            stored_events,
            policies,
            report,
        }
    }
}
