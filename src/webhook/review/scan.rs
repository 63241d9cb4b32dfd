//! Reads the uid from the first bytes of a review.

use super::json::{Text, object};
use super::reader::Reader;
use super::{MAX_UID, ReviewVersion};

/// The fields that a response must repeat.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::webhook) struct ReviewHead {
    /// The version of the review.
    pub(in crate::webhook) version: ReviewVersion,
    /// `request.uid`.
    pub(in crate::webhook) uid: String,
}

/// Reads version and uid, which the API server writes first. The text may end anywhere after them. Returns `None` without a
/// uid, or if it has more than [`MAX_UID`] bytes.
pub(in crate::webhook) fn scan(prefix: &[u8]) -> Option<ReviewHead> {
    // The text may end within a character.
    let text = prefix.utf8_chunks().next().map_or("", |chunk| chunk.valid());
    let mut head = Head::default();
    // An error is expected at the end of the text. The members before it are read.
    let _ = Reader::new(text).object(&mut head, None);
    let uid = head.request.unwrap_or_default().uid.0;
    let is_valid = (1..=MAX_UID).contains(&uid.len());
    is_valid
        .then(|| ReviewHead { version: ReviewVersion::of(head.api_version.as_str()), uid: uid.into_owned() })
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
    fn the_uid_is_found_wherever_the_text_ends_after_it() {
        let uid_end = REVIEW.find(",\"object").unwrap();
        for end in 0..=REVIEW.len() {
            let found = scan(&REVIEW.as_bytes()[..end]);
            if end >= uid_end {
                assert_eq!(
                    found,
                    Some(ReviewHead { version: ReviewVersion::V1Beta1, uid: "a\"b".to_owned() }),
                    "{end}"
                );
            } else {
                assert_eq!(found, None, "{end}");
            }
        }
    }

    #[test]
    fn other_texts_have_no_uid() {
        for none in
            ["", "[]", "null", "{\"uid\":\"x\"}", "{\"request\":null}", "\u{0}", "{\"request\":{\"uid\":3}}"]
        {
            assert_eq!(scan(none.as_bytes()), None, "{none}");
        }
        assert_eq!(scan(&[0xff, 0xfe]), None);
        assert_eq!(scan("[".repeat(100_000).as_bytes()), None);
    }
}
