//! Scenarios of one namespace whose flushes fail or whose Events are large: no other namespace is affected.

use std::convert::Infallible;
use std::num::NonZeroU32;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream;
use http::{Method, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use kube::Client;
use kube::client::Body;
use serde_json::{Map, Value, json};
use tokio::sync::Barrier;
use tokio_util::sync::CancellationToken;
use tower_test::mock::{self, Handle};

use super::super::event::recreate;
use super::super::writer::Writer;
use super::super::{FlushLimits, flush_all, run};
use super::api_server::{Reply, status};
use super::fixtures::Scene;
use crate::clock;
use crate::metrics::{FlushResult, Metrics};
use squelch_engine::testing::{named, write};
use squelch_engine::{Content, Disposition, Observation};

const SECOND: Duration = Duration::from_secs(1);

/// etcd refuses a write that is too large, or the API server's client of etcd does not send it.
const TOO_LARGE: [&str; 2] = [
    "etcdserver: request is too large",
    "rpc error: code = ResourceExhausted desc = trying to send message larger than max (2101001 vs. 2097152)",
];

fn internal_error(message: &str) -> Reply {
    Reply::Status(500, json!({"kind": "Status", "status": "Failure", "message": message, "code": 500}), None)
}

/// Adds Events to the namespace. Each shows 1 and has one pending occurrence.
fn add_pending(scene: &mut Scene, namespace: &str, events: usize) {
    for number in 0..events {
        for name in [format!("e.{number}"), format!("e.{number}.again")] {
            let mut story = named(&name, write());
            story.event.message = number.to_string().into();
            scene.decide(&Observation { namespace, name: Some(name.clone().into()), ..story });
        }
        if namespace == "shop" {
            scene.server.store_count(&format!("e.{number}"), 1);
        }
    }
}

/// The legacy Event of a scenario in the namespace `evil`, as it is stored.
fn stored() -> Value {
    let mut event = recreate("evil", "e", &Content::of(&write().event), 1, jiff::Timestamp::UNIX_EPOCH);
    event["metadata"]["resourceVersion"] = json!("1");
    event
}

/// An API server that answers reads in the namespace `evil`, and refuses writes there with `answer`.
fn failing(asked: &str, answer: &Reply) -> Option<Reply> {
    if !asked.contains("/namespaces/evil/") {
        return None;
    }
    let read = asked.starts_with("GET");
    Some(if read { Reply::Status(200, stored(), None) } else { answer.clone() })
}

fn failures() -> [Reply; 4] {
    [internal_error(TOO_LARGE[0]), internal_error("failed calling webhook"), status(429), Reply::Nothing]
}

#[tokio::test(start_paused = true)]
async fn occurrences_of_an_event_too_large_for_etcd_are_lost_and_its_next_write_is_admitted() {
    for message in TOO_LARGE {
        let mut scene = Scene::with_pending().await;
        scene.attempt(|call, _| (call == 2).then(|| internal_error(message))).await;
        assert_eq!(
            (scene.flushes(FlushResult::Invalid), scene.lost(), scene.engine.gauges().pending_occurrences),
            (1, 1, 0)
        );
        assert_eq!(scene.decide(&named("cart.9", write())), Some(Disposition::Admitted));
        // The answer to a read says nothing about a write.
        let mut scene = Scene::with_pending().await;
        scene.attempt(|call, _| (call == 1).then(|| internal_error(message))).await;
        assert_eq!(
            (scene.flushes(FlushResult::ServerError), scene.engine.gauges().pending_occurrences),
            (1, 1)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn failing_flushes_of_one_namespace_delay_no_other_namespace() {
    for answer in failures() {
        for evil in [1, 3, 8, 40] {
            let mut scene = Scene::new();
            add_pending(&mut scene, "evil", evil);
            add_pending(&mut scene, "shop", 300);
            tokio::time::advance(2 * SECOND).await;
            let limits = FlushLimits::usual(NonZeroU32::new(20).unwrap());
            let reply = |_, asked: &str| failing(asked, &answer);
            tokio::select! {
                () = run(scene.writer.clone(), limits, CancellationToken::new()) => panic!("run ended by itself"),
                () = scene.server.serve(&mut scene.calls, reply) => panic!("the client is gone"),
                () = tokio::time::sleep(20 * SECOND) => {}
            }
            let pending =
                (0..300).filter(|number| scene.server.count(&format!("e.{number}")) != Some(2)).count();
            assert_eq!(pending, 0, "Events of shop after 20 s, with {evil} of evil and {answer:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn failing_flushes_of_one_namespace_cost_no_other_namespace_its_counts_at_shutdown() {
    for answer in failures() {
        for evil in [0, 1, 3, 8, 40] {
            let mut scene = Scene::new();
            add_pending(&mut scene, "evil", evil);
            add_pending(&mut scene, "shop", 5000);
            tokio::time::advance(2 * SECOND).await;
            scene.engine.drain();
            let began = clock::now();
            let limits = FlushLimits::at_shutdown(NonZeroU32::new(500).unwrap());
            let reply = |_, asked: &str| failing(asked, &answer);
            let flushed = tokio::select! {
                flushed = flush_all(scene.writer.clone(), limits, 30 * SECOND) => flushed,
                () = scene.server.serve(&mut scene.calls, reply) => panic!("the client is gone"),
            };
            let left = scene.engine.discard_pending();
            let lost = left.iter().find(|(namespace, _)| &**namespace == "shop");
            assert_eq!(lost, None, "{evil} Events of evil, {answer:?}");
            if flushed {
                assert!(clock::now().since(began) < 12 * SECOND, "{evil} Events of evil, {answer:?}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_fails_for_every_namespace_is_called_rarely() {
    let mut scene = Scene::new();
    for number in 0..20 {
        add_pending(&mut scene, &format!("n{number}"), 20);
    }
    tokio::time::advance(2 * SECOND).await;
    let limits = FlushLimits::usual(NonZeroU32::new(20).unwrap());
    tokio::select! {
        () = run(scene.writer.clone(), limits, CancellationToken::new()) => panic!("run ended by itself"),
        () = scene.server.serve(&mut scene.calls, |_, _| Some(status(503))) => panic!("the client is gone"),
        () = tokio::time::sleep(60 * SECOND) => {}
    }
    // About ten at first, then one after each pause of 1, 2, 4, 8, 16 and 30 s.
    let calls = scene.server.requests.len();
    assert!(calls <= 20, "{calls} calls to a broken API server in a minute");
}

/// The longest answer that squelch reads.
const LONGEST: usize = 2 << 20;

type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// An Event of about this many bytes in JSON, as the API server returns it. Labels, owners and `managedFields` are a
/// third each. etcd accepts up to 1.5 MiB in its own, shorter encoding.
fn large(bytes: usize) -> Bytes {
    let mut event = stored();
    let entries = |size: usize| 0..bytes / 3 / size;
    let labels = entries(r#""k00000":"","#.len()).map(|number| (format!("k{number:05}"), json!("")));
    event["metadata"]["labels"] = Value::Object(labels.collect::<Map<_, _>>());
    let owner =
        |number: usize| json!({"apiVersion": "v", "kind": "k", "name": "n", "uid": format!("{number:04x}")});
    event["metadata"]["ownerReferences"] = entries(owner(0).to_string().len() + 1).map(owner).collect();
    let fields = entries(r#""k:{\"uid\":\"0000\"}":{},"#.len());
    let fields: Map<_, _> =
        fields.map(|number| (format!("k:{{\"uid\":\"{number:04x}\"}}"), json!({}))).collect();
    event["metadata"]["managedFields"] = json!([{"fieldsType": "FieldsV1", "fieldsV1": fields}]);
    event.to_string().into()
}

/// Answers with `text` in pieces of 16 KiB. The last one waits for `barrier`; `sent` counts the bytes.
fn in_pieces(text: &Bytes, barrier: &Arc<Barrier>, sent: &Arc<AtomicUsize>) -> Answer {
    const PIECE: usize = 16 << 10;
    let (text, barrier, sent) = (text.clone(), barrier.clone(), sent.clone());
    let pieces = stream::iter((0..text.len()).step_by(PIECE)).then(move |at| {
        let (text, barrier, sent) = (text.clone(), barrier.clone(), sent.clone());
        async move {
            let end = text.len().min(at + PIECE);
            if end == text.len() {
                barrier.wait().await;
            }
            sent.fetch_add(end - at, Ordering::Relaxed);
            Ok::<_, Infallible>(Frame::data(Bytes::copy_from_slice(&text[at..end])))
        }
    });
    Response::new(StreamBody::new(pieces).boxed_unsync())
}

/// A writer for the engine of this scene, with an API server that answers in pieces.
fn with_pieces(scene: &Scene) -> (Arc<Writer>, Handle<Request<Body>, Answer>) {
    let (service, calls) = mock::pair();
    let client = Client::new(service, "default");
    (Arc::new(Writer::new(client, scene.engine.clone(), Arc::new(Metrics::new()))), calls)
}

#[tokio::test(start_paused = true)]
async fn an_event_too_large_to_read_is_read_up_to_the_limit_and_its_occurrences_are_lost() {
    let mut scene = Scene::new();
    add_pending(&mut scene, "evil", 1);
    tokio::time::advance(3 * SECOND).await;
    let (writer, mut calls) = with_pieces(&scene);
    let (barrier, sent) = (Arc::new(Barrier::new(1)), Arc::new(AtomicUsize::new(0)));
    let text = large(3 * LONGEST);
    let task = writer.take(scene.engine.tick(clock::now(), 10).remove(0));
    let serving = async {
        while let Some((request, send)) = calls.next_request().await {
            assert_eq!(request.method(), Method::GET, "an Event that cannot be read is not written");
            send.send_response(in_pieces(&text, &barrier, &sent));
        }
    };
    tokio::select! {
        _ = writer.flush(task) => {},
        () = serving => panic!("the client is gone"),
    }
    assert!(sent.load(Ordering::Relaxed) < LONGEST + (64 << 10), "{sent:?} bytes were read");
    assert_eq!((scene.lost(), scene.engine.gauges().pending_occurrences), (1, 0));
    let next = Observation { namespace: "evil", ..named("e.9", write()) };
    assert_eq!(scene.decide(&next), Some(Disposition::Admitted));
}

/// The resident memory of this process now (`VmRSS`) or its maximum so far (`VmHWM`), in MiB.
fn resident(which: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(which)).unwrap();
    let kib = line.trim_matches([':', ' ', '\t']).split(' ').next().unwrap();
    kib.parse::<u64>().unwrap() >> 10
}

/// Reads the longest possible Events, all in flight at the same time, until each is to be written. Returns the memory
/// that this took, in MiB.
async fn memory_of_flushes(limits: FlushLimits) -> u64 {
    let mut scene = Scene::new();
    // Two namespaces, because one cannot have all flushes in flight.
    for namespace in ["evil", "evil-too"] {
        add_pending(&mut scene, namespace, limits.in_flight / 2);
    }
    tokio::time::advance(3 * SECOND).await;
    scene.engine.drain();
    let (writer, mut calls) = with_pieces(&scene);
    let text = large(LONGEST - (64 << 10));
    assert!((LONGEST * 3 / 4..LONGEST).contains(&text.len()), "{}", text.len());
    let (barrier, sent) = (Arc::new(Barrier::new(limits.in_flight)), Arc::new(AtomicUsize::new(0)));
    let before = resident("VmRSS");
    let mut writes = Vec::new();
    let serving = async {
        while writes.len() < limits.in_flight {
            let (request, send) = calls.next_request().await.unwrap();
            if request.method() == Method::GET {
                send.send_response(in_pieces(&text, &barrier, &sent));
            } else {
                writes.push(send);
            }
        }
    };
    tokio::select! {
        () = run(writer, limits, CancellationToken::new()) => panic!("run ended by itself"),
        () = serving => {}
    }
    resident("VmHWM").saturating_sub(before)
}

/// This test runs in a process of its own, because other tests take memory too.
#[test]
fn flushes_of_large_events_at_shutdown_stay_within_their_memory_bound() {
    const NAME: &str =
        "flush::tests::tenants::flushes_of_large_events_at_shutdown_stay_within_their_memory_bound";
    const ALONE: &str = "SQUELCH_TEST_ALONE";
    if std::env::var_os(ALONE).is_none() {
        let mut alone = Command::new(std::env::current_exe().unwrap());
        let output = alone.args(["--exact", NAME, "--nocapture"]).env(ALONE, "1").output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let limits = FlushLimits::at_shutdown(NonZeroU32::new(500).unwrap());
    let taken = runtime.unwrap().block_on(memory_of_flushes(limits));
    // 32 answers of 2 MiB each, and as much again for what the allocator keeps and for the answer that is being
    // parsed.
    let bound = 4 * u64::try_from(limits.in_flight).unwrap();
    assert!(taken <= bound, "{taken} MiB for {} flushes, not {bound} MiB", limits.in_flight);
}
