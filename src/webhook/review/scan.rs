//! The uid of a review of which only the beginning was kept.

use std::cell::RefCell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};

use super::Version;
use super::json::Text;

/// What an answer needs to repeat.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::webhook) struct Asked {
    /// The version to answer in.
    pub(in crate::webhook) version: Version,
    /// `request.uid`.
    pub(in crate::webhook) uid: String,
}

/// Reads version and uid from the beginning of a review: the API server writes them first. The text may break off
/// anywhere behind them. `None` where no uid was found.
pub(in crate::webhook) fn scan(prefix: &[u8]) -> Option<Asked> {
    let found = RefCell::new((Version::default(), None));
    let mut deserializer = serde_json::Deserializer::from_slice(prefix);
    // The error is expected: that is where the text breaks off. What was found before stands.
    let _ = Members { found: &found, depth: Depth::Review }.deserialize(&mut deserializer);
    let (version, uid) = found.into_inner();
    uid.map(|uid| Asked { version, uid })
}

#[derive(Clone, Copy)]
enum Depth {
    Review,
    Request,
}

struct Members<'f> {
    found: &'f RefCell<(Version, Option<String>)>,
    depth: Depth,
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
        f.write_str("an AdmissionReview")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<Text<'de>>()? {
            match (self.depth, key.as_str()) {
                (Depth::Review, "apiVersion") => {
                    self.found.borrow_mut().0 = Version::of(map.next_value::<Text<'de>>()?.as_str());
                }
                (Depth::Review, "request") => {
                    map.next_value_seed(Members { found: self.found, depth: Depth::Request })?;
                }
                (Depth::Request, "uid") => {
                    let uid: Text<'de> = map.next_value()?;
                    self.found.borrow_mut().1 = Some(uid.0.into_owned());
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REVIEW: &str = r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1beta1","request":{"uid":"a\"b","object":{"x":[1,2,"#;

    #[test]
    fn the_uid_is_found_wherever_the_text_breaks_off_behind_it() {
        let behind = REVIEW.find(",\"object").unwrap();
        for end in 0..=REVIEW.len() {
            let found = scan(&REVIEW.as_bytes()[..end]);
            if end >= behind {
                assert_eq!(found, Some(Asked { version: Version::V1Beta1, uid: "a\"b".to_owned() }), "{end}");
            } else {
                assert_eq!(found, None, "{end}");
            }
        }
    }

    #[test]
    fn what_is_no_review_has_no_uid() {
        for none in
            ["", "[]", "null", "{\"uid\":\"x\"}", "{\"request\":null}", "\u{0}", "{\"request\":{\"uid\":3}}"]
        {
            assert_eq!(scan(none.as_bytes()), None, "{none}");
        }
        assert_eq!(scan(&[0xff, 0xfe]), None);
        assert_eq!(scan("[".repeat(100_000).as_bytes()), None);
    }
}
