//! Reviewed writes as a trace for `squelch replay`.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use serde_json::{Value, json};

/// Names of Event fields in `v1` and in `events.k8s.io/v1`. Reviews use `v1`, whatever API the client used.
const WORDS: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
];

/// The reviews in order of arrival.
pub(super) struct Recording {
    began: Instant,
    recorded: Mutex<Recorded>,
}

#[derive(Default)]
struct Recorded {
    /// The API server may send a review twice.
    uids: HashSet<String>,
    lines: Vec<(String, Value)>,
}

impl Default for Recording {
    fn default() -> Self {
        Self { began: Instant::now(), recorded: Mutex::default() }
    }
}

impl Recording {
    pub(super) fn record(&self, body: &[u8]) {
        let Ok(mut review) = serde_json::from_slice::<Value>(body) else { return };
        let request = &mut review["request"];
        let namespace = request["namespace"].as_str().unwrap_or_default().to_owned();
        let uid = request["uid"].as_str().unwrap_or_default().to_owned();
        let new_words = request["requestKind"]["group"] == "events.k8s.io";
        let mut line = json!({
            "operation": request["operation"],
            "user": request["userInfo"]["username"],
            "dryRun": request["dryRun"] == true,
            "object": spelled(request["object"].take(), new_words),
        });
        if request["oldObject"].is_object() {
            line["oldObject"] = spelled(request["oldObject"].take(), new_words);
        }
        let mut recorded = self.recorded.lock().unwrap_or_else(PoisonError::into_inner);
        if recorded.uids.insert(uid) {
            // Read under the lock: times of a trace never decrease.
            line["at"] = json!(self.began.elapsed().as_secs_f64());
            recorded.lines.push((namespace, line));
        }
    }

    /// The recorded writes of a namespace's Events, as JSON lines.
    pub(super) fn trace(&self, namespace: &str) -> String {
        let recorded = self.recorded.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = recorded.lines.iter().filter(|(of, _)| of == namespace);
        lines.map(|(_, line)| format!("{line}\n")).collect()
    }
}

fn spelled(mut event: Value, new_words: bool) -> Value {
    if let (true, Some(members)) = (new_words, event.as_object_mut()) {
        for (old, new) in WORDS {
            if let Some(value) = members.remove(old) {
                members.insert(new.to_owned(), value);
            }
        }
        members.insert("apiVersion".to_owned(), "events.k8s.io/v1".into());
    }
    event
}

#[cfg(test)]
mod tests {
    use super::*;

    fn review(uid: &str, group: &str) -> Vec<u8> {
        let event = json!({ "apiVersion": "v1", "kind": "Event", "message": "m", "count": 2 });
        let request = json!({
            "uid": uid, "namespace": "a", "operation": "UPDATE", "userInfo": { "username": "u" }, "dryRun": false,
            "requestKind": { "group": group }, "object": event, "oldObject": event,
        });
        json!({ "request": request }).to_string().into_bytes()
    }

    #[test]
    fn each_write_is_one_line_in_the_fields_of_its_api() {
        let recording = Recording::default();
        for (uid, group) in [("1", ""), ("1", ""), ("2", "events.k8s.io")] {
            recording.record(&review(uid, group));
        }
        let trace = recording.trace("a");
        let lines: Vec<Value> = trace.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 2);
        assert_eq!((&lines[0]["user"], &lines[0]["object"]["message"]), (&json!("u"), &json!("m")));
        let old = &lines[1]["oldObject"];
        assert_eq!((&old["note"], &old["deprecatedCount"]), (&json!("m"), &json!(2)));
        assert_eq!(old["apiVersion"], "events.k8s.io/v1");
        assert!(lines[0]["at"].as_f64() <= lines[1]["at"].as_f64());
        assert_eq!(recording.trace("b"), "");
    }
}
