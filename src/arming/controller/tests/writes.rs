//! When the configuration is written.

use super::*;

#[tokio::test(start_paused = true)]
async fn changes_by_other_writers_are_reverted() {
    let scene = Scene::armed(&["shop"]).await;
    let applied = scene.state.borrow().applied;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(scene.state.borrow().applied, applied, "nothing is written without a change");
    scene
        .state
        .send_modify(|state| state.change(|object| object["webhooks"][0]["timeoutSeconds"] = json!(30)));
    scene.wait_for(|state| state.applied == applied + 1).await;
    let timeout =
        scene.state.borrow().configuration.as_ref().unwrap()["webhooks"][0]["timeoutSeconds"].clone();
    assert_eq!(timeout, 1);
    scene.end().await;
}

/// Some cloud providers change every webhook configuration.
#[tokio::test(start_paused = true)]
async fn a_change_by_another_webhook_is_not_reverted() {
    let mut scene = Scene::new();
    scene.state.send_modify(|state| state.selector = Some(json!({"matchLabels": {"theirs": "x"}})));
    scene.policies(&["shop"]);
    scene.is_armed(true).await;
    let applied = scene.state.borrow().applied;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(scene.state.borrow().applied, applied);
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn policies_that_change_often_cause_few_writes_and_the_last_state_is_written() {
    let selected = |scene: &Scene| {
        let state = scene.state.borrow();
        let entry = &state.configuration.as_ref().unwrap()["webhooks"][0];
        entry["namespaceSelector"]["matchExpressions"][0]["values"].clone()
    };
    let names = |selection: &NamespaceSelection| match selection {
        NamespaceSelection::Named(names) => json!(names),
        other => panic!("{other:?}"),
    };
    // Each pair alternates ten times a second for a minute.
    let pairs: [[&[&str]; 2]; 3] = [[&["shop", "ci"], &["shop"]], [&["shop"], &[]], [&["ci"], &["bank"]]];
    let mut found = Vec::new();
    for pair in pairs {
        let mut scene = Scene::new();
        scene.policies(pair[0]);
        scene.is_armed(true).await;
        let applied = scene.state.borrow().applied;
        for round in 1..=600 {
            scene.policies(pair[round % 2]);
            tokio::time::sleep(Duration::from_millis(100)).await;
            // The policies learn of a namespace after the write, which may be delayed.
            if let Ok(reported) = &*scene.reported.borrow() {
                assert_eq!(json!(selected(&scene)), json!(names(&reported.namespaces)));
            }
        }
        found.push(scene.state.borrow().applied - applied);
        // The narrower one is the last.
        scene.policies(pair[1]);
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(selected(&scene), if pair[1].is_empty() { Value::Null } else { json!(pair[1]) });
        assert_eq!(scene.rules(), usize::from(!pair[1].is_empty()));
        scene.end().await;
    }
    assert!(found[0] <= 1 && found[1] <= 1 && found[2] <= 81, "{found:?} writes");
}

/// Whether the policies may say that writes with reason `A` are sent.
fn covers_a(scene: &Scene) -> bool {
    scene.reported.borrow().as_ref().is_ok_and(|scope| matching("A").is_subset_of(scope))
}

#[tokio::test(start_paused = true)]
async fn writes_that_are_no_longer_sent_are_not_reported_as_sent() {
    // An answer that comes late, and one that does not come.
    for latency in [1_500, 3_000] {
        let mut scene = Scene::new();
        scene.policies_for(matching("A"));
        scene.is_armed(true).await;
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert!(covers_a(&scene));
        scene.state.send_modify(|state| state.apply_latency = Duration::from_millis(latency));
        scene.policies_for(matching("B"));
        scene.wait_for(|state| condition(state) == Some("object.reason == 'B'")).await;
        scene.policies_for(matching("A"));
        let mut is_restored = false;
        for _ in 0..100 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            is_restored |= condition(&scene.state.borrow()) == Some("object.reason == 'A'");
            assert!(is_restored || !covers_a(&scene), "the stored configuration has B only");
            assert!(scene.reported.borrow().is_ok(), "no other writer has changed it");
        }
        scene.state.send_modify(|state| state.apply_latency = Duration::ZERO);
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert!(is_restored && covers_a(&scene), "{latency}: {:?}", scene.reported.borrow());
        scene.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn refused_writes_are_retried_with_pauses_and_delay_no_shutdown() {
    let scene = Scene::armed(&["shop"]).await;
    // More namespaces, and then no rules, because probes fail.
    for (probe_status, most) in [(201, 12), (403, 45)] {
        let (reads, refused) = {
            let state = scene.state.borrow();
            (state.reads, state.refused)
        };
        scene.state.send_modify(|state| (state.unwritable, state.probe_status) = (true, probe_status));
        scene.policies(&["ci", "shop"]);
        tokio::time::sleep(Duration::from_secs(10)).await;
        let state = scene.state.borrow();
        let (reads, refused) = (state.reads - reads, state.refused - refused);
        assert!((1..=most).contains(&refused) && reads <= most, "{refused} writes, {reads} reads");
    }
    tokio::time::timeout(Duration::from_secs(30), scene.end()).await.expect("the controller ends");
}

#[tokio::test(start_paused = true)]
async fn the_configuration_is_widened_at_once_and_narrowed_after_five_seconds() {
    let scene = Scene::armed(&["shop"]).await;
    let names = |state: &ApiServerState| {
        let object = state.configuration.as_ref().unwrap();
        object["webhooks"][0]["namespaceSelector"]["matchExpressions"][0]["values"].clone()
    };
    for (wanted, after) in [(vec!["ci", "shop"], 0), (vec!["ci"], 5), (vec!["bank", "ci"], 0)] {
        let began = clock::now();
        scene.policies(&wanted);
        scene.wait_for(|state| names(state) == json!(wanted)).await;
        assert_eq!(clock::now().since(began), Duration::from_secs(after), "{wanted:?}");
    }
    let writes = format!("squelch_webhook_configuration_writes_total {}\n", scene.state.borrow().applied);
    assert!(scene.metrics.text().contains(&writes), "{writes}");
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn the_write_limit_does_not_delay_disarming() {
    let spend = async |scene: &Scene| {
        for round in 0..100 {
            scene.policies(&[["shop", "ci"][round % 2]]);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let mut scene = Scene::armed(&["shop"]).await;
    spend(&scene).await;
    let began = clock::now();
    scene.state.send_modify(|state| state.probe_status = 403);
    scene.wait_for(|state| rules_of(state) == 0).await;
    assert!(clock::now().since(began) < Duration::from_secs(11));
    scene.state.send_modify(|state| state.probe_status = 201);
    scene.is_armed(true).await;
    spend(&scene).await;
    let began = clock::now();
    scene.state.send_modify(annotate(json!("INC-7")));
    scene.wait_for(|state| rules_of(state) == 0).await;
    assert!(clock::now().since(began) < RETRY);
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_foreign_entry_is_reported_and_not_removed() {
    for active in [true, false] {
        let scene = Scene::of(Some(of_another(namespaces(&["shop"]))), active);
        scene.policies(&["shop"]);
        tokio::time::sleep(Duration::from_secs(30)).await;
        let shows = |number: u32| {
            scene.metrics.text().contains(&format!("squelch_webhook_foreign_entries {number}\n"))
        };
        let applied = scene.state.borrow().applied;
        assert!(shows(0));
        let add = |object: &mut Value| {
            let entry = json!({"name": "all.example.com", "clientConfig": {"url": "https://example.com"}});
            object["webhooks"].as_array_mut().unwrap().push(entry);
        };
        scene.state.send_modify(|state| state.change(add));
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert!(shows(1));
        assert_eq!(scene.state.borrow().applied, applied, "squelch does not remove it");
        let remove = |object: &mut Value| drop(object["webhooks"].as_array_mut().unwrap().pop());
        scene.state.send_modify(|state| state.change(remove));
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert!(shows(0));
        scene.end().await;
    }
}
