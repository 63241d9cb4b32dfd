//! `spec.match` and the entries of `spec.exempt`, compiled.

use squelch_engine::Observation;

use crate::api;

use super::Invalid;
use crate::policy::glob::Glob;

/// Lists are bounded because each entry costs time in every decision.
pub(super) fn bounded<T>(list: &[T], most: usize, path: &str) -> Result<(), Invalid> {
    if list.len() > most {
        return Err(Invalid::new(path, &format!("must have at most {most} items")));
    }
    Ok(())
}

/// Which Events are meant: all lists that are not empty must hold, and a list holds if one entry does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Clauses {
    types: Box<[Glob]>,
    reasons: Box<[Glob]>,
    reporting_components: Box<[Glob]>,
    regarding: Box<[Regarding]>,
    users: Box<[Glob]>,
}

/// An object that an Event is about: all fields that are given must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Regarding {
    kind: Option<Glob>,
    api_group: Option<Glob>,
    name: Option<Glob>,
}

impl Clauses {
    pub(super) fn compile(clauses: &api::Clauses, path: &str) -> Result<Self, Invalid> {
        let short = |name: &str, list| globs(list, api::MOST_SHORT_LIST, &format!("{path}.{name}"));
        let long = |name: &str, list| globs(list, api::MOST_LONG_LIST, &format!("{path}.{name}"));
        all_checked(api::TYPE, &clauses.types, &format!("{path}.types"))?;
        all_checked(api::WORD, &clauses.reasons, &format!("{path}.reasons"))?;
        all_checked(api::WORD, &clauses.reporting_components, &format!("{path}.reportingComponents"))?;
        Ok(Self {
            types: short("types", &clauses.types)?,
            reasons: long("reasons", &clauses.reasons)?,
            reporting_components: long("reportingComponents", &clauses.reporting_components)?,
            regarding: regarding(&clauses.regarding, &format!("{path}.regarding"))?,
            users: long("users", &clauses.users)?,
        })
    }

    pub(super) fn hold(&self, write: &Observation<'_>) -> bool {
        let event = &write.event;
        one_holds(&self.types, |glob| glob.matches(&event.event_type))
            && one_holds(&self.reasons, |glob| glob.matches(&event.reason))
            && one_holds(&self.reporting_components, |glob| glob.matches(event.reporter().0))
            && one_holds(&self.regarding, |regarding| regarding.holds(write))
            && one_holds(&self.users, |glob| glob.matches(write.user))
    }

    /// The most that one check costs; see [`Glob::weight`].
    pub(super) fn weight(&self) -> usize {
        let Self { types, reasons, reporting_components, regarding, users } = self;
        let of_list = |list: &[Glob]| list.iter().map(Glob::weight).sum::<usize>();
        let of_object = |object: &Regarding| {
            let fields = [&object.kind, &object.api_group, &object.name];
            fields.into_iter().flatten().map(Glob::weight).sum::<usize>()
        };
        [types, reasons, reporting_components, users].map(|list| of_list(list)).iter().sum::<usize>()
            + regarding.iter().map(of_object).sum::<usize>()
    }

    pub(super) fn always_hold(&self) -> bool {
        let all = |globs: &[Glob]| globs.is_empty() || globs.contains(&Glob::Any);
        all(&self.types)
            && all(&self.reasons)
            && all(&self.reporting_components)
            && self.regarding.is_empty()
            && all(&self.users)
    }
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

fn one_holds<T>(list: &[T], holds: impl Fn(&T) -> bool) -> bool {
    list.is_empty() || list.iter().any(holds)
}

fn regarding(list: &[api::Regarding], path: &str) -> Result<Box<[Regarding]>, Invalid> {
    bounded(list, api::MOST_SHORT_LIST, path)?;
    let entries = list.iter().enumerate();
    entries.map(|(index, entry)| Regarding::compile(entry, &format!("{path}[{index}]"))).collect()
}

fn globs(texts: &[String], most: usize, path: &str) -> Result<Box<[Glob]>, Invalid> {
    bounded(texts, most, path)?;
    let globs = texts.iter().enumerate().map(|(index, text)| {
        let path = format!("{path}[{index}]");
        if text.is_empty() {
            return Err(Invalid::new(path, "must not be empty; * stands for any text"));
        }
        glob(text, &path)
    });
    globs.collect()
}

fn all_checked(form: api::TextField, texts: &[String], path: &str) -> Result<(), Invalid> {
    texts.iter().enumerate().try_for_each(|(index, text)| checked(form, text, &format!("{path}[{index}]")))
}

fn checked(form: api::TextField, text: &str, path: &str) -> Result<(), Invalid> {
    form.check(text).map_err(|sentence| Invalid::new(path, sentence))
}

fn glob(text: &str, path: &str) -> Result<Glob, Invalid> {
    api::check_glob(text).map_err(|sentence| Invalid::new(path, sentence))?;
    Ok(Glob::compile(text))
}
