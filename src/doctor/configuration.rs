//! The webhook configuration: whole, owned, armed or why not, and proven.

use k8s_openapi::api::admissionregistration::v1::{MutatingWebhook, MutatingWebhookConfiguration};

use super::finding::{Finding, told};
use super::seen::{Seen, Unseen};
use super::{policies, replicas};
use crate::arming::{CONFIGURATION, DISARM_ANNOTATION, EVENTS_ENTRY, PROBE_ENTRY};

/// At most this many foreign entries are named.
const NAMED: usize = 5;

/// Both entries, that of the Events first.
pub(super) const ENTRIES: [&str; 2] = [EVENTS_ENTRY, PROBE_ENTRY];

pub(super) fn findings(seen: &Seen) -> Vec<Finding> {
    let configuration = match &seen.configuration {
        Ok(configuration) => configuration,
        Err(Unseen::Missing) => {
            return vec![Finding::error(
                "webhook",
                format!(
                    "the MutatingWebhookConfiguration {CONFIGURATION} is not there: Events pass unreviewed"
                ),
                "if somebody deleted it, squelch writes it again 10 minutes later; else see whether squelch runs",
            )];
        }
        Err(unseen) => return vec![Finding::unseen("webhook", "the webhook configuration", unseen)],
    };
    vec![
        whole(configuration),
        entries(configuration),
        owner(seen, configuration),
        proof(seen),
        armed(seen, configuration),
    ]
}

fn entry<'c>(configuration: &'c MutatingWebhookConfiguration, name: &str) -> Option<&'c MutatingWebhook> {
    configuration.webhooks.iter().flatten().find(|entry| entry.name == name)
}

/// Both entries are there, and neither can make an Event write fail or wait for long.
fn whole(configuration: &MutatingWebhookConfiguration) -> Finding {
    let restored = "squelch restores its configuration within seconds: see its log";
    for name in ENTRIES {
        let Some(entry) = entry(configuration, name) else {
            return Finding::error("webhook", format!("the entry {name} is not there"), restored);
        };
        let ignores = entry.failure_policy.as_deref() == Some("Ignore");
        if !ignores || entry.timeout_seconds != Some(1) {
            let why =
                format!("somebody changed failurePolicy or timeoutSeconds of {name}: Event writes may fail");
            return Finding::error("webhook", why, restored);
        }
    }
    Finding::ok("webhook", "both entries are there, and no Event write can fail by them")
}

/// All entries are squelch's.
fn entries(configuration: &MutatingWebhookConfiguration) -> Finding {
    let names = configuration.webhooks.iter().flatten().map(|entry| entry.name.as_str());
    let foreign: Vec<_> = names.filter(|name| !ENTRIES.contains(name)).collect();
    if foreign.is_empty() {
        return Finding::ok("entries", "squelch has written every entry of the configuration");
    }
    let named = foreign.iter().take(NAMED).map(|name| told(name)).collect::<Vec<_>>().join(", ");
    let why = format!(
        "{} entries are not squelch's and can make the API server send any write to any address: {named}",
        foreign.len()
    );
    Finding::error(
        "entries",
        why,
        "docs/runbooks.md#squelchforeignwebhookentry: find their writer, and remove them",
    )
}

/// The ClusterRole that it says it belongs to.
pub(super) fn owner_role(configuration: &MutatingWebhookConfiguration) -> Option<String> {
    let mut owners = configuration.metadata.owner_references.iter().flatten();
    owners.find(|owner| owner.kind == "ClusterRole").map(|owner| owner.name.clone())
}

/// It goes with the ClusterRole of the chart.
fn owner(seen: &Seen, configuration: &MutatingWebhookConfiguration) -> Finding {
    let Some(role) = &seen.installation.owner_role else {
        return Finding::ok(
            "owner",
            "the configuration belongs to nobody: when squelch goes, remove it with squelch drain",
        );
    };
    let uid = match &seen.owner_uid {
        Ok(uid) => uid,
        Err(Unseen::Missing) => {
            let why =
                format!("the ClusterRole {} is not there: the configuration is removed at once", told(role));
            return Finding::error("owner", why, "upgrade the chart, which brings it");
        }
        Err(unseen) => return Finding::unseen("owner", "the ClusterRole that it belongs to", unseen),
    };
    let mut owners = configuration.metadata.owner_references.iter().flatten();
    if owners.any(|owner| owner.uid == *uid) {
        return Finding::ok("owner", format!("the configuration goes with the ClusterRole {}", told(role)));
    }
    let why = format!(
        "the configuration does not belong to the ClusterRole {}: it stays when the chart goes",
        told(role)
    );
    Finding::warning("owner", why, "restart squelch, which looks for its owner when it starts")
}

/// The API server reaches the webhook.
fn proof(seen: &Seen) -> Finding {
    match &seen.proof {
        Ok(Ok(())) => Finding::ok(
            "proof",
            "the API server reaches the webhook: a dry-run Event came back with its mark",
        ),
        Ok(Err(why)) => Finding::error(
            "proof",
            format!("the API server does not reach the webhook: {}", told(why)),
            "see its log under probe.squelch.dev, the endpoints of the Service, and firewalls towards the pods' port",
        ),
        Err(Unseen::Missing) => Finding::warning(
            "proof",
            "not asked for: no token is known to tell the mark by",
            "see `certificate`",
        ),
        Err(Unseen::Forbidden) => Finding::warning(
            "proof",
            "not asked for: it takes squelch's own account, or the right to impersonate it",
            "`helm test`, or kubectl exec deploy/squelch -- /squelch doctor",
        ),
        Err(unseen) => Finding::unseen("proof", "the proof", unseen),
    }
}

/// The rules are in force, or somebody or something has taken them away.
fn armed(seen: &Seen, configuration: &MutatingWebhookConfiguration) -> Finding {
    let events = entry(configuration, EVENTS_ENTRY);
    if events.is_some_and(|entry| entry.rules.as_ref().is_some_and(|rules| !rules.is_empty())) {
        return Finding::ok(
            "armed",
            format!("the API server asks squelch about the Events of {}", reach(events)),
        );
    }
    let annotations = configuration.metadata.annotations.as_ref();
    if let Some(reason) = annotations.and_then(|annotations| annotations.get(DISARM_ANNOTATION)) {
        return Finding::warning(
            "armed",
            format!("disarmed by the annotation {DISARM_ANNOTATION} (\"{}\")", told(reason)),
            format!("kubectl annotate mutatingwebhookconfiguration {CONFIGURATION} {DISARM_ANNOTATION}-"),
        );
    }
    if !seen.installation.enforce {
        return Finding::warning(
            "armed",
            "disarmed by --enforce=false (or SQUELCH_ENFORCE=false)",
            format!(
                "helm upgrade with --set operator.enforce=true; where only the variable was set: kubectl --namespace {} \
                 set env deployment/{} SQUELCH_ENFORCE-",
                told(&seen.installation.namespace),
                told(&seen.installation.deployment)
            ),
        );
    }
    if replicas::are_none_wanted(seen) {
        return Finding::warning(
            "armed",
            "no replica is wanted: the one that ended last took the rules away, and Events pass",
            "see `replicas`",
        );
    }
    if policies::wants_nothing(seen) {
        return Finding::ok(
            "armed",
            "no policy governs any namespace: there is nothing to ask squelch about",
        );
    }
    Finding::error(
        "armed",
        "there are policies, and the rules are away: Events pass unreviewed",
        "see `proof` and `replicas`; the last Event of the configuration says why: kubectl --namespace default get \
         events | grep -i armed",
    )
}

fn reach(entry: Option<&MutatingWebhook>) -> String {
    let selector = entry.and_then(|entry| entry.namespace_selector.as_ref());
    let named = selector.and_then(|selector| selector.match_expressions.as_ref()?.first()?.values.as_ref());
    named.map_or("all namespaces".to_owned(), |named| match named.len() {
        1 => "1 namespace".to_owned(),
        many => format!("{many} namespaces"),
    })
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::super::testing::well;
    use super::*;

    fn changed(change: impl FnOnce(&mut MutatingWebhookConfiguration, &mut Seen)) -> Vec<Finding> {
        let mut seen = well();
        let mut configuration = seen.configuration.clone().unwrap();
        change(&mut configuration, &mut seen);
        seen.configuration = Ok(configuration);
        findings(&seen)
    }

    fn told_of(found: &[Finding], what: &str) -> (Level, String) {
        let finding = found.iter().find(|finding| finding.what == what).unwrap();
        (finding.level, format!("{} {}", finding.why, finding.what_to_do))
    }

    fn without_rules(configuration: &mut MutatingWebhookConfiguration) {
        configuration.webhooks.as_mut().unwrap()[0].rules = None;
    }

    #[test]
    fn an_armed_webhook_is_well() {
        let found = changed(|_, _| {});
        assert!(found.iter().all(|finding| finding.level == Level::Ok), "{found:#?}");
        assert!(told_of(&found, "armed").1.contains("2 namespaces"));
    }

    #[test]
    fn why_it_is_not_armed_is_told() {
        let by_annotation = changed(|configuration, _| {
            without_rules(configuration);
            let reason = (DISARM_ANNOTATION.to_owned(), "INC-7\u{1b}".to_owned());
            configuration.metadata.annotations = Some([reason].into());
        });
        let (level, told) = told_of(&by_annotation, "armed");
        assert!(
            level == Level::Warning && told.contains("(\"INC-7\")") && told.contains("disarm-"),
            "{told}"
        );

        let by_flag = changed(|configuration, seen| {
            without_rules(configuration);
            seen.installation.enforce = false;
        });
        assert!(told_of(&by_flag, "armed").1.contains("--enforce=false"));

        let by_scale = changed(|configuration, seen| {
            without_rules(configuration);
            seen.deployment.as_mut().unwrap().spec.as_mut().unwrap().replicas = Some(0);
        });
        let (level, told) = told_of(&by_scale, "armed");
        assert!(level == Level::Warning && told.contains("no replica is wanted"), "{told}");

        let for_nothing = changed(|configuration, seen| {
            without_rules(configuration);
            (seen.policies, seen.cluster_policies) = (Ok(Vec::new()), Ok(Vec::new()));
        });
        assert_eq!(told_of(&for_nothing, "armed").0, Level::Ok);

        let unproven = changed(|configuration, seen| {
            without_rules(configuration);
            seen.proof = Ok(Err("no answer within 500 ms".to_owned()));
        });
        assert_eq!(told_of(&unproven, "armed").0, Level::Error);
        assert!(told_of(&unproven, "proof").1.contains("500 ms"));
    }

    #[test]
    fn what_somebody_changed_is_told() {
        let failing = changed(|configuration, _| {
            configuration.webhooks.as_mut().unwrap()[0].failure_policy = Some("Fail".to_owned());
        });
        assert_eq!(told_of(&failing, "webhook").0, Level::Error);
        let halved = changed(|configuration, _| drop(configuration.webhooks.as_mut().unwrap().pop()));
        assert!(told_of(&halved, "webhook").1.contains("probe.squelch.dev"));
        let extended = changed(|configuration, _| {
            let webhooks = configuration.webhooks.as_mut().unwrap();
            webhooks
                .push(MutatingWebhook { name: "all.example.com\u{1b}".to_owned(), ..webhooks[0].clone() });
        });
        let (level, told) = told_of(&extended, "entries");
        assert!(level == Level::Error && told.contains(": all.example.com "), "{told}");
        let orphaned = changed(|configuration, _| configuration.metadata.owner_references = None);
        assert_eq!(told_of(&orphaned, "owner").0, Level::Warning);
        let mut seen = well();
        seen.configuration = Err(Unseen::Missing);
        assert_eq!(findings(&seen)[0].level, Level::Error);
    }

    #[test]
    fn whom_it_belongs_to_is_read_off_it() {
        let mut configuration = well().configuration.unwrap();
        assert_eq!(owner_role(&configuration).as_deref(), Some("squelch"));
        configuration.metadata.owner_references = None;
        assert_eq!(owner_role(&configuration), None);
    }

    #[test]
    fn a_proof_that_nobody_may_ask_for_is_no_error_of_squelchs() {
        let found = changed(|_, seen| seen.proof = Err(Unseen::Forbidden));
        let (level, told) = told_of(&found, "proof");
        assert!(level == Level::Warning && told.contains("helm test"), "{told}");
    }
}
