//! The memory that squelch needs to list policies and namespaces with large metadata. A separate test binary, because
//! the allocator counts the whole process.

#![expect(clippy::unwrap_used, reason = "a test, also in the functions around it")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use http::{Request, Response, Uri};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use kube::Client;
use kube::client::Body;
use serde_json::{Map, json};
use squelch::api::PAGE;
use squelch::policy::{Restrictions, Store, watch};
use tower_test::mock;

/// Allocated bytes.
static LIVE: AtomicUsize = AtomicUsize::new(0);
/// The maximum of [`LIVE`] since its last reset.
static PEAK: AtomicUsize = AtomicUsize::new(0);

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[expect(unsafe_code, reason = "there is no other way to see allocations")]
// SAFETY: every call goes to the system's allocator as it came; counting allocates nothing. `realloc` is the default
// one: a new allocation, a copy, and then the release of the old one.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let live = LIVE.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(live, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `dealloc`, and `pointer` came from the system's allocator.
        unsafe { System.dealloc(pointer, layout) }
    }
}

const MIB: usize = 1 << 20;

/// Maximum size of an object in etcd: 1.5 MiB.
const MOST_OBJECT_BYTES: usize = 3 * MIB / 2;

/// With their managedFields, this number of labels takes 1.4 MiB.
const LABELS: usize = 60_000;

/// Objects of each kind.
const OBJECTS: usize = 50;

/// The metadata of an object with the maximum number of labels.
fn metadata() -> String {
    let key = |number: usize| format!("l{number:04x}");
    let labels: Map<_, _> = (0..LABELS).map(|number| (key(number), json!(""))).collect();
    let fields: Map<_, _> = (0..LABELS).map(|number| (format!("f:{}", key(number)), json!({}))).collect();
    let metadata = json!({
        "resourceVersion": "1", "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z", "labels": labels,
        "managedFields": [{
            "manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
            "time": "2026-01-01T00:00:00Z", "fieldsV1": {"f:metadata": {"f:labels": fields}},
        }],
    });
    let text = metadata.to_string();
    assert!((5 * MIB / 4..MOST_OBJECT_BYTES).contains(&text.len()), "{}", text.len());
    text
}

fn parameter<'a>(uri: &'a Uri, name: &str) -> Option<&'a str> {
    let mut parameters = uri.query()?.split('&').filter_map(|parameter| parameter.split_once('='));
    parameters.find(|(key, _)| *key == name).map(|(_, value)| value)
}

type Chunks = BoxBody<Bytes, Infallible>;

/// A page of a list, in chunks as from the API server.
fn page(uri: &Uri, metadata: &str) -> Chunks {
    let first: usize = parameter(uri, "continue").map_or(0, |token| token.parse().unwrap());
    let limit = parameter(uri, "limit").map_or(OBJECTS, |limit| limit.parse().unwrap());
    let end = OBJECTS.min(first + limit);
    let next = if end < OBJECTS { end.to_string() } else { String::new() };
    let namespace = if uri.path().contains("/eventpolicies") { r#""namespace":"evil","# } else { "" };
    let list =
        format!(r#"{{"kind":"List","metadata":{{"resourceVersion":"1","continue":"{next}"}},"items":["#);
    // Minimal allocations: this server's memory counts too, instead of the chunks that kube receives.
    let mut text = String::with_capacity((end - first) * MOST_OBJECT_BYTES);
    text.push_str(&list);
    for number in first..end {
        let comma = if number == first { "" } else { "," };
        let rest = metadata.strip_prefix('{').unwrap();
        text.push_str(&format!(
            r#"{comma}{{"spec":{{}},"metadata":{{"name":"o{number}","uid":"o{number}",{namespace}{rest}}}"#
        ));
    }
    text.push_str("]}");
    let text = Bytes::from(text);
    let chunks = (0..text.len()).step_by(16 << 10);
    let chunks = chunks.map(move |at| text.slice(at..text.len().min(at + (16 << 10))));
    BodyExt::boxed(StreamBody::new(stream::iter(chunks.map(|chunk| Ok(Frame::data(chunk))))))
}

/// kube holds three copies of a page while it reads it: the chunks, one buffer of them, and its text. Three lists
/// start together. Nothing else may grow with the size of the objects.
const MOST_LISTING: usize = 3 * 3 * PAGE as usize * MOST_OBJECT_BYTES;

/// 129 labels of a namespace are kept: less than 16 KiB of these short ones. A policy takes less.
const MOST_KEPT: usize = 2 * OBJECTS * (16 << 10);

#[tokio::test]
async fn lists_of_objects_with_large_metadata_take_a_bounded_amount_of_memory() {
    let metadata = metadata();
    let (service, mut calls) = mock::pair::<Request<Body>, Response<Chunks>>();
    let store = Arc::new(Store::default());
    let (_restrictions, restrictions) = tokio::sync::watch::channel(Restrictions::default());
    let watching = watch::run(Client::new(service, "default"), store.clone(), restrictions, |_| {});
    let serving = async {
        let mut watches = Vec::new();
        while let Some((request, send)) = calls.next_request().await {
            if parameter(request.uri(), "watch") == Some("true") {
                watches.push(send);
                continue;
            }
            send.send_response(Response::new(page(request.uri(), &metadata)));
        }
    };
    let before = LIVE.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let listed = async {
        while !store.listed() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        // Until the watches have started, and the last page is freed.
        tokio::time::sleep(Duration::from_millis(200)).await;
        LIVE.load(Ordering::Relaxed) - before
    };
    let kept = tokio::select! {
        () = watching => panic!("a watch must not end"),
        () = serving => panic!("the client must not be dropped"),
        kept = listed => kept,
    };
    let peak = PEAK.load(Ordering::Relaxed) - before;
    assert_eq!(store.load().policies().len(), 2 * OBJECTS);
    assert!(store.load().has_namespace("o49"));
    eprintln!("{} MiB while listing, {} KiB kept", peak / MIB, kept >> 10);
    assert!(peak < MOST_LISTING, "{} MiB while listing, at most {}", peak / MIB, MOST_LISTING / MIB);
    assert!(kept < MOST_KEPT, "{} KiB kept, at most {}", kept >> 10, MOST_KEPT >> 10);
}
