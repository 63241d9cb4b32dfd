//! Payments, scenario by scenario, at the HTTP seam: a real engine, a real client, and an API server that does what
//! the scenario wants.

mod tenants;

use std::num::NonZeroU32;
use std::time::Duration;

use serde_json::json;
use squelch_engine::testing::{named, update, write};
use squelch_engine::{AggregationRules, Disposition, GroupBy, Observation};
use tokio_util::sync::CancellationToken;

use super::fixtures::{HEARTBEAT, IDLE, Says, Scene, details, status};
use super::refusal::Refusal;
use super::{Limits, drain, run};
use crate::clock;
use crate::metrics::FlushResult;

const SECOND: Duration = Duration::from_secs(1);

fn limits(qps: u32) -> Limits {
    Limits::usual(NonZeroU32::new(qps).unwrap())
}

#[tokio::test(start_paused = true)]
async fn what_is_owed_is_read_and_written() {
    let mut scene = Scene::owing().await;
    scene.pays().await;
    let base = "/api/v1/namespaces/shop/events/cart.1";
    let asked: Vec<&str> = scene.server.asked.iter().map(|(_, asked)| &**asked).collect();
    assert_eq!(asked, [format!("GET {base}"), format!("PATCH {base}?&fieldManager=squelch")]);
    assert_eq!(scene.server.count("cart.1"), Some(2));
    assert_eq!((scene.engine.gauges().pending_occurrences, scene.flushes(FlushResult::Written)), (0, 1));
}

/// What becomes of a debt.
#[derive(Debug, PartialEq)]
enum Fate {
    /// It is due again after so many seconds, give or take half.
    Owed(f64),
    Lost,
}

/// Every way in which an API server does not do what it is asked, and what follows.
#[tokio::test(start_paused = true)]
async fn each_refusal_has_its_name_and_its_consequence() {
    use FlushResult::*;
    let terminating = json!({"causes": [{"reason": "NamespaceTerminating"}]});
    let no_namespace = json!({"kind": "namespaces"});
    let plain = |text: &str, code, seconds| Says::Status(code, json!(text), Some(seconds));
    for (says, result, fate) in [
        (details(403, &terminating), Terminating, Fate::Lost),
        (details(404, &no_namespace), Terminating, Fate::Lost),
        (status(422), Invalid, Fate::Lost),
        (status(400), Invalid, Fate::Lost),
        (status(413), Invalid, Fate::Lost),
        (details(403, &json!({"kind": "events"})), Forbidden, Fate::Owed(30.0)),
        (status(401), Forbidden, Fate::Owed(30.0)),
        (plain("Too many requests, please try again later.", 429, 7), TooManyRequests, Fate::Owed(7.0)),
        (status(429), TooManyRequests, Fate::Owed(0.75)),
        (plain("no endpoints", 503, 3), ServerError, Fate::Owed(3.0)),
        (status(500), ServerError, Fate::Owed(0.75)),
        (Says::Nothing, Timeout, Fate::Owed(0.75)),
        (Says::Breaks, Disconnected, Fate::Owed(0.75)),
        (Says::Nonsense, Unexpected, Fate::Owed(0.75)),
        (status(302), Unexpected, Fate::Owed(0.75)),
    ] {
        // Told of the write; and, but for those that only a write can be told, of the read.
        for to in 1..=2 {
            let mut scene = Scene::owing().await;
            let looked = scene.look(|call, _| (call == to).then(|| says.clone())).await;
            assert!(looked.again.is_none(), "{says:?}");
            assert_eq!(scene.flushes(result), 1, "{says:?} to call {to}");
            let (owed, lost) = (scene.engine.gauges().pending_occurrences, scene.lost());
            match fate {
                Fate::Lost => {
                    assert_eq!((owed, lost, scene.engine.gauges().series), (0, 1, 0), "{says:?}");
                }
                Fate::Owed(after) => {
                    assert_eq!((owed, lost), (1, 0), "{says:?}");
                    let due = scene.due_after().unwrap().as_secs_f64();
                    let most = if after < 1.0 { 1.0 } else { after };
                    assert!((after * 0.66..=most + 0.1).contains(&due), "{says:?}: due after {due} s");
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_has_ten_seconds() {
    let mut scene = Scene::owing().await;
    let before = clock::now();
    let looked = scene.look(|call, _| (call == 2).then_some(Says::Nothing)).await;
    assert_eq!(looked.refusal, Some(Refusal::Timeout));
    assert_eq!(clock::now().since(before).as_secs(), 10);
}

#[tokio::test(start_paused = true)]
async fn what_a_lost_answer_has_done_is_read_and_not_done_again() {
    let mut scene = Scene::owing().await;
    scene.look(|call, _| (call == 2).then_some(Says::NothingButDidIt)).await;
    assert_eq!(
        (scene.server.count("cart.1"), scene.engine.gauges().pending_occurrences),
        (Some(2), 1),
        "nobody knows yet"
    );
    tokio::time::advance(SECOND).await;
    scene.pays().await;
    assert_eq!(scene.server.verbs(), ["GET"]);
    assert_eq!((scene.server.count("cart.1"), scene.engine.gauges().pending_occurrences), (Some(2), 0));
}

#[tokio::test(start_paused = true)]
async fn an_event_that_changed_since_it_was_read_is_read_again() {
    let mut scene = Scene::owing().await;
    let looked = scene.look(|call, _| (call == 2).then(|| status(409))).await;
    assert_eq!(looked.refusal, Some(Refusal::Conflict));
    // A client has raised the count meanwhile, and another of its occurrences is not squelch's to tell.
    scene.server.store_count("cart.1", 5);
    let again = looked.again.unwrap();
    assert!(scene.look_for(again, |_, _| None).await.again.is_none());
    assert_eq!(scene.server.count("cart.1"), Some(5), "never lowered");
    assert_eq!((scene.flushes(FlushResult::Conflict), scene.flushes(FlushResult::Confirmed)), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn an_event_deleted_since_it_was_read_is_made_again_with_the_full_count() {
    let mut scene = Scene::owing().await;
    let looked = scene.look(|call, _| (call == 2).then(|| details(404, &json!({"kind": "events"})))).await;
    assert_eq!(looked.refusal, Some(Refusal::Gone));
    scene.server.events.clear();
    scene.look_for(looked.again.unwrap(), |_, _| None).await;
    assert_eq!(scene.server.verbs(), ["GET", "POST"]);
    assert_eq!((scene.server.count("cart.1"), scene.flushes(FlushResult::Created)), (Some(2), 1));
}

#[tokio::test(start_paused = true)]
async fn an_event_that_is_never_as_it_was_read_waits_like_any_other_failure() {
    let mut scene = Scene::owing().await;
    let mut looked = scene.look(|call, _| (call == 2).then(|| status(409))).await;
    let mut looks = 1;
    while let Some(again) = looked.again {
        looked = scene.look_for(again, |call, _| (call == 2).then(|| status(409))).await;
        looks += 1;
    }
    assert_eq!(
        (looks, scene.flushes(FlushResult::Conflict), scene.engine.gauges().pending_occurrences),
        (8, 8, 1)
    );
    assert!(scene.due_after().is_some_and(|after| !after.is_zero()));
}

#[tokio::test(start_paused = true)]
async fn what_somebodys_webhook_takes_back_stays_owed() {
    let mut scene = Scene::owing().await;
    let shows_one = json!({"count": 1, "metadata": {"resourceVersion": "9"}});
    let looked = scene.look(|call, _| (call == 2).then(|| Says::Status(200, shows_one.clone(), None))).await;
    assert_eq!(looked.refusal, Some(Refusal::Unexpected));
    assert_eq!(scene.engine.gauges().pending_occurrences, 1);
}

#[tokio::test(start_paused = true)]
async fn the_pauses_of_a_debt_grow_up_to_five_minutes() {
    let mut scene = Scene::owing().await;
    let mut pauses = Vec::new();
    for _ in 0..14 {
        scene.look(|_, _| Some(status(500))).await;
        let due = scene.due_after().unwrap();
        pauses.push(due.as_secs_f64());
        tokio::time::advance(due).await;
    }
    for (failures, pause) in pauses.iter().enumerate() {
        let longest = f64::powi(2.0, failures as i32).min(300.0);
        assert!((longest / 2.0..=longest + 0.1).contains(pause), "{pauses:?}");
    }
    scene.pays().await;
    scene.fold();
    scene.fold();
    assert_eq!(scene.due_after(), Some(Duration::ZERO), "the next debt is not made to wait for the last");
}

#[tokio::test(start_paused = true)]
async fn a_name_that_no_event_can_have_is_asked_of_nobody() {
    for name in ["../../other/events/theirs", "a%2Fb", "..", "."] {
        let mut scene = Scene::new();
        scene.decide(&named(name, write()));
        scene.fold();
        tokio::time::advance(2 * SECOND).await;
        let looked = scene.look(|_, _| None).await;
        assert_eq!(looked.refusal, Some(Refusal::Invalid), "{name}");
        assert!(scene.server.asked.is_empty(), "{:?}", scene.server.asked);
        assert_eq!((scene.lost(), scene.engine.gauges().pending_occurrences), (1, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_cannot_be_is_asked_of_nobody() {
    for namespace in ["squelch/pods/POD?a=", "..", "%2e%2e", "", "a#b"] {
        let mut scene = Scene::new();
        for name in ["cart.1", "cart.2"] {
            scene.decide(&Observation { namespace, ..named(name, write()) });
        }
        tokio::time::advance(2 * SECOND).await;
        let looked = scene.look(|_, _| None).await;
        assert_eq!(looked.refusal, Some(Refusal::Invalid), "{namespace}");
        assert!(scene.server.asked.is_empty(), "{:?}", scene.server.asked);
        assert_eq!((scene.lost(), scene.engine.gauges().pending_occurrences), (1, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn any_other_name_is_one_segment_of_the_path() {
    for name in ["a?dryRun=All", "a#b", "a b", "ü"] {
        let mut scene = Scene::new();
        scene.decide(&named(name, write()));
        scene.server.store_count(name, 1);
        scene.fold();
        tokio::time::advance(2 * SECOND).await;
        scene.pays().await;
        assert_eq!(
            (scene.server.count(name), scene.engine.gauges().pending_occurrences),
            (Some(2), 0),
            "{name}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_writer_that_is_dropped_gives_its_order_back() {
    let scene = Scene::owing().await;
    let look = scene.writer.look(scene.order());
    assert!(scene.engine.tick(clock::now(), 10).is_empty(), "it is with the writer");
    drop(look);
    assert_eq!(scene.due_after(), Some(Duration::ZERO));
}

// --- admission is not commit -----------------------------------------------------------------------------

#[tokio::test(start_paused = true)]
async fn a_create_that_was_never_stored_is_read_for_some_seconds_and_then_lost() {
    let mut scene = Scene::owing().await;
    scene.server.events.clear();
    let mut reads = 0;
    while scene.lost() == 0 {
        scene.pays().await;
        assert_eq!(scene.server.verbs(), ["GET"], "squelch does not create what the API server refused");
        reads += 1;
        tokio::time::advance(scene.due_after().unwrap_or_default()).await;
    }
    assert_eq!((reads, scene.lost(), scene.engine.gauges().pending_occurrences), (4, 1, 0));
    assert_eq!(scene.flushes(FlushResult::NotStored), 4);
    assert_eq!(scene.decide(&named("cart.9", write())), Some(Disposition::Admitted), "its client sees why");
}

#[tokio::test(start_paused = true)]
async fn an_event_that_is_stored_late_gets_its_count() {
    let mut scene = Scene::owing().await;
    scene.server.events.clear();
    scene.pays().await;
    scene.server.store_count("cart.1", 1);
    tokio::time::advance(scene.due_after().unwrap()).await;
    scene.pays().await;
    assert_eq!((scene.server.count("cart.1"), scene.lost()), (Some(2), 0));
}

#[tokio::test(start_paused = true)]
async fn another_event_of_the_same_name_is_left_as_it_is() {
    let mut scene = Scene::owing().await;
    scene.server.events.get_mut("cart.1").unwrap()["involvedObject"]["uid"] = json!("another");
    let before = scene.server.events["cart.1"].clone();
    scene.pays().await;
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
        scene.pays().await;
        let expected: &[&str] = if stored { &["GET", "GET", "POST"] } else { &["GET", "GET"] };
        assert_eq!(scene.server.verbs(), expected);
        assert!(scene.server.asked[1].1.ends_with("/events/cart.2"), "{:?}", scene.server.asked);
        assert_eq!(
            (scene.lost(), scene.engine.gauges().pending_occurrences),
            (if stored { 0 } else { 3 }, 0)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_create_that_was_never_stored_and_folded_nothing_is_asked_about_by_nobody() {
    let scene = Scene::new();
    scene.decide(&write());
    assert_eq!(scene.due_after(), None);
    scene.engine.tick(clock::now().plus(IDLE + SECOND), 10);
    assert_eq!((scene.engine.gauges().series, scene.lost()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn where_the_api_server_refuses_the_event_for_good_the_next_one_hears_it() {
    let mut scene = Scene::gone().await;
    scene.look(|call, _| (call == 2).then(|| status(422))).await;
    assert_eq!((scene.lost(), scene.engine.gauges().series), (2, 0));
    assert_eq!(scene.decide(&named("cart.9", write())), Some(Disposition::Admitted), "no ghost takes it");
}

#[tokio::test(start_paused = true)]
async fn a_debt_that_a_quota_refuses_is_paid_when_there_is_room() {
    let mut scene = Scene::gone().await;
    let quota = details(403, &json!({"kind": "events", "name": "cart.1"}));
    for _ in 0..3 {
        scene.look(|call, _| (call == 2).then(|| quota.clone())).await;
        scene.fold();
        tokio::time::advance(scene.due_after().unwrap()).await;
    }
    assert_eq!((scene.engine.gauges().pending_occurrences, scene.lost()), (5, 0));
    scene.pays().await;
    assert_eq!((scene.server.count("cart.1"), scene.engine.gauges().pending_occurrences), (Some(7), 0));
}

#[tokio::test(start_paused = true)]
async fn a_clients_last_payment_is_verified_when_the_series_closes() {
    for committed in [true, false] {
        let mut scene = Scene::new();
        scene.server.store_count("cart.1", 100);
        assert_eq!(scene.decide(&update(101, 100)), Some(Disposition::Compacted));
        tokio::time::advance(HEARTBEAT).await;
        // The client's own write is there first.
        assert_eq!(scene.decide(&update(102, 100)), Some(Disposition::Admitted));
        assert_eq!(scene.engine.gauges().pending_occurrences, 0);
        if committed {
            scene.server.store_count("cart.1", 102);
        }
        tokio::time::advance(IDLE + SECOND).await;
        scene.pays().await;
        let expected: &[&str] = if committed { &["GET"] } else { &["GET", "PATCH"] };
        assert_eq!(scene.server.verbs(), expected);
        assert_eq!((scene.server.count("cart.1"), scene.engine.gauges().series), (Some(102), 0));
    }
}

// --- many debts ------------------------------------------------------------------------------------------

/// So many Events each show 1 and are owed one occurrence, which is due.
async fn owing_many(debts: usize) -> Scene {
    let mut scene = Scene::new();
    for number in 0..debts {
        for name in [format!("e.{number}"), format!("e.{number}.again")] {
            let mut story = named(&name, write());
            story.event.message = number.to_string().into();
            scene.decide(&Observation { name: Some(name.clone().into()), ..story });
        }
        scene.server.store_count(&format!("e.{number}"), 1);
    }
    tokio::time::advance(2 * SECOND).await;
    assert_eq!(scene.engine.gauges().pending_series, debts);
    scene
}

/// Pays for this long, as the operator does. `says` is asked first, with the second of the call.
async fn pay_for(scene: &mut Scene, limits: Limits, time: Duration, says: impl Fn(u64) -> Option<Says>) {
    let (stop, began) = (CancellationToken::new(), clock::now());
    let paying = run(scene.writer.clone(), limits, stop.clone());
    let serving = scene.server.serve(&mut scene.calls, |_, _| says(clock::now().since(began).as_secs()));
    let ending = async {
        tokio::time::sleep(time).await;
        stop.cancel();
    };
    tokio::select! {
        ((), ()) = async { tokio::join!(paying, ending) } => {}
        () = serving => panic!("the client is gone"),
    }
}

#[tokio::test(start_paused = true)]
async fn no_more_is_looked_at_than_the_limit_allows() {
    let mut scene = owing_many(300).await;
    pay_for(&mut scene, limits(20), 5 * SECOND, |_| None).await;
    // A second's worth may come at once.
    let looks = scene.flushes(FlushResult::Written);
    assert!((110..=121).contains(&looks), "{looks} looks in 5 s");
    assert_eq!(scene.engine.gauges().pending_series as u64, 300 - looks);
}

#[tokio::test(start_paused = true)]
async fn a_broken_api_server_is_left_alone_and_everything_is_paid_when_it_is_back() {
    let mut scene = owing_many(200).await;
    pay_for(&mut scene, limits(20), 120 * SECOND, |second| (second < 60).then(|| status(503))).await;
    let began = scene.server.asked[0].0;
    let while_broken = scene.server.asked.iter().filter(|(at, _)| at.since(began).as_secs() < 60).count();
    // Eight at a time, after pauses of 1, 2, 4, 8, 16 and 30 s.
    assert!(while_broken <= 60, "{while_broken} calls to a broken API server in a minute");
    assert_eq!((scene.engine.gauges().pending_occurrences, scene.lost()), (0, 0));
    assert!((0..200).all(|number| scene.server.count(&format!("e.{number}")) == Some(2)));
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_asks_to_be_left_alone_is_left_alone() {
    let mut scene = owing_many(50).await;
    let busy = Says::Status(429, json!("Too many requests, please try again later."), Some(15));
    pay_for(&mut scene, limits(20), 40 * SECOND, |second| (second == 0).then(|| busy.clone())).await;
    let began = scene.server.asked[0].0;
    let seconds = scene.server.asked.iter().map(|(at, _)| at.since(began).as_secs());
    assert!(seconds.clone().all(|second| second == 0 || second >= 15), "{:?}", seconds.collect::<Vec<_>>());
    assert_eq!(scene.engine.gauges().pending_occurrences, 0);
}

#[tokio::test(start_paused = true)]
async fn one_namespaces_failures_hold_up_no_other() {
    let mut scene = owing_many(100).await;
    let broken = |asked: &str| asked.contains("/e.7?").then(|| status(500));
    let stop = CancellationToken::new();
    let writer = scene.writer.clone();
    tokio::select! {
        () = run(writer, limits(20), stop) => panic!("nobody ends it"),
        () = scene.server.serve(&mut scene.calls, |_, asked| broken(asked)) => panic!("the client is gone"),
        () = tokio::time::sleep(10 * SECOND) => {}
    }
    assert_eq!((scene.engine.gauges().pending_series, scene.server.count("e.7")), (1, Some(1)));
}

#[tokio::test(start_paused = true)]
async fn at_the_end_five_thousand_debts_are_paid_in_ten_seconds() {
    let mut scene = owing_many(5000).await;
    scene.engine.drain();
    let before = clock::now();
    let limits = Limits::at_shutdown(NonZeroU32::new(500).unwrap());
    let paid = tokio::select! {
        paid = drain(scene.writer.clone(), limits, 30 * SECOND) => paid,
        () = scene.server.serve(&mut scene.calls, |_, _| None) => panic!("the client is gone"),
    };
    assert!(paid && scene.engine.unflushed() == 0);
    assert!(clock::now().since(before) < 10 * SECOND, "{:?}", clock::now().since(before));
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_paid_at_the_end_is_counted_by_namespace() {
    let mut scene = owing_many(40).await;
    scene.engine.drain();
    let limits = Limits::at_shutdown(NonZeroU32::new(500).unwrap());
    let paid = tokio::select! {
        paid = drain(scene.writer.clone(), limits, 5 * SECOND) => paid,
        () = scene.server.serve(&mut scene.calls, |call, _| (call > 20).then_some(Says::Nothing)) => true,
    };
    assert!(!paid);
    let left = scene.engine.gauges().pending_occurrences;
    assert!((30..=40).contains(&left), "{left}");
    assert_eq!(scene.engine.discard_pending(), [("shop".into(), left)]);
    assert_eq!(
        (scene.lost(), scene.engine.gauges().pending_occurrences, scene.engine.gauges().pending_series),
        (left, 0, 0)
    );
    assert_eq!(scene.engine.discard_pending(), [], "once");
}

/// Two API servers have clocks that differ by some seconds, or the clock of one is set forward in between.
#[tokio::test(start_paused = true)]
async fn clocks_of_api_servers_that_differ_cost_no_counts() {
    let mut found = Vec::new();
    for ahead in [0, 1, 2, 3, 5, 30] {
        let mut scene = Scene::new();
        scene.server.ahead = Some(ahead * SECOND);
        scene.decide(&write());
        scene.server.store_count("cart.1", 1);
        for _ in 0..9 {
            scene.fold();
        }
        tokio::time::advance(2 * SECOND).await;
        scene.pays().await;
        found.push((ahead, scene.server.count("cart.1").unwrap(), scene.lost()));
    }
    assert!(
        found.iter().all(|(_, count, lost)| (*count, *lost) == (10, 0)),
        "seconds ahead, count stored, lost: {found:?}"
    );
}

/// One answer asks for a minute while squelch ends.
#[tokio::test(start_paused = true)]
async fn at_the_end_one_answer_does_not_cost_what_can_be_written() {
    let mut scene = owing_many(500).await;
    scene.engine.drain();
    let limits = Limits::at_shutdown(NonZeroU32::new(500).unwrap());
    let busy = Says::Status(503, json!("no endpoints"), Some(60));
    let one = |asked: &str| (asked.contains("/e.490?") || asked.ends_with("/e.490")).then(|| busy.clone());
    tokio::select! {
        _paid = drain(scene.writer.clone(), limits, 30 * SECOND) => {}
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
        scene.pays().await;
        found.push((ahead, scene.server.verbs().contains(&"POST"), scene.lost()));
    }
    assert!(found.iter().all(|(_, made, lost)| *made && *lost == 0), "seconds ahead, made, lost: {found:?}");
}
