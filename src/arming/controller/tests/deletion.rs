//! A configuration that somebody deletes, and the shutdown.

use super::*;

#[tokio::test(start_paused = true)]
async fn deleting_the_configuration_disarms_for_ten_minutes() {
    let mut scene = Scene::armed(&["shop"]).await;
    scene.events();
    scene.state.send_modify(|state| state.configuration = None);
    let began = clock::now();
    scene.is_armed(false).await;
    assert!(clock::now().since(began) < RETRY && scene.shows_break_glass());
    assert_eq!(scene.events()[0].0, "Disarmed");
    // A policy change does not create it again.
    scene.policies(&["shop", "ci"]);
    scene.is_armed(true).await;
    let after = clock::now().since(began);
    assert!((Duration::from_secs(600)..Duration::from_secs(605)).contains(&after), "{after:?}");
    assert_eq!(scene.state.borrow().created, 2);
    assert!(!scene.shows_break_glass());
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_policy_change_does_not_undo_a_deletion() {
    let mut scene = Scene::armed(&["shop"]).await;
    scene.state.send_modify(|state| state.configuration = None);
    scene.policies(&["ci"]);
    scene.is_armed(false).await;
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(scene.state.borrow().created, 1);
    // A person creates it again from a copy.
    let mut copy = desired(namespaces(&["shop"])).object(None);
    copy["metadata"]["uid"] = json!("theirs");
    scene.state.send_modify(|state| state.configuration = Some(copy));
    scene.is_armed(true).await;
    assert_eq!((scene.state.borrow().created, scene.shows_break_glass()), (1, false));
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_configuration_deleted_with_its_owner_is_created_again_at_once() {
    let mut scene = Scene::armed(&["shop"]).await;
    // A reinstallation: the ClusterRole has another uid, and garbage collection deletes what the old one owned.
    scene.state.send_modify(|state| {
        state.role = Some("role-2".to_owned());
        state.configuration = None;
    });
    scene.wait_for(|state| state.created == 2).await;
    scene.is_armed(true).await;
    let state = scene.state.borrow().configuration.clone().unwrap();
    assert_eq!(state["metadata"]["ownerReferences"][0]["uid"], "role-2");
    assert!(!scene.shows_break_glass());
    scene.end().await;
}

/// `kubectl replace --force` creates the role after garbage collection has deleted the configuration.
#[tokio::test(start_paused = true)]
async fn a_role_that_is_installed_again_ends_the_deletion() {
    let mut scene = Scene::armed(&["shop"]).await;
    scene.state.send_modify(|state| {
        state.role = None;
        state.configuration = None;
    });
    scene.is_armed(false).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(scene.state.borrow().created == 1 && scene.shows_break_glass());
    scene.state.send_modify(|state| state.role = Some("role-2".to_owned()));
    let began = clock::now();
    scene.wait_for(|state| state.created == 2).await;
    assert!(clock::now().since(began) < Duration::from_secs(5));
    scene.is_armed(true).await;
    let state = scene.state.borrow().configuration.clone().unwrap();
    assert_eq!(state["metadata"]["ownerReferences"][0]["uid"], "role-2");
    assert!(!scene.shows_break_glass());
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_removes_the_rules_and_creates_nothing() {
    let scene = Scene::armed(&["shop"]).await;
    let state = scene.state.clone();
    let mut controller = scene.end().await;
    controller.disarm().await;
    let object = state.borrow().configuration.clone().unwrap();
    assert_eq!(object["webhooks"][0]["rules"], json!([]));
    assert_eq!(object["webhooks"][1]["rules"].as_array().unwrap().len(), 1);

    state.send_modify(|state| state.configuration = None);
    controller.disarm().await;
    assert!(state.borrow().configuration.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_takeover_respects_a_deletion() {
    let mut scene = Scene::of(Some(of_another(namespaces(&["shop"]))), false);
    scene.policies(&["shop"]);
    tokio::time::sleep(Duration::from_secs(10)).await;
    scene.state.send_modify(|state| state.configuration = None);
    tokio::time::sleep(Duration::from_secs(10)).await;
    scene.active.send_replace(true);
    tokio::time::sleep(Duration::from_secs(500)).await;
    assert!(scene.state.borrow().configuration.is_none() && scene.shows_break_glass());
    scene.is_armed(true).await;
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_after_a_takeover_does_not_create_a_deleted_configuration() {
    let scene = Scene::of(Some(of_another(namespaces(&["shop"]))), false);
    scene.policies(&["shop"]);
    tokio::time::sleep(Duration::from_secs(10)).await;
    scene.state.send_modify(|state| state.configuration = None);
    tokio::time::sleep(Duration::from_secs(10)).await;
    scene.active.send_replace(true);
    tokio::time::sleep(Duration::from_secs(10)).await;
    let state = scene.state.clone();
    let mut controller = scene.end().await;
    controller.disarm().await;
    assert!(state.borrow().configuration.is_none());
    // A configuration that was created again is disarmed.
    state.send_modify(|state| state.configuration = Some(of_another(namespaces(&["shop"]))));
    controller.disarm().await;
    assert_eq!(state.borrow().configuration.as_ref().unwrap()["webhooks"][0]["rules"], json!([]));
}
