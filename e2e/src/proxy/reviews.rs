//! What became of each review between the API server and squelch, counted to the last one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::Value;

use super::asked::Asked;
use super::recording::Recording;
use super::relay::Look;
use crate::accounts::SQUELCH;

/// The reviews of one namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Reviews that the API server asked for.
    pub asked: u64,
    /// Those that squelch never saw: n.
    pub cut_before: u64,
    /// Those that squelch decided and whose answer the API server never got: m.
    pub cut_after: u64,
    /// Those of `cut_after` that squelch held back: the API server let them pass all the same.
    pub held_back_in_vain: u64,
    /// Those that squelch was asked about its own writes.
    pub own: u64,
}

/// Every review by its uid: one that the API server asks for twice is one.
#[derive(Default)]
pub(super) struct Reviews {
    fates: Mutex<HashMap<String, Fate>>,
    /// There once somebody wants the writes themselves.
    pub(super) recording: OnceLock<Recording>,
}

struct Fate {
    namespace: String,
    own: bool,
    /// Whether squelch held it back; `None` until it has answered.
    held_back: Option<bool>,
    told: bool,
}

impl Look for Arc<Reviews> {
    fn asked(&self, asked: &Asked, body: Bytes) -> Bytes {
        self.change(asked, |_| {});
        if let (Some(recording), Some(_)) = (self.recording.get(), &asked.review) {
            recording.hear(&body);
        }
        body
    }

    fn decided(&self, asked: &Asked, answer: &[u8]) {
        let held_back = holds_back(answer);
        self.change(asked, |fate| fate.held_back = Some(held_back));
    }

    fn told(&self, asked: &Asked) {
        self.change(asked, |fate| fate.told = true);
    }
}

impl Reviews {
    /// What has become of those of a namespace so far.
    pub(super) fn tally(&self, namespace: &str) -> Tally {
        let fates = self.fates.lock().unwrap_or_else(PoisonError::into_inner);
        let mut tally = Tally::default();
        for fate in fates.values().filter(|fate| fate.namespace == namespace) {
            tally.asked += 1;
            tally.own += u64::from(fate.own);
            match fate.held_back {
                None => tally.cut_before += 1,
                Some(held_back) if !fate.told => {
                    tally.cut_after += 1;
                    tally.held_back_in_vain += u64::from(held_back);
                }
                Some(_) => {}
            }
        }
        tally
    }

    fn change(&self, asked: &Asked, change: impl FnOnce(&mut Fate)) {
        let Some(review) = &asked.review else { return };
        let mut fates = self.fates.lock().unwrap_or_else(PoisonError::into_inner);
        change(fates.entry(review.uid.clone()).or_insert_with(|| Fate {
            namespace: review.namespace.clone(),
            own: review.user_info.username == SQUELCH.user(),
            held_back: None,
            told: false,
        }));
    }
}

/// Denied, or patched back to what is stored. (A patch that gives an Event its name does not hold it back.)
fn holds_back(answer: &[u8]) -> bool {
    let answer: Value = serde_json::from_slice(answer).unwrap_or_default();
    let response = &answer["response"];
    let patch = response["patch"].as_str().and_then(|patch| STANDARD.decode(patch).ok()).unwrap_or_default();
    let patch: Value = serde_json::from_slice(&patch).unwrap_or_default();
    let mut operations = patch.as_array().into_iter().flatten();
    response["allowed"] == false || operations.any(|operation| operation["path"] != "/metadata/name")
}

#[cfg(test)]
mod tests {
    use http::Method;
    use serde_json::json;

    use super::super::asked::{Reviewed, User};
    use super::*;

    const DENIED: &[u8] = br#"{"response":{"uid":"u","allowed":false}}"#;
    const ALLOWED: &[u8] = br#"{"response":{"uid":"u","allowed":true}}"#;

    fn review(uid: &str) -> Asked {
        let username = if uid == "told" { SQUELCH.user() } else { "emitter".to_owned() };
        let review = Reviewed {
            uid: uid.into(),
            namespace: "a".into(),
            operation: "CREATE".into(),
            user_info: User { username },
        };
        Asked { method: Method::POST, path: "/token".into(), watch: false, review: Some(review) }
    }

    #[test]
    fn each_review_is_counted_once_by_how_it_ended() {
        let reviews = Arc::<Reviews>::default();
        for uid in ["never seen", "told", "held back in vain", "allowed in vain"] {
            reviews.asked(&review(uid), Bytes::new());
        }
        reviews.decided(&review("told"), DENIED);
        reviews.told(&review("told"));
        reviews.decided(&review("held back in vain"), DENIED);
        reviews.decided(&review("allowed in vain"), ALLOWED);
        let expected = Tally { asked: 4, cut_before: 1, cut_after: 2, held_back_in_vain: 1, own: 1 };
        assert_eq!(reviews.tally("a"), expected);
        assert_eq!(reviews.tally("b"), Tally::default());

        // The API server comes again with the same review, and hears this time.
        reviews.asked(&review("never seen"), Bytes::new());
        reviews.decided(&review("never seen"), ALLOWED);
        reviews.told(&review("never seen"));
        assert_eq!(reviews.tally("a"), Tally { cut_before: 0, ..expected });
    }

    #[test]
    fn a_name_is_given_and_a_count_is_held_back() {
        let patched = |path: &str| {
            let patch = STANDARD.encode(json!([{ "op": "add", "path": path, "value": "v" }]).to_string());
            json!({ "response": { "allowed": true, "patchType": "JSONPatch", "patch": patch } }).to_string()
        };
        assert!(holds_back(DENIED) && !holds_back(ALLOWED));
        assert!(holds_back(patched("/series").as_bytes()));
        assert!(!holds_back(patched("/metadata/name").as_bytes()));
    }
}
