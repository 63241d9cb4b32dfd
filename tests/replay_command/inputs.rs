//! Lists, audit logs and namespaces as input.

use super::*;

#[test]
fn a_list_is_replayed_as_one_write_per_occurrence() {
    let folder = Folder::new();
    let mut legacy = event("a", 100);
    legacy["lastTimestamp"] = json!("2026-01-01T00:16:30Z");
    let mut own = event("own", 50);
    own["metadata"]["labels"] = json!({"squelch.dev/summary": "true"});
    let mut receipt = event("receipt", 65_181);
    receipt["reason"] = json!("EventsDropped");
    receipt["reportingComponent"] = json!("squelch.dev/squelch");
    let mut timeless = event("timeless", 2);
    for time in ["firstTimestamp", "lastTimestamp"] {
        timeless[time] = Value::Null;
    }
    let list = json!({"apiVersion": "v1", "items": [legacy, new_event("n", 5), own, receipt, timeless], "kind": "List"});
    let pretty = serde_json::to_string_pretty(&list).unwrap();
    let (report, decisions) = folder.report(&[], &pretty);
    assert_eq!(report["input"]["format"], "list");
    assert_eq!(report["input"]["entries"], 5);
    assert_eq!(report["input"]["leftOut"], json!({"noTime": 1, "ownEvent": 1, "ownSummary": 1}));
    assert_eq!(report["total"]["occurrences"]["received"], 105);
    assert_eq!(decisions.len(), 105);
    let times: Vec<f64> = decisions.iter().map(|decision| decision["at"].as_f64().unwrap()).collect();
    assert!(times.is_sorted());
    let of_a: Vec<&Value> = decisions.iter().filter(|decision| decision["name"] == "a").collect();
    assert_eq!(of_a.len(), 100);
    assert_eq!(of_a[99]["at"].as_f64().unwrap() - of_a[0]["at"].as_f64().unwrap(), 990.0);
    assert!(of_a.iter().all(|decision| decision["occurrences"] == 1));
    assert!(report["notes"].to_string().contains("replayed as one write per occurrence"));
    assert!(report["total"]["bytesSaved"].as_i64().unwrap() > 0);

    // As the API server prints it: the items of an EventList have no kind and apiVersion.
    let mut items = list["items"].as_array().unwrap().clone();
    items.retain(|item| item["apiVersion"] == "v1");
    for item in &mut items {
        let fields = item.as_object_mut().unwrap();
        fields.retain(|field, _| field != "kind" && field != "apiVersion");
    }
    let list = json!({"kind": "EventList", "apiVersion": "v1", "metadata": {}, "items": items});
    assert_eq!(folder.report(&[], &list.to_string()).0["total"]["occurrences"]["received"], 100);
}

fn audit(verb: &str, name: &str, code: u16, request: Option<Value>, response: Option<Value>) -> Value {
    let mut line = json!({
        "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "RequestResponse", "auditID": "1",
        "stage": "ResponseComplete", "requestURI": format!("/api/v1/namespaces/shop/events/{name}"),
        "verb": verb, "user": {"username": "system:node:n1", "groups": ["system:nodes"]},
        "objectRef": {"resource": "events", "namespace": "shop", "name": name, "apiVersion": "v1"},
        "responseStatus": {"metadata": {}, "code": code},
        "requestReceivedTimestamp": "2026-01-01T00:00:00.000000Z",
        "stageTimestamp": "2026-01-01T00:00:00.001000Z",
    });
    line["requestObject"] = request.unwrap_or_default();
    line["responseObject"] = response.unwrap_or_default();
    line
}

#[test]
fn the_writes_of_an_audit_log_are_reconstructed() {
    let folder = Folder::new();
    let patch = || Some(json!({"count": 9}));
    let (mut received, mut other, mut late, mut refused) = (
        audit("create", "x", 201, Some(event("x", 1)), None),
        audit("create", "x", 201, Some(json!({"kind": "Pod"})), None),
        audit("patch", "a", 200, patch(), Some(event("a", 3))),
        audit("patch", "a", 409, patch(), None),
    );
    received["stage"] = json!("RequestReceived");
    other["objectRef"]["resource"] = json!("pods");
    late["stageTimestamp"] = json!("2026-01-01T00:00:05.000000Z");
    late["impersonatedUser"] = json!({"username": "jane"});
    refused["responseStatus"]["message"] =
        json!("admission webhook \"events.squelch.dev\" denied the request: squelch: shop/team compacted");
    let mut created = audit("create", "", 201, Some(event("", 1)), Some(event("made-9", 1)));
    created["requestObject"]["metadata"] = json!({"generateName": "made-", "namespace": "shop"});
    let log = [
        received,
        audit("create", "a", 201, Some(event("a", 1)), Some(event("a", 1))),
        audit("patch", "a", 200, patch(), Some(event("a", 2))),
        late,
        // Slightly out of order: it gets the time of the entry before it.
        audit("update", "a", 200, Some(event("a", 4)), Some(event("a", 4))),
        created,
        audit("patch", "made-9", 200, patch(), Some(event("made-9", 2))),
        audit("patch", "unknown", 200, patch(), Some(event("unknown", 7))),
        audit("patch", "unknown", 200, patch(), Some(event("unknown", 8))),
        audit("patch", "gone", 404, patch(), Some(json!({"kind": "Status"}))),
        refused,
        audit("create", "bare", 201, None, None),
        audit("get", "a", 200, None, Some(event("a", 4))),
        audit("delete", "a", 200, None, None),
        audit("patch", "a", 200, patch(), Some(event("a", 5))),
        other,
    ];
    let (report, decisions) = folder.report(&[], &lines(&log));
    let expected = json!({"failed": 1, "noBody": 1, "noOldObject": 2, "noWrite": 2, "otherResource": 1,
                          "otherStage": 1, "refusedBySquelch": 1});
    assert_eq!(report["input"]["leftOut"], expected);
    assert_eq!(report["input"]["format"], "audit");
    let decided: Vec<(&str, i64)> = decisions
        .iter()
        .map(|decision| (decision["name"].as_str().unwrap(), decision["occurrences"].as_i64().unwrap()))
        .collect();
    assert_eq!(decided[..4], [("a", 1), ("a", 1), ("a", 1), ("a", 1)]);
    assert_eq!((decided[5], decided[6]), (("made-9", 1), ("unknown", 1)));
    assert_eq!(decided.len(), 7);
    assert_eq!(decisions[2]["at"], decisions[3]["at"]);
    let notes = report["notes"].to_string();
    assert!(notes.contains("2 entries (updates of Events that the log does not contain before)"), "{notes}");
}

#[test]
fn a_policy_can_be_applied_in_all_namespaces() {
    let folder = Folder::new();
    let trace = line(1.0, "CREATE", &event("a", 1), None);
    let row = |arguments: &[&str]| {
        let fixed = ["--policy", "policy.yaml", "-o", "json", "-"];
        let (code, out, err) = folder.replay(&[&fixed, arguments].concat(), &trace);
        assert_eq!((code, err.as_str()), (0, ""));
        let report: Value = serde_json::from_str(&out).unwrap();
        let row = &report["policies"][0];
        let hinted = report["notes"].to_string().contains("--all-namespaces applies each policy");
        (row["policy"].as_str().unwrap().to_owned(), row["occurrences"]["received"].as_u64().unwrap(), hinted)
    };
    assert_eq!(row(&[]), ("default/team".to_owned(), 0, true));
    assert_eq!(row(&["-n", "shop"]), ("shop/team".to_owned(), 1, false));
    assert_eq!(row(&["-A"]), ("shop/team".to_owned(), 1, false));
}
