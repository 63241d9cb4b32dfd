//! Truncates and sanitises text that tenants wrote.

use std::borrow::Cow;

/// Returns the longest prefix of at most `limit` bytes that ends between two characters.
pub fn truncate(text: &str, limit: usize) -> &str {
    &text[..text.floor_char_boundary(limit)]
}

/// Truncates `text` in place, without a copy.
pub(crate) fn cut(text: &mut Cow<'_, str>, limit: usize) {
    let length = text.floor_char_boundary(limit);
    match text {
        Cow::Borrowed(text) => *text = &text[..length],
        Cow::Owned(text) => text.truncate(length),
    }
}

/// Replaces a character by a space if it controls a terminal, changes the text direction, is invisible, or is not allowed
/// in YAML.
pub fn sanitise(character: char) -> char {
    match character {
        // Unicode's Default_Ignorable_Code_Point, line and paragraph separators, annotation characters, the blank Braille
        // pattern, and the two noncharacters that YAML excludes.
        '\u{ad}'
        | '\u{34f}'
        | '\u{61c}'
        | '\u{115f}'..='\u{1160}'
        | '\u{17b4}'..='\u{17b5}'
        | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{2800}'
        | '\u{3164}'
        | '\u{fe00}'..='\u{fe0f}'
        | '\u{feff}'
        | '\u{ffa0}'
        | '\u{fff0}'..='\u{fffb}'
        | '\u{fffe}'..='\u{ffff}'
        | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e0fff}' => ' ',
        control if control.is_control() => ' ',
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invisible_character_is_replaced_by_a_space() {
        let invisible = [
            "\u{115f}\u{1160}\u{3164}\u{ffa0}\u{34f}\u{17b4}\u{180b}\u{fe0f}",
            "\u{e0100}\u{1d173}\u{2800}\u{200b}\u{7}\u{fffe}\u{ffff}",
        ];
        assert_eq!(invisible.concat().chars().map(sanitise).collect::<String>().trim_matches(' '), "");
        assert_eq!("Ä-b_1 \u{1f600}".chars().map(sanitise).collect::<String>(), "Ä-b_1 \u{1f600}");
    }
}
