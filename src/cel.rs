//! Text in expressions of the Common Expression Language (CEL). Pure.

use std::fmt::Write as _;

/// Returns `text` as a string literal of CEL.
pub(crate) fn quoted(text: &str) -> String {
    let mut literal = String::with_capacity(text.len() + 2);
    literal.push('\'');
    for character in text.chars() {
        match character {
            '\'' | '\\' => literal.extend(['\\', character]),
            _ if character.is_control() => {
                write!(literal, "\\u{:04x}", u32::from(character)).expect("a String takes any text");
            }
            _ => literal.push(character),
        }
    }
    literal.push('\'');
    literal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_literal_ends_at_its_own_quote_only() {
        for (text, literal) in [
            ("kubelet", "'kubelet'"),
            (r"o'neill\", r"'o\'neill\\'"),
            ("a\nb\u{7f}\u{85}", r"'a\u000ab\u007f\u0085'"),
            ("\u{1f642} ü\"", "'\u{1f642} ü\"'"),
            ("", "''"),
        ] {
            assert_eq!(quoted(text), literal);
        }
    }
}
