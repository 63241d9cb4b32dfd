//! Policies from the treatments of groups, with the results of a last replay.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use squelch_engine::{Mask, Observation};

use super::groups::{BusiestGroups, EventGroup, GroupCounts, GroupDetails, is_governable};
use super::search::{Candidate, PolicyFigures, list, search};
use super::treatment::{
    AggregationScope, BURST, Drops, GroupTreatment, SuggestedPolicy, idle_timeout, of_component, selections,
};
use crate::replay::{ClientBehavior, Error, ReplayInput, ReplayReport, clean, plural, replayed};

/// Maximum number of groups that are examined. Each is a policy in the replays of the search, of which 64 can be in force
/// in a namespace.
const MAX_EXAMINED: usize = 40;

/// Minimum saving of a policy by default, in percent of all writes.
const MIN_SAVED_PERCENT: u64 = 1;

/// Minimum saving of a policy by default, in writes.
const MIN_SAVED: u64 = 20;

/// Maximum characters of a text in a sentence.
const MAX_SHOWN: usize = 120;

/// Maximum number of groups that are listed if nothing is suggested.
const MAX_LISTED: usize = 5;

/// What may be suggested.
#[derive(Clone, Debug)]
pub(super) struct SuggestLimits {
    /// The only namespace whose Events are examined.
    pub(super) namespace: Option<String>,
    /// Minimum saving of a policy in writes.
    pub(super) min_saved: Option<u64>,
    /// Whether Normal Events may be muted.
    pub(super) allow_mute: bool,
    /// Behaviour of the clients.
    pub(super) clients: ClientBehavior,
}

/// The result. `-o json` prints this structure.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Suggestions {
    /// The version of this structure. It rises with each incompatible change.
    schema_version: u32,
    /// The input, as a sentence.
    pub(super) input: String,
    /// Minimum saving of a policy in writes.
    pub(super) min_saved: u64,
    /// The policies, ordered by component and namespace.
    pub(super) policies: Vec<Suggestion>,
    /// The results of all policies together, with the writes that none of them governs.
    pub(super) total: PolicyFigures,
    /// Writes to etcd with the policies if the clients of a trace behave as recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) writes_with_recorded_clients: Option<u64>,
    /// The groups with the most writes, and the results of the best policy for each.
    pub(super) groups: Vec<ExaminedGroup>,
    /// Notes on the accuracy.
    pub(super) notes: Vec<String>,
}

/// A proposed policy.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Suggestion {
    /// Namespace and name.
    pub(super) name: String,
    pub(super) policy: SuggestedPolicy,
    /// Sentences.
    pub(super) reasons: Vec<String>,
    pub(super) figures: PolicyFigures,
}

/// A group that was examined.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ExaminedGroup {
    pub(super) component: String,
    pub(super) kind: String,
    #[serde(rename = "type")]
    pub(super) event_type: &'static str,
    pub(super) reason: String,
    pub(super) objects: u64,
    pub(super) messages: u64,
    pub(super) writes_without: u64,
    pub(super) writes_with: u64,
}

/// The groups that are examined.
struct Examined {
    /// The groups, the most writes first, without a treatment.
    candidates: Vec<Candidate>,
    /// All writes that a policy may suppress.
    writes: u64,
    /// Those of other groups.
    others: u64,
}

/// Counts the writes, then examines the groups with the most of them.
fn examined(recording: &ReplayInput, limits: &SuggestLimits) -> Result<Examined, Error> {
    let is_examined = |write: &Observation<'_>| {
        is_governable(write) && limits.namespace.as_deref().is_none_or(|only| only == write.namespace)
    };
    let mut counts = GroupCounts::default();
    recording.each_write(&mut |write| {
        if is_examined(write) {
            counts.add(write);
        }
    })?;
    let writes = counts.writes;
    let BusiestGroups { groups, others } = counts.busiest(MAX_EXAMINED);
    let mut details: BTreeMap<EventGroup, GroupDetails> =
        groups.iter().map(|(group, _)| (group.clone(), GroupDetails::default())).collect();
    recording.each_write(&mut |write| {
        if is_examined(write)
            && let Some(group) = EventGroup::of(write)
            && let Some(details) = details.get_mut(&group)
        {
            details.add(write);
        }
    })?;
    let candidates = groups.into_iter().filter_map(|(group, _)| {
        let details = details.remove(&group)?;
        let namespace = limits.namespace.as_deref().or(details.namespace()).map(str::to_owned);
        Some(Candidate { group, details, namespace, treatment: None, figures: PolicyFigures::default() })
    });
    Ok(Examined { candidates: candidates.collect(), writes, others })
}

/// Proposes policies for recorded writes.
pub(super) fn suggest(recording: &ReplayInput, limits: &SuggestLimits) -> Result<Suggestions, Error> {
    let Examined { mut candidates, writes, others } = examined(recording, limits)?;
    let min_saved = limits.min_saved.unwrap_or_else(|| MIN_SAVED.max(writes * MIN_SAVED_PERCENT / 100));
    search(recording, &mut candidates, limits.clients, limits.allow_mute)?;
    let (policies, report) =
        confirmed(recording, proposed(&candidates, min_saved), limits.clients, min_saved)?;
    let as_recorded = if policies.is_empty() || limits.clients == ClientBehavior::Recorded {
        None
    } else {
        Some(replayed_once(recording, &policies, ClientBehavior::Recorded)?.total.all_writes().etcd_with)
    };
    let total = total(&report, !policies.is_empty());
    let mut notes = if policies.is_empty() { Vec::new() } else { report.notes.clone() };
    if others > 0 {
        let many = plural(others, "write was", "writes were");
        notes.push(format!(
            "{many} not examined: only the {MAX_EXAMINED} most frequent combinations of component, kind, type and \
             reason are, and only those that a policy can name"
        ));
    }
    Ok(Suggestions {
        schema_version: 1,
        input: replayed(&report).trim_end().to_owned(),
        min_saved,
        policies,
        writes_with_recorded_clients: as_recorded.filter(|writes| *writes != total.writes_with),
        total,
        groups: candidates.iter().take(MAX_LISTED).map(ExaminedGroup::of).collect(),
        notes,
    })
}

impl ExaminedGroup {
    fn of(candidate: &Candidate) -> Self {
        let Candidate { group, details, figures, .. } = candidate;
        Self {
            component: group.component.clone(),
            kind: group.kind.clone(),
            event_type: group.event_type(),
            reason: group.reason.clone(),
            objects: details.objects(),
            messages: details.messages(),
            writes_without: figures.writes_without,
            writes_with: figures.writes_with,
        }
    }
}

/// Returns one policy for the groups with the same component, namespace and treatment. It has the longest of their idle
/// timeouts: one more series that stays open costs less than one more policy.
fn proposed(candidates: &[Candidate], min_saved: u64) -> Vec<Suggestion> {
    let mut alike = BTreeMap::<(&str, Option<&str>, GroupTreatment), Vec<&Candidate>>::new();
    for candidate in candidates {
        if let Some(treatment) = &candidate.treatment
            && candidate.figures.saved() >= min_saved
        {
            let treatment = GroupTreatment { idle_minutes: None, ..treatment.clone() };
            let key = (candidate.group.component.as_str(), candidate.namespace.as_deref(), treatment);
            alike.entry(key).or_default().push(candidate);
        }
    }
    let mut suggestions = Vec::new();
    let mut names = BTreeSet::new();
    for ((component, namespace, treatment), candidates) in alike {
        let treatments = candidates.iter().filter_map(|candidate| candidate.treatment.as_ref());
        let idle_minutes = treatments.filter_map(|treatment| treatment.idle_minutes).max();
        let treatment = GroupTreatment { idle_minutes, ..treatment };
        let groups: Vec<&EventGroup> = candidates.iter().map(|candidate| &candidate.group).collect();
        for matching in selections(&groups) {
            let name = unused(&mut names, namespace, &name(component));
            let matching = of_component(matching, component);
            let policy = SuggestedPolicy::new(&name, namespace, &matching, &treatment);
            let reasons = reasons(&candidates, &treatment);
            let figures = PolicyFigures::default();
            suggestions.push(Suggestion { name: policy.display(), policy, reasons, figures });
        }
    }
    suggestions
}

/// Replays the policies together, and leaves out those that save too little. Returns the report on the others.
fn confirmed(
    recording: &ReplayInput,
    mut suggestions: Vec<Suggestion>,
    clients: ClientBehavior,
    min_saved: u64,
) -> Result<(Vec<Suggestion>, ReplayReport), Error> {
    loop {
        let report = replayed_once(recording, &suggestions, clients)?;
        for suggestion in &mut suggestions {
            suggestion.figures = PolicyFigures::of(&report, &suggestion.name);
        }
        let before = suggestions.len();
        suggestions.retain(|suggestion| suggestion.figures.saved() >= min_saved);
        if suggestions.len() == before {
            return Ok((suggestions, report));
        }
    }
}

fn replayed_once(
    recording: &ReplayInput,
    suggestions: &[Suggestion],
    clients: ClientBehavior,
) -> Result<ReplayReport, Error> {
    let mut policies: Vec<_> = suggestions.iter().map(|suggestion| suggestion.policy.clone()).collect();
    if policies.is_empty() {
        // A replay needs a policy. What it would do is not used.
        policies.push(SuggestedPolicy::new("none", None, &[], &GroupTreatment::default()));
    }
    Ok(recording.replay(&[list(&policies)], clients)?.swap_remove(0))
}

/// Returns the results of all policies. Without policies, every write reaches etcd.
fn total(report: &ReplayReport, has_policies: bool) -> PolicyFigures {
    let writes = report.total.all_writes();
    let total = PolicyFigures {
        writes_without: writes.etcd_without,
        writes_with: writes.etcd_with,
        events_without: writes.events_without,
        events_with: writes.events_with,
        dropped: report.total.occurrences.dropped(),
        dropped_warnings: report.total.occurrences.dropped_warnings,
    };
    if has_policies { total } else { total.without_policy() }
}

/// Returns the name, with a number if another policy in the namespace has it.
fn unused<'n>(
    names: &mut BTreeSet<(Option<&'n str>, String)>,
    namespace: Option<&'n str>,
    name: &str,
) -> String {
    let (mut free, mut number) = (name.to_owned(), 1);
    while !names.insert((namespace, free.clone())) {
        number += 1;
        free = format!("{name}-{number}");
    }
    free
}

/// Returns the name of a policy for a component.
fn name(component: &str) -> String {
    let plain = component.chars().map(|c| match c.to_ascii_lowercase() {
        plain @ ('a'..='z' | '0'..='9') => plain,
        _ => '-',
    });
    let plain: String = plain.take(40).collect();
    match plain.trim_matches('-') {
        "" => "suggested".to_owned(),
        plain => format!("suggested-{plain}"),
    }
}

/// Returns why the policy is proposed: what the groups are, and what it does with them.
fn reasons(candidates: &[&Candidate], treatment: &GroupTreatment) -> Vec<String> {
    let mut reasons: Vec<String> = candidates.iter().map(|candidate| described(candidate)).collect();
    if treatment.aggregation.is_none() && treatment.drops.is_none() {
        reasons.push("Repeats are merged into one Event with a count.".to_owned());
    }
    if !treatment.masks.is_empty() {
        let masks: Vec<&str> = treatment.masks.iter().map(|mask| noun(*mask)).collect();
        reasons.push(format!("The messages differ in {}, which normalize masks.", masks.join(", ")));
    }
    if let Some(minutes) = treatment.idle_minutes {
        let idle = idle_timeout(minutes);
        reasons.push(format!("The repeats come more than 6m apart, so idleTimeout is {idle}."));
    }
    match treatment.aggregation {
        None => {}
        Some(AggregationScope::Object) => reasons.push(
            "An object has many different messages: the first 9 are stored, and a summary counts the others."
                .to_owned(),
        ),
        Some(AggregationScope::Kind) => reasons.push(
            "Many objects have such Events: those of the first 9 are stored, and one summary for the kind counts \
             the others."
                .to_owned(),
        ),
    }
    match treatment.drops {
        None => {}
        Some(Drops::SpamFilter(seconds)) => {
            let per = if seconds == 1 { "second".to_owned() } else { format!("{seconds} seconds") };
            reasons.push(format!(
                "These Normal Events are no repeats: {BURST} of each reason are stored at once and one more per {per}. \
                 The others are dropped and counted."
            ));
        }
        Some(Drops::Mute) => reasons.push("None of these Normal Events is stored (--allow-mute).".to_owned()),
    }
    reasons
}

fn described(candidate: &Candidate) -> String {
    let Candidate { group, details, .. } = candidate;
    let component =
        if group.component.is_empty() { "no component".to_owned() } else { shown(&group.component) };
    format!(
        "{component}, {}, {} {}: {}, {} about {}, such as \"{}\".",
        shown(&group.kind),
        group.event_type(),
        shown(&group.reason),
        plural(details.writes, "write", "writes"),
        plural(details.messages(), "message", "messages"),
        plural(details.objects(), "object", "objects"),
        shown(&details.example),
    )
}

/// A text of a tenant in one line.
fn shown(text: &str) -> String {
    clean(text, MAX_SHOWN)
}

fn noun(mask: Mask) -> &'static str {
    match mask {
        Mask::ObjectNames => "names of the object",
        Mask::Uuids => "UUIDs",
        Mask::Ips => "IP addresses",
        Mask::Durations => "durations",
        Mask::Quantities => "quantities",
        Mask::Hashes => "hashes",
        Mask::Numbers => "numbers",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(component: &str, reason: &str, masks: &[Mask]) -> Candidate {
        let text = |text: &str| text.to_owned();
        Candidate {
            group: EventGroup {
                component: text(component),
                kind: text("Pod"),
                is_warning: false,
                reason: text(reason),
            },
            details: GroupDetails::default(),
            namespace: Some(text("shop")),
            treatment: Some(GroupTreatment { masks: masks.to_vec(), ..GroupTreatment::default() }),
            figures: PolicyFigures { writes_without: 100, ..PolicyFigures::default() },
        }
    }

    #[test]
    fn each_policy_has_a_name_of_its_own() {
        let candidates =
            [candidate("x", "A", &[]), candidate("x", "B", &[Mask::Uuids]), candidate("x-2", "C", &[])];
        let suggestions = proposed(&candidates, 1);
        let names: BTreeSet<_> = suggestions.iter().map(|suggestion| &*suggestion.name).collect();
        let expected = ["shop/suggested-x", "shop/suggested-x-2", "shop/suggested-x-2-2"];
        assert_eq!(names.into_iter().collect::<Vec<_>>(), expected);
    }
}
