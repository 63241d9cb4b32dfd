//! Flush scenarios at the HTTP seam: a real engine, a real client, and an API server that each scenario scripts.

mod names;
mod rate;
mod refused_creates;

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use squelch_engine::testing::{named, update, write};
use squelch_engine::{AggregationRules, Disposition, GroupBy, Observation};
use tokio_util::sync::CancellationToken;

use super::super::refusal::Refusal;
use super::super::{FlushLimits, flush_all, run};
use super::api_server::{Reply, details, status};
use super::fixtures::{HEARTBEAT, IDLE, Scene};
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
async fn a_dropped_flush_releases_its_task() {
    let scene = Scene::with_pending().await;
    let flush = scene.writer.flush(scene.task());
    assert!(scene.engine.tick(clock::now(), 10).is_empty(), "the writer has it");
    drop(flush);
    assert_eq!(scene.due_after(), Some(Duration::ZERO));
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

/// A summary is created if an Event of its group is stored.
#[tokio::test(start_paused = true)]
async fn clocks_of_api_servers_that_differ_cost_no_summary() {
    let mut found = Vec::new();
    for ahead in [0, 1, 3, 5] {
        let mut scene = Scene::new();
        scene.server.ahead = Some(ahead * SECOND);
        let aggregation = AggregationRules { max_events: 3, idle_timeout: IDLE, group_by: GroupBy::Object };
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
