//! The entries of `spec.match`, `exclude`, `exempt` and `mute`, compiled.

pub(super) mod condition;
pub(super) mod known;

use squelch_engine::Observation;

use crate::api::{self, EventType};

use super::Invalid;
use crate::policy::glob::Glob;

/// Checks the length of a list, since each entry costs time in every decision.
pub(super) fn bounded<T>(list: &[T], max: usize, path: &str) -> Result<(), Invalid> {
    if list.len() > max {
        return Err(Invalid::new(path, &format!("must have at most {max} items")));
    }
    Ok(())
}

const ALL_TYPES: [EventType; 2] = [EventType::Normal, EventType::Warning];

/// Clauses that select Events. A write must match an entry of each nonempty list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Clauses {
    /// Never empty.
    types: Box<[EventType]>,
    reasons: Box<[Glob]>,
    messages: Box<[Glob]>,
    reporting_components: Box<[Glob]>,
    regarding: Box<[Regarding]>,
    users: Box<[Glob]>,
}

/// An object that an Event is about. It must match every specified field.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Regarding {
    kind: Option<Glob>,
    api_group: Option<Glob>,
    name: Option<Glob>,
}

impl Clauses {
    /// Compiles a list of clauses.
    pub(super) fn compile_list(list: &[api::Clauses], path: &str) -> Result<Box<[Self]>, Invalid> {
        bounded(list, api::MAX_SHORT_LIST, path)?;
        let compile = |(index, clauses): (usize, &api::Clauses)| {
            if clauses.is_empty() {
                return Err(Invalid::new(path, api::EMPTY_ENTRY));
            }
            Self::compile(clauses, &format!("{path}[{index}]"))
        };
        list.iter().enumerate().map(compile).collect()
    }

    /// Returns the clauses that hold for every write.
    pub(super) fn of_every_write() -> Self {
        Self {
            types: types(&[]),
            reasons: [].into(),
            messages: [].into(),
            reporting_components: [].into(),
            regarding: [].into(),
            users: [].into(),
        }
    }

    fn compile(clauses: &api::Clauses, path: &str) -> Result<Self, Invalid> {
        let long = |name: &str, list| globs(list, api::MAX_LONG_LIST, &format!("{path}.{name}"));
        bounded(&clauses.types, api::MAX_TYPES, &format!("{path}.types"))?;
        all_checked(api::WORD, &clauses.reasons, &format!("{path}.reasons"))?;
        all_checked(api::WORD, &clauses.reporting_components, &format!("{path}.reportingComponents"))?;
        Ok(Self {
            types: types(&clauses.types),
            reasons: long("reasons", &clauses.reasons)?,
            messages: long("messages", &clauses.messages)?,
            reporting_components: long("reportingComponents", &clauses.reporting_components)?,
            regarding: regarding(&clauses.regarding, &format!("{path}.regarding"))?,
            users: long("users", &clauses.users)?,
        })
    }

    pub(super) fn hold(&self, write: &Observation<'_>) -> bool {
        let event = &write.event;
        let event_type = if event.is_warning() { EventType::Warning } else { EventType::Normal };
        self.types.contains(&event_type)
            && one_holds(&self.reasons, |glob| glob.matches(&event.reason))
            && one_holds(&self.reporting_components, |glob| glob.matches(event.reporter().0))
            && one_holds(&self.regarding, |regarding| regarding.holds(write))
            && one_holds(&self.users, |glob| glob.matches(write.user))
            && one_holds(&self.messages, |glob| glob.matches(&event.message))
    }

    /// Maximum cost of one check. See [`Glob::weight`].
    pub(super) fn weight(&self) -> usize {
        let Self { types: _, reasons, messages, reporting_components, regarding, users } = self;
        let of_list = |list: &[Glob]| list.iter().map(Glob::weight).sum::<usize>();
        let of_object = |object: &Regarding| {
            let fields = [&object.kind, &object.api_group, &object.name];
            fields.into_iter().flatten().map(Glob::weight).sum::<usize>()
        };
        [reasons, messages, reporting_components, users].map(|list| of_list(list)).iter().sum::<usize>()
            + regarding.iter().map(of_object).sum::<usize>()
    }

    pub(super) fn always_hold(&self) -> bool {
        let all = |globs: &[Glob]| globs.is_empty() || globs.contains(&Glob::Any);
        self.types.len() == ALL_TYPES.len()
            && all(&self.reasons)
            && all(&self.messages)
            && all(&self.reporting_components)
            && self.regarding.is_empty()
            && all(&self.users)
    }
}

/// An entry of a list of clauses.
trait Covers {
    /// Whether it is known to match everything that `other` matches.
    fn covers(&self, other: &Self) -> bool;
}

impl Covers for EventType {
    fn covers(&self, other: &Self) -> bool {
        self == other
    }
}

impl Covers for Glob {
    fn covers(&self, other: &Self) -> bool {
        self.includes(other)
    }
}

impl Covers for Regarding {
    fn covers(&self, other: &Self) -> bool {
        let fields =
            [(&self.kind, &other.kind), (&self.api_group, &other.api_group), (&self.name, &other.name)];
        fields.into_iter().all(|(own, other)| match (own, other) {
            (None | Some(Glob::Any), _) => true,
            (Some(own), Some(other)) => own.covers(other),
            (Some(_), None) => false,
        })
    }
}

/// An entry of one of the lists of [`Clauses`].
#[derive(Clone, Copy)]
struct ClauseEntry {
    list: usize,
    at: usize,
}

impl Clauses {
    /// Number of lists.
    const LISTS: usize = 6;

    /// Whether `earlier` clauses together are known to match every write that these match: in one of the lists, each entry
    /// is covered by one of `earlier`. Decrements `comparisons` for each comparison, and returns false when it reaches 0.
    pub(super) fn are_covered_by(&self, earlier: &[&Self], comparisons: &mut usize) -> bool {
        let Self { types, reasons, messages, reporting_components, regarding, users } = self;
        let lengths = [
            types.len(),
            reasons.len(),
            reporting_components.len(),
            regarding.len(),
            users.len(),
            messages.len(),
        ];
        (0..Self::LISTS).any(|list| {
            (0..lengths[list].max(1)).all(|at| {
                earlier.iter().any(|earlier| earlier.cover_entry(self, ClauseEntry { list, at }, comparisons))
            })
        })
    }

    /// Whether these clauses are known to match every write that `later` matches by its entry `only`.
    fn cover_entry(&self, later: &Self, only: ClauseEntry, comparisons: &mut usize) -> bool {
        let only = |list| (only.list == list).then_some(only.at);
        covers(&self.types, &later.types, only(0), comparisons)
            && covers(&self.reasons, &later.reasons, only(1), comparisons)
            && covers(&self.reporting_components, &later.reporting_components, only(2), comparisons)
            && covers(&self.regarding, &later.regarding, only(3), comparisons)
            && covers(&self.users, &later.users, only(4), comparisons)
            && covers(&self.messages, &later.messages, only(5), comparisons)
    }
}

/// Whether a list is known to match everything that `later` matches, or that its entry `only` matches.
fn covers<T: Covers>(own: &[T], later: &[T], only: Option<usize>, comparisons: &mut usize) -> bool {
    let later = only.and_then(|at| later.get(at..=at)).unwrap_or(later);
    let mut covers_entry = |later: &T| {
        own.iter().any(|own| {
            let left = comparisons.checked_sub(1);
            *comparisons = left.unwrap_or(0);
            left.is_some() && own.covers(later)
        })
    };
    own.is_empty() || !later.is_empty() && later.iter().all(&mut covers_entry)
}

impl Regarding {
    fn compile(regarding: &api::Regarding, path: &str) -> Result<Self, Invalid> {
        let api::Regarding { kind, api_group, name } = regarding;
        if kind.is_none() && api_group.is_none() && name.is_none() {
            return Err(Invalid::new(path, api::EMPTY_REGARDING));
        }
        let field = |field: &str, form: api::TextField, text: &Option<String>| {
            let path = format!("{path}.{field}");
            text.as_deref()
                .map(|text| checked(form, text, &path).and_then(|()| glob(text, &path)))
                .transpose()
        };
        Ok(Self {
            kind: field("kind", api::KIND, kind)?,
            api_group: field("apiGroup", api::API_GROUP, api_group)?,
            name: field("name", api::NAME, name)?,
        })
    }

    fn holds(&self, write: &Observation<'_>) -> bool {
        let object = &write.event.regarding;
        let holds = |glob: &Option<Glob>, text: &str| glob.as_ref().is_none_or(|glob| glob.matches(text));
        holds(&self.kind, &object.kind)
            && holds(&self.api_group, object.api_group())
            && holds(&self.name, &object.name)
    }
}

fn types(list: &[EventType]) -> Box<[EventType]> {
    ALL_TYPES.into_iter().filter(|its| list.is_empty() || list.contains(its)).collect()
}

fn one_holds<T>(list: &[T], holds: impl Fn(&T) -> bool) -> bool {
    list.is_empty() || list.iter().any(holds)
}

fn regarding(list: &[api::Regarding], path: &str) -> Result<Box<[Regarding]>, Invalid> {
    bounded(list, api::MAX_SHORT_LIST, path)?;
    let entries = list.iter().enumerate();
    entries.map(|(index, entry)| Regarding::compile(entry, &format!("{path}[{index}]"))).collect()
}

fn globs(texts: &[String], max: usize, path: &str) -> Result<Box<[Glob]>, Invalid> {
    bounded(texts, max, path)?;
    let globs = texts.iter().enumerate().map(|(index, text)| {
        let path = format!("{path}[{index}]");
        if text.is_empty() {
            return Err(Invalid::new(path, "must not be empty; * matches any text"));
        }
        glob(text, &path)
    });
    globs.collect()
}

fn all_checked(form: api::TextField, texts: &[String], path: &str) -> Result<(), Invalid> {
    texts.iter().enumerate().try_for_each(|(index, text)| checked(form, text, &format!("{path}[{index}]")))
}

fn checked(form: api::TextField, text: &str, path: &str) -> Result<(), Invalid> {
    form.check(text).map_err(|message| Invalid::new(path, message))
}

fn glob(text: &str, path: &str) -> Result<Glob, Invalid> {
    api::check_glob(text).map_err(|message| Invalid::new(path, message))?;
    Ok(Glob::compile(text))
}
