//! Time of a whole review: decode, decide, encode; and of other decoders on the same bytes.

use std::hint::black_box;

use bytes::Bytes;
use divan::Bencher;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::core::DynamicObject;
use kube::core::admission::AdmissionReview;
use mimalloc::MiMalloc;
use serde::de::DeserializeOwned;
use serde_json::Value;
use squelch::webhook::review;

mod served;

use served::{ASKED, Asked, OWN_USER, Served};

/// The allocator of `squelch`.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() {
    // Many short samples: the median then excludes other work of the machine. Options go first.
    divan::Divan::default().sample_count(500).sample_size(20).config_with_args().main();
}

/// squelch, from the bytes of the review to those of the answer, through the router in process.
#[divan::bench(args = ASKED)]
fn whole(bencher: Bencher<'_, '_>, asked: Asked) {
    // The deadline of the body needs a runtime.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let _entered = runtime.enter();
    let served = Served::warmed(asked);
    let bytes = Bytes::from(asked.bytes());
    bencher
        .with_inputs(|| served.request(bytes.clone()))
        .bench_local_values(|request| served.answer(request));
    asked.expect(served.answer(served.request(bytes)));
}

/// squelch, up to the observation for the engine.
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
