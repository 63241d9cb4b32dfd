//! Events in the name of others, or about objects of others.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::script::pods;
use crate::tenancy::{Ending, Tenancy};
use crate::tenant::{WriteResult, event};

/// Events of each kind.
const EACH: usize = 100;

/// An Event of events.k8s.io about that object.
fn note(namespace: &str, name: &str, regarding: &Value, text: &str) -> Value {
    json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": { "name": name, "namespace": namespace },
        "regarding": regarding, "type": "Normal", "reason": "BackOff", "action": "Pulling", "note": text,
        "reportingController": "kubelet", "reportingInstance": "node-1",
        "eventTime": format!("{:.6}", jiff::Timestamp::now()),
    })
}

/// Events about objects of the neighbour namespace, through both APIs: they are counted where they are written, and
/// the API server refuses those of core/v1 after squelch's review.
pub(crate) async fn elsewhere() -> Result<String> {
    let tenancy = Tenancy::begin("elsewhere").await?;
    let (here, beside) = (tenancy.namespace().to_owned(), tenancy.beside.namespace.clone());
    let (mut refused, mut stored) = (0, 0);
    for number in 0..EACH {
        for (at, pod) in pods(1).iter().enumerate() {
            let regarding =
                json!({ "apiVersion": "v1", "kind": "Pod", "namespace": beside, "name": pod, "uid": pod });
            let mut core =
                event(&here, &format!("m.{at}.{number}"), pod, "BackOff", &format!("message {number}"));
            core["involvedObject"]["namespace"] = beside.as_str().into();
            refused += usize::from(matches!(tenancy.creates(&core).await?, WriteResult::Other(422)));
            let new = note(&here, &format!("n.{at}.{number}"), &regarding, &format!("message {number}"));
            stored += usize::from(tenancy.creates(&new).await? == WriteResult::Stored);
        }
        // The API server refuses the opposite direction.
        if number == 0 {
            let core = event(&beside, "m", &pods(1)[0], "BackOff", "message");
            ensure!(
                tenancy.hostile.create(&here, &core).await? == WriteResult::Other(400),
                "written into another namespace"
            );
        }
    }
    ensure!(stored > 0 && refused > 0, "{stored} were stored, {refused} refused by the API server");
    tenancy.play().await?;
    let said = tenancy.ends(Ending::Counted).await?;
    Ok(format!("{stored} stored where they were written, {refused} refused by the API server; {said}"))
}

/// Copies of the other user's Events, written before them, and Events about a Node: the other user gets the same
/// answers as without them.
pub(crate) async fn kubelet() -> Result<String> {
    let tenancy = Tenancy::begin("kubelet").await?;
    let namespace = tenancy.namespace().to_owned();
    for number in 0..EACH {
        for play in 1..3 {
            let [repeats, messages, reasons] = pods(play);
            let (message, reason) = (format!("message {number}"), format!("Reason{number}"));
            let name = |of: &str| format!("m.{of}.{number}");
            for event in [
                event(&namespace, &name(&repeats), &repeats, "BackOff", "again"),
                event(&namespace, &name(&messages), &messages, "BackOff", &message),
                event(&namespace, &name(&reasons), &reasons, &reason, &message),
            ] {
                tenancy.creates(&event).await?;
            }
        }
        let node = json!({ "apiVersion": "v1", "kind": "Node", "name": "node-1", "uid": "node-1", "namespace": namespace });
        let mut about =
            event(&namespace, &format!("m.node.{number}"), "node-1", "NodeNotReady", "it is gone");
        about["involvedObject"] = node.clone();
        let said = tenancy.creates(&about).await?;
        ensure!(number == 0 || said == WriteResult::Refused, "{said:?}");
        if number + 1 == EACH {
            // The first Event under the other user's own name is stored.
            about["metadata"]["name"] = "other-user.node".into();
            let said = tenancy.other_user_creates(&about).await?;
            ensure!(said == WriteResult::Stored, "the other user's Event about a Node: {said:?}");
        }
    }
    tenancy.play().await?;
    tenancy.ends(Ending::AddsUp).await
}
