//! Probes arm and disarm the webhook.

use super::*;

#[tokio::test(start_paused = true)]
async fn the_webhook_is_armed_after_probes_succeed_and_not_before() {
    let mut scene = Scene::new();
    scene.state.send_modify(|state| state.probe_status = 403);
    scene.policies(&["shop"]);
    scene.wait_for(|state| state.applied == 1).await;
    assert_eq!(scene.rules(), 0);
    let owner =
        scene.state.borrow().configuration.as_ref().unwrap()["metadata"]["ownerReferences"][0]["uid"].clone();
    assert_eq!(owner, "role-1");
    let began = clock::now();
    scene.state.send_modify(|state| state.probe_status = 201);
    scene.is_armed(true).await;
    assert!(clock::now().since(began) < Duration::from_secs(1), "the first probes are quick");
    assert_eq!(scene.rules(), 1);
    let events = scene.events();
    assert_eq!((events.len(), events[0].0, events[0].1), (1, "Armed", false), "{events:?}");

    // Reachability stays confirmed: another policy is in force with its write.
    scene.policies(&[]);
    scene.is_armed(false).await;
    let began = clock::now();
    scene.policies(&["ci"]);
    scene.is_armed(true).await;
    assert_eq!(clock::now().since(began), Duration::ZERO);
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn ten_fast_failures_disarm_and_three_successful_probes_arm_again() {
    let mut scene = Scene::armed(&["shop"]).await;
    scene.events();
    // Probes are inconclusive while the API server fails.
    scene.state.send_modify(|state| state.probe_status = 503);
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(scene.reported.borrow().is_ok() && scene.events().is_empty());

    let began = clock::now();
    scene.state.send_modify(|state| state.probe_status = 403);
    scene.is_armed(false).await;
    let took = clock::now().since(began);
    assert!((Duration::from_secs(9)..Duration::from_secs(11)).contains(&took), "{took:?}");
    assert_eq!(scene.rules(), 0);
    let events = scene.events();
    assert_eq!((events.len(), events[0].0, events[0].1), (1, "Disarmed", true), "{events:?}");
    assert!(events[0].2.contains("in words"), "the API server's message: {events:?}");
    assert!(!scene.shows_break_glass());

    let began = clock::now();
    scene.state.send_modify(|state| state.probe_status = 201);
    scene.is_armed(true).await;
    assert!(clock::now().since(began) > Duration::from_secs(2), "one probe each second");
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn the_webhook_is_not_armed_before_the_configuration_is_read() {
    let mut scene = Scene::armed(&["shop"]).await;
    scene.policies(&[]);
    scene.is_armed(false).await;
    // A person sets the annotation, and squelch cannot read it.
    scene.state.send_modify(|state| state.unreadable = true);
    scene.state.send_modify(annotate(json!("maintenance")));
    scene.policies(&["shop"]);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(scene.rules(), 0);
    scene.state.send_modify(|state| state.unreadable = false);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!((scene.rules(), scene.shows_break_glass()), (0, true));
    scene.state.send_modify(|state| state.change(|object| object["metadata"]["annotations"] = Value::Null));
    scene.is_armed(true).await;
    scene.end().await;
}
