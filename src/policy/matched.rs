//! The Event writes that the policies in force can match, as a match condition of the webhook. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::compile::ALWAYS;
use super::selection::NamespaceSelection;
use crate::cel::quoted;

/// Maximum size of the expression in bytes. The evaluation of such an expression takes the API server less time than a
/// call of the webhook, which is 0.4 ms, and at most a hundredth of its cost limit: a failed evaluation would silently
/// skip the webhook.
const MAX_BYTES: usize = 2 << 10;

/// The Event writes that the policies in force can match, or more: for each condition of a policy, the namespaces in
/// which the policy is in force.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MatchedWrites(BTreeMap<Arc<str>, NamespaceSelection>);

impl MatchedWrites {
    /// Every write, in each namespace.
    #[cfg(test)]
    pub(crate) fn all() -> Self {
        Self([(ALWAYS.into(), NamespaceSelection::All)].into())
    }

    /// The writes in `namespaces` that fulfil a condition.
    #[cfg(test)]
    pub(crate) fn of(condition: &str, namespaces: NamespaceSelection) -> Self {
        Self([(condition.into(), namespaces)].into())
    }

    /// Adds the writes in `namespaces` that fulfil a condition.
    pub(super) fn add(&mut self, condition: &Arc<str>, namespaces: &NamespaceSelection) {
        match self.0.get_mut(condition) {
            Some(known) => known.extend(namespaces),
            None => {
                self.0.insert(condition.clone(), namespaces.clone());
            }
        }
    }

    /// Returns the writes that `other` includes too.
    pub(super) fn common(&self, other: &Self) -> Self {
        let mut common = Self::default();
        for (these, those) in [(self, other), (other, self)] {
            for (condition, namespaces) in &these.0 {
                let known = [those.0.get(condition), those.0.get(ALWAYS)].into_iter().flatten();
                for shared in known.map(|known| namespaces.common(known)) {
                    if shared != NamespaceSelection::None {
                        common.add(condition, &shared);
                    }
                }
            }
        }
        common
    }

    /// Returns the writes that `other` does not include.
    pub(super) fn without(&self, other: &Self) -> Self {
        let every_write = other.0.get(ALWAYS);
        let missing = self.0.iter().filter_map(|(condition, namespaces)| {
            let known = [other.0.get(condition), every_write].into_iter().flatten();
            let missing = known.fold(namespaces.clone(), |missing, known| missing.without(known));
            (missing != NamespaceSelection::None).then(|| (condition.clone(), missing))
        });
        Self(missing.collect())
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether it has writes in this namespace that fulfil the condition. `None`: in any namespace.
    pub(super) fn has(&self, condition: &str, namespace: Option<&str>) -> bool {
        let namespaces = self.0.get(condition);
        namespaces.is_some_and(|namespaces| namespace.is_none_or(|namespace| namespaces.contains(namespace)))
    }

    /// Returns the match condition in CEL, if the webhook is called for the namespaces of `selected` only. `None`: every
    /// write may match.
    pub fn expression(&self, selected: &NamespaceSelection) -> Option<String> {
        let mut by_namespaces: BTreeMap<Option<&BTreeSet<String>>, Vec<&str>> = BTreeMap::new();
        for (condition, namespaces) in &self.0 {
            let names = match namespaces {
                NamespaceSelection::Named(names) if namespaces != selected => Some(names),
                _ => None,
            };
            by_namespaces.entry(names).or_default().push(condition);
        }
        let alternatives: Option<Vec<_>> = { by_namespaces.iter() }
            .map(|(names, conditions)| Alternative::new(*names, conditions))
            .collect();
        shortened(alternatives?)
    }
}

/// Some of the writes, as a condition.
struct Alternative {
    /// The condition.
    exact: String,
    /// A condition that holds for more writes, and may be shorter.
    wide: String,
}

impl Alternative {
    /// The writes that fulfil one of `conditions`, in the namespaces with these names or in all. `None`: every write.
    fn new(names: Option<&BTreeSet<String>>, conditions: &[&str]) -> Option<Self> {
        let every_write = conditions.contains(&ALWAYS);
        let guard = names.map(|names| {
            let names: Vec<_> = names.iter().map(|name| quoted(name)).collect();
            match &names[..] {
                [name] => format!("request.namespace == {name}"),
                _ => format!("request.namespace in [{}]", names.join(", ")),
            }
        });
        let any = conditions.join(" || ");
        let (exact, wide) = match (guard, conditions) {
            (None, _) if every_write => return None,
            (None, _) => (any.clone(), any),
            (Some(guard), _) if every_write => (guard.clone(), guard),
            (Some(guard), [condition]) => (format!("{guard} && {condition}"), shorter(guard, any)),
            (Some(guard), _) => (format!("{guard} && ({any})"), shorter(guard, any)),
        };
        Some(Self { exact, wide })
    }

    /// What the wide condition saves.
    fn saving(&self) -> usize {
        self.exact.len() - self.wide.len()
    }
}

fn shorter(one: String, other: String) -> String {
    if other.len() < one.len() { other } else { one }
}

/// Returns the condition that one of `alternatives` holds, with the wide form of the longest if it would be too long. So a
/// policy with long texts makes the condition wider for its own namespace only. `None`: it is too long nevertheless.
fn shortened(mut alternatives: Vec<Alternative>) -> Option<String> {
    const OR: &str = " || ";
    let length = |text: fn(&Alternative) -> &str| -> usize {
        alternatives.iter().map(|alternative| text(alternative).len() + OR.len()).sum()
    };
    // Without a search: thousands of namespaces may have a condition of their own.
    if length(|alternative| &alternative.wide) > MAX_BYTES {
        return None;
    }
    let mut left = length(|alternative| &alternative.exact);
    while left > MAX_BYTES {
        let longest = alternatives.iter_mut().max_by_key(|alternative| alternative.saving())?;
        let saving = longest.saving();
        longest.exact.clone_from(&longest.wide);
        left -= saving;
    }
    Some(alternatives.into_iter().map(|alternative| alternative.exact).collect::<Vec<_>>().join(OR))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(names: &[&str]) -> NamespaceSelection {
        NamespaceSelection::of(names.iter().map(ToString::to_string).collect())
    }

    fn matched(conditions: &[(&str, NamespaceSelection)]) -> MatchedWrites {
        let mut matched = MatchedWrites::default();
        for (condition, namespaces) in conditions {
            matched.add(&(*condition).into(), namespaces);
        }
        matched
    }

    #[test]
    fn namespaces_are_a_part_of_the_condition_only_if_the_selector_selects_others_too() {
        let all = NamespaceSelection::All;
        let (a, ab) = (named(&["a"]), named(&["a", "b"]));
        for (conditions, selected, expected) in [
            (&[][..], &NamespaceSelection::None, Some("")),
            (&[("true", all.clone())], &all, None),
            (&[("x && y", all.clone()), ("z", all.clone())], &all, Some("x && y || z")),
            (&[("true", a.clone())], &a, None),
            (&[("x", ab.clone())], &ab, Some("x")),
            (&[("true", a.clone()), ("x", ab.clone())], &ab, Some("x || request.namespace == 'a'")),
            (&[("true", ab.clone()), ("x", all.clone())], &all, Some("x || request.namespace in ['a', 'b']")),
            (
                &[("x", a.clone()), ("y", a.clone()), ("z", named(&["b"]))],
                &ab,
                Some("request.namespace == 'a' && (x || y) || request.namespace == 'b' && z"),
            ),
            (&[("x", named(&["b"]))], &ab, Some("request.namespace == 'b' && x")),
        ] {
            assert_eq!(matched(conditions).expression(selected).as_deref(), expected, "{conditions:?}");
        }
    }

    #[test]
    fn too_long_a_condition_is_wider_for_the_namespaces_that_make_it_so() {
        let long = "x".repeat(MAX_BYTES);
        let conditions = [("a", named(&["p"])), (&*long, named(&["q"])), ("b", NamespaceSelection::All)];
        let expression = matched(&conditions).expression(&NamespaceSelection::All).unwrap();
        assert_eq!(expression, "b || request.namespace == 'p' && a || request.namespace == 'q'");
        let many: BTreeSet<String> = (0..200).map(|at| format!("{}{at}", "n".repeat(60))).collect();
        let conditions = [("a", NamespaceSelection::Named(many)), ("b", named(&["p"]))];
        let expression = matched(&conditions).expression(&NamespaceSelection::All).unwrap();
        assert_eq!(expression, "a || request.namespace == 'p' && b");
        let conditions = [("a", named(&["p"])), (&*long, NamespaceSelection::All)];
        assert_eq!(matched(&conditions).expression(&NamespaceSelection::All), None);
    }

    #[test]
    fn missing_writes_are_those_of_other_conditions_and_namespaces() {
        let (a, ab) = (named(&["a"]), named(&["a", "b"]));
        let all = NamespaceSelection::All;
        let wanted = matched(&[("x", ab.clone()), ("y", a.clone()), ("z", all.clone())]);
        assert!(wanted.without(&wanted).is_empty());
        assert!(matched(&[("x", a.clone())]).without(&wanted).is_empty());
        let known = matched(&[("x", a.clone()), ("y", all), ("z", ab)]);
        let missing = wanted.without(&known);
        assert_eq!(missing, matched(&[("x", named(&["b"])), ("z", NamespaceSelection::All)]));
        assert!(missing.has("x", Some("b")) && !missing.has("x", Some("a")) && !missing.has("y", None));
        assert!(missing.has("z", None) && missing.has("z", Some("a")));
        assert!(missing.without(&MatchedWrites::all()).is_empty());
        assert!(!wanted.without(&matched(&[("true", named(&["a"]))])).has("x", Some("a")));
    }
}
