//! Names of Events that a client creates with `generateName`.

/// Alphabet of the API server's generated names (apimachinery, util/rand).
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// Number of random characters in a generated name.
const MINTED: usize = 10;

/// Maximum length of an object name.
const MAX_NAME: usize = 253;

/// Generates a name for an Event with `generateName`, so that the flush finds it.
pub(super) fn minted_name(generate_name: &str, mut bits: u128) -> String {
    let mut name = crate::text::truncate(generate_name, MAX_NAME - MINTED).to_owned();
    for _ in 0..MINTED {
        name.push(char::from(ALPHABET[(bits % 27) as usize]));
        bits /= 27;
    }
    name
}
