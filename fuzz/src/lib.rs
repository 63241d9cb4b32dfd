//! squelch in process, called as by the API server.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::FutureExt;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use jiff::Timestamp;
use kube::core::{ApiResource, DynamicObject};
use serde_json::{Value, json};
use squelch::api::EventPolicy;
use squelch::policy::{Index, Store};
use squelch::tls::PathToken;
use squelch::webhook::{Router, Webhook, path, router};
use squelch_engine::{Engine, Settings};
use tokio::runtime::{Builder, Runtime};

/// The namespace of the policy.
pub const NAMESPACE: &str = "shop";

/// A webhook with small tables, which reach capacity soon.
pub struct Served {
    router: Router,
    path: String,
    runtime: Runtime,
}

/// The answer.
pub struct Answer {
    pub uid: String,
    pub allowed: bool,
    pub code: Option<u64>,
    pub patch: Option<json_patch::Patch>,
}

impl Served {
    /// A webhook with a policy with this spec.
    pub fn new(spec: &Value) -> Self {
        let token = PathToken::generate().expect("random numbers");
        let settings =
            Settings { seed: [3, 4], max_series: 64, max_pending_series: 16, began: Timestamp::UNIX_EPOCH };
        let webhook = Webhook::new(
            Arc::new(Engine::new(settings)),
            Arc::new(policies(spec)),
            "system:serviceaccount:squelch-system:squelch",
            token.clone(),
        );
        // The deadline of the body needs a runtime.
        let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
        Self { path: path(&token), router: router(Arc::new(webhook)), runtime }
    }

    /// Status and body of the answer.
    pub fn ask(&self, review: &[u8]) -> (u16, Bytes) {
        let _entered = self.runtime.enter();
        let request = Request::post(&self.path)
            .header("content-type", "application/json")
            .body(Full::new(Bytes::copy_from_slice(review)))
            .expect("a request");
        let answer = self.router.route(request).now_or_never().expect("a complete body is answered at once");
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().now_or_never().expect("a body").expect("whole").to_bytes();
        (status, body)
    }
}

impl Answer {
    /// Parses the body of an answer with status 200.
    pub fn read(body: &[u8]) -> Self {
        let answer: Value = serde_json::from_slice(body).expect("an answer is JSON");
        assert_eq!(answer["kind"], "AdmissionReview");
        let response = &answer["response"];
        let code = response["status"]["code"].as_u64();
        assert!(code.is_none_or(|code| matches!(code, 403 | 409)), "{code:?}");
        let allowed = response["allowed"].as_bool().expect("allowed or not");
        assert_eq!(code.is_none(), allowed, "a refusal has a status code");
        let patch = response["patch"].as_str().map(|text| {
            assert_eq!(response["patchType"], "JSONPatch");
            serde_json::from_slice(&STANDARD.decode(text).expect("base64")).expect("a patch")
        });
        Self { uid: response["uid"].as_str().expect("a uid").to_owned(), allowed, code, patch }
    }
}

/// A policy with this spec in [`NAMESPACE`], or none if it is invalid.
pub fn policies(spec: &Value) -> Store {
    let policy = DynamicObject::new("quiet", &ApiResource::erase::<EventPolicy>(&())).within(NAMESPACE);
    let mut policy = policy.data(json!({ "spec": spec }));
    policy.metadata.uid = Some("p1".to_owned());
    let mut index = Index::default();
    index.apply(&policy);
    let store = Store::default();
    store.swap(index.set());
    store
}
