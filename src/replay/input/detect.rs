//! Detects the format of an input from its beginning.

use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};

use super::Format;

/// The number of bytes that are examined.
pub(super) const PREFIX: usize = 256 << 10;

/// Returns the format of the input, or why it cannot be detected. The text may be truncated anywhere.
pub(super) fn detect(beginning: &[u8]) -> Result<Format, &'static str> {
    let Some(first) = beginning.trim_ascii_start().first() else {
        return Err("the input is empty");
    };
    if *first != b'{' {
        return Err("the input is not a JSON object; provide the output of `kubectl get events -A -o json`");
    }
    let found = Cell::new(None);
    let mut deserializer = serde_json::Deserializer::from_slice(beginning);
    // An error is expected, where the text is truncated or the format is known.
    let _ = FormatVisitor { found: &found }.deserialize(&mut deserializer);
    found.get().ok_or(
        "the format cannot be detected; set --format: list for the output of `kubectl get events -A -o json`, \
         trace for lines of {\"at\", \"operation\", \"user\", \"object\"}, audit for an audit log",
    )
}

struct FormatVisitor<'f> {
    found: &'f Cell<Option<Format>>,
}

impl<'de> DeserializeSeed<'de> for FormatVisitor<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for FormatVisitor<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            let format = match key.as_str() {
                "items" | "involvedObject" | "regarding" => Some(Format::List),
                "at" | "operation" | "oldObject" => Some(Format::Trace),
                "auditID" | "stage" | "requestURI" | "verb" | "objectRef" => Some(Format::Audit),
                _ => None,
            };
            if format.is_some() {
                self.found.set(format);
                return Ok(());
            }
            map.next_value::<IgnoredAny>()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_known_member_decides() {
        for (text, expected) in [
            (r#"{"apiVersion":"v1","items":[{"#, Format::List),
            ("\n{\n  \"kind\": \"EventList\", \"metadata\": {}, \"items\": [", Format::List),
            (r#"{"apiVersion":"v1","count":1,"involvedObject":{}}"#, Format::List),
            (r#"{"object":{"items":[]},"at":1}"#, Format::Trace),
            (r#"{"user":"x","operation":"CREATE","#, Format::Trace),
            (r#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Request","auditID":"#, Format::Audit),
        ] {
            assert_eq!(detect(text.as_bytes()), Ok(expected), "{text}");
        }
    }

    #[test]
    fn an_undetectable_input_is_an_error() {
        for (text, expected) in [
            (" \n", "empty"),
            ("apiVersion: v1\nitems: []", "not a JSON object"),
            ("[]", "not a JSON object"),
            ("{\"kind\":\"Event\"", "--format"),
            ("{}", "--format"),
        ] {
            assert!(detect(text.as_bytes()).unwrap_err().contains(expected), "{text}");
        }
    }
}
