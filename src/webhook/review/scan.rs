//! The uid of a review of which only the beginning was kept.

use super::Version;
use super::json::{Text, object};
use super::reader::Reader;

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
    // It may break off within a character.
    let text = prefix.utf8_chunks().next().map_or("", |chunk| chunk.valid());
    let mut head = Head::default();
    // The error is expected: that is where the text breaks off. What was read before stands.
    let _ = Reader::new(text).object(&mut head, None);
    let uid = head.request.unwrap_or_default().uid.0.into_owned();
    (!uid.is_empty()).then(|| Asked { version: Version::of(head.api_version.as_str()), uid })
}

#[derive(Debug, Default)]
struct Head<'a> {
    api_version: Text<'a>,
    request: Option<Request<'a>>,
}
object!(Head { "apiVersion" => api_version, "request" => request });

#[derive(Debug, Default)]
struct Request<'a> {
    uid: Text<'a>,
}
object!(Request { "uid" => uid });

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
