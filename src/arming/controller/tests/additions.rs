//! Other writers of the configuration: additions that stay, and changes that are restored.

use super::*;

fn aks() -> Value {
    json!({"key": "control-plane", "operator": "DoesNotExist"})
}

fn expressions(state: &ApiServerState) -> Value {
    state.configuration.as_ref().unwrap()["webhooks"][0]["namespaceSelector"]["matchExpressions"].clone()
}

fn named(names: &[&str]) -> Value {
    json!({"key": "kubernetes.io/metadata.name", "operator": "In", "values": names})
}

/// Adds the expression to both entries, as AKS's admissions enforcer does.
fn enforce(state: &mut ApiServerState) {
    state.change(|object| {
        for entry in object["webhooks"].as_array_mut().unwrap() {
            add_expression(entry, &aks());
        }
    });
}

/// Changes a field of the configuration.
fn contest(scene: &Scene) {
    scene.state.send_modify(|state| {
        state.change(|object| object["webhooks"][0]["timeoutSeconds"] = json!(10));
    });
}

/// Puts rules back that squelch has removed.
fn put_back(scene: &Scene, rules: &Value) {
    scene.state.send_modify(|state| state.change(|object| object["webhooks"][0]["rules"] = rules.clone()));
}

fn end_break_glass(scene: &Scene) {
    scene.state.send_modify(|state| state.change(|object| object["metadata"]["annotations"] = Value::Null));
}

fn restored(scene: &Scene, field: &str) -> String {
    let name = format!("squelch_webhook_configuration_restores_total{{field=\"{field}\"}} ");
    let text = scene.metrics.text();
    text.lines().find_map(|line| line.strip_prefix(&name)).unwrap_or_default().to_owned()
}

#[tokio::test(start_paused = true)]
async fn an_added_expression_stays_and_survives_own_writes() {
    let mut scene = Scene::armed(&["shop"]).await;
    let applied = scene.state.borrow().applied;
    scene.state.send_modify(enforce);
    let requirement = serde_json::from_value::<crate::api::LabelRequirement>(aks()).unwrap();
    let expected = Restrictions::new([requirement], &[]);
    scene.restrictions.wait_for(|published| *published == expected).await.unwrap();
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(scene.state.borrow().applied, applied, "nothing is written");

    // Another namespace, disarmed, armed again.
    scene.policies(&["bank", "shop"]);
    scene.wait_for(|state| state.applied > applied).await;
    assert_eq!(expressions(&scene.state.borrow()), json!([named(&["bank", "shop"]), aks()]));
    scene.state.send_modify(|state| state.probe_status = 403);
    scene.is_armed(false).await;
    assert_eq!((scene.rules(), expressions(&scene.state.borrow())), (0, json!([aks()])));
    scene.state.send_modify(|state| state.probe_status = 201);
    scene.is_armed(true).await;
    assert_eq!(expressions(&scene.state.borrow()), json!([named(&["bank", "shop"]), aks()]));

    // The other writer removes it, and squelch's next write does not bring it back.
    let applied = scene.state.borrow().applied;
    scene.state.send_modify(|state| {
        state.change(|object| {
            for entry in object["webhooks"].as_array_mut().unwrap() {
                drop(entry["namespaceSelector"]["matchExpressions"].as_array_mut().unwrap().pop());
            }
        });
    });
    scene.restrictions.wait_for(|published| *published == Restrictions::default()).await.unwrap();
    assert_eq!(scene.state.borrow().applied, applied);
    scene.policies(&["bank", "ci", "shop"]);
    scene.wait_for(|state| state.applied > applied).await;
    assert_eq!(expressions(&scene.state.borrow()), json!([named(&["bank", "ci", "shop"])]));
    assert_eq!(restored(&scene, "namespaceSelector"), "0");
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_expression_added_at_admission_is_not_added_twice() {
    let scene = Scene::new();
    scene.state.send_modify(|state| state.added_at_admission = Some(aks()));
    for names in [&["shop"][..], &["ci", "shop"], &["bank", "ci", "shop"]] {
        scene.policies(names);
        let expected = json!([named(names), aks()]);
        scene.wait_for(|state| state.configuration.is_some() && expressions(state) == expected).await;
    }
    let applied = scene.state.borrow().applied;
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(scene.state.borrow().applied, applied);
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn added_conditions_labels_and_annotations_stay_and_may_go() {
    let mut scene = Scene::armed(&["shop"]).await;
    let applied = scene.state.borrow().applied;
    scene.state.send_modify(|state| {
        state.change(|object| {
            object["metadata"]["labels"]["theirs"] = json!("x");
            object["metadata"]["annotations"] = json!({"theirs": "x"});
            let condition = json!({"name": "not-theirs", "expression": "true"});
            object["webhooks"][0]["matchConditions"].as_array_mut().unwrap().push(condition);
        });
    });
    let expected = Restrictions::new([], &["not-theirs".to_owned()]);
    scene.restrictions.wait_for(|published| *published == expected).await.unwrap();
    scene.policies(&["ci", "shop"]);
    scene.wait_for(|state| state.applied > applied).await;
    let applied = scene.state.borrow().applied;
    scene.state.send_modify(|state| {
        state.change(|object| {
            object["metadata"]["labels"].as_object_mut().unwrap().remove("theirs");
            object["webhooks"][0]["matchConditions"].as_array_mut().unwrap().pop();
        });
    });
    scene.restrictions.wait_for(|published| *published == Restrictions::default()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(scene.state.borrow().applied, applied);
    scene.end().await;
}

/// Argo CD with self-heal, and its rendering from before the second policy.
#[tokio::test(start_paused = true)]
async fn a_writer_that_contests_the_configuration_is_met_with_backoff() {
    let scene = Scene::armed(&["shop"]).await;
    let mut rendered = scene.state.borrow().configuration.clone().unwrap();
    rendered["webhooks"][0]["timeoutSeconds"] = json!(10);
    scene.policies(&["ci", "shop"]);
    scene.wait_for(|state| expressions(state) == json!([named(&["ci", "shop"])])).await;
    let applied = scene.state.borrow().applied;
    for _ in 0..600 {
        scene.state.send_modify(|state| state.configuration = Some(rendered.clone()));
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let writes = scene.state.borrow().applied - applied;
    assert!((5..=8).contains(&writes), "{writes} writes in ten minutes");
    assert_eq!(restored(&scene, "namespaceSelector"), writes.to_string());
    assert_eq!(restored(&scene, "other"), writes.to_string());
    // The namespaces that its list excludes are known meanwhile.
    let others = serde_json::from_value::<crate::api::LabelRequirement>(named(&["shop"])).unwrap();
    assert!(*scene.restrictions.borrow() == Restrictions::new([others], &[]));
    // It stops: what squelch wrote is restored, without the list of the other writer.
    scene.wait_for(|state| expressions(state) == json!([named(&["ci", "shop"])])).await;
    scene.end().await;
}

/// A backup that is restored, from when a policy matched less.
#[tokio::test(start_paused = true)]
async fn a_condition_with_the_name_of_an_own_one_is_restored() {
    let scene = Scene::armed(&["shop"]).await;
    assert_eq!(condition(&scene.state.borrow()), None, "every write");
    scene.state.send_modify(|state| {
        state.change(|object| {
            let entry = object["webhooks"][0]["matchConditions"].as_array_mut().unwrap();
            entry.last_mut().unwrap()["expression"] = json!("object.reason == 'Old'");
        });
    });
    assert!(condition(&scene.state.borrow()).is_some());
    scene.wait_for(|state| condition(state).is_none()).await;
    assert_eq!(restored(&scene, "matchConditions"), "1");
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn no_policy_is_in_force_while_another_writer_contests_a_condition() {
    let mut scene = Scene::new();
    scene.policies_for(matching("A"));
    scene.is_armed(true).await;
    let rendered = scene.state.borrow().configuration.clone().unwrap();
    scene.policies_for(matching("B"));
    scene.wait_for(|state| condition(state) == Some("object.reason == 'B'")).await;
    for _ in 0..60 {
        scene.state.send_modify(|state| state.configuration = Some(rendered.clone()));
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let contested = scene.reported.borrow().clone().unwrap_err();
    assert!(contested.contains("has changed events.squelch.dev: matchConditions"), "{contested}");
    // It stops.
    scene.wait_for(|state| condition(state) == Some("object.reason == 'B'")).await;
    scene.is_armed(true).await;
    assert_eq!(*scene.reported.borrow(), Ok(matching("B")));
    let text = scene.metrics.text();
    assert!(text.contains("squelch_arm_transitions_total{to=\"disarmed\"} 0\n"), "the rules were there");
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_change_that_its_writer_takes_back_is_not_restored() {
    let scene = Scene::armed(&["shop"]).await;
    let own = scene.state.borrow().configuration.clone().unwrap();
    let change = |scene: &Scene| {
        scene
            .state
            .send_modify(|state| state.change(|object| object["webhooks"][0]["timeoutSeconds"] = json!(30)));
    };
    change(&scene);
    scene.wait_for(|state| state.configuration.as_ref() == Some(&own)).await;
    let applied = scene.state.borrow().applied;
    change(&scene);
    tokio::time::sleep(Duration::from_secs(1)).await;
    scene.state.send_modify(|state| state.configuration = Some(own.clone()));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(scene.state.borrow().applied, applied);
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn the_configuration_is_not_read_without_a_change() {
    let scene = Scene::armed(&["shop"]).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let reads = scene.state.borrow().reads;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(scene.state.borrow().reads, reads);
    scene.end().await;
}

/// The permission to watch is missing: each failure of the watch is followed by a read.
#[tokio::test(start_paused = true)]
async fn a_configuration_that_cannot_be_watched_is_read_again() {
    for is_at_start in [true, false] {
        let mut scene = Scene::new();
        scene.state.send_modify(|state| state.unwatchable = is_at_start);
        scene.policies(&["shop"]);
        scene.is_armed(true).await;
        tokio::time::sleep(Duration::from_secs(600)).await;
        if is_at_start {
            assert!(scene.state.borrow().watches < 80, "{} lists", scene.state.borrow().watches);
            assert!(scene.state.borrow().reads < 80, "{} reads", scene.state.borrow().reads);
        }
        let began = clock::now();
        scene.state.send_modify(annotate(json!("INC-7")));
        scene.wait_for(|state| rules_of(state) == 0).await;
        let most = Duration::from_secs(if is_at_start { 12 } else { 1 });
        assert!(clock::now().since(began) <= most, "{:?}", clock::now().since(began));
        scene.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_standby_that_disarms_keeps_what_others_have_added() {
    let mut existing = of_another(namespaces(&["shop"]));
    for entry in existing["webhooks"].as_array_mut().unwrap() {
        add_expression(entry, &aks());
    }
    let scene = Scene::of(Some(existing), false);
    scene.policies(&["shop"]);
    scene.state.send_modify(|state| state.probe_status = 403);
    scene.wait_for(|state| state.applied == 1).await;
    assert_eq!((scene.rules(), expressions(&scene.state.borrow())), (0, json!([named(&["shop"]), aks()])));
    // It takes over. The namespaces of the former active replica are no addition.
    scene.state.send_modify(|state| state.probe_status = 201);
    scene.active.send_replace(true);
    scene.policies(&["ci"]);
    scene.wait_for(|state| rules_of(state) == 1).await;
    assert_eq!(expressions(&scene.state.borrow()), json!([named(&["ci"]), aks()]));
    scene.end().await;
}

/// Argo CD puts the rules back each ten seconds, while the webhook hangs or a person has disarmed it.
#[tokio::test(start_paused = true)]
async fn rules_that_another_writer_puts_back_are_removed_within_a_second_or_two() {
    for hangs in [true, false] {
        let mut scene = Scene::armed(&["shop"]).await;
        let mut rendered = scene.state.borrow().configuration.clone().unwrap();
        if hangs {
            scene.state.send_modify(|state| state.probe_latency = Duration::from_secs(60));
        } else {
            scene.state.send_modify(annotate(json!("INC-7")));
            rendered["metadata"]["annotations"] = json!({ DISARM_ANNOTATION: "INC-7" });
        }
        scene.is_armed(false).await;
        let mut with_rules = 0;
        for second in 0..60 {
            if second % 10 == 0 {
                scene.state.send_modify(|state| state.configuration = Some(rendered.clone()));
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
            with_rules += usize::from(scene.rules() > 0);
        }
        assert!(with_rules <= 6, "Event writes are reviewed in {with_rules} of 60 s");
        scene.end().await;
    }
}

/// A standby, or a restored backup, writes the list of namespaces from before the disarming.
#[tokio::test(start_paused = true)]
async fn an_own_list_of_namespaces_that_comes_back_while_disarmed_is_no_addition() {
    let mut scene = Scene::armed(&["shop"]).await;
    let own = expressions(&scene.state.borrow());
    scene.state.send_modify(|state| state.probe_status = 403);
    scene.is_armed(false).await;
    scene.state.send_modify(|state| {
        state
            .change(|object| object["webhooks"][0]["namespaceSelector"] = json!({ "matchExpressions": own }));
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    scene.policies(&["ci"]);
    scene.state.send_modify(|state| state.probe_status = 201);
    scene.is_armed(true).await;
    assert_eq!(expressions(&scene.state.borrow()), json!([named(&["ci"])]));
    assert_eq!(*scene.restrictions.borrow(), Restrictions::default());
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_configuration_that_is_created_again_lacks_the_additions_of_the_deleted_one() {
    let mut scene = Scene::armed(&["shop"]).await;
    scene.state.send_modify(enforce);
    scene.restrictions.wait_for(|published| *published != Restrictions::default()).await.unwrap();
    scene.state.send_modify(|state| state.configuration = None);
    scene.is_armed(false).await;
    scene.wait_for(|state| state.created == 2).await;
    scene.is_armed(true).await;
    assert_eq!(expressions(&scene.state.borrow()), json!([named(&["shop"])]));
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_list_of_names_of_another_writer_survives_a_disarming() {
    let mut scene = Scene::armed(&["ci", "shop"]).await;
    let theirs = named(&["shop", "x"]);
    scene
        .state
        .send_modify(|state| state.change(|object| add_expression(&mut object["webhooks"][0], &theirs)));
    scene.restrictions.wait_for(|published| *published != Restrictions::default()).await.unwrap();
    scene.state.send_modify(|state| state.probe_status = 403);
    scene.is_armed(false).await;
    scene.state.send_modify(|state| state.probe_status = 201);
    scene.is_armed(true).await;
    assert_eq!(expressions(&scene.state.borrow()), json!([named(&["ci", "shop"]), theirs]));
    scene.end().await;
}

/// A person has disarmed the webhook, and another writer changes a field each second.
#[tokio::test(start_paused = true)]
async fn a_field_that_is_contested_while_disarmed_is_restored_with_backoff() {
    let mut scene = Scene::armed(&["shop"]).await;
    scene.state.send_modify(annotate(json!("INC-7")));
    scene.is_armed(false).await;
    let applied = scene.state.borrow().applied;
    for _ in 0..600 {
        contest(&scene);
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let restores = scene.state.borrow().applied - applied;
    assert!((2..=8).contains(&restores), "{restores} restores");
    scene.end().await;
}

/// Rules were put back ten times while the webhook was disarmed.
#[tokio::test(start_paused = true)]
async fn removals_of_rules_do_not_delay_later_restores() {
    let mut scene = Scene::armed(&["shop"]).await;
    scene.state.send_modify(annotate(json!("INC-7")));
    scene.is_armed(false).await;
    let rules = json!([{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["events"]}]);
    for _ in 0..10 {
        put_back(&scene, &rules);
        scene.wait_for(|state| rules_of(state) == 0).await;
    }
    end_break_glass(&scene);
    scene.is_armed(true).await;
    let began = clock::now();
    contest(&scene);
    scene.wait_for(|state| state.configuration.as_ref().unwrap()["webhooks"][0]["timeoutSeconds"] == 1).await;
    assert!(clock::now().since(began) < Duration::from_secs(10), "{:?}", clock::now().since(began));
    scene.end().await;
}

/// A backup from before the last policy is put back while a person keeps the webhook disarmed.
#[tokio::test(start_paused = true)]
async fn a_former_list_of_namespaces_from_a_backup_does_not_stay() {
    let mut scene = Scene::armed(&["shop"]).await;
    let mut backup = scene.state.borrow().configuration.clone().unwrap();
    scene.policies(&["ci", "shop"]);
    scene.wait_for(|state| expressions(state) == json!([named(&["ci", "shop"])])).await;
    scene.state.send_modify(annotate(json!("INC-7")));
    scene.is_armed(false).await;
    backup["metadata"]["annotations"] = json!({ DISARM_ANNOTATION: "INC-7" });
    scene.state.send_modify(|state| state.configuration = Some(backup));
    scene.wait_for(|state| rules_of(state) == 0).await;
    end_break_glass(&scene);
    scene.is_armed(true).await;
    assert_eq!(expressions(&scene.state.borrow()), json!([named(&["ci", "shop"])]));
    scene.end().await;
}

/// Another writer has changed a field so often that the next restore waits for ten minutes.
#[tokio::test(start_paused = true)]
async fn a_contested_field_delays_neither_arming_nor_the_report_of_a_break_glass() {
    for is_break_glass_over in [true, false] {
        let mut scene = Scene::armed(&["shop"]).await;
        for _ in 0..640 {
            contest(&scene);
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        if is_break_glass_over {
            scene.state.send_modify(annotate(json!("INC-7")));
            scene.is_armed(false).await;
            contest(&scene);
            let began = clock::now();
            end_break_glass(&scene);
            scene.is_armed(true).await;
            assert!(clock::now().since(began) < Duration::from_secs(10), "{:?}", clock::now().since(began));
        } else {
            scene.state.send_modify(|state| state.probe_status = 403);
            scene.wait_for(|state| rules_of(state) == 0).await;
            contest(&scene);
            scene.state.send_modify(annotate(json!("INC-7")));
            tokio::time::sleep(Duration::from_secs(10)).await;
            assert!(scene.shows_break_glass());
        }
        scene.end().await;
    }
}

/// The last policy is gone, and another writer puts the rules back each second.
#[tokio::test(start_paused = true)]
async fn rules_that_are_put_back_without_a_policy_are_removed_with_backoff() {
    let scene = Scene::armed(&["shop"]).await;
    let rules = scene.state.borrow().configuration.as_ref().unwrap()["webhooks"][0]["rules"].clone();
    scene.policies(&[]);
    scene.wait_for(|state| rules_of(state) == 0).await;
    let applied = scene.state.borrow().applied;
    for _ in 0..600 {
        put_back(&scene, &rules);
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let restores = scene.state.borrow().applied - applied;
    assert!((2..=8).contains(&restores), "{restores} restores");
    scene.end().await;
}
