//! Disarming by annotation and by flag.

use super::*;

#[tokio::test(start_paused = true)]
async fn the_annotation_disarms_until_it_is_removed() {
    let mut scene = Scene::armed(&["shop"]).await;
    scene.events();
    scene.state.send_modify(annotate(json!("INC-7")));
    scene.is_armed(false).await;
    assert!(scene.shows_break_glass() && scene.rules() == 0);
    let events = scene.events();
    assert!(events.len() == 1 && !events[0].1 && events[0].2.contains("INC-7"), "{events:?}");
    assert!(scene.message().contains("INC-7"), "{}", scene.message());
    // Neither time nor another policy arms it.
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    scene.policies(&["shop", "ci"]);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(scene.reported.borrow().is_err() && scene.rules() == 0 && scene.events().is_empty());

    scene.state.send_modify(|state| state.change(|object| object["metadata"]["annotations"] = json!({})));
    scene.is_armed(true).await;
    assert!(!scene.shows_break_glass());
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn another_value_of_the_annotation_is_reported() {
    let mut scene = Scene::armed(&["shop"]).await;
    scene.events();
    for reason in ["INC-7", "INC-8"] {
        scene.state.send_modify(annotate(json!(reason)));
        tokio::time::sleep(Duration::from_secs(10)).await;
        let events = scene.events();
        assert!(
            events.len() == 1 && events[0].2.contains(reason) && scene.message().contains(reason),
            "{events:?}"
        );
    }
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn the_flag_disarms_and_is_reported_once() {
    for existing in [None, Some(of_another(namespaces(&["shop"])))] {
        let mut scene = Scene::started(existing, true, true);
        scene.policies(&["shop"]);
        scene.wait_for(|state| state.applied == 1).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        scene.policies(&["shop", "ci"]);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(scene.shows_break_glass() && scene.rules() == 0);
        let events = scene.events();
        assert!(events.len() == 1 && events[0].0 == "Disarmed" && !events[0].1, "{events:?}");
        for words in [&events[0].2, &scene.message()] {
            assert!(words.contains("--disarm"), "{words}");
        }
        scene.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_standby_with_the_flag_shows_break_glass_once_there_are_no_rules() {
    let scene = Scene::started(Some(of_another(namespaces(&["shop"]))), false, true);
    scene.policies(&["shop"]);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(!scene.shows_break_glass() && scene.rules() == 1, "the active replica has no such flag yet");
    scene.state.send_modify(|state| state.change(|object| object["webhooks"][0]["rules"] = json!([])));
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(scene.shows_break_glass() && scene.state.borrow().applied == 0);
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_annotation_from_before_the_start_disarms() {
    let there = json!({
        "kind": "MutatingWebhookConfiguration", "apiVersion": "admissionregistration.k8s.io/v1",
        "metadata": {"name": "squelch", "uid": "made-0", "annotations": {DISARM_ANNOTATION: ""}},
    });
    let mut scene = Scene::with(Some(there));
    scene.policies(&["shop"]);
    scene.wait_for(|state| state.applied == 1).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(scene.reported.borrow().is_err() && scene.shows_break_glass());
    assert_eq!(scene.state.borrow().applied, 1);
    assert!(scene.events().is_empty(), "it was never armed");
    scene.end().await;
}
