//! A model of the API server's validation of an Event that is written through core/v1 (Kubernetes,
//! pkg/apis/core/validation/events.go, `legacyValidateEvent`; apimachinery, api/validation/objectmeta.go and
//! util/validation). Tests validate the writes of squelch with it. Pure.

use k8s_openapi::api::core::v1::Event;
use serde_json::Value;

/// Returns what the API server refuses in this Event.
pub(super) fn objections(event: &Value, namespace: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut object = |to: bool, what: &str| {
        if to {
            found.push(what.to_owned());
        }
    };
    object(serde_json::from_value::<Event>(event.clone()).is_err(), "it cannot be decoded");
    for (field, digits) in [("firstTimestamp", 20), ("lastTimestamp", 20), ("eventTime", 27)] {
        object(!event[field].is_null() && !is_time(&event[field], digits), field);
    }
    let last = &event["series"]["lastObservedTime"];
    object(!event["series"].is_null() && !is_time(last, 27), "series.lastObservedTime");

    let text = |field: &str| event[field].as_str().unwrap_or_default();
    let about = event["involvedObject"]["namespace"].as_str().unwrap_or_default();
    if text("eventTime").is_empty() {
        let agrees = if about.is_empty() { namespace == "default" } else { about == namespace };
        object(!agrees, "involvedObject.namespace: does not match event.namespace");
    } else {
        let clusters_own = namespace == "default" || namespace == "kube-system";
        object(about.is_empty() && !clusters_own, "involvedObject.namespace: does not match event.namespace");
        object(!is_qualified_name(text("reportingComponent")), "reportingController");
        for field in ["reportingInstance", "action", "reason"] {
            object(text(field).is_empty(), &format!("{field}: required"));
            object(text(field).len() > 128, &format!("{field}: at most 128 characters"));
        }
        object(text("message").len() > 1024, "message: at most 1024 characters");
    }

    let name = event["metadata"]["name"].as_str().unwrap_or_default();
    object(["", ".", ".."].contains(&name) || name.contains(['/', '%']), "metadata.name");
    for (key, value) in event["metadata"]["labels"].as_object().into_iter().flatten() {
        object(!is_qualified_name(key), "metadata.labels: key");
        object(!is_label_value(value.as_str().unwrap_or("\0")), "metadata.labels: value");
    }
    for (key, value) in event["metadata"]["annotations"].as_object().into_iter().flatten() {
        object(!is_qualified_name(&key.to_lowercase()) || !value.is_string(), "metadata.annotations");
    }
    found
}

/// Whether this is a time as Go formats it: RFC 3339 in UTC, a year of four digits, and no fraction or one of six
/// digits.
fn is_time(time: &Value, length: usize) -> bool {
    let Some(text) = time.as_str() else { return false };
    let pattern = if length == 20 { "dddd-dd-ddTdd:dd:ddZ" } else { "dddd-dd-ddTdd:dd:dd.ddddddZ" };
    text.len() == length
        && text
            .bytes()
            .zip(pattern.bytes())
            .all(|(at, is)| if is == b'd' { at.is_ascii_digit() } else { at == is })
}

/// `IsQualifiedName`.
pub(super) fn is_qualified_name(text: &str) -> bool {
    let parts: Vec<&str> = text.split('/').collect();
    match parts[..] {
        [name] => is_label_value(name) && !name.is_empty(),
        [prefix, name] => {
            let labels = || prefix.split('.');
            let edges = |label: &str| !label.starts_with('-') && !label.ends_with('-') && !label.is_empty();
            let plain = |c: char| matches!(c, 'a'..='z' | '0'..='9' | '-');
            let subdomain = labels().all(|label| edges(label) && label.chars().all(plain));
            subdomain && prefix.len() <= 253 && is_label_value(name) && !name.is_empty()
        }
        _ => false,
    }
}

/// `IsValidLabelValue`.
fn is_label_value(text: &str) -> bool {
    let inner = |c: char| matches!(c, 'a'..='z' | 'A'..='Z' | '0'..='9' | '-' | '_' | '.');
    let edge = |c: Option<char>| c.is_none_or(|c| c.is_ascii_alphanumeric());
    text.len() <= 63 && text.chars().all(inner) && edge(text.chars().next()) && edge(text.chars().next_back())
}
