//! Truncates and sanitises text that tenants wrote.

/// Returns the longest prefix of at most `limit` bytes that ends between two characters.
pub(crate) fn truncate(text: &str, limit: usize) -> &str {
    &text[..text.floor_char_boundary(limit)]
}

/// Replaces a character by a space if it controls a terminal, changes the text direction, or is invisible.
pub fn sanitise(character: char) -> char {
    match character {
        // Unicode format characters.
        '\u{ad}'
        | '\u{61c}'
        | '\u{180e}'
        | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{feff}'
        | '\u{fff9}'..='\u{fffb}'
        | '\u{e0000}'..='\u{e007f}' => ' ',
        control if control.is_control() => ' ',
        other => other,
    }
}
