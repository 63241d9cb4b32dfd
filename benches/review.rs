//! How long a whole review takes: decode, decide, encode; beside it what others need to decode the same bytes.

use std::fmt;
use std::hint::black_box;
use std::sync::Arc;

use bytes::Bytes;
use divan::Bencher;
use futures::FutureExt;
use http_body_util::{BodyExt, Full};
use hyper::header::CONTENT_TYPE;
use hyper::{Request, Response};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::core::admission::AdmissionReview;
use kube::core::{ApiResource, DynamicObject};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use squelch::api::EventPolicy;
use squelch::clock::Clock;
use squelch::engine::{Engine, Settings};
use squelch::leader::Term;
use squelch::metrics::Metrics;
use squelch::policy::{Index, Store};
use squelch::tls::{AcceptedTokens, PathToken};
use squelch::webhook::{Router, Webhook, path, review, router};

const OWN_USER: &str = "system:serviceaccount:squelch-system:squelch";

/// The reviews that are measured: all of repeats, all held back.
#[derive(Clone, Copy)]
enum Asked {
    /// Of what another Event tells already: refused.
    CoreCreate,
    /// Of a raised count: refused.
    CoreUpdate,
    /// Of a raised series: restored by a patch.
    EventsUpdate,
}

const ASKED: [Asked; 3] = [Asked::CoreCreate, Asked::CoreUpdate, Asked::EventsUpdate];

fn main() {
    // Many short samples: the median leaves out what else the machine does. Options go first.
    divan::Divan::default().sample_count(500).sample_size(20).config_with_args().main();
}

/// squelch, from the bytes of the review to those of the answer: the router in the process.
#[divan::bench(args = ASKED)]
fn whole(bencher: Bencher<'_, '_>, asked: Asked) {
    // A body has a deadline, which only a runtime can keep.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let _entered = runtime.enter();
    let served = Served::new();
    let bytes = Bytes::from(asked.bytes());
    // The same write again carries nothing new, but is decided like one that does.
    for opening in [asked.opening(), bytes.clone()] {
        served.answer(served.request(opening));
    }
    asked.expect(served.answer(served.request(bytes.clone())));
    bencher
        .with_inputs(|| served.request(bytes.clone()))
        .bench_local_values(|request| served.answer(request));
    asked.expect(served.answer(served.request(bytes)));
}

/// squelch, as far as the observation that the engine decides by.
#[divan::bench(args = ASKED)]
fn decode(bencher: Bencher<'_, '_>, asked: Asked) {
    let bytes = asked.bytes();
    bencher.bench_local(|| {
        let review = review::decode(black_box(bytes.as_bytes())).expect("a review");
        black_box(review.observe(OWN_USER, Timestamp::UNIX_EPOCH)).is_ok()
    });
}

/// kube's review of a typed Event, decoded.
#[divan::bench(args = ASKED)]
fn kube_event(bencher: Bencher<'_, '_>, asked: Asked) {
    decode_as::<AdmissionReview<Event>>(bencher, asked);
}

/// kube's review of a dynamic object, decoded.
#[divan::bench(args = ASKED)]
fn kube_dynamic(bencher: Bencher<'_, '_>, asked: Asked) {
    decode_as::<AdmissionReview<DynamicObject>>(bencher, asked);
}

/// The review as untyped JSON, decoded.
#[divan::bench(args = ASKED)]
fn json_value(bencher: Bencher<'_, '_>, asked: Asked) {
    decode_as::<Value>(bencher, asked);
}

fn decode_as<T: DeserializeOwned>(bencher: Bencher<'_, '_>, asked: Asked) {
    let bytes = asked.bytes();
    bencher.bench_local(|| serde_json::from_slice::<T>(black_box(bytes.as_bytes())).expect("a review"));
}

/// squelch in the process, with a policy in namespace shop.
struct Served {
    router: Router,
    path: String,
}

impl Served {
    fn new() -> Self {
        let token = PathToken::generate().expect("random numbers");
        let engine = Engine::new(Settings {
            seed: [3, 4],
            max_series: 1000,
            max_owing: 100_000,
            began: Timestamp::UNIX_EPOCH,
        });
        let webhook = Webhook {
            engine: Arc::new(engine),
            policies: Arc::new(policies()),
            metrics: Arc::new(Metrics::new()),
            own_user: OWN_USER.to_owned(),
            tokens: Arc::new(AcceptedTokens::new(vec![token.clone()])),
            clock: Clock::default(),
            term: Arc::new(Term::endless()),
        };
        // The API server adds its timeout as a query.
        Self { path: format!("{}?timeout=1s", path(&token)), router: router(Arc::new(webhook)) }
    }

    fn request(&self, review: Bytes) -> Request<Full<Bytes>> {
        let head = Request::post(&self.path).header(CONTENT_TYPE, "application/json");
        head.body(Full::new(review)).expect("a request")
    }

    fn answer(&self, request: Request<Full<Bytes>>) -> Response<Full<Bytes>> {
        self.router.route(request).now_or_never().expect("a body that is there is answered at once")
    }
}

fn policies() -> Store {
    let policy = DynamicObject::new("quiet", &ApiResource::erase::<EventPolicy>(&())).within("shop");
    let mut policy = policy.data(json!({"spec": {}}));
    policy.metadata.uid = Some("p1".to_owned());
    let mut index = Index::default();
    index.apply(&policy);
    let store = Store::default();
    store.swap(index.set());
    store
}

impl Asked {
    /// The review as the API server writes it. Its counts are so high that no repeat doubles them.
    fn bytes(self) -> String {
        match self {
            Self::CoreCreate => {
                // A kubelet quotes what a probe answered.
                let answer = "upstream request timeout; connection pool exhausted; ".repeat(12);
                replaced(
                    include_str!("../src/webhook/testdata/core_create.json"),
                    "\"message\":\"",
                    &format!("\"message\":\"{answer}"),
                )
            }
            Self::CoreUpdate => {
                let raised = include_str!("../src/webhook/testdata/core_update.json");
                let raised = replaced(raised, "\"count\":1,", "\"count\":1000,");
                replaced(&raised, "\"count\":2,", "\"count\":1001,")
            }
            Self::EventsUpdate => {
                let raised = include_str!("../src/webhook/testdata/events_update.json");
                let raised = replaced(raised, "\"count\":2,", "\"count\":1001,");
                let series =
                    r#","series":{"count":1000,"lastObservedTime":"2026-11-21T08:54:04.654321Z"}},"dryRun""#;
                replaced(&raised, "},\"dryRun\"", series)
            }
        }
    }

    /// What opens the series.
    fn opening(self) -> Bytes {
        match self {
            Self::CoreCreate => self.bytes().replace(".187a2b3c4d5e6f70\"", ".187a2b3c4d5e6f00\"").into(),
            Self::CoreUpdate | Self::EventsUpdate => self.bytes().into(),
        }
    }

    /// The review is answered as meant.
    fn expect(self, answer: Response<Full<Bytes>>) {
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

/// `text` with the one `from` in it replaced.
fn replaced(text: &str, from: &str, to: &str) -> String {
    assert_eq!(text.matches(from).count(), 1, "{from}");
    text.replacen(from, to, 1)
}
