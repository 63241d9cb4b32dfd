//! squelch in process, and reviews for it.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt;
use http_body_util::{BodyExt, Full};
use hyper::header::CONTENT_TYPE;
use hyper::{Request, Response};
use jiff::Timestamp;
use kube::core::{ApiResource, DynamicObject};
use serde_json::{Value, json};
use squelch::api::EventPolicy;
use squelch::policy::{Index, Store};
use squelch::tls::PathToken;
use squelch::webhook::{Router, Webhook, path, router};
use squelch_engine::{Engine, Settings};

pub(crate) const OWN_USER: &str = "system:serviceaccount:squelch-system:squelch";

/// The measured reviews: repeats, all merged.
#[derive(Clone, Copy)]
pub(crate) enum Asked {
    /// Repeats another Event: refused.
    CoreCreate,
    /// Raises the count: refused.
    CoreUpdate,
    /// Raises the series: restored by a patch.
    EventsUpdate,
}

pub(crate) const ASKED: [Asked; 3] = [Asked::CoreCreate, Asked::CoreUpdate, Asked::EventsUpdate];

/// squelch in process, and reviews for it.
pub(crate) struct Served {
    router: Router,
    path: String,
}

impl Served {
    fn by(spec: &Value) -> Self {
        // Not a random one: gathering entropy takes 400 million instructions, more or fewer in each run.
        let token = PathToken::parse(&"0123456789abcdef".repeat(4)).expect("a token");
        let engine = Engine::new(Settings {
            seed: [3, 4],
            max_series: 1000,
            max_pending_series: 100_000,
            began: Timestamp::UNIX_EPOCH,
        });
        let webhook = Webhook::new(Arc::new(engine), Arc::new(policies(spec)), OWN_USER, token.clone());
        // The API server adds its timeout as a query.
        Self { path: format!("{}?timeout=1s", path(&token)), router: router(Arc::new(webhook)) }
    }

    /// Same as `new`, with open series: each of the reviews repeats one.
    pub(crate) fn warmed(asked: Asked) -> Self {
        Self::warmed_by(&json!({}), asked)
    }

    /// The same under a policy with this `spec`.
    pub(crate) fn warmed_by(spec: &Value, asked: Asked) -> Self {
        let served = Self::by(spec);
        // The same write again reports no occurrence, but takes the same decision path.
        for opening in [asked.opening(), asked.bytes().into()] {
            served.answer(served.request(opening));
        }
        asked.expect(served.answer(served.request(asked.bytes().into())));
        served
    }

    pub(crate) fn request(&self, review: Bytes) -> Request<Full<Bytes>> {
        let head = Request::post(&self.path).header(CONTENT_TYPE, "application/json");
        head.body(Full::new(review)).expect("a request")
    }

    pub(crate) fn answer(&self, request: Request<Full<Bytes>>) -> Response<Full<Bytes>> {
        self.router.route(request).now_or_never().expect("a complete body is answered at once")
    }
}

fn policies(spec: &Value) -> Store {
    let policy = DynamicObject::new("quiet", &ApiResource::erase::<EventPolicy>(&())).within("shop");
    let mut policy = policy.data(json!({ "spec": spec }));
    policy.metadata.uid = Some("p1".to_owned());
    let mut index = Index::default();
    index.apply(&policy);
    let store = Store::default();
    store.swap(index.set());
    store
}

impl Asked {
    /// The review as the API server writes it. Its counts are so high that no repeat doubles them.
    pub(crate) fn bytes(self) -> String {
        match self {
            Self::CoreCreate => {
                // A kubelet quotes the answer to a probe.
                let answer = "upstream request timeout; connection pool exhausted; ".repeat(12);
                replaced(
                    include_str!("../../src/webhook/testdata/core_create.json"),
                    "\"message\":\"",
                    &format!("\"message\":\"{answer}"),
                )
            }
            Self::CoreUpdate => {
                let raised = include_str!("../../src/webhook/testdata/core_update.json");
                let raised = replaced(raised, "\"count\":1,", "\"count\":1000,");
                // Two more than the stored count: a client that adds one each time is answered as the next one.
                replaced(&raised, "\"count\":2,", "\"count\":1002,")
            }
            Self::EventsUpdate => {
                let raised = include_str!("../../src/webhook/testdata/events_update.json");
                let raised = replaced(raised, "\"count\":2,", "\"count\":1001,");
                let series =
                    r#","series":{"count":1000,"lastObservedTime":"2026-11-21T08:54:04.654321Z"}},"dryRun""#;
                replaced(&raised, "},\"dryRun\"", series)
            }
        }
    }

    /// The write that opens the series.
    pub(crate) fn opening(self) -> Bytes {
        match self {
            Self::CoreCreate => self.bytes().replace(".187a2b3c4d5e6f70\"", ".187a2b3c4d5e6f00\"").into(),
            Self::CoreUpdate | Self::EventsUpdate => self.bytes().into(),
        }
    }

    /// Asserts the expected answer.
    pub(crate) fn expect(self, answer: Response<Full<Bytes>>) {
        let body = answer.into_body().collect().now_or_never().and_then(Result::ok).expect("a body");
        let answer: Value = serde_json::from_slice(&body.to_bytes()).expect("JSON");
        let response = &answer["response"];
        let meant = match self {
            Self::CoreCreate | Self::CoreUpdate => response["status"]["code"] == 409,
            Self::EventsUpdate => response["allowed"] == true && response["patchType"] == "JSONPatch",
        };
        assert!(meant, "{self}: {answer}");
    }
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::CoreCreate => "core/v1 CREATE",
            Self::CoreUpdate => "core/v1 UPDATE",
            Self::EventsUpdate => "events.k8s.io/v1 UPDATE",
        };
        write!(f, "{name} of {} B", self.bytes().len())
    }
}

/// `text` with its single occurrence of `from` replaced.
fn replaced(text: &str, from: &str, to: &str) -> String {
    assert_eq!(text.matches(from).count(), 1, "{from}");
    text.replacen(from, to, 1)
}
