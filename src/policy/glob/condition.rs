//! Globs as conditions in CEL. Not on the path of a write.

use super::Glob;
use crate::cel::quoted;

/// The longest text, in characters, that a condition searches. The API server charges a search by the length of the text,
/// and text in some fields of an Event is not limited. A longer text fulfils the condition.
const MAX_SEARCHED: usize = 1024;

impl Glob {
    /// Returns the only text that the glob matches, as a literal in CEL.
    pub(in crate::policy) fn exact(&self) -> Option<String> {
        match self {
            Self::Literal(text) if is_plain(text) => Some(quoted(text)),
            _ => None,
        }
    }

    /// Returns a condition on the text at the CEL expression `path` that holds for each text that the glob matches, and for
    /// few others. `None`: every text fulfils it.
    pub(in crate::policy) fn condition(&self, path: &str) -> Option<String> {
        let text = match self {
            Self::Any => return None,
            Self::Literal(_) => return self.exact().map(|text| format!("{path} == {text}")),
            Self::Prefix(prefix) if is_plain(prefix) => return Some(starts_with(path, prefix)),
            Self::Pattern(pattern) if is_plain(&pattern.text) => &*pattern.text,
            Self::Prefix(_) | Self::Pattern(_) => return None,
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

/// Whether CEL sees the text as a review has it. A review has U+FFFD in place of bytes that are not valid UTF-8, and CEL
/// sees the bytes.
fn is_plain(text: &str) -> bool {
    !text.contains(char::REPLACEMENT_CHARACTER)
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
            ("bad \u{fffd}", None),
            ("bad \u{fffd}*", None),
            ("*\u{fffd}?", None),
            ("Failed*", Some("t.startsWith('Failed')")),
            ("a?", Some("t.startsWith('a')")),
            ("*.io", Some("(t.size() > 1024 || t.contains('.io'))")),
            ("a*bc?d", Some("t.startsWith('a') && (t.size() > 1024 || t.contains('bc'))")),
        ] {
            assert_eq!(Glob::compile(glob).condition("t").as_deref(), condition, "{glob}");
        }
    }
}
