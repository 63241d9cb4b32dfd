//! The outcome of each review between the API server and squelch.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::Value;

use super::call::ProxiedCall;
use super::recording::Recording;
use super::relay::Observer;
use crate::accounts::SQUELCH;

/// The reviews of one namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReviewCounts {
    /// Reviews that the API server sent.
    pub asked: u64,
    /// n: reviews that did not reach squelch.
    pub cut_before: u64,
    /// m: reviews that squelch decided, but whose answer did not reach the API server.
    pub cut_after: u64,
    /// Reviews of `cut_after` that squelch suppressed: the API server admitted them.
    pub suppressed_in_vain: u64,
    /// Reviews of squelch's own writes.
    pub own: u64,
}

/// The reviews by uid; a repeated review counts once.
#[derive(Default)]
pub(super) struct Reviews {
    fates: Mutex<HashMap<String, Fate>>,
    /// The recording, once requested.
    pub(super) recording: OnceLock<Recording>,
}

struct Fate {
    namespace: String,
    own: bool,
    /// Whether squelch suppressed it; `None` until its answer.
    suppressed: Option<bool>,
    delivered: bool,
}

impl Observer for Arc<Reviews> {
    fn asked(&self, asked: &ProxiedCall, body: Bytes) -> Bytes {
        self.change(asked, |_| {});
        if let (Some(recording), Some(_)) = (self.recording.get(), &asked.review) {
            recording.record(&body);
        }
        body
    }

    fn decided(&self, asked: &ProxiedCall, answer: &[u8]) {
        let suppressed = suppresses(answer);
        self.change(asked, |fate| fate.suppressed = Some(suppressed));
    }

    fn delivered(&self, asked: &ProxiedCall) {
        self.change(asked, |fate| fate.delivered = true);
    }
}

impl Reviews {
    /// The counts of a namespace so far.
    pub(super) fn counts(&self, namespace: &str) -> ReviewCounts {
        let fates = self.fates.lock().unwrap_or_else(PoisonError::into_inner);
        let mut tally = ReviewCounts::default();
        for fate in fates.values().filter(|fate| fate.namespace == namespace) {
            tally.asked += 1;
            tally.own += u64::from(fate.own);
            match fate.suppressed {
                None => tally.cut_before += 1,
                Some(suppressed) if !fate.delivered => {
                    tally.cut_after += 1;
                    tally.suppressed_in_vain += u64::from(suppressed);
                }
                Some(_) => {}
            }
        }
        tally
    }

    fn change(&self, asked: &ProxiedCall, change: impl FnOnce(&mut Fate)) {
        let Some(review) = &asked.review else { return };
        let mut fates = self.fates.lock().unwrap_or_else(PoisonError::into_inner);
        change(fates.entry(review.uid.clone()).or_insert_with(|| Fate {
            namespace: review.namespace.clone(),
            own: review.user_info.username == SQUELCH.user(),
            suppressed: None,
            delivered: false,
        }));
    }
}

/// Whether an answer suppresses the write: denied, or patched back to the stored Event. (A patch that names an Event
/// does not suppress it.)
fn suppresses(answer: &[u8]) -> bool {
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

    use super::super::call::{Reviewed, User};
    use super::*;

    const DENIED: &[u8] = br#"{"response":{"uid":"u","allowed":false}}"#;
    const ALLOWED: &[u8] = br#"{"response":{"uid":"u","allowed":true}}"#;

    fn review(uid: &str) -> ProxiedCall {
        let username = if uid == "delivered" { SQUELCH.user() } else { "emitter".to_owned() };
        let review = Reviewed {
            uid: uid.into(),
            namespace: "a".into(),
            operation: "CREATE".into(),
            user_info: User { username },
        };
        ProxiedCall { method: Method::POST, path: "/token".into(), watch: false, review: Some(review) }
    }

    #[test]
    fn each_review_is_counted_once_by_its_outcome() {
        let reviews = Arc::<Reviews>::default();
        for uid in ["never seen", "delivered", "suppressed in vain", "allowed in vain"] {
            reviews.asked(&review(uid), Bytes::new());
        }
        reviews.decided(&review("delivered"), DENIED);
        reviews.delivered(&review("delivered"));
        reviews.decided(&review("suppressed in vain"), DENIED);
        reviews.decided(&review("allowed in vain"), ALLOWED);
        let expected = ReviewCounts { asked: 4, cut_before: 1, cut_after: 2, suppressed_in_vain: 1, own: 1 };
        assert_eq!(reviews.counts("a"), expected);
        assert_eq!(reviews.counts("b"), ReviewCounts::default());

        // The API server sends the same review again, and gets the answer.
        reviews.asked(&review("never seen"), Bytes::new());
        reviews.decided(&review("never seen"), ALLOWED);
        reviews.delivered(&review("never seen"));
        assert_eq!(reviews.counts("a"), ReviewCounts { cut_before: 0, ..expected });
    }

    #[test]
    fn a_patch_of_a_name_is_no_suppression() {
        let patched = |path: &str| {
            let patch = STANDARD.encode(json!([{ "op": "add", "path": path, "value": "v" }]).to_string());
            json!({ "response": { "allowed": true, "patchType": "JSONPatch", "patch": patch } }).to_string()
        };
        assert!(suppresses(DENIED) && !suppresses(ALLOWED));
        assert!(suppresses(patched("/series").as_bytes()));
        assert!(!suppresses(patched("/metadata/name").as_bytes()));
    }
}
