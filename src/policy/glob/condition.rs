//! Globs as conditions in CEL. Not on the path of a write.

use super::Glob;
use crate::cel::quoted;

/// The longest text, in characters, that a condition searches. The API server charges a search by the length of the text,
/// and text in some fields of an Event is not limited. A longer text fulfils the condition.
const MAX_SEARCHED: usize = 1024;

impl Glob {
    /// Returns a condition on the text at the CEL expression `path` that holds for each text that the glob matches, and for
    /// few others. `None`: every text fulfils it.
    pub(in crate::policy) fn condition(&self, path: &str) -> Option<String> {
        let text = match self {
            Self::Any => return None,
            Self::Literal(literal) => return Some(format!("{path} == {}", quoted(literal))),
            Self::Prefix(prefix) => return Some(starts_with(path, prefix)),
            Self::Pattern(pattern) => &*pattern.text,
        };
        let mut parts = text.split(['*', '?']);
        let prefix = parts.next().unwrap_or_default();
        // The glob reads the first bytes of a text only. So its last part need not be at the end of the text.
        let longest = parts.max_by_key(|part| part.len()).unwrap_or_default();
        let searched = || format!("({path}.size() > {MAX_SEARCHED} || {path}.contains({}))", quoted(longest));
        match (prefix.is_empty(), longest.is_empty()) {
            (true, true) => None,
            (false, true) => Some(starts_with(path, prefix)),
            (true, false) => Some(searched()),
            (false, false) => Some(format!("{} && {}", starts_with(path, prefix), searched())),
        }
    }
}

fn starts_with(path: &str, prefix: &str) -> String {
    format!("{path}.startsWith({})", quoted(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_glob_is_a_condition_that_costs_little() {
        for (glob, condition) in [
            ("*", None),
            ("?", None),
            ("*??*", None),
            ("BackOff", Some("t == 'BackOff'")),
            ("Failed*", Some("t.startsWith('Failed')")),
            ("a?", Some("t.startsWith('a')")),
            ("*.io", Some("(t.size() > 1024 || t.contains('.io'))")),
            ("a*bc?d", Some("t.startsWith('a') && (t.size() > 1024 || t.contains('bc'))")),
        ] {
            assert_eq!(Glob::compile(glob).condition("t").as_deref(), condition, "{glob}");
        }
    }
}
