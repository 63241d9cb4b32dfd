//! The answer in a few sentences, and the next commands. Pure.

use super::drops::{ReportedSuppression, by_policy};
use super::facts::{WhyFacts, printable};
use super::stages::clauses_text;
use super::stored::ObjectEvents;
use super::verdict::{Fate, WhyPolicy};
use crate::policy::Certainty;

/// What was found.
pub(super) struct Findings<'a> {
    /// What was read.
    pub facts: &'a WhyFacts,
    /// The stored Events, if they could be listed.
    pub stored: Option<&'a ObjectEvents>,
    /// The policies, if they could be listed.
    pub policies: Option<&'a [WhyPolicy]>,
    /// What was suppressed, if the report could be read.
    pub suppression: Option<&'a ReportedSuppression>,
}

impl Findings<'_> {
    /// Returns the answer.
    pub(super) fn conclusion(&self) -> String {
        let governance = if self.facts.not_installed() {
            let subject = self.subject();
            format!("squelch is not installed in this cluster: it does nothing with {subject}.")
        } else {
            self.governance()
        };
        let sentences = [Some(governance), self.dropped(), self.stored()];
        sentences.into_iter().flatten().collect::<Vec<_>>().join(" ")
    }

    /// Returns what to do next, with a command at the end of each line.
    pub(super) fn next(&self) -> Vec<String> {
        let object = &self.facts.object;
        let namespace = printable(&object.namespace);
        let mut next = Vec::new();
        if self.suppression.is_some_and(|suppression| suppression.exists) {
            next.push(format!("To see the report: kubectl get edr squelch -n {namespace} -o yaml"));
        }
        if let Some(policy) = self.dropping() {
            let kinds = if policy.kind == "EventPolicy" { "evp" } else { "cevp" };
            let place = if policy.kind == "EventPolicy" { format!(" -n {namespace}") } else { String::new() };
            next.push(format!(
                "To store each of them, add an entry to spec.exempt of {}, or ask its owner to: kubectl edit {kinds} {}{place}",
                policy.title(),
                policy.name
            ));
        }
        if self.governing().any(|policy| policy.certainty == Certainty::Sometimes) {
            next.push("To narrow the answer, add --reason, --type, --component or --user".to_owned());
        }
        let is_none_stored = self.stored.is_some_and(|stored| stored.number == 0 && stored.complete);
        if is_none_stored && self.occurrences() == 0 {
            next.push(format!(
                "The emitter may not have written it, or it has expired (by default after 1h): kubectl get events -n {namespace}"
            ));
        }
        if self.facts.lacks_only_cluster_policies() {
            next.push(
                "To see the policies of the cluster too, ask its administrator: kubectl auth can-i list \
                 clustereventpolicies.squelch.dev"
                    .to_owned(),
            );
        } else if !self.facts.missing().is_empty() {
            next.push(format!(
                "To see what is missing here, ask for the ClusterRoles view and squelch-view: kubectl auth can-i --list -n \
                 {namespace}"
            ));
        }
        next
    }

    /// Returns the Events that the question is about.
    fn subject(&self) -> String {
        let (object, assumed) = (&self.facts.object, &self.facts.assumed);
        let mut subject = "Events".to_owned();
        if let Some(reason) = &assumed.reason {
            subject = format!("{} {subject}", printable(reason));
        }
        if let Some(event_type) = assumed.event_type {
            subject = format!("{event_type:?} {subject}");
        }
        subject = format!("{subject} about {}", printable(&object.title()));
        if let Some(component) = &assumed.component {
            subject = format!("{subject} reported by {}", printable(component));
        }
        if let Some(user) = &assumed.user {
            subject = format!("{subject} written by {}", printable(user));
        }
        format!("{subject} in namespace {}", printable(&object.namespace))
    }

    fn governing(&self) -> impl Iterator<Item = &WhyPolicy> {
        self.policies.into_iter().flatten().filter(|policy| policy.certainty != Certainty::Never)
    }

    fn governance(&self) -> String {
        let subject = self.subject();
        let all_listed = self.facts.event_policies.is_ok() && self.facts.cluster_policies.is_ok();
        let unlisted = if all_listed { "" } else { " Policies that you may not list are not considered." };
        let governing: Vec<_> = self.governing().collect();
        let answer = match &governing[..] {
            _ if self.policies.is_none() => {
                return format!("Which policy governs {subject} is unknown: you may not list policies.");
            }
            [] if all_listed => format!("No policy governs {subject}: they are stored as they are written."),
            [] => format!("No policy that you may list governs {subject}."),
            [only] if only.certainty == Certainty::Always => {
                format!("{} governs {subject}{}", only.title(), outcome(only))
            }
            [only] => format!(
                "Whether {} governs {subject} depends on {}. Otherwise no policy does, and they are stored as they are \
                 written.",
                only.title(),
                clauses_text(&only.clauses)
            ),
            several => {
                let titles: Vec<_> = several.iter().map(|policy| policy.title()).collect();
                format!(
                    "Which policy governs {subject} depends on their other fields: it is the first that matches of {}.",
                    titles.join(", ")
                )
            }
        };
        let not_called = governing.iter().find_map(|policy| policy.not_called()).map(|why| {
            format!(" Currently the API server does not call squelch for it, and they are stored as they are written: {why}")
        });
        format!("{answer}{}{unlisted}", not_called.unwrap_or_default())
    }

    fn dropped(&self) -> Option<String> {
        let suppression = self.suppression?;
        let kind = printable(&self.facts.object.kind);
        if !suppression.exists {
            let since = suppression.counted_since.as_ref();
            let since = since.map(|since| format!(" since {}", since.0)).unwrap_or_default();
            return (!self.facts.not_installed())
                .then(|| format!("squelch has suppressed nothing in this namespace{since}."));
        }
        if suppression.dropped.is_empty() {
            let partial = if suppression.unlisted > 0 { ", which lists the most frequent ones" } else { "" };
            return Some(format!("The report{partial} has no dropped Events of kind {kind} that fit."));
        }
        let is_named = suppression.dropped.iter().any(|it| it.is_about_object);
        let about = if is_named { "at least one about" } else { "the report does not name" };
        let name = printable(&self.facts.object.name);
        let observed = self.policies.into_iter().flatten().any(|policy| {
            policy.fate == Fate::Observed && suppression.dropped.iter().any(|it| policy.dropped(&it.entry))
        });
        let observed = if observed { " In mode Observe they were stored nevertheless." } else { "" };
        Some(format!(
            "Of such Events of kind {kind} in this namespace, {} occurrences were dropped ({about} {name}): {}.{observed}",
            suppression.occurrences,
            by_policy(suppression).join(", ")
        ))
    }

    fn stored(&self) -> Option<String> {
        let stored = self.stored?;
        let at_least = if stored.complete { "" } else { "At least " };
        Some(match stored.number {
            0 if stored.complete => "No such Event is stored.".to_owned(),
            0 => "None of the Events that were read is such an Event.".to_owned(),
            1 => format!("{at_least}1 such Event is stored, with a count of {}.", stored.occurrences),
            number => {
                format!("{at_least}{number} such Events are stored, with {} occurrences.", stored.occurrences)
            }
        })
    }

    fn occurrences(&self) -> i64 {
        self.suppression.map_or(0, |suppression| suppression.occurrences)
    }

    /// The policy that dropped most, if it still drops.
    fn dropping(&self) -> Option<&WhyPolicy> {
        let most = self.suppression?.dropped.iter().max_by_key(|it| it.entry.count)?;
        self.governing().find(|policy| policy.fate != Fate::Observed && policy.dropped(&most.entry))
    }
}

fn outcome(policy: &WhyPolicy) -> &'static str {
    match policy.fate {
        Fate::Observed => " in mode Observe: they are stored as they are written.",
        Fate::Exempt => ", and they are exempt: they are stored as they are written.",
        Fate::Muted => ", and drops each of them, because they match its list mute.",
        Fate::Stored => ", and none of its stages suppresses them: they are stored as they are written.",
        Fate::Merged => {
            ": it may compact or aggregate them, and drops none. The count of a stored Event includes those."
        }
        Fate::Open => ": it compacts, aggregates or drops some of them, as its stages say.",
    }
}
