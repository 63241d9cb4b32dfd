//! Validation of the texts in clauses. Any text is a valid glob, but some can match no Event, such as the kind `pods`.
//! Rejecting them reports the mistake to the author.

use kube::core::Rule;

/// The texts of one field of a clause: which are invalid, for CEL and for the compilation, and the message for them. A user
/// who needs a rejected character can write `?` in its place.
#[derive(Clone, Copy, Debug)]
pub struct TextField {
    /// Regular expression that matches invalid texts.
    invalid: &'static str,
    /// The same test in Rust.
    is_invalid: fn(&str) -> bool,
    /// Message for an invalid text.
    message: &'static str,
}

/// Entries of `reasons` and `reportingComponents`.
pub const WORD: TextField = TextField {
    invalid: r"[,|!^$()\[\]{}\\]",
    is_invalid: |text| text.contains(NO_GLOB),
    message: "only the wildcards * and ? are supported; add an entry for each alternative, such as [BackOff, \"Failed*\"], and use ? in place of commas, brackets, | ! ^ $ and \\",
};

/// `kind` of an entry of `regarding`.
pub const KIND: TextField = TextField {
    invalid: "^[^A-Z*?]|[^A-Za-z0-9*?-]",
    is_invalid: |text| {
        text.starts_with(|c: char| !c.is_ascii_uppercase() && !wild(c))
            || text.contains(|c: char| !c.is_ascii_alphanumeric() && !wild(c) && c != '-')
    },
    message: "kind must be one kind as in a manifest, such as Pod or ReplicaSet (not pod, pods or po); add an entry for each alternative",
};

/// `apiGroup` of an entry of `regarding`.
pub const API_GROUP: TextField = TextField {
    invalid: "[^a-z0-9.*?-]|^v[0-9][a-z0-9]*$|^core$",
    is_invalid: |text| {
        text.contains(|c: char| {
            !c.is_ascii_lowercase() && !c.is_ascii_digit() && !wild(c) && !".-".contains(c)
        }) || text.strip_prefix('v').is_some_and(|version| {
            version.starts_with(|c: char| c.is_ascii_digit())
                && version.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit())
        }) || text == "core"
    },
    message: "apiGroup must be one group without a version, such as apps or batch (not apps/v1); the core group (Pod, Node, Service) is \"\"",
};

/// `name` of an entry of `regarding`.
pub const NAME: TextField = TextField {
    invalid: r"[/,|!^$()\[\]{}\\]",
    is_invalid: |text| text.contains('/') || text.contains(NO_GLOB),
    message: "name must be one name or glob without the kind, such as web-0 or \"web-*\"; add an entry for each alternative",
};

/// Maximum number of characters in a text with wildcards. Exact texts can be longer.
pub const MAX_GLOB_CHARACTERS: usize = 128;

/// Maximum number of wildcards in a text.
pub const MAX_WILDCARDS: usize = 8;

/// Message for a text with wildcards that exceeds these limits or is not ASCII.
pub const LONG_GLOB: &str = "a text with wildcards must have at most 8 wildcards (* and ?) and 128 characters, all of them ASCII; use a shorter text, such as \"Failed*\", or exact texts, and ? in place of other characters";

/// Checks a text with wildcards. The error is a message. Such a text must be ASCII so that its number of characters, which
/// CEL counts, is its number of bytes, which determines the cost of a comparison.
pub fn check_glob(text: &str) -> Result<(), &'static str> {
    let wildcards = text.chars().filter(|c| wild(*c)).count();
    let costly = wildcards > 0 && (text.chars().count() > MAX_GLOB_CHARACTERS || !text.is_ascii());
    if wildcards > MAX_WILDCARDS || costly { Err(LONG_GLOB) } else { Ok(()) }
}

/// [`check_glob`] as the CEL rule on a field.
pub(super) fn glob_rule() -> Rule {
    Rule::new(format!("!({})", long_glob("self"))).message(LONG_GLOB)
}

/// [`check_glob`] as the CEL rule on a list.
pub(super) fn glob_list_rule() -> Rule {
    Rule::new(format!("!self.exists(text, {})", long_glob("text"))).message(LONG_GLOB)
}

fn long_glob(text: &str) -> String {
    format!(
        "{text}.matches(r'[*?]([^*?]*[*?]){{{MAX_WILDCARDS}}}') || \
         (size({text}) > {MAX_GLOB_CHARACTERS} || {text}.matches(r'[^[:ascii:]]')) && {text}.matches(r'[*?]')"
    )
}

/// Characters that indicate a regular expression, a shell glob, or a list in one text.
const NO_GLOB: [char; 12] = [',', '|', '!', '^', '$', '(', ')', '[', ']', '{', '}', '\\'];

fn wild(character: char) -> bool {
    matches!(character, '*' | '?')
}

impl TextField {
    /// Checks a text. The error is a message with valid examples.
    pub fn check(&self, text: &str) -> Result<(), &'static str> {
        if (self.is_invalid)(text) { Err(self.message) } else { Ok(()) }
    }

    /// The CEL rule on a field.
    pub(super) fn rule(&self) -> Rule {
        Rule::new(format!("!self.matches(r'{}')", self.invalid)).message(self.message)
    }

    /// The CEL rule on a list.
    pub(super) fn list_rule(&self) -> Rule {
        Rule::new(format!("!self.exists(text, text.matches(r'{}'))", self.invalid)).message(self.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_all(field: TextField, valid: &[&str], invalid: &[&str]) {
        for text in valid {
            assert_eq!(field.check(text), Ok(()), "{text}");
        }
        for text in invalid {
            assert_eq!(field.check(text), Err(field.message), "{text}");
        }
    }

    #[test]
    fn texts_with_wildcards_are_limited_in_length_and_wildcards() {
        let (wildcards, characters) = ("*?".repeat(4), "x".repeat(127));
        for good in [&wildcards, &format!("{characters}*"), &"ä".repeat(511), "", "*"] {
            assert_eq!(check_glob(good), Ok(()), "{good}");
        }
        for long in [
            format!("{wildcards}x*"),
            format!("{characters}x*"),
            format!("?{}", "x".repeat(128)),
            "ä*".into(),
        ] {
            assert_eq!(check_glob(&long), Err(LONG_GLOB), "{long}");
        }
    }

    #[test]
    fn texts_that_match_no_event_are_rejected() {
        check_all(
            WORD,
            &["BackOff", "Failed*", "*", "back off", "shop.example.com/sync", ""],
            &["BackOff,Unhealthy", "^Back.*$", "{BackOff,Failed}", "[BF]*", "!BackOff", "Back|Failed", "\\*"],
        );
        check_all(
            KIND,
            &["Pod", "P*", "*Set", "?ods", "Foo-2"],
            &["pod", "pods", "po*", "Pod,Job", "apps/Deployment"],
        );
        check_all(
            API_GROUP,
            &["", "apps", "*.k8s.io", "v2.example.com", "vsphere", "*"],
            &["apps/v1", "v1", "v1beta1", "core", "Apps", "apps,batch"],
        );
        check_all(
            NAME,
            &["web-0", "web-*", "system:x", "a.b"],
            &["pod/web-0", "web-0,web-1", "^web-", "web-[01]"],
        );
    }
}
