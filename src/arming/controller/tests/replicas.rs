//! The active replica, its standby, and takeovers.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_standby_writes_nothing_while_probes_succeed() {
    let scene = Scene::of(Some(of_another(namespaces(&["shop"]))), false);
    scene.policies(&["ci"]);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!((scene.state.borrow().applied, scene.rules()), (0, 1));
    assert!(scene.metrics.text().contains("squelch_armed 1\n"));
    assert!(
        scene.metrics.text().contains("squelch_probes_total{result=\"succeeded\"} 6"),
        "one probe each second"
    );
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_standby_disarms_if_probes_fail_and_never_arms() {
    for before in [0, 30] {
        let mut scene = Scene::of(Some(of_another(namespaces(&["shop"]))), false);
        scene.policies(&["shop"]);
        if before == 0 {
            scene.state.send_modify(|state| state.probe_status = 403);
        }
        tokio::time::sleep(Duration::from_secs(before)).await;
        let began = clock::now();
        scene.state.send_modify(|state| state.probe_status = 403);
        scene.wait_for(|state| state.applied == 1).await;
        assert!(clock::now().since(began) < Duration::from_secs(11));
        assert_eq!(scene.rules(), 0);
        let state = scene.state.borrow().configuration.clone().unwrap();
        assert_eq!(state["webhooks"][1]["rules"].as_array().unwrap().len(), 1);
        assert!(state["webhooks"][0]["clientConfig"]["url"].as_str().unwrap().starts_with("https://other"));
        let events = scene.events();
        assert_eq!((events.len(), events[0].0, events[0].1), (1, "Disarmed", true), "{events:?}");
        scene.state.send_modify(|state| state.probe_status = 201);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!((scene.rules(), scene.state.borrow().applied), (0, 1));
        assert!(scene.metrics.text().contains("squelch_armed 0\n"));
        scene.end().await;
    }
}

/// The Service leads nowhere until it leads to the new active replica.
#[tokio::test(start_paused = true)]
async fn a_takeover_during_which_probes_fail_at_once_keeps_the_rules() {
    for (before, after) in [(0, 4), (1, 3), (2, 2), (4, 0), (7, 2)].map(|(before, after)| {
        (Duration::from_millis(before * 1_000 + 50), Duration::from_millis(after * 1_000 + 50))
    }) {
        let mut scene = Scene::of(Some(of_another(namespaces(&["shop"]))), false);
        scene.policies(&["shop"]);
        tokio::time::sleep(Duration::from_secs(30)).await;
        scene.state.send_modify(|state| state.probe_status = 403);
        tokio::time::sleep(before).await;
        scene.active.send_replace(true);
        tokio::time::sleep(after).await;
        assert_eq!(scene.rules(), 1, "{before:?} {after:?}");
        scene.state.send_modify(|state| state.probe_status = 201);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!((scene.rules(), scene.events().len()), (1, 0), "{before:?} {after:?}");
        scene.end().await;
    }
}

/// The standby takes over before its probes have confirmed anything. Connections of the API server to the former active
/// replica answer some of the probes.
#[tokio::test(start_paused = true)]
async fn a_takeover_during_which_probes_fail_by_turns_arms_soon_after() {
    let mut scene = Scene::of(Some(of_another(namespaces(&["shop"]))), false);
    scene.policies(&["shop"]);
    tokio::time::sleep(Duration::from_millis(50)).await;
    scene.active.send_replace(true);
    for round in 0..14 {
        scene.state.send_modify(|state| state.probe_status = if round % 2 == 0 { 201 } else { 403 });
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    scene.state.send_modify(|state| state.probe_status = 201);
    let began = clock::now();
    scene.is_armed(true).await;
    let took = clock::now().since(began);
    assert!(took < Duration::from_secs(1), "{took:?}");
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_standby_does_not_disarm_while_the_api_server_fails() {
    let scene = Scene::of(Some(of_another(NamespaceSelection::All)), false);
    scene.policies(&["shop"]);
    scene.state.send_modify(|state| state.probe_status = 503);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!((scene.rules(), scene.state.borrow().applied), (1, 0));
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_takeover_keeps_the_rules_if_probes_succeed() {
    let mut scene = Scene::of(Some(of_another(namespaces(&["shop"]))), false);
    scene.policies(&["shop"]);
    tokio::time::sleep(Duration::from_secs(30)).await;
    scene.active.send_replace(true);
    scene.is_armed(true).await;
    assert_eq!((scene.rules(), scene.state.borrow().applied), (1, 1));
    let state = scene.state.borrow().configuration.clone().unwrap();
    assert!(state["webhooks"][0]["clientConfig"]["url"].as_str().unwrap().starts_with("https://h/"));
    assert!(scene.events().is_empty(), "it stayed armed");
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_takeover_without_rules_arms_only_after_probes_succeed() {
    let mut scene = Scene::of(Some(of_another(namespaces(&["shop"]))), false);
    scene.state.send_modify(|state| state.probe_status = 403);
    scene.policies(&["shop"]);
    scene.wait_for(|state| state.applied == 1).await;
    scene.active.send_replace(true);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(scene.rules(), 0);
    scene.state.send_modify(|state| state.probe_status = 201);
    scene.is_armed(true).await;
    assert_eq!(scene.rules(), 1);
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_standby_that_disarmed_arms_soon_after_its_takeover() {
    let mut scene = Scene::of(Some(of_another(namespaces(&["shop"]))), false);
    scene.policies(&["shop"]);
    tokio::time::sleep(Duration::from_secs(30)).await;
    scene.state.send_modify(|state| state.probe_status = 403);
    scene.wait_for(|state| state.applied == 1).await;
    scene.state.send_modify(|state| state.probe_status = 201);
    let began = clock::now();
    scene.active.send_replace(true);
    scene.is_armed(true).await;
    let took = clock::now().since(began);
    assert!(took < Duration::from_secs(1), "{took:?}");
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_former_active_replica_writes_nothing() {
    let scene = Scene::armed(&["shop"]).await;
    let applied = scene.state.borrow().applied;
    scene.active.send_replace(false);
    scene.policies(&["ci"]);
    scene
        .state
        .send_modify(|state| state.change(|object| object["webhooks"][0]["timeoutSeconds"] = json!(30)));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(scene.state.borrow().applied, applied);
    scene.active.send_replace(true);
    scene.wait_for(|state| state.applied > applied).await;
    scene.end().await;
}

fn remove_rules(state: &mut ApiServerState) {
    state.change(|object| object["webhooks"][0]["rules"] = json!([]));
}

#[tokio::test(start_paused = true)]
async fn rules_that_a_standby_removed_come_back_only_after_three_new_probes() {
    let mut scene = Scene::armed(&["shop"]).await;
    let mut found = Vec::new();
    for policy_comes_meanwhile in [false, true] {
        tokio::time::sleep(Duration::from_secs(30)).await;
        scene.events();
        let (began, probes_before) = (clock::now(), scene.state.borrow().probes);
        scene.state.send_modify(remove_rules);
        if policy_comes_meanwhile {
            scene.policies(&["shop", "ci"]);
        }
        scene.wait_for(|state| rules_of(state) == 1).await;
        scene.is_armed(true).await;
        let events: Vec<_> = scene.events().into_iter().map(|events| (events.0, events.1)).collect();
        found.push((
            scene.state.borrow().probes - probes_before,
            clock::now().since(began).as_secs(),
            events,
        ));
    }
    let events = [("Disarmed", true), ("Armed", false)];
    assert!(
        found
            .iter()
            .all(|(probes, took, said)| { *probes >= 3 && *said == events && (5..=12).contains(took) }),
        "{found:?}"
    );
    assert!(found[1].1 >= 10, "the second disarming within ten minutes: {found:?}");
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_takeover_without_rules_needs_new_probes() {
    let mut existing = of_another(namespaces(&["shop"]));
    existing["webhooks"][0]["rules"] = json!([]);
    let mut scene = Scene::of(Some(existing), false);
    scene.policies(&["shop"]);
    tokio::time::sleep(Duration::from_secs(30)).await;
    let (began, probes_before) = (clock::now(), scene.state.borrow().probes);
    scene.active.send_replace(true);
    scene.is_armed(true).await;
    assert!(scene.state.borrow().probes - probes_before >= 3);
    assert!(clock::now().since(began) < Duration::from_secs(1), "{:?}", clock::now().since(began));
    scene.end().await;
}

/// The API server removes the rules and answers after the timeout, or removes them after it.
#[tokio::test(start_paused = true)]
async fn a_standby_reports_a_disarming_whose_answer_is_late() {
    for stores_late in [false, true] {
        let mut scene = Scene::of(Some(of_another(namespaces(&["shop"]))), false);
        scene.policies(&["shop"]);
        tokio::time::sleep(Duration::from_secs(30)).await;
        scene.state.send_modify(|state| {
            state.probe_status = 403;
            state.apply_latency = Duration::from_millis(1_500);
            state.stores_late = stores_late;
        });
        scene.wait_for(|state| rules_of(state) == 0).await;
        scene.state.send_modify(|state| state.apply_latency = Duration::ZERO);
        tokio::time::sleep(Duration::from_secs(10)).await;
        let events = scene.events();
        assert_eq!(events.first().map(|event| event.0), Some("Disarmed"), "{stores_late} {events:?}");
        assert!(scene.metrics.text().contains("squelch_arm_transitions_total{to=\"disarmed\"} 1\n"));
        scene.end().await;
    }
}

/// The active replica disarms between the standby's read and its write.
#[tokio::test(start_paused = true)]
async fn a_standby_does_not_write_over_what_the_active_replica_has_just_written() {
    let scene = Scene::of(Some(of_another(namespaces(&["shop"]))), false);
    scene.policies(&["shop"]);
    tokio::time::sleep(Duration::from_secs(30)).await;
    scene.state.send_modify(|state| {
        state.probe_status = 403;
        state.replaced_after_read = Some(of_another(NamespaceSelection::None));
    });
    tokio::time::sleep(Duration::from_secs(60)).await;
    let state = scene.state.borrow();
    let stored = state.configuration.as_ref().unwrap();
    assert_eq!((state.applied, &stored["webhooks"][0]["namespaceSelector"]), (0, &json!({})));
    drop(state);
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_restarted_process_keeps_the_rules_while_its_first_probes_are_under_way() {
    let scene = Scene::of(Some(of_another(namespaces(&["shop"]))), true);
    let mut state = scene.state.subscribe();
    scene.policies(&["shop"]);
    tokio::select! {
        _ = state.wait_for(|state| rules_of(state) == 0) => panic!("the rules were removed"),
        () = tokio::time::sleep(Duration::from_secs(10)) => {}
    }
    assert_eq!(scene.state.borrow().applied, 1, "one write, of the own address");
    drop(state);
    scene.end().await;
}

/// Its webhook hangs.
#[tokio::test(start_paused = true)]
async fn a_restarted_process_removes_the_rules_if_its_first_probes_fail() {
    let scene = Scene::of(Some(of_another(namespaces(&["shop"]))), true);
    scene.state.send_modify(|state| state.probe_latency = Duration::from_secs(60));
    scene.policies(&["shop"]);
    let began = clock::now();
    scene.wait_for(|state| rules_of(state) == 0).await;
    assert!(clock::now().since(began) < Duration::from_secs(6), "{:?}", clock::now().since(began));
    scene.end().await;
}

/// The standby's first write is refused, and the active replica removes the rules for all namespaces.
#[tokio::test(start_paused = true)]
async fn a_standby_does_not_report_a_disarming_by_the_active_replica_as_its_own() {
    let mut scene = Scene::of(Some(of_another(NamespaceSelection::All)), false);
    scene.policies_for(WebhookScope::all_in(NamespaceSelection::All));
    tokio::time::sleep(Duration::from_secs(30)).await;
    scene.state.send_modify(|state| {
        state.probe_status = 403;
        state.unwritable = true;
    });
    scene.wait_for(|state| state.refused > 0).await;
    scene.state.send_modify(|state| {
        state.unwritable = false;
        state.replaced_after_read = Some(of_another(NamespaceSelection::None));
    });
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(scene.events(), Vec::new());
    scene.end().await;
}
