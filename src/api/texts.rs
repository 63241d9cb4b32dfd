//! What the texts of a clause look like. They are globs, so anything would do; but a kind such as `pods` or a type
//! such as `warning` describes no Event at all, and its author would never be told.

use kube::core::Rule;

/// Texts of one field of a clause: which are surely mistaken, told to CEL and to the compilation, and in which
/// sentence they are refused. Whoever means such a text writes `?` for the character that is refused.
#[derive(Clone, Copy, Debug)]
pub struct TextField {
    /// A regular expression that finds a mistaken text.
    mistaken: &'static str,
    /// The same in Rust.
    is_mistaken: fn(&str) -> bool,
    /// What to write.
    sentence: &'static str,
}

/// Entries of `types`.
pub const TYPE: TextField = TextField {
    mistaken: "^[^A-Z*?]|^[A-Z][^a-z*?]|[^A-Za-z0-9*?]",
    is_mistaken: |text| {
        let mut characters = text.chars();
        let first = characters.next();
        first.is_some_and(|c| !c.is_ascii_uppercase() && !wild(c))
            || first.is_some_and(|c| !wild(c))
                && characters.next().is_some_and(|c| !c.is_ascii_lowercase() && !wild(c))
            || text.chars().any(|c| !c.is_ascii_alphanumeric() && !wild(c))
    },
    sentence: "the type of an Event is Normal or Warning, with a capital first letter alone, such as [Warning]",
};

/// Entries of `reasons` and `reportingComponents`.
pub const WORD: TextField = TextField {
    mistaken: r"[,|!^$()\[\]{}\\]",
    is_mistaken: |text| text.contains(NO_GLOB),
    sentence: "only * and ? stand for other text; write each alternative as an entry of its own, such as [BackOff, \"Failed*\"], without commas, brackets, | ! ^ $ and \\ (where one is meant write ?)",
};

/// `kind` of an entry of `regarding`.
pub const KIND: TextField = TextField {
    mistaken: "^[^A-Z*?]|[^A-Za-z0-9*?-]",
    is_mistaken: |text| {
        text.starts_with(|c: char| !c.is_ascii_uppercase() && !wild(c))
            || text.contains(|c: char| !c.is_ascii_alphanumeric() && !wild(c) && c != '-')
    },
    sentence: "kind must be one kind as manifests write it, such as Pod or ReplicaSet (not pod, pods or po); write each alternative as an entry of its own",
};

/// `apiGroup` of an entry of `regarding`.
pub const API_GROUP: TextField = TextField {
    mistaken: "[^a-z0-9.*?-]|^v[0-9][a-z0-9]*$|^core$",
    is_mistaken: |text| {
        text.contains(|c: char| {
            !c.is_ascii_lowercase() && !c.is_ascii_digit() && !wild(c) && !".-".contains(c)
        }) || text.strip_prefix('v').is_some_and(|version| {
            version.starts_with(|c: char| c.is_ascii_digit())
                && version.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit())
        }) || text == "core"
    },
    sentence: "apiGroup must be one group without a version, such as apps or batch, not apps/v1; the core group (Pod, Node, Service) is \"\"",
};

/// `name` of an entry of `regarding`.
pub const NAME: TextField = TextField {
    mistaken: r"[/,|!^$()\[\]{}\\]",
    is_mistaken: |text| text.contains('/') || text.contains(NO_GLOB),
    sentence: "name must be one name or glob, such as web-0 or \"web-*\", without the kind; write each alternative as an entry of its own",
};

/// The most characters of a text with wildcards. (Exact texts may be as long as what they are compared with.)
pub const MOST_GLOB_CHARACTERS: usize = 128;

/// The most wildcards of a text.
pub const MOST_WILDCARDS: usize = 8;

/// The sentence that refuses a text with wildcards that is longer, or not ASCII.
pub const LONG_GLOB: &str = "a text with wildcards has at most 8 of them (* and ?), at most 128 characters, and only characters of ASCII; write a shorter one, such as \"Failed*\", ? for any other character, or exact texts";

/// Checks a text with wildcards; the error is a sentence that says what to write. It is ASCII so that its characters, which
/// CEL counts, are its bytes, which a comparison costs.
pub fn check_glob(text: &str) -> Result<(), &'static str> {
    let wildcards = text.chars().filter(|c| wild(*c)).count();
    let costly = wildcards > 0 && (text.chars().count() > MOST_GLOB_CHARACTERS || !text.is_ascii());
    if wildcards > MOST_WILDCARDS || costly { Err(LONG_GLOB) } else { Ok(()) }
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
        "{text}.matches(r'[*?]([^*?]*[*?]){{{MOST_WILDCARDS}}}') || \
         (size({text}) > {MOST_GLOB_CHARACTERS} || {text}.matches(r'[^[:ascii:]]')) && {text}.matches(r'[*?]')"
    )
}

/// Signs of regular expressions, of the shell's globs and of lists in one text.
const NO_GLOB: [char; 12] = [',', '|', '!', '^', '$', '(', ')', '[', ']', '{', '}', '\\'];

fn wild(character: char) -> bool {
    matches!(character, '*' | '?')
}

impl TextField {
    /// Checks a text; the error is a sentence that says what to write.
    pub fn check(&self, text: &str) -> Result<(), &'static str> {
        if (self.is_mistaken)(text) { Err(self.sentence) } else { Ok(()) }
    }

    /// The CEL rule on a field.
    pub(super) fn rule(&self) -> Rule {
        Rule::new(format!("!self.matches(r'{}')", self.mistaken)).message(self.sentence)
    }

    /// The CEL rule on a list.
    pub(super) fn list_rule(&self) -> Rule {
        Rule::new(format!("!self.exists(text, text.matches(r'{}'))", self.mistaken)).message(self.sentence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(field: TextField, right: &[&str], mistaken: &[&str]) {
        for text in right {
            assert_eq!(field.check(text), Ok(()), "{text}");
        }
        for text in mistaken {
            assert_eq!(field.check(text), Err(field.sentence), "{text}");
        }
    }

    #[test]
    fn a_text_with_wildcards_has_few_of_them_and_is_short() {
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
    fn what_describes_no_event_is_told() {
        all(
            TYPE,
            &["Warning", "Normal", "W*", "*", "?arning"],
            &["warning", "WARNING", "normal", "Normal,Warning"],
        );
        all(
            WORD,
            &["BackOff", "Failed*", "*", "back off", "shop.example.com/sync", ""],
            &["BackOff,Unhealthy", "^Back.*$", "{BackOff,Failed}", "[BF]*", "!BackOff", "Back|Failed", "\\*"],
        );
        all(
            KIND,
            &["Pod", "P*", "*Set", "?ods", "Foo-2"],
            &["pod", "pods", "po*", "Pod,Job", "apps/Deployment"],
        );
        all(
            API_GROUP,
            &["", "apps", "*.k8s.io", "v2.example.com", "vsphere", "*"],
            &["apps/v1", "v1", "v1beta1", "core", "Apps", "apps,batch"],
        );
        all(NAME, &["web-0", "web-*", "system:x", "a.b"], &["pod/web-0", "web-0,web-1", "^web-", "web-[01]"]);
    }
}
