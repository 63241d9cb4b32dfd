//! Classes of the bytes of a message.

/// A byte of a word; so are all bytes of characters other than ASCII.
pub(super) const WORD: u8 = 1;
/// A decimal digit.
pub(super) const DIGIT: u8 = 2;
/// A hexadecimal digit without upper case.
pub(super) const LOWER_HEX: u8 = 4;
/// A hexadecimal digit without lower case.
pub(super) const UPPER_HEX: u8 = 8;
/// A hexadecimal digit.
pub(super) const HEX: u8 = 16;
/// A byte of the names that Kubernetes generates (apimachinery, util/rand).
pub(super) const GENERATED: u8 = 32;
/// A byte of a duration: a decimal digit, a letter of a unit, or a byte of a character other than ASCII, as `µ`.
pub(super) const DURATION: u8 = 64;
/// A byte of a quantity.
pub(super) const QUANTITY: u8 = 128;

/// The classes of each byte. A table, because each byte of each message is looked up.
pub(super) static CLASSES: [u8; 256] = {
    let mut classes = [0; 256];
    let mut at = 0;
    while at < 256 {
        let byte = at as u8;
        classes[at] = match byte {
            b'0'..=b'9' => WORD | DIGIT | LOWER_HEX | UPPER_HEX | HEX | DURATION | QUANTITY,
            b'a'..=b'f' => WORD | LOWER_HEX | HEX,
            b'A'..=b'F' => WORD | UPPER_HEX | HEX,
            b'g'..=b'z' | b'G'..=b'Z' | b'_' => WORD,
            128.. => WORD | DURATION,
            _ => 0,
        };
        at += 1;
    }
    classes = with(classes, GENERATED, b"bcdfghjklmnpqrstvwxz2456789");
    classes = with(classes, DURATION, b"nusmhd");
    with(classes, QUANTITY, b"numkKMGTPEiB")
};

/// Adds a class to these bytes.
const fn with(mut classes: [u8; 256], class: u8, bytes: &[u8]) -> [u8; 256] {
    let mut at = 0;
    while at < bytes.len() {
        classes[bytes[at] as usize] |= class;
        at += 1;
    }
    classes
}

/// Whether the byte has one of these classes.
pub(super) fn is(byte: u8, class: u8) -> bool {
    CLASSES[usize::from(byte)] & class != 0
}

pub(super) fn is_word(byte: u8) -> bool {
    is(byte, WORD)
}

/// Returns the number of bytes at the begin that belong.
pub(super) fn leading(bytes: &[u8], belongs: impl Fn(u8) -> bool) -> usize {
    bytes.iter().position(|byte| !belongs(*byte)).unwrap_or(bytes.len())
}
