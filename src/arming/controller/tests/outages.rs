//! An API server or a webhook that is slow or fails.

use super::*;

/// For how long of the next minute the configuration has no rules.
async fn time_without_rules(scene: &Scene) -> Duration {
    let mut without = Duration::ZERO;
    for _ in 0..600 {
        sleep(Duration::from_millis(100)).await;
        if scene.rules() == 0 {
            without += Duration::from_millis(100);
        }
    }
    without
}

/// The webhook answers at once, and the API server takes 600 ms for each probe.
#[tokio::test(start_paused = true)]
async fn a_slow_api_server_does_not_disarm_a_webhook_that_answers() {
    let mut scene = Scene::armed(&["shop"]).await;
    scene.events();
    scene.state.send_modify(|state| state.probe_latency = Duration::from_millis(600));
    let without = time_without_rules(&scene).await;
    let events = scene.events();
    assert!(without.is_zero(), "without rules for {without:?} of a minute: {events:?}");
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_webhook_that_hangs_is_disarmed_within_three_seconds() {
    let mut scene = Scene::armed(&["shop"]).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let probes_before = scene.state.borrow().probes;
    scene.wait_for(|state| state.probes > probes_before).await;
    // The next probe begins a second later.
    tokio::time::sleep(Duration::from_millis(1)).await;
    let began = clock::now();
    scene.state.send_modify(|state| state.probe_latency = Duration::from_secs(60));
    scene.is_armed(false).await;
    let took = clock::now().since(began);
    assert!((Duration::from_secs(2)..=Duration::from_millis(2_800)).contains(&took), "{took:?}");
    assert_eq!(scene.rules(), 0);
    scene.end().await;
}

/// The webhook hangs for 15 s, answers for 15 s, and so on.
#[tokio::test(start_paused = true)]
async fn a_fault_that_comes_and_goes_changes_the_rules_at_most_three_times_in_ten_minutes() {
    let mut scene = Scene::armed(&["shop"]).await;
    for _ in 0..20 {
        for latency in [Duration::from_secs(60), Duration::ZERO] {
            scene.state.send_modify(|state| state.probe_latency = latency);
            sleep(Duration::from_secs(15)).await;
        }
    }
    let text = scene.metrics.text();
    // The first arming at the start, and three transitions after it.
    for (to, number) in [("armed", 2), ("disarmed", 2)] {
        let line = format!("squelch_arm_transitions_total{{to=\"{to}\"}} {number}\n");
        assert!(text.contains(&line), "{line}");
    }
    let began = clock::now();
    scene.is_armed(true).await;
    assert!(clock::now().since(began) < Duration::from_secs(30));
    scene.end().await;
}

/// Each outage is longer than the successes that are required after a relapse.
#[tokio::test(start_paused = true)]
async fn each_further_disarming_doubles_the_wait() {
    let mut scene = Scene::armed(&["shop"]).await;
    let mut waits = Vec::new();
    for _ in 0..4 {
        scene.state.send_modify(|state| state.probe_status = 403);
        scene.is_armed(false).await;
        let began = clock::now();
        scene.state.send_modify(|state| state.probe_status = 201);
        sleep(Duration::from_secs(4)).await;
        scene.is_armed(true).await;
        waits.push(clock::now().since(began).as_secs());
        sleep(Duration::from_secs(60)).await;
    }
    assert_eq!(waits, [5, 10, 20, 40]);
    scene.end().await;
}

/// A proxy answers one read with 404 and a page.
#[tokio::test(start_paused = true)]
async fn a_404_page_of_a_proxy_is_no_deletion() {
    let mut scene = Scene::armed(&["shop"]).await;
    sleep(Duration::from_secs(5)).await;
    scene.events();
    scene.state.send_modify(|state| state.proxy_404 = true);
    let without = time_without_rules(&scene).await;
    let events = scene.events();
    assert!(without.is_zero() && events.is_empty(), "without rules for {without:?}: {events:?}");
    scene.end().await;
}

/// The API server restarts. The Lease is renewed before the configuration can be read.
#[tokio::test(start_paused = true)]
async fn a_restart_of_the_api_server_does_not_remove_the_rules() {
    let mut scene = Scene::armed(&["shop"]).await;
    sleep(Duration::from_secs(60)).await;
    scene.events();
    scene.state.send_modify(|state| (state.unreadable, state.probe_status) = (true, 503));
    sleep(Duration::from_secs(3)).await;
    scene.active.send_replace(false);
    sleep(Duration::from_secs(20)).await;
    scene.active.send_replace(true);
    sleep(Duration::from_millis(100)).await;
    scene.state.send_modify(|state| (state.unreadable, state.probe_status) = (false, 201));
    let without = time_without_rules(&scene).await;
    let events = scene.events();
    assert!(without.is_zero(), "without rules for {without:?}: {events:?}");
    scene.end().await;
}

/// The API server stores a new token and answers too late. The keys wait for the acknowledgement.
#[tokio::test(start_paused = true)]
async fn a_stored_write_without_an_answer_is_acknowledged() {
    let scene = Scene::armed(&["shop"]).await;
    sleep(Duration::from_secs(30)).await;
    scene.state.send_modify(|state| state.apply_latency = Duration::from_secs(3));
    scene.desired.send_modify(|desired| desired.client.path = "/next".into());
    let is_stored = |state: &ApiServerState| {
        state.configuration.as_ref().unwrap()["webhooks"][0]["clientConfig"]["url"] == "https://h/next"
    };
    scene.wait_for(is_stored).await;
    scene.state.send_modify(|state| state.apply_latency = Duration::ZERO);
    sleep(Duration::from_secs(3_600)).await;
    let acknowledged = scene.acknowledged.borrow().as_ref().map(|client| client.path.clone());
    assert_eq!(acknowledged.as_deref(), Some("/next"), "the rotation of the keys waits for it");
    scene.end().await;
}

/// The first writes are stored, and their answers come after a second.
#[tokio::test(start_paused = true)]
async fn a_first_write_without_an_answer_does_not_keep_the_webhook_disarmed() {
    let mut scene = Scene::new();
    scene.state.send_modify(|state| state.apply_latency = Duration::from_millis(1_500));
    scene.policies(&["shop"]);
    sleep(Duration::from_secs(30)).await;
    scene.state.send_modify(|state| state.apply_latency = Duration::ZERO);
    scene.is_armed(true).await;
    scene.end().await;
}
