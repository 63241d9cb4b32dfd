//! What an input is, told from its beginning.

use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};

use super::Format;

/// So many bytes are looked at.
pub(super) const PREFIX: usize = 256 << 10;

/// Tells what the input is, or why that cannot be told. The text may break off anywhere.
pub(super) fn recognise(beginning: &[u8]) -> Result<Format, &'static str> {
    let Some(first) = beginning.trim_ascii_start().first() else {
        return Err("it is empty: there is nothing to replay");
    };
    if *first != b'{' {
        return Err("it is no JSON object; print Events with `kubectl get events -A -o json`");
    }
    let found = Cell::new(None);
    let mut deserializer = serde_json::Deserializer::from_slice(beginning);
    // The error is expected: that is where the text breaks off, or where enough is known.
    let _ = Members { found: &found }.deserialize(&mut deserializer);
    found.get().ok_or(
        "it cannot be told what this is; say it with --format: list for `kubectl get events -A -o json`, \
         trace for lines of {\"at\", \"operation\", \"user\", \"object\"}, audit for an audit log",
    )
}

struct Members<'f> {
    found: &'f Cell<Option<Format>>,
}

impl<'de> DeserializeSeed<'de> for Members<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Members<'_> {
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
    fn the_first_telling_member_tells() {
        for (text, expected) in [
            (r#"{"apiVersion":"v1","items":[{"#, Format::List),
            ("\n{\n  \"kind\": \"EventList\", \"metadata\": {}, \"items\": [", Format::List),
            (r#"{"apiVersion":"v1","count":1,"involvedObject":{}}"#, Format::List),
            (r#"{"object":{"items":[]},"at":1}"#, Format::Trace),
            (r#"{"user":"x","operation":"CREATE","#, Format::Trace),
            (r#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Request","auditID":"#, Format::Audit),
        ] {
            assert_eq!(recognise(text.as_bytes()), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_not_told_is_asked_for() {
        for (text, expected) in [
            (" \n", "empty"),
            ("apiVersion: v1\nitems: []", "no JSON object"),
            ("[]", "no JSON object"),
            ("{\"kind\":\"Event\"", "--format"),
            ("{}", "--format"),
        ] {
            assert!(recognise(text.as_bytes()).unwrap_err().contains(expected), "{text}");
        }
    }
}
