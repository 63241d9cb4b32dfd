//! What a call is about, as far as rules and counts care.

use http::Method;
use http::request::Parts;
use serde::Deserialize;

/// One call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The HTTP method.
    pub method: Method,
    /// The path, without its query.
    pub path: String,
    /// It asks for changes as they come.
    pub watch: bool,
    /// There if it is the API server that asks about a write.
    pub review: Option<Reviewed>,
}

/// The write that a review is about.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Reviewed {
    /// The review's own number.
    pub uid: String,
    /// The namespace of the Event.
    pub namespace: String,
    /// CREATE or UPDATE.
    pub operation: String,
    /// Who writes.
    pub user_info: User,
}

/// A user as the API server knows it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct User {
    /// Its name.
    pub username: String,
}

#[derive(Deserialize)]
struct AdmissionReview {
    request: Reviewed,
}

impl Asked {
    pub(super) fn of(parts: &Parts, body: &[u8]) -> Self {
        let query = parts.uri.query().unwrap_or_default();
        // The API server calls webhooks by POST, and to it nothing is posted that reads as a review.
        let review = (parts.method == Method::POST).then(|| serde_json::from_slice(body).ok()).flatten();
        Self {
            method: parts.method.clone(),
            path: parts.uri.path().to_owned(),
            watch: query.split('&').any(|pair| matches!(pair, "watch=true" | "watch=1")),
            review: review.map(|review: AdmissionReview| review.request),
        }
    }

    /// It changes something.
    pub fn writes(&self) -> bool {
        self.method != Method::GET
    }

    /// It is about objects of this kind, named in the plural as in a path.
    pub fn is_about(&self, resource: &str) -> bool {
        self.path.split('/').any(|part| part == resource)
    }

    /// It is about an object, or all objects, of this namespace; a review: an Event of it.
    pub fn is_within(&self, namespace: &str) -> bool {
        match &self.review {
            Some(review) => review.namespace == namespace,
            None => {
                self.path.split('/').collect::<Vec<_>>().windows(2).any(|w| w == ["namespaces", namespace])
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn asked(method: Method, uri: &str, body: &str) -> Asked {
        let request = Request::builder().method(method).uri(uri).body(()).unwrap();
        Asked::of(&request.into_parts().0, body.as_bytes())
    }

    #[test]
    fn a_call_of_the_api_is_known_by_its_path() {
        let watch =
            asked(Method::GET, "/apis/squelch.dev/v1alpha1/eventpolicies?watch=true&timeoutSeconds=290", "");
        assert!(watch.watch && !watch.writes() && watch.is_about("eventpolicies") && !watch.is_within("a"));
        let patch = asked(Method::PATCH, "/api/v1/namespaces/a/events/pod.1?fieldManager=squelch", "{}");
        assert!(!patch.watch && patch.writes() && patch.is_about("events") && patch.is_within("a"));
        assert!(!patch.is_within("b") && patch.review.is_none());
    }

    #[test]
    fn a_review_is_known_by_its_body() {
        let body = r#"{"kind":"AdmissionReview","request":{"uid":"u","namespace":"a","operation":"CREATE",
            "userInfo":{"username":"jane","uid":"1"},"dryRun":false}}"#;
        let review = asked(Method::POST, "/token?timeout=1s", body);
        assert!(review.is_within("a") && !review.is_within("b"));
        assert_eq!(review.review.unwrap().uid, "u");
    }
}
