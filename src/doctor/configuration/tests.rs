use serde_json::json;

use super::super::finding::Level;
use super::super::fixtures::healthy;
use super::*;

fn changed(change: impl FnOnce(&mut MutatingWebhookConfiguration, &mut Snapshot)) -> Vec<Finding> {
    let mut snapshot = healthy();
    let mut configuration = snapshot.configuration.clone().unwrap();
    change(&mut configuration, &mut snapshot);
    snapshot.configuration = Ok(configuration);
    findings(&snapshot)
}

fn finding_of(found: &[Finding], what: &str) -> (Level, String) {
    let finding = found.iter().find(|finding| finding.check == what).unwrap();
    (finding.level, format!("{} {}", finding.message, finding.remedy))
}

fn without_rules(configuration: &mut MutatingWebhookConfiguration) {
    configuration.webhooks.as_mut().unwrap()[0].rules = None;
}

#[test]
fn an_armed_webhook_passes() {
    let found = changed(|_, _| {});
    assert!(found.iter().all(|finding| finding.level == Level::Ok), "{found:#?}");
    assert!(finding_of(&found, "armed").1.contains("2 namespaces"));
}

#[test]
fn the_reason_for_no_rules_is_reported() {
    let by_annotation = changed(|configuration, _| {
        without_rules(configuration);
        let reason = (DISARM_ANNOTATION.to_owned(), "INC-7\u{1b}".to_owned());
        configuration.metadata.annotations = Some([reason].into());
    });
    let (level, text) = finding_of(&by_annotation, "armed");
    assert!(level == Level::Warning && text.contains("(\"INC-7\")") && text.contains("disarm-"), "{text}");

    let by_flag = changed(|configuration, snapshot| {
        without_rules(configuration);
        snapshot.installation.disarmed = true;
    });
    assert!(finding_of(&by_flag, "armed").1.contains("--disarm"));

    let by_scale = changed(|configuration, snapshot| {
        without_rules(configuration);
        snapshot.deployment.as_mut().unwrap().spec.as_mut().unwrap().replicas = Some(0);
    });
    let (level, text) = finding_of(&by_scale, "armed");
    assert!(level == Level::Warning && text.contains("scaled to 0"), "{text}");

    let for_nothing = changed(|configuration, snapshot| {
        without_rules(configuration);
        (snapshot.policies, snapshot.cluster_policies) = (Ok(Vec::new()), Ok(Vec::new()));
    });
    assert_eq!(finding_of(&for_nothing, "armed").0, Level::Ok);

    let perhaps_for_nothing = changed(|configuration, snapshot| {
        without_rules(configuration);
        (snapshot.policies, snapshot.cluster_policies) = (Ok(Vec::new()), Err(Unreadable::Forbidden));
    });
    let (level, text) = finding_of(&perhaps_for_nothing, "armed");
    assert!(level == Level::Warning && text.contains("unknown") && text.contains("`policies`"), "{text}");

    let unreachable_webhook = changed(|configuration, snapshot| {
        without_rules(configuration);
        snapshot.probe = Ok(Err("no answer within 500 ms".to_owned()));
    });
    assert_eq!(finding_of(&unreachable_webhook, "armed").0, Level::Error);
    assert!(finding_of(&unreachable_webhook, "probe").1.contains("500 ms"));
}

#[test]
fn changes_of_other_writers_are_reported() {
    let failing = changed(|configuration, _| {
        configuration.webhooks.as_mut().unwrap()[0].failure_policy = Some("Fail".to_owned());
    });
    assert_eq!(finding_of(&failing, "webhook").0, Level::Error);
    let halved = changed(|configuration, _| drop(configuration.webhooks.as_mut().unwrap().pop()));
    assert!(finding_of(&halved, "webhook").1.contains("probe.squelch.dev"));
    let extended = changed(|configuration, _| {
        let webhooks = configuration.webhooks.as_mut().unwrap();
        webhooks.push(MutatingWebhook { name: "all.example.com\u{1b}".to_owned(), ..webhooks[0].clone() });
    });
    let (level, text) = finding_of(&extended, "entries");
    assert!(level == Level::Error && text.contains(": all.example.com "), "{text}");
    let orphaned = changed(|configuration, _| configuration.metadata.owner_references = None);
    assert_eq!(finding_of(&orphaned, "owner").0, Level::Warning);
    let mut snapshot = healthy();
    snapshot.configuration = Err(Unreadable::Missing);
    assert_eq!(findings(&snapshot)[0].level, Level::Error);
}

#[test]
fn the_event_writes_that_are_sent_to_squelch_are_shown() {
    let all = changed(|_, _| {});
    let (level, text) = finding_of(&all, "condition");
    assert!(level == Level::Ok && text.starts_with("every Event write"), "{text}");
    let some = changed(|configuration, _| {
        let conditions = &mut configuration.webhooks.as_mut().unwrap()[0].match_conditions;
        let matched = conditions.iter_mut().flatten().find(|it| it.name == "matched-by-a-policy");
        matched.unwrap().expression = "object.reason == 'BackOff\u{1b}'".to_owned();
    });
    let (level, text) = finding_of(&some, "condition");
    assert!(
        level == Level::Ok && text.contains("if object.reason == 'BackOff") && !text.contains('\u{1b}'),
        "{text}"
    );
}

#[test]
fn the_owner_is_read_from_the_configuration() {
    let mut configuration = healthy().configuration.unwrap();
    assert_eq!(owner_role(&configuration).as_deref(), Some("squelch"));
    configuration.metadata.owner_references = None;
    assert_eq!(owner_role(&configuration), None);
}

#[test]
fn a_probe_without_permission_is_a_warning() {
    let found = changed(|_, snapshot| snapshot.probe = Err(Unreadable::Forbidden));
    let (level, text) = finding_of(&found, "probe");
    assert!(level == Level::Warning && text.contains("helm test"), "{text}");
}

#[test]
fn restrictions_of_other_writers_are_reported() {
    let restrict = |configuration: &mut MutatingWebhookConfiguration, entry: usize| {
        let selector = configuration.webhooks.as_mut().unwrap()[entry].namespace_selector.as_mut().unwrap();
        let added = json!({ "key": "control-plane", "operator": "DoesNotExist" });
        selector.match_expressions.as_mut().unwrap().insert(0, serde_json::from_value(added).unwrap());
    };
    let found = changed(|configuration, _| restrict(configuration, 0));
    let (level, text) = finding_of(&found, "additions");
    assert!(level == Level::Warning && text.contains("control-plane DoesNotExist"), "{text}");
    assert!(finding_of(&found, "armed").1.contains("2 namespaces"), "{found:?}");
    // The probe entry, while probes succeed and while they fail.
    let found = changed(|configuration, _| restrict(configuration, 1));
    assert_eq!(finding_of(&found, "additions").0, Level::Ok);
    let found = changed(|configuration, snapshot| {
        restrict(configuration, 1);
        snapshot.probe = Ok(Err("no signature".to_owned()));
    });
    let (level, text) = finding_of(&found, "additions");
    assert!(level == Level::Error && text.contains("namespace squelch"), "{text}");
}
