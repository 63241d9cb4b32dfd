//! Checks of the webhook configuration: its entries and owner, the probe, and whether it is armed.

use k8s_openapi::api::admissionregistration::v1::{MutatingWebhook, MutatingWebhookConfiguration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelectorRequirement;
use squelch_engine::sanitise;

use super::finding::{Finding, printable};
use super::snapshot::{Snapshot, Unreadable};
use super::{policies, replicas};
use crate::arming::{
    CONFIGURATION, DISARM_ANNOTATION, EVENTS_ENTRY, PROBE_ENTRY, additions_to, matched_by_a_policy,
};

/// Maximum foreign entries in a message.
const NAMED: usize = 5;

/// Both entries; the entry of the Events is first.
pub(super) const ENTRIES: [&str; 2] = [EVENTS_ENTRY, PROBE_ENTRY];

pub(super) fn findings(snapshot: &Snapshot) -> Vec<Finding> {
    let configuration = match &snapshot.configuration {
        Ok(configuration) => configuration,
        Err(Unreadable::Missing) => {
            return vec![Finding::error(
                "webhook",
                format!(
                    "the MutatingWebhookConfiguration {CONFIGURATION} does not exist: Events are stored without a review"
                ),
                "squelch creates it again 10 minutes after a deletion; if it stays missing, see `replicas`",
            )];
        }
        Err(unreadable) => {
            return vec![Finding::unreadable("webhook", "the webhook configuration", unreadable)];
        }
    };
    vec![
        whole(configuration),
        entries(configuration),
        additions(snapshot, configuration),
        condition(configuration),
        owner(snapshot, configuration),
        probe(snapshot),
        armed(snapshot, configuration),
    ]
}

fn entry<'c>(configuration: &'c MutatingWebhookConfiguration, name: &str) -> Option<&'c MutatingWebhook> {
    configuration.webhooks.iter().flatten().find(|entry| entry.name == name)
}

/// Both entries exist, and neither can make an Event write fail or wait long.
fn whole(configuration: &MutatingWebhookConfiguration) -> Finding {
    let restored = "squelch reapplies its configuration within seconds; if the error stays, see its log";
    for name in ENTRIES {
        let Some(entry) = entry(configuration, name) else {
            return Finding::error(
                "webhook",
                format!("the entry {name} of the webhook configuration is missing"),
                restored,
            );
        };
        let ignores = entry.failure_policy.as_deref() == Some("Ignore");
        if !ignores || entry.timeout_seconds != Some(1) {
            let message = format!(
                "another writer changed failurePolicy or timeoutSeconds of the entry {name}: Event writes may fail"
            );
            return Finding::error("webhook", message, restored);
        }
    }
    Finding::ok("webhook", "both entries exist, and neither can make an Event write fail")
}

/// Every entry is one of squelch's.
fn entries(configuration: &MutatingWebhookConfiguration) -> Finding {
    let names = configuration.webhooks.iter().flatten().map(|entry| entry.name.as_str());
    let foreign: Vec<_> = names.filter(|name| !ENTRIES.contains(name)).collect();
    if foreign.is_empty() {
        return Finding::ok("entries", "the configuration has only the entries of squelch");
    }
    let named = foreign.iter().take(NAMED).map(|name| printable(name)).collect::<Vec<_>>().join(", ");
    let message = format!(
        "{} entries were added by another writer and can make the API server send any write to any address: {named}",
        foreign.len()
    );
    Finding::error(
        "entries",
        message,
        "find their writer and remove them, see docs/runbooks.md#squelchforeignwebhookentry",
    )
}

/// No other writer has restricted the entries.
fn additions(snapshot: &Snapshot, configuration: &MutatingWebhookConfiguration) -> Finding {
    let value = serde_json::to_value(configuration).unwrap_or_default();
    let runbook = "docs/runbooks.md#excludedbyplatform";
    let probes_fail = matches!(snapshot.probe, Ok(Err(_)));
    if let Some(added) = additions_to(&value, PROBE_ENTRY).filter(|_| probes_fail) {
        let message = format!(
            "another writer has restricted the entry {PROBE_ENTRY} by {}: if that excludes namespace {}, no probe can \
             succeed, and squelch stays disarmed",
            printable(&added),
            printable(&snapshot.installation.namespace)
        );
        return Finding::error(
            "additions",
            message,
            format!("exempt the webhook configuration or that namespace, see {runbook}"),
        );
    }
    match additions_to(&value, EVENTS_ENTRY) {
        None => Finding::ok("additions", "no other writer restricts the namespaces or Events of the webhook"),
        Some(added) => Finding::warning(
            "additions",
            format!(
                "another writer has restricted the Event writes that the API server sends to squelch by {}",
                printable(&added)
            ),
            format!(
                "see the conditions of the policies for the namespaces that this excludes, and {runbook}"
            ),
        ),
    }
}

/// The Event writes of the selected namespaces that are sent to squelch.
fn condition(configuration: &MutatingWebhookConfiguration) -> Finding {
    let value = serde_json::to_value(entry(configuration, EVENTS_ENTRY)).unwrap_or_default();
    let message = match matched_by_a_policy(&value) {
        None => "every Event write of the selected namespaces is sent to squelch".to_owned(),
        Some(expression) => {
            let expression: String = expression.chars().map(sanitise).collect();
            format!("Event writes of the selected namespaces are sent to squelch if {expression}")
        }
    };
    Finding::ok("condition", message)
}

/// Returns the ClusterRole that owns the configuration.
pub(super) fn owner_role(configuration: &MutatingWebhookConfiguration) -> Option<String> {
    let mut owners = configuration.metadata.owner_references.iter().flatten();
    owners.find(|owner| owner.kind == "ClusterRole").map(|owner| owner.name.clone())
}

/// The ClusterRole of the chart owns the configuration.
fn owner(snapshot: &Snapshot, configuration: &MutatingWebhookConfiguration) -> Finding {
    let Some(role) = &snapshot.installation.owner_role else {
        return Finding::ok("owner", "the configuration has no owner: squelch uninstall deletes it");
    };
    let uid = match &snapshot.owner_uid {
        Ok(uid) => uid,
        Err(Unreadable::Missing) => {
            let message = format!(
                "the ClusterRole {}, which owns the configuration, does not exist: Kubernetes deletes the configuration",
                printable(role)
            );
            return Finding::error("owner", message, "upgrade the chart, which creates it");
        }
        Err(unreadable) => {
            return Finding::unreadable("owner", "the ClusterRole that owns the configuration", unreadable);
        }
    };
    let mut owners = configuration.metadata.owner_references.iter().flatten();
    if owners.any(|owner| owner.uid == *uid) {
        return Finding::ok("owner", format!("the ClusterRole {} owns the configuration", printable(role)));
    }
    let message = format!(
        "the ClusterRole {} does not own the configuration: helm uninstall would leave it behind",
        printable(role)
    );
    Finding::warning("owner", message, "restart squelch, which sets the owner at its start")
}

/// The API server reaches the webhook.
fn probe(snapshot: &Snapshot) -> Finding {
    match &snapshot.probe {
        Ok(Ok(())) => {
            Finding::ok("probe", "the API server reaches the webhook: the probe, a dry-run Event, succeeded")
        }
        Ok(Err(reason)) => Finding::error(
            "probe",
            format!("the API server does not reach the webhook: {}", printable(reason)),
            "search the log of the API server for probe.squelch.dev, and check the Service's endpoints and the firewall to the pods' port",
        ),
        Err(Unreadable::Missing) => Finding::warning(
            "probe",
            "probe not sent: no token is known to verify its signature",
            "see `certificate`",
        ),
        Err(Unreadable::Forbidden) => Finding::warning(
            "probe",
            "probe not sent: it requires squelch's own account, or the permission to impersonate it",
            "run `helm test`, or `kubectl --namespace squelch exec deployment/squelch -- /squelch doctor`",
        ),
        Err(unreadable) => Finding::unreadable("probe", "the result of the probe", unreadable),
    }
}

/// The rules are in force; otherwise the finding says why not.
fn armed(snapshot: &Snapshot, configuration: &MutatingWebhookConfiguration) -> Finding {
    let events = entry(configuration, EVENTS_ENTRY);
    if events.is_some_and(|entry| entry.rules.as_ref().is_some_and(|rules| !rules.is_empty())) {
        return Finding::ok(
            "armed",
            format!("the API server sends the Event writes of {} to squelch", reach(events)),
        );
    }
    let annotations = configuration.metadata.annotations.as_ref();
    if let Some(reason) = annotations.and_then(|annotations| annotations.get(DISARM_ANNOTATION)) {
        return Finding::warning(
            "armed",
            format!("disarmed by the annotation {DISARM_ANNOTATION} (\"{}\")", printable(reason)),
            format!("kubectl annotate mutatingwebhookconfiguration {CONFIGURATION} {DISARM_ANNOTATION}-"),
        );
    }
    if snapshot.installation.disarmed {
        return Finding::warning(
            "armed",
            "disarmed by --disarm (or SQUELCH_DISARM=true)",
            format!(
                "helm upgrade RELEASE charts/squelch --namespace {namespace} --reset-then-reuse-values --set \
                 operator.disarm=false; if only the variable is set: kubectl --namespace {namespace} set env \
                 deployment/{} SQUELCH_DISARM-",
                printable(&snapshot.installation.deployment),
                namespace = printable(&snapshot.installation.namespace),
            ),
        );
    }
    if replicas::are_none_wanted(snapshot) {
        return Finding::warning(
            "armed",
            "the Deployment is scaled to 0, so the last replica removed the rules: Events are stored without a review",
            "see `replicas`",
        );
    }
    match policies::want_rules(snapshot) {
        Some(false) => Finding::ok("armed", "no policy governs any namespace, so the webhook needs no rules"),
        None => Finding::warning(
            "armed",
            "the webhook has no rules; whether a policy needs them is unknown",
            "see `policies`",
        ),
        Some(true) => Finding::error(
            "armed",
            "policies exist, but the webhook has no rules: Events are stored without a review",
            "see `probe` and `replicas`, and the last Event of the configuration: kubectl events --namespace default \
             --for mutatingwebhookconfiguration/squelch",
        ),
    }
}

fn reach(entry: Option<&MutatingWebhook>) -> String {
    let selector = entry.and_then(|entry| entry.namespace_selector.as_ref());
    let mut expressions =
        selector.and_then(|selector| selector.match_expressions.as_ref()).into_iter().flatten();
    let is_list =
        |it: &&LabelSelectorRequirement| it.key == "kubernetes.io/metadata.name" && it.operator == "In";
    let named = expressions.find(is_list).and_then(|list| list.values.as_ref());
    named.map_or("all namespaces".to_owned(), |named| match named.len() {
        1 => "1 namespace".to_owned(),
        many => format!("{many} namespaces"),
    })
}

#[cfg(test)]
mod tests;
