//! What a policy does with the Events of some groups, and the policy as an object.

use serde::Serialize;
use serde_json::{Value, json};
use squelch_engine::Mask;

use super::groups::EventGroup;
use crate::api::{self, Clauses, EventType, GroupBy, MAX_LONG_LIST, MAX_SHORT_LIST, Regarding};
use crate::policy;

/// What a policy does with the Events that it governs. Repeats are always compacted.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct GroupTreatment {
    /// `normalize`, in the order of [`Mask::ALL`].
    pub(super) masks: Vec<Mask>,
    /// `series.idleTimeout` of this number of minutes, if it is not the default.
    pub(super) idle_minutes: Option<u32>,
    /// Aggregation with the default limits.
    pub(super) aggregation: Option<AggregationScope>,
    /// What drops Normal Events.
    pub(super) drops: Option<Drops>,
}

/// `aggregation.groupBy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum AggregationScope {
    /// One summary for each object.
    Object,
    /// One summary for each kind.
    Kind,
}

/// What drops Normal Events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Drops {
    /// A spam filter with a bucket for each reason of [`BURST`] tokens. One returns in this number of seconds.
    SpamFilter(u32),
    /// `mute`.
    Mute,
}

/// Tokens of a bucket.
pub(super) const BURST: u32 = 100;

/// Minutes of `idleTimeout` that are tried. Longer ones save no writes: the count of a live series is written after
/// `heartbeatInterval`, 30 minutes.
pub(super) const IDLE_MINUTES: [u32; 3] = [15, 30, 60];

/// Seconds after which a token of the spam filter returns.
pub(super) const REFILL_SECONDS: [u32; 2] = [1, 10];

impl GroupTreatment {
    /// Returns what is tried first: the compaction of repeats with and without these masks, with all idle timeouts, the
    /// simplest first.
    pub(super) fn compacting(masks: &[Mask]) -> Vec<Self> {
        let sets = if masks.is_empty() { vec![Vec::new()] } else { vec![Vec::new(), masks.to_vec()] };
        let with = |masks: Vec<Mask>| {
            let idle = std::iter::once(None).chain(IDLE_MINUTES.map(Some));
            idle.map(move |idle_minutes| Self { masks: masks.clone(), idle_minutes, ..Self::default() })
        };
        sets.into_iter().flat_map(with).collect()
    }

    /// Returns the remaining parts without one of them, for each of them. Masks of longer texts are kept longest.
    pub(super) fn simpler(&self) -> Vec<Self> {
        let mut simpler = Vec::new();
        if self.drops.is_some() {
            simpler.push(Self { drops: None, ..self.clone() });
        }
        if self.aggregation.is_some() {
            simpler.push(Self { aggregation: None, ..self.clone() });
        }
        for at in (0..self.masks.len()).rev() {
            let mut masks = self.masks.clone();
            masks.remove(at);
            simpler.push(Self { masks, ..self.clone() });
        }
        if self.idle_minutes.is_some() {
            simpler.push(Self { idle_minutes: None, ..self.clone() });
        }
        simpler
    }
}

/// A policy to propose, as it is printed.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SuggestedPolicy {
    api_version: &'static str,
    kind: &'static str,
    metadata: SuggestedMetadata,
    spec: SuggestedSpec,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct SuggestedMetadata {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
}

/// The specified fields.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct SuggestedSpec {
    mode: api::Mode,
    #[serde(rename = "match", skip_serializing_if = "Vec::is_empty")]
    matching: Vec<Clauses>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    exclude: Vec<Clauses>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    mute: Vec<Clauses>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    normalize: Vec<api::Mask>,
    #[serde(skip_serializing_if = "Option::is_none")]
    series: Option<Value>,
    aggregation: Value,
    spam_filter: Value,
}

impl SuggestedPolicy {
    /// An `EventPolicy` of this namespace, or a `ClusterEventPolicy`. The groups have one component.
    pub(super) fn new(
        name: &str,
        namespace: Option<&str>,
        matching: &[Clauses],
        treatment: &GroupTreatment,
    ) -> Self {
        let disabled = json!({ "mode": "Disabled" });
        let aggregation = match treatment.aggregation {
            None => disabled.clone(),
            Some(AggregationScope::Object) => json!({ "maxEvents": api::MAX_EVENTS.default }),
            Some(AggregationScope::Kind) => {
                json!({ "groupBy": GroupBy::Kind, "maxEvents": api::MAX_EVENTS.default })
            }
        };
        let spam_filter = match treatment.drops {
            Some(Drops::SpamFilter(seconds)) => {
                json!({ "burst": BURST, "per": [api::Per::Reason], "refillInterval": format!("{seconds}s") })
            }
            _ => disabled,
        };
        let series = treatment.idle_minutes.map(|minutes| json!({ "idleTimeout": idle_timeout(minutes) }));
        Self {
            api_version: "squelch.dev/v1alpha1",
            kind: policy::kind_of(namespace),
            metadata: SuggestedMetadata { name: name.to_owned(), namespace: namespace.map(str::to_owned) },
            spec: SuggestedSpec {
                mode: api::Mode::Enforce,
                matching: matching.to_vec(),
                exclude: of_any_component(matching),
                mute: if treatment.drops == Some(Drops::Mute) { matching.to_vec() } else { Vec::new() },
                normalize: treatment.masks.iter().map(|mask| field(*mask)).collect(),
                series,
                aggregation,
                spam_filter,
            },
        }
    }

    /// Returns namespace and name, as a replay prints them.
    pub(super) fn display(&self) -> String {
        let SuggestedMetadata { name, namespace } = &self.metadata;
        namespace.as_ref().map_or_else(|| name.clone(), |namespace| format!("{namespace}/{name}"))
    }
}

/// Formats `15m`, `1h`.
pub(super) fn idle_timeout(minutes: u32) -> String {
    if minutes.is_multiple_of(60) { format!("{}h", minutes / 60) } else { format!("{minutes}m") }
}

/// The entry of `normalize`.
fn field(mask: Mask) -> api::Mask {
    match mask {
        Mask::ObjectNames => api::Mask::ObjectNames,
        Mask::Uuids => api::Mask::Uuids,
        Mask::Ips => api::Mask::Ips,
        Mask::Durations => api::Mask::Durations,
        Mask::Quantities => api::Mask::Quantities,
        Mask::Hashes => api::Mask::Hashes,
        Mask::Numbers => api::Mask::Numbers,
    }
}

/// Returns the entries of `match` for these groups, up to the limit of a policy for each list. Groups are of one
/// component.
pub(super) fn selections(groups: &[&EventGroup]) -> Vec<Vec<Clauses>> {
    // The reasons of each kind and type; then kinds with the same reasons share an entry.
    let mut reasons = Vec::<(&str, bool, Vec<&str>)>::new();
    let mut groups = groups.to_vec();
    groups.sort();
    for group in groups {
        match reasons
            .iter_mut()
            .find(|(kind, warning, _)| *kind == group.kind && *warning == group.is_warning)
        {
            Some((_, _, reasons)) => reasons.push(&group.reason),
            None => reasons.push((&group.kind, group.is_warning, vec![&group.reason])),
        }
    }
    let mut entries = Vec::<(Vec<&str>, bool, Vec<&str>)>::new();
    for (kind, is_warning, reasons) in reasons {
        let same = |entry: &&mut (Vec<&str>, bool, Vec<&str>)| {
            entry.1 == is_warning && entry.2 == reasons && entry.0.len() < MAX_SHORT_LIST
        };
        match entries.iter_mut().find(same) {
            Some((kinds, ..)) => kinds.push(kind),
            None => entries.push((vec![kind], is_warning, reasons)),
        }
    }
    let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    let parts = entries.iter().flat_map(|(kinds, is_warning, reasons)| {
        reasons.chunks(MAX_LONG_LIST).map(move |reasons| (kinds, *is_warning, reasons))
    });
    let clauses = parts.map(|(kinds, is_warning, reasons)| Clauses {
        types: vec![if is_warning { EventType::Warning } else { EventType::Normal }],
        reasons: owned(reasons),
        regarding: owned(kinds)
            .into_iter()
            .map(|kind| Regarding { kind: Some(kind), ..Regarding::default() })
            .collect(),
        ..Clauses::default()
    });
    clauses.collect::<Vec<_>>().chunks(MAX_SHORT_LIST).map(<[Clauses]>::to_vec).collect()
}

/// Returns the entry of `exclude` for Events without a component, which no entry of `match` can select. The policy must
/// not govern what other components report with the same kind, type and reason.
fn of_any_component(matching: &[Clauses]) -> Vec<Clauses> {
    let names_none = matching.iter().all(|clauses| clauses.reporting_components.is_empty());
    if matching.is_empty() || !names_none {
        return Vec::new();
    }
    vec![Clauses { reporting_components: vec!["?*".to_owned()], ..Clauses::default() }]
}

/// Adds the component to each entry.
pub(super) fn of_component(mut matching: Vec<Clauses>, component: &str) -> Vec<Clauses> {
    if !component.is_empty() {
        matching.iter_mut().for_each(|clauses| clauses.reporting_components = vec![component.to_owned()]);
    }
    matching
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::fixtures::id;
    use crate::policy::{Certainty, KnownFields, compile};

    fn group(kind: &str, is_warning: bool, reason: &str) -> EventGroup {
        EventGroup { component: "c".to_owned(), kind: kind.to_owned(), is_warning, reason: reason.to_owned() }
    }

    fn spec(treatment: &GroupTreatment) -> Value {
        let policy = SuggestedPolicy::new("p", Some("shop"), &[], treatment);
        serde_json::to_value(policy).unwrap()["spec"].clone()
    }

    #[test]
    fn the_simplest_compaction_is_tried_first() {
        let tried = GroupTreatment::compacting(&[]);
        assert_eq!(tried[0], GroupTreatment::default());
        assert_eq!(tried.len(), 4);
        let tried = GroupTreatment::compacting(&[Mask::Durations]);
        assert_eq!(tried.len(), 8);
        assert!(tried[..4].iter().all(|one| one.masks.is_empty()));
        assert_eq!((&tried[7].masks[..], tried[7].idle_minutes), (&[Mask::Durations][..], Some(60)));
    }

    #[test]
    fn each_part_is_left_out_once() {
        let full = GroupTreatment {
            masks: vec![Mask::Durations, Mask::Numbers],
            idle_minutes: Some(15),
            aggregation: Some(AggregationScope::Object),
            drops: Some(Drops::SpamFilter(1)),
        };
        let simpler = full.simpler();
        assert_eq!(simpler.len(), 5);
        // The mask of the shorter texts goes first.
        assert_eq!(simpler[2].masks, [Mask::Durations]);
        assert!(simpler.iter().all(|one| *one != full));
        assert_eq!(GroupTreatment::default().simpler(), []);
    }

    #[test]
    fn stages_without_an_effect_are_disabled() {
        let disabled = json!({ "mode": "Disabled" });
        let plain = spec(&GroupTreatment::default());
        assert_eq!((&plain["aggregation"], &plain["spamFilter"]), (&disabled, &disabled));
        assert_eq!((&plain["series"], &plain["normalize"]), (&Value::Null, &Value::Null));
        let by_kind = GroupTreatment {
            masks: vec![Mask::Uuids],
            idle_minutes: Some(60),
            aggregation: Some(AggregationScope::Kind),
            drops: Some(Drops::SpamFilter(10)),
        };
        let spec = spec(&by_kind);
        assert_eq!(spec["normalize"], json!(["UUIDs"]));
        assert_eq!(spec["series"], json!({ "idleTimeout": "1h" }));
        assert_eq!(spec["aggregation"], json!({ "groupBy": "Kind", "maxEvents": 10 }));
        assert_eq!(spec["spamFilter"], json!({ "burst": 100, "per": ["Reason"], "refillInterval": "10s" }));
    }

    #[test]
    fn kinds_with_the_same_reasons_share_an_entry() {
        let groups = [
            group("Pod", false, "Pulled"),
            group("Pod", false, "Created"),
            group("Job", false, "Created"),
            group("Job", false, "Pulled"),
            group("Pod", true, "BackOff"),
        ];
        let found = selections(&groups.iter().collect::<Vec<_>>());
        let found = serde_json::to_value(of_component(found[0].clone(), "c")).unwrap();
        let expected = json!([
            { "types": ["Normal"], "reasons": ["Created", "Pulled"], "reportingComponents": ["c"],
              "regarding": [{ "kind": "Job" }, { "kind": "Pod" }] },
            { "types": ["Warning"], "reasons": ["BackOff"], "reportingComponents": ["c"],
              "regarding": [{ "kind": "Pod" }] },
        ]);
        assert_eq!(found, expected);
    }

    #[test]
    fn an_entry_has_at_most_the_reasons_that_a_policy_allows() {
        let groups: Vec<EventGroup> = (0..40).map(|n| group("Pod", false, &format!("R{n:02}"))).collect();
        let found = selections(&groups.iter().collect::<Vec<_>>());
        let reasons: Vec<_> = found.iter().flatten().map(|clauses| clauses.reasons.len()).collect();
        assert_eq!(reasons, [32, 8]);
        let policy = SuggestedPolicy::new("p", Some("shop"), &found[0], &GroupTreatment::default());
        let spec = serde_json::to_value(policy).unwrap()["spec"].clone();
        compile(id("shop", "p"), &serde_json::from_value(spec).unwrap()).unwrap();
    }

    #[test]
    fn a_policy_for_events_without_a_component_governs_no_others() {
        let group = EventGroup { component: String::new(), ..group("Pod", false, "Pulled") };
        let matching = of_component(selections(&[&group]).concat(), "");
        let muted = GroupTreatment { drops: Some(Drops::Mute), ..GroupTreatment::default() };
        let policy = SuggestedPolicy::new("p", Some("shop"), &matching, &muted);
        let spec = serde_json::to_value(policy).unwrap()["spec"].clone();
        let policy = compile(id("shop", "p"), &serde_json::from_value(spec).unwrap()).unwrap();
        let governs = |component| {
            let known = KnownFields {
                event_type: Some(EventType::Normal),
                reason: Some("Pulled"),
                kind: Some("Pod"),
                component: Some(component),
                ..KnownFields::default()
            };
            policy.governs_known(&known).certainty
        };
        assert_eq!((governs(""), governs("kubelet")), (Certainty::Always, Certainty::Never));
    }

    #[test]
    fn many_entries_are_several_policies() {
        let groups: Vec<EventGroup> =
            (0..20).map(|n| group(&format!("K{n}"), false, &format!("R{n}"))).collect();
        let found = selections(&groups.iter().collect::<Vec<_>>());
        assert_eq!(found.iter().map(Vec::len).collect::<Vec<_>>(), [16, 4]);
    }
}
