//! Text of tenants: cut, and made harmless.

/// The longest prefix of at most `limit` bytes that ends between two characters.
pub(crate) fn truncate(text: &str, limit: usize) -> &str {
    &text[..text.floor_char_boundary(limit)]
}

/// A blank for what moves a terminal's cursor, turns the direction of what follows, or is not seen at all.
pub fn sanitise(character: char) -> char {
    match character {
        // Format characters of Unicode.
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
