//! The properties of a call that rules and counts use.

use http::Method;
use http::request::Parts;
use serde::Deserialize;

/// One call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxiedCall {
    /// The HTTP method.
    pub method: Method,
    /// The path, without its query.
    pub path: String,
    /// Whether it is a watch.
    pub watch: bool,
    /// The reviewed write, if the call is an admission review.
    pub review: Option<Reviewed>,
}

/// The write of a review.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Reviewed {
    /// The uid of the review.
    pub uid: String,
    /// The namespace of the Event.
    pub namespace: String,
    /// CREATE or UPDATE.
    pub operation: String,
    /// The user.
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

impl ProxiedCall {
    pub(super) fn of(parts: &Parts, body: &[u8]) -> Self {
        let query = parts.uri.query().unwrap_or_default();
        // The API server calls webhooks by POST; no POST to the API server parses as a review.
        let review = (parts.method == Method::POST).then(|| serde_json::from_slice(body).ok()).flatten();
        Self {
            method: parts.method.clone(),
            path: parts.uri.path().to_owned(),
            watch: query.split('&').any(|pair| matches!(pair, "watch=true" | "watch=1")),
            review: review.map(|review: AdmissionReview| review.request),
        }
    }

    /// Whether it changes something.
    pub fn writes(&self) -> bool {
        self.method != Method::GET
    }

    /// Whether it is about objects of this resource (plural).
    pub fn is_about(&self, resource: &str) -> bool {
        self.path.split('/').any(|part| part == resource)
    }

    /// Whether it is about an object, or all objects, of this namespace; a review: about an Event in it.
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

    fn asked(method: Method, uri: &str, body: &str) -> ProxiedCall {
        let request = Request::builder().method(method).uri(uri).body(()).unwrap();
        ProxiedCall::of(&request.into_parts().0, body.as_bytes())
    }

    #[test]
    fn an_api_call_is_classified_by_its_path() {
        let watch =
            asked(Method::GET, "/apis/squelch.dev/v1alpha1/eventpolicies?watch=true&timeoutSeconds=290", "");
        assert!(watch.watch && !watch.writes() && watch.is_about("eventpolicies") && !watch.is_within("a"));
        let patch = asked(Method::PATCH, "/api/v1/namespaces/a/events/pod.1?fieldManager=squelch", "{}");
        assert!(!patch.watch && patch.writes() && patch.is_about("events") && patch.is_within("a"));
        assert!(!patch.is_within("b") && patch.review.is_none());
    }

    #[test]
    fn a_review_is_recognized_by_its_body() {
        let body = r#"{"kind":"AdmissionReview","request":{"uid":"u","namespace":"a","operation":"CREATE",
            "userInfo":{"username":"jane","uid":"1"},"dryRun":false}}"#;
        let review = asked(Method::POST, "/token?timeout=1s", body);
        assert!(review.is_within("a") && !review.is_within("b"));
        assert_eq!(review.review.unwrap().uid, "u");
    }
}
