//! Flush scenarios at the HTTP seam: a real engine, a real client, and an API server that each scenario scripts.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use squelch_engine::testing::{named, update, write};
use squelch_engine::{AggregationRules, Disposition, GroupBy, Observation};
use tokio_util::sync::CancellationToken;

use super::super::refusal::Refusal;
use super::super::{FlushLimits, flush_all, run};
use super::fixtures::{HEARTBEAT, IDLE, Reply, Scene, details, status};
use crate::clock;
use crate::metrics::FlushResult;

const SECOND: Duration = Duration::from_secs(1);

fn limits(qps: u32) -> FlushLimits {
    FlushLimits::usual(NonZeroU32::new(qps).unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_pending_occurrence_is_flushed_by_one_read_and_one_write() {
    let mut scene = Scene::with_pending().await;
    scene.flush_until_done().await;
    let base = "/api/v1/namespaces/shop/events/cart.1";
    let asked: Vec<&str> = scene.server.requests.iter().map(|(_, asked)| &**asked).collect();
    assert_eq!(asked, [format!("GET {base}"), format!("PATCH {base}?&fieldManager=squelch")]);
    assert_eq!(scene.server.count("cart.1"), Some(2));
    assert_eq!((scene.engine.gauges().pending_occurrences, scene.flushes(FlushResult::Written)), (0, 1));
}

/// What happens to a pending occurrence.
#[derive(Debug, PartialEq)]
enum Fate {
    /// It is due again after this many seconds, plus or minus a third.
    Pending(f64),
    Lost,
}

/// Every way in which a call can fail, and what follows.
#[tokio::test(start_paused = true)]
async fn each_failure_has_its_metric_label_and_next_step() {
    use FlushResult::*;
    let terminating = json!({"causes": [{"reason": "NamespaceTerminating"}]});
    let no_namespace = json!({"kind": "namespaces"});
    let plain = |text: &str, code, seconds| Reply::Status(code, json!(text), Some(seconds));
    for (reply, result, fate) in [
        (details(403, &terminating), Terminating, Fate::Lost),
        (details(404, &no_namespace), Terminating, Fate::Lost),
        (status(422), Invalid, Fate::Lost),
        (status(400), Invalid, Fate::Lost),
        (status(413), Invalid, Fate::Lost),
        (details(403, &json!({"kind": "events"})), Forbidden, Fate::Pending(30.0)),
        (status(401), Forbidden, Fate::Pending(30.0)),
        (plain("Too many requests, please try again later.", 429, 7), TooManyRequests, Fate::Pending(7.0)),
        (status(429), TooManyRequests, Fate::Pending(0.75)),
        (plain("no endpoints", 503, 3), ServerError, Fate::Pending(3.0)),
        (status(500), ServerError, Fate::Pending(0.75)),
        (Reply::Nothing, Timeout, Fate::Pending(0.75)),
        (Reply::Breaks, Disconnected, Fate::Pending(0.75)),
        (Reply::Nonsense, Unexpected, Fate::Pending(0.75)),
        (status(302), Unexpected, Fate::Pending(0.75)),
    ] {
        // The answer is to the read, and to the write.
        for to in 1..=2 {
            let mut scene = Scene::with_pending().await;
            let outcome = scene.attempt(|call, _| (call == to).then(|| reply.clone())).await;
            assert!(outcome.retry.is_none(), "{reply:?}");
            assert_eq!(scene.flushes(result), 1, "{reply:?} to call {to}");
            let (pending, lost) = (scene.engine.gauges().pending_occurrences, scene.lost());
            match fate {
                Fate::Lost => {
                    assert_eq!((pending, lost, scene.engine.gauges().series), (0, 1, 0), "{reply:?}");
                }
                Fate::Pending(after) => {
                    assert_eq!((pending, lost), (1, 0), "{reply:?}");
                    let due = scene.due_after().unwrap().as_secs_f64();
                    let most = if after < 1.0 { 1.0 } else { after };
                    assert!((after * 0.66..=most + 0.1).contains(&due), "{reply:?}: due after {due} s");
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_times_out_after_ten_seconds() {
    let mut scene = Scene::with_pending().await;
    let before = clock::now();
    let outcome = scene.attempt(|call, _| (call == 2).then_some(Reply::Nothing)).await;
    assert_eq!(outcome.refusal, Some(Refusal::Timeout));
    assert_eq!(clock::now().since(before).as_secs(), 10);
}

#[tokio::test(start_paused = true)]
async fn a_write_whose_answer_was_lost_is_not_repeated() {
    let mut scene = Scene::with_pending().await;
    scene.attempt(|call, _| (call == 2).then_some(Reply::NothingButDidIt)).await;
    assert_eq!(
        (scene.server.count("cart.1"), scene.engine.gauges().pending_occurrences),
        (Some(2), 1),
        "squelch does not know yet"
    );
    tokio::time::advance(SECOND).await;
    scene.flush_until_done().await;
    assert_eq!(scene.server.verbs(), ["GET"]);
    assert_eq!((scene.server.count("cart.1"), scene.engine.gauges().pending_occurrences), (Some(2), 0));
}

#[tokio::test(start_paused = true)]
async fn an_event_that_changed_since_it_was_read_is_read_again() {
    let mut scene = Scene::with_pending().await;
    let outcome = scene.attempt(|call, _| (call == 2).then(|| status(409))).await;
    assert_eq!(outcome.refusal, Some(Refusal::Conflict));
    // Meanwhile a client has raised the count: no occurrence is left for squelch to write.
    scene.server.store_count("cart.1", 5);
    let retry = outcome.retry.unwrap();
    assert!(scene.attempt_again(retry, |_, _| None).await.retry.is_none());
    assert_eq!(scene.server.count("cart.1"), Some(5), "never lowered");
    assert_eq!((scene.flushes(FlushResult::Conflict), scene.flushes(FlushResult::Confirmed)), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn an_event_deleted_since_it_was_read_is_recreated_with_the_full_count() {
    let mut scene = Scene::with_pending().await;
    let outcome =
        scene.attempt(|call, _| (call == 2).then(|| details(404, &json!({"kind": "events"})))).await;
    assert_eq!(outcome.refusal, Some(Refusal::Gone));
    scene.server.events.clear();
    scene.attempt_again(outcome.retry.unwrap(), |_, _| None).await;
    assert_eq!(scene.server.verbs(), ["GET", "GET", "POST"]);
    assert_eq!((scene.server.count("cart.1"), scene.flushes(FlushResult::Created)), (Some(2), 1));
}

/// The watch of namespaces may be minutes late: the engine still has the series of the former namespace.
#[tokio::test(start_paused = true)]
async fn an_event_of_a_former_namespace_is_not_created_in_the_next_one() {
    for uid in [Some("ns-2"), None] {
        let mut scene = Scene::gone().await;
        scene.server.namespace_uid = uid;
        assert_eq!(scene.attempt(|_, _| None).await.refusal, Some(Refusal::Terminating));
        assert_eq!(scene.server.verbs(), ["GET", "GET"], "{uid:?}");
        assert_eq!((scene.lost(), scene.engine.gauges().pending_occurrences), (2, 0), "{uid:?}");
    }
}

/// The watch shows the next namespace between the reads of the Event and of the namespace.
#[tokio::test(start_paused = true)]
async fn a_namespace_recreated_during_a_flush_gets_no_event_of_the_former_one() {
    let mut scene = Scene::gone().await;
    let engine = scene.engine.clone();
    scene.server.namespace_uid = Some("ns-2");
    let outcome = scene.attempt(|call, _| {
        if call == 2 {
            engine.identify_namespaces(&Arc::new([("shop".into(), "ns-2".into())].into()));
        }
        None
    });
    assert_eq!(outcome.await.refusal, Some(Refusal::Terminating));
    assert_eq!((scene.server.verbs(), scene.lost()), (vec!["GET", "GET"], 2));
}

#[tokio::test(start_paused = true)]
async fn occurrences_stay_pending_if_the_namespace_cannot_be_read() {
    for reply in [status(500), status(403), Reply::Nothing, Reply::Breaks, Reply::Nonsense] {
        let mut scene = Scene::gone().await;
        scene.attempt(|call, _| (call == 2).then(|| reply.clone())).await;
        assert_eq!((scene.server.verbs(), scene.lost()), (vec!["GET", "GET"], 0), "{reply:?}");
        assert_eq!(scene.engine.gauges().pending_occurrences, 2, "{reply:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_waits_after_eight_conflicts() {
    let mut scene = Scene::with_pending().await;
    let mut outcome = scene.attempt(|call, _| (call == 2).then(|| status(409))).await;
    let mut attempts = 1;
    while let Some(retry) = outcome.retry {
        outcome = scene.attempt_again(retry, |call, _| (call == 2).then(|| status(409))).await;
        attempts += 1;
    }
    assert_eq!(
        (attempts, scene.flushes(FlushResult::Conflict), scene.engine.gauges().pending_occurrences),
        (8, 8, 1)
    );
    assert!(scene.due_after().is_some_and(|after| !after.is_zero()));
}

#[tokio::test(start_paused = true)]
async fn occurrences_stay_pending_if_another_webhook_lowers_the_count() {
    let mut scene = Scene::with_pending().await;
    let shows_one = json!({"count": 1, "metadata": {"resourceVersion": "9"}});
    let outcome =
        scene.attempt(|call, _| (call == 2).then(|| Reply::Status(200, shows_one.clone(), None))).await;
    assert_eq!(outcome.refusal, Some(Refusal::Unexpected));
    assert_eq!(scene.engine.gauges().pending_occurrences, 1);
}

#[tokio::test(start_paused = true)]
async fn the_pauses_of_a_flush_task_grow_up_to_five_minutes() {
    let mut scene = Scene::with_pending().await;
    let mut pauses = Vec::new();
    for _ in 0..14 {
        scene.attempt(|_, _| Some(status(500))).await;
        let due = scene.due_after().unwrap();
        pauses.push(due.as_secs_f64());
        tokio::time::advance(due).await;
    }
    for (failures, pause) in pauses.iter().enumerate() {
        let longest = f64::powi(2.0, failures as i32).min(300.0);
        assert!((longest / 2.0..=longest + 0.1).contains(pause), "{pauses:?}");
    }
    scene.flush_until_done().await;
    scene.merge();
    scene.merge();
    assert_eq!(scene.due_after(), Some(Duration::ZERO), "the next occurrence does not wait for the last");
}

#[tokio::test(start_paused = true)]
async fn no_call_is_made_for_an_invalid_event_name() {
    for name in ["../../other/events/theirs", "a%2Fb", "..", "."] {
        let mut scene = Scene::new();
        scene.decide(&named(name, write()));
        scene.merge();
        tokio::time::advance(2 * SECOND).await;
        let outcome = scene.attempt(|_, _| None).await;
        assert_eq!(outcome.refusal, Some(Refusal::Invalid), "{name}");
        assert!(scene.server.requests.is_empty(), "{:?}", scene.server.requests);
        assert_eq!((scene.lost(), scene.engine.gauges().pending_occurrences), (1, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn no_call_is_made_for_an_invalid_namespace() {
    for namespace in ["squelch/pods/POD?a=", "..", "%2e%2e", "", "a#b"] {
        let mut scene = Scene::new();
        for name in ["cart.1", "cart.2"] {
            scene.decide(&Observation { namespace, ..named(name, write()) });
        }
        tokio::time::advance(2 * SECOND).await;
        let outcome = scene.attempt(|_, _| None).await;
        assert_eq!(outcome.refusal, Some(Refusal::Invalid), "{namespace}");
        assert!(scene.server.requests.is_empty(), "{:?}", scene.server.requests);
        assert_eq!((scene.lost(), scene.engine.gauges().pending_occurrences), (1, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn any_other_name_is_escaped_as_one_path_segment() {
    for name in ["a?dryRun=All", "a#b", "a b", "ü"] {
        let mut scene = Scene::new();
        scene.decide(&named(name, write()));
        scene.server.store_count(name, 1);
        scene.merge();
        tokio::time::advance(2 * SECOND).await;
        scene.flush_until_done().await;
        assert_eq!(
            (scene.server.count(name), scene.engine.gauges().pending_occurrences),
            (Some(2), 0),
            "{name}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_dropped_flush_releases_its_task() {
    let scene = Scene::with_pending().await;
    let flush = scene.writer.flush(scene.task());
    assert!(scene.engine.tick(clock::now(), 10).is_empty(), "the writer has it");
    drop(flush);
    assert_eq!(scene.due_after(), Some(Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn the_event_of_a_refused_create_is_read_for_some_seconds_and_then_lost() {
    let mut scene = Scene::with_pending().await;
    scene.server.events.clear();
    let mut reads = 0;
    while scene.lost() == 0 {
        scene.flush_until_done().await;
        assert_eq!(scene.server.verbs(), ["GET"], "squelch does not create what the API server refused");
        reads += 1;
        tokio::time::advance(scene.due_after().unwrap_or_default()).await;
    }
    assert_eq!((reads, scene.lost(), scene.engine.gauges().pending_occurrences), (4, 1, 0));
    assert_eq!(scene.flushes(FlushResult::NotStored), 4);
    assert_eq!(
        scene.decide(&named("cart.9", write())),
        Some(Disposition::Admitted),
        "its client gets the reason"
    );
}

#[tokio::test(start_paused = true)]
async fn an_event_that_is_stored_late_gets_its_count() {
    let mut scene = Scene::with_pending().await;
    scene.server.events.clear();
    scene.flush_until_done().await;
    scene.server.store_count("cart.1", 1);
    tokio::time::advance(scene.due_after().unwrap()).await;
    scene.flush_until_done().await;
    assert_eq!((scene.server.count("cart.1"), scene.lost()), (Some(2), 0));
}

#[tokio::test(start_paused = true)]
async fn another_event_of_the_same_name_is_unchanged() {
    let mut scene = Scene::with_pending().await;
    scene.server.events.get_mut("cart.1").unwrap()["involvedObject"]["uid"] = json!("another");
    let before = scene.server.events["cart.1"].clone();
    scene.flush_until_done().await;
    assert_eq!(scene.server.verbs(), ["GET"]);
    assert_eq!((&scene.server.events["cart.1"], scene.lost()), (&before, 1));
}

#[tokio::test(start_paused = true)]
async fn a_summary_is_created_only_if_an_event_of_its_group_is_stored() {
    for stored in [true, false] {
        let mut scene = Scene::new();
        let aggregation = AggregationRules { max_events: 3, interval: IDLE, group_by: GroupBy::Object };
        scene.rules.aggregation = Some(aggregation);
        for number in 1..=5 {
            let name = format!("cart.{number}");
            let mut distinct = named(&name, write());
            distinct.event.message = number.to_string().into();
            scene.decide(&distinct);
        }
        if stored {
            scene.server.store_count("cart.2", 1);
        }
        tokio::time::advance(6 * SECOND).await;
        scene.flush_until_done().await;
        let expected: &[&str] = if stored { &["GET", "GET", "POST"] } else { &["GET", "GET"] };
        assert_eq!(scene.server.verbs(), expected);
        assert!(scene.server.requests[1].1.ends_with("/events/cart.2"), "{:?}", scene.server.requests);
        assert_eq!(
            (scene.lost(), scene.engine.gauges().pending_occurrences),
            (if stored { 0 } else { 3 }, 0)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn no_call_is_made_for_a_refused_create_without_pending_occurrences() {
    let scene = Scene::new();
    scene.decide(&write());
    assert_eq!(scene.due_after(), None);
    scene.engine.tick(clock::now().plus(IDLE + SECOND), 10);
    assert_eq!((scene.engine.gauges().series, scene.lost()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn the_next_write_is_admitted_after_a_final_refusal() {
    let mut scene = Scene::gone().await;
    scene.attempt(|call, _| (call == 3).then(|| status(422))).await;
    assert_eq!((scene.lost(), scene.engine.gauges().series), (2, 0));
    assert_eq!(
        scene.decide(&named("cart.9", write())),
        Some(Disposition::Admitted),
        "no lost series merges it"
    );
}

#[tokio::test(start_paused = true)]
async fn an_occurrence_refused_by_a_quota_is_written_when_the_quota_allows() {
    let mut scene = Scene::gone().await;
    let quota = details(403, &json!({"kind": "events", "name": "cart.1"}));
    for _ in 0..3 {
        scene.attempt(|call, _| (call == 3).then(|| quota.clone())).await;
        scene.merge();
        tokio::time::advance(scene.due_after().unwrap()).await;
    }
    assert_eq!((scene.engine.gauges().pending_occurrences, scene.lost()), (5, 0));
    scene.flush_until_done().await;
    assert_eq!((scene.server.count("cart.1"), scene.engine.gauges().pending_occurrences), (Some(7), 0));
}

#[tokio::test(start_paused = true)]
async fn the_last_write_of_a_client_is_verified_when_the_series_closes() {
    for committed in [true, false] {
        let mut scene = Scene::new();
        scene.server.store_count("cart.1", 100);
        assert_eq!(scene.decide(&update(101, 100)), Some(Disposition::Compacted));
        tokio::time::advance(HEARTBEAT).await;
        // The write of the client comes before the flush.
        assert_eq!(scene.decide(&update(102, 100)), Some(Disposition::Admitted));
        assert_eq!(scene.engine.gauges().pending_occurrences, 0);
        if committed {
            scene.server.store_count("cart.1", 102);
        }
        tokio::time::advance(IDLE + SECOND).await;
        scene.flush_until_done().await;
        let expected: &[&str] = if committed { &["GET"] } else { &["GET", "PATCH"] };
        assert_eq!(scene.server.verbs(), expected);
        assert_eq!((scene.server.count("cart.1"), scene.engine.gauges().series), (Some(102), 0));
    }
}

/// This many Events, each of which shows 1 and has one pending occurrence that is due.
async fn with_pending_events(events: usize) -> Scene {
    let mut scene = Scene::new();
    for number in 0..events {
        for name in [format!("e.{number}"), format!("e.{number}.again")] {
            let mut story = named(&name, write());
            story.event.message = number.to_string().into();
            scene.decide(&Observation { name: Some(name.clone().into()), ..story });
        }
        scene.server.store_count(&format!("e.{number}"), 1);
    }
    tokio::time::advance(2 * SECOND).await;
    assert_eq!(scene.engine.gauges().pending_series, events);
    scene
}

/// Flushes for this long, as the operator does. `reply` is asked first, with the second of the call.
async fn flush_for(
    scene: &mut Scene,
    limits: FlushLimits,
    time: Duration,
    reply: impl Fn(u64) -> Option<Reply>,
) {
    let (stop, began) = (CancellationToken::new(), clock::now());
    let flushing = run(scene.writer.clone(), limits, stop.clone());
    let serving = scene.server.serve(&mut scene.calls, |_, _| reply(clock::now().since(began).as_secs()));
    let ending = async {
        tokio::time::sleep(time).await;
        stop.cancel();
    };
    tokio::select! {
        ((), ()) = async { tokio::join!(flushing, ending) } => {}
        () = serving => panic!("the client is gone"),
    }
}

#[tokio::test(start_paused = true)]
async fn flushes_stay_within_the_rate_limit() {
    let mut scene = with_pending_events(300).await;
    flush_for(&mut scene, limits(20), 5 * SECOND, |_| None).await;
    // The limiter allows a burst of one second.
    let attempts = scene.flushes(FlushResult::Written);
    assert!((110..=121).contains(&attempts), "{attempts} flushes in 5 s");
    assert_eq!(scene.engine.gauges().pending_series as u64, 300 - attempts);
}

#[tokio::test(start_paused = true)]
async fn a_failing_api_server_is_called_rarely_and_everything_is_flushed_when_it_recovers() {
    let mut scene = with_pending_events(200).await;
    flush_for(&mut scene, limits(20), 120 * SECOND, |second| (second < 60).then(|| status(503))).await;
    let began = scene.server.requests[0].0;
    let while_broken = scene.server.requests.iter().filter(|(at, _)| at.since(began).as_secs() < 60).count();
    // Eight at a time, after pauses of 1, 2, 4, 8, 16 and 30 s.
    assert!(while_broken <= 60, "{while_broken} calls to a broken API server in a minute");
    assert_eq!((scene.engine.gauges().pending_occurrences, scene.lost()), (0, 0));
    assert!((0..200).all(|number| scene.server.count(&format!("e.{number}")) == Some(2)));
}

#[tokio::test(start_paused = true)]
async fn retry_after_pauses_all_flushes() {
    let mut scene = with_pending_events(50).await;
    let busy = Reply::Status(429, json!("Too many requests, please try again later."), Some(15));
    flush_for(&mut scene, limits(20), 40 * SECOND, |second| (second == 0).then(|| busy.clone())).await;
    let began = scene.server.requests[0].0;
    let seconds = scene.server.requests.iter().map(|(at, _)| at.since(began).as_secs());
    assert!(seconds.clone().all(|second| second == 0 || second >= 15), "{:?}", seconds.collect::<Vec<_>>());
    assert_eq!(scene.engine.gauges().pending_occurrences, 0);
}

#[tokio::test(start_paused = true)]
async fn a_failing_flush_delays_no_other_event() {
    let mut scene = with_pending_events(100).await;
    let broken = |asked: &str| asked.contains("/e.7?").then(|| status(500));
    let stop = CancellationToken::new();
    let writer = scene.writer.clone();
    tokio::select! {
        () = run(writer, limits(20), stop) => panic!("run ended by itself"),
        () = scene.server.serve(&mut scene.calls, |_, asked| broken(asked)) => panic!("the client is gone"),
        () = tokio::time::sleep(10 * SECOND) => {}
    }
    assert_eq!((scene.engine.gauges().pending_series, scene.server.count("e.7")), (1, Some(1)));
}

#[tokio::test(start_paused = true)]
async fn at_shutdown_five_thousand_events_are_flushed_in_ten_seconds() {
    let mut scene = with_pending_events(5000).await;
    scene.engine.drain();
    let before = clock::now();
    let limits = FlushLimits::at_shutdown(NonZeroU32::new(500).unwrap());
    let is_done = tokio::select! {
        is_done = flush_all(scene.writer.clone(), limits, 30 * SECOND) => is_done,
        () = scene.server.serve(&mut scene.calls, |_, _| None) => panic!("the client is gone"),
    };
    assert!(is_done && scene.engine.unflushed() == 0);
    assert!(clock::now().since(before) < 10 * SECOND, "{:?}", clock::now().since(before));
}

#[tokio::test(start_paused = true)]
async fn occurrences_not_flushed_at_shutdown_are_counted_per_namespace() {
    let mut scene = with_pending_events(40).await;
    scene.engine.drain();
    let limits = FlushLimits::at_shutdown(NonZeroU32::new(500).unwrap());
    let is_done = tokio::select! {
        is_done = flush_all(scene.writer.clone(), limits, 5 * SECOND) => is_done,
        () = scene.server.serve(&mut scene.calls, |call, _| (call > 20).then_some(Reply::Nothing)) => true,
    };
    assert!(!is_done);
    let left = scene.engine.gauges().pending_occurrences;
    assert!((30..=40).contains(&left), "{left}");
    assert_eq!(scene.engine.discard_pending(), [("shop".into(), left)]);
    assert_eq!(
        (scene.lost(), scene.engine.gauges().pending_occurrences, scene.engine.gauges().pending_series),
        (left, 0, 0)
    );
    assert_eq!(scene.engine.discard_pending(), [], "once");
}

/// The clocks of two API servers differ by seconds, or one clock is set forward in between.
#[tokio::test(start_paused = true)]
async fn clocks_of_api_servers_that_differ_cost_no_counts() {
    let mut found = Vec::new();
    for ahead in [0, 1, 2, 3, 5, 30] {
        let mut scene = Scene::new();
        scene.server.ahead = Some(ahead * SECOND);
        scene.decide(&write());
        scene.server.store_count("cart.1", 1);
        for _ in 0..9 {
            scene.merge();
        }
        tokio::time::advance(2 * SECOND).await;
        scene.flush_until_done().await;
        found.push((ahead, scene.server.count("cart.1").unwrap(), scene.lost()));
    }
    assert!(
        found.iter().all(|(_, count, lost)| (*count, *lost) == (10, 0)),
        "seconds ahead, count stored, lost: {found:?}"
    );
}

/// One answer asks for a minute during the shutdown.
#[tokio::test(start_paused = true)]
async fn one_retry_after_at_shutdown_does_not_prevent_the_other_flushes() {
    let mut scene = with_pending_events(500).await;
    scene.engine.drain();
    let limits = FlushLimits::at_shutdown(NonZeroU32::new(500).unwrap());
    let busy = Reply::Status(503, json!("no endpoints"), Some(60));
    let one = |asked: &str| (asked.contains("/e.490?") || asked.ends_with("/e.490")).then(|| busy.clone());
    tokio::select! {
        _is_done = flush_all(scene.writer.clone(), limits, 30 * SECOND) => {}
        () = scene.server.serve(&mut scene.calls, |_, asked| one(asked)) => panic!("the client is gone"),
    }
    let left = scene.engine.gauges().pending_occurrences;
    assert!(left <= 1, "{left} of 500 are lost, of which the API server would have taken 499 at once");
}

/// A summary is created if an Event of its group is stored.
#[tokio::test(start_paused = true)]
async fn clocks_of_api_servers_that_differ_cost_no_summary() {
    let mut found = Vec::new();
    for ahead in [0, 1, 3, 5] {
        let mut scene = Scene::new();
        scene.server.ahead = Some(ahead * SECOND);
        let aggregation = AggregationRules { max_events: 3, interval: IDLE, group_by: GroupBy::Object };
        scene.rules.aggregation = Some(aggregation);
        for number in 1..=12 {
            let name = format!("cart.{number}");
            let mut distinct = named(&name, write());
            distinct.event.message = number.to_string().into();
            scene.decide(&distinct);
        }
        scene.server.store_count("cart.2", 1);
        tokio::time::advance(6 * SECOND).await;
        scene.flush_until_done().await;
        found.push((ahead, scene.server.verbs().contains(&"POST"), scene.lost()));
    }
    assert!(found.iter().all(|(_, made, lost)| *made && *lost == 0), "seconds ahead, made, lost: {found:?}");
}
