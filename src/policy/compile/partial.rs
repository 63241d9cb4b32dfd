//! What a policy does with writes of which only some fields are known. Not on the path of a write.

use squelch_engine::sanitise;

use super::Compiled;
use super::clauses::Clauses;
use super::clauses::known::{Certainty, KnownFields};
use crate::api::EventType;

/// Whether lists of clauses select the writes with some known fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartialMatch {
    /// Whether they select these writes.
    pub certainty: Certainty,
    /// The clauses that depend on other fields or, if they select none of the writes, those that do not match, such as
    /// `match[0]: reasons [Failed*]`. Texts of a tenant, without control characters.
    pub clauses: Vec<String>,
}

impl Compiled {
    /// Returns whether the policy governs writes with these fields. See [`Self::governs`].
    pub fn governs_known(&self, known: &KnownFields<'_>) -> PartialMatch {
        let (matching, exclude) = (&*self.matching, &*self.exclude);
        let certainty =
            for_each_type(known, |known| one_holds(matching, known).min(one_holds(exclude, known).negated()));
        let clauses = match certainty {
            Certainty::Always => Vec::new(),
            Certainty::Never if one_holds(matching, known) == Certainty::Never => {
                described("match", matching, known, Certainty::Never)
            }
            Certainty::Never => described_whole("exclude", exclude, known),
            Certainty::Sometimes => undecided("match", matching, known)
                .into_iter()
                .chain(undecided("exclude", exclude, known))
                .collect(),
        };
        PartialMatch { certainty, clauses }
    }

    /// Returns whether writes with these fields match an entry of `spec.exempt`.
    pub fn exempts_known(&self, known: &KnownFields<'_>) -> PartialMatch {
        of_list("exempt", &self.exempt, known)
    }

    /// Returns whether writes with these fields match an entry of `spec.mute`, regardless of `spec.exempt`.
    pub fn mutes_known(&self, known: &KnownFields<'_>) -> PartialMatch {
        of_list("mute", &self.mute, known)
    }
}

fn of_list(name: &str, list: &[Clauses], known: &KnownFields<'_>) -> PartialMatch {
    let certainty = for_each_type(known, |known| one_holds(list, known));
    let clauses = match certainty {
        Certainty::Sometimes => undecided(name, list, known),
        Certainty::Never | Certainty::Always => Vec::new(),
    };
    PartialMatch { certainty, clauses }
}

fn one_holds(list: &[Clauses], known: &KnownFields<'_>) -> Certainty {
    list.iter().map(|clauses| clauses.hold_for(known)).max().unwrap_or(Certainty::Never)
}

/// Decides for both types if the type is not known: two entries, one for each type, hold for every write.
fn for_each_type(known: &KnownFields<'_>, decide: impl Fn(&KnownFields<'_>) -> Certainty) -> Certainty {
    if known.event_type.is_some() {
        return decide(known);
    }
    let of = |event_type| decide(&KnownFields { event_type: Some(event_type), ..*known });
    match (of(EventType::Normal), of(EventType::Warning)) {
        (one, other) if one == other => one,
        _ => Certainty::Sometimes,
    }
}

/// The lists that depend on other fields, of each entry that can match. Nothing if an entry matches every write.
fn undecided(name: &str, list: &[Clauses], known: &KnownFields<'_>) -> Vec<String> {
    match one_holds(list, known) {
        Certainty::Sometimes => described(name, list, known, Certainty::Sometimes),
        Certainty::Never | Certainty::Always => Vec::new(),
    }
}

/// The lists with this certainty, of each entry with this certainty.
fn described(name: &str, list: &[Clauses], known: &KnownFields<'_>, of: Certainty) -> Vec<String> {
    let entries = list.iter().enumerate().filter(|(_, clauses)| clauses.hold_for(known) == of);
    entries
        .map(|(at, clauses)| printable(&format!("{name}[{at}]: {}", clauses.described(known, of))))
        .collect()
}

/// The entries that can match, with all their lists that depend on a field.
fn described_whole(name: &str, list: &[Clauses], known: &KnownFields<'_>) -> Vec<String> {
    let entries = list.iter().enumerate().filter(|(_, clauses)| clauses.hold_for(known) != Certainty::Never);
    let text = |clauses: &Clauses| match clauses.described_all() {
        nothing if nothing.is_empty() => "every write".to_owned(),
        lists => lists,
    };
    entries.map(|(at, clauses)| printable(&format!("{name}[{at}]: {}", text(clauses)))).collect()
}

fn printable(text: &str) -> String {
    text.chars().map(sanitise).collect()
}

#[cfg(test)]
mod tests;
