//! Creates that the API server refused or stored late, and the summaries that squelch creates.

use super::*;

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
        let aggregation = AggregationRules { max_events: 3, idle_timeout: IDLE, group_by: GroupBy::Object };
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
async fn an_occurrence_refused_for_a_while_is_written_afterwards() {
    let mut scene = Scene::gone().await;
    let refusal = details(403, &json!({"kind": "events", "name": "cart.1"}));
    for _ in 0..3 {
        scene.attempt(|call, _| (call == 3).then(|| refusal.clone())).await;
        scene.merge();
        tokio::time::advance(scene.due_after().unwrap()).await;
    }
    assert_eq!((scene.engine.gauges().pending_occurrences, scene.lost()), (5, 0));
    scene.flush_until_done().await;
    assert_eq!((scene.server.count("cart.1"), scene.engine.gauges().pending_occurrences), (Some(7), 0));
}
