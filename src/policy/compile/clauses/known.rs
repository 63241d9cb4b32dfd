//! What clauses say about a write of which only some fields are known. Not on the path of a write.

use crate::api::EventType;

use super::{ALL_TYPES, Clauses, Regarding};
use crate::policy::glob::Glob;

/// The known fields of a write. `None`: the field can be any text.
#[derive(Clone, Copy, Debug, Default)]
pub struct KnownFields<'a> {
    /// Type.
    pub event_type: Option<EventType>,
    /// Reason.
    pub reason: Option<&'a str>,
    /// Reporting component, or the source component if that is empty.
    pub component: Option<&'a str>,
    /// Kind of the object.
    pub kind: Option<&'a str>,
    /// API group of the object; empty for the core group.
    pub api_group: Option<&'a str>,
    /// Name of the object.
    pub name: Option<&'a str>,
    /// User who writes the Event.
    pub user: Option<&'a str>,
}

/// For which writes with some known fields a statement holds. In this order, the minimum is that of two statements that
/// have to hold both, the maximum that of two of which one has to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Certainty {
    /// For none of them.
    Never,
    /// That depends on their other fields.
    Sometimes,
    /// For each of them.
    Always,
}

impl Certainty {
    /// The certainty of the opposite.
    #[must_use]
    pub(in crate::policy::compile) fn negated(self) -> Self {
        match self {
            Self::Never => Self::Always,
            Self::Sometimes => Self::Sometimes,
            Self::Always => Self::Never,
        }
    }
}

impl From<bool> for Certainty {
    fn from(holds: bool) -> Self {
        if holds { Self::Always } else { Self::Never }
    }
}

impl Clauses {
    /// Whether a write with these fields matches.
    pub(in crate::policy::compile) fn hold_for(&self, known: &KnownFields<'_>) -> Certainty {
        let lists = self.lists_for(known).into_iter().map(|(_, certainty)| certainty);
        lists.min().unwrap_or(Certainty::Always)
    }

    /// Returns the lists with this certainty as in the spec, such as `reasons [Failed*]`.
    pub(in crate::policy::compile) fn described(&self, known: &KnownFields<'_>, of: Certainty) -> String {
        let lists = { self.lists_for(known).into_iter() }.filter(|(_, certainty)| *certainty == of);
        let lists: Vec<_> = lists.map(|(name, _)| format!("{name} [{}]", self.entries(name))).collect();
        lists.join(", ")
    }

    /// Returns the lists that do not hold for every write, as in the spec.
    pub(in crate::policy::compile) fn described_all(&self) -> String {
        self.described(&KnownFields::default(), Certainty::Sometimes)
    }

    fn lists_for(&self, known: &KnownFields<'_>) -> [(&'static str, Certainty); 6] {
        let types = match known.event_type {
            Some(known) => self.types.contains(&known).into(),
            None if self.types.len() == ALL_TYPES.len() => Certainty::Always,
            None => Certainty::Sometimes,
        };
        [
            ("types", types),
            ("reasons", one_matches(&self.reasons, known.reason)),
            ("reportingComponents", one_matches(&self.reporting_components, known.component)),
            ("regarding", one_holds(&self.regarding, |entry| entry.holds_for(known))),
            ("users", one_matches(&self.users, known.user)),
            ("messages", one_matches(&self.messages, None)),
        ]
    }

    fn entries(&self, list: &str) -> String {
        let globs = |globs: &[Glob]| globs.iter().map(ToString::to_string).collect();
        let entries: Vec<String> = match list {
            "types" => self.types.iter().map(|event_type| format!("{event_type:?}")).collect(),
            "reasons" => globs(&self.reasons),
            "reportingComponents" => globs(&self.reporting_components),
            "regarding" => self.regarding.iter().map(Regarding::described).collect(),
            "users" => globs(&self.users),
            _ => globs(&self.messages),
        };
        entries.join(", ")
    }
}

impl Regarding {
    fn holds_for(&self, known: &KnownFields<'_>) -> Certainty {
        let fields = [(&self.kind, known.kind), (&self.api_group, known.api_group), (&self.name, known.name)];
        let certainties =
            fields.map(|(glob, text)| glob.as_ref().map_or(Certainty::Always, |glob| matches(glob, text)));
        certainties.into_iter().min().unwrap_or(Certainty::Always)
    }

    fn described(&self) -> String {
        let fields = [("kind", &self.kind), ("apiGroup", &self.api_group), ("name", &self.name)];
        let given = fields.into_iter().filter_map(|(name, glob)| Some(format!("{name}: {}", glob.as_ref()?)));
        format!("{{{}}}", given.collect::<Vec<_>>().join(", "))
    }
}

fn matches(glob: &Glob, text: Option<&str>) -> Certainty {
    match (glob, text) {
        (Glob::Any, _) => Certainty::Always,
        (glob, Some(text)) => glob.matches(text).into(),
        (_, None) => Certainty::Sometimes,
    }
}

fn one_matches(globs: &[Glob], text: Option<&str>) -> Certainty {
    one_holds(globs, |glob| matches(glob, text))
}

/// An empty list holds for every write.
fn one_holds<T>(list: &[T], certainty: impl Fn(&T) -> Certainty) -> Certainty {
    list.iter().map(certainty).max().unwrap_or(Certainty::Always)
}
