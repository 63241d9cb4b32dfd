use super::*;
use serde_json::{Value, json};
use squelch_engine::{
    Denial, Disposition, Exported, Masks, Mode, PolicyId, Rejection, Rules, Stage, Treatment, WarningPolicy,
};

const CREATE: &[u8] = include_bytes!("../testdata/core_create.json");
const UPDATE: &[u8] = include_bytes!("../testdata/events_update.json");
const CORE_UPDATE: &[u8] = include_bytes!("../testdata/core_update.json");

fn rules() -> Rules {
    Rules {
        policy: PolicyId { display: "shop/policy".into(), uid: "u".into() },
        warning_policy: WarningPolicy::Limit,
        normalize: Masks::default(),
        max_message_bytes: None,
        mode: Mode::Enforce,
        series: None,
        aggregation: None,
        spam_filter: None,
        budget: None,
        rejection: Rejection::AlreadyExists,
        export: Exported::None,
    }
}

fn response_to(review: &[u8], answer: Answer) -> Option<(ReviewResult, Value)> {
    let rules = rules();
    let governing = Some(Governing { rules: &rules, treatment: Treatment::Stages });
    let disposition = Some(Disposition::Compacted);
    let verdict = Verdict { disposition, stage: Stage::Series, occurrences: 1, answer };
    let review = review::decode(review).unwrap();
    respond(&review, governing, &verdict)
        .map(|(outcome, bytes)| (outcome, serde_json::from_slice(&bytes).unwrap()))
}

fn patch_of(answer: &Value) -> json_patch::Patch {
    use base64::Engine as _;
    let text = answer["response"]["patch"].as_str().unwrap();
    let bytes = base64::engine::general_purpose::STANDARD.decode(text).unwrap();
    assert_eq!(answer["response"]["patchType"], "JSONPatch");
    serde_json::from_slice(&bytes).unwrap()
}

#[test]
fn a_denial_has_only_the_policy_and_the_disposition() {
    for (denial, code, reason) in
        [(Denial::AlreadyExists, 409, "AlreadyExists"), (Denial::Forbidden, 403, "Forbidden")]
    {
        let (outcome, answer) = response_to(CREATE, Answer::Deny(denial)).unwrap();
        assert_eq!(outcome.as_str(), ReviewResult::of(denial).as_str());
        let expected = json!({
            "kind": "AdmissionReview",
            "apiVersion": "admission.k8s.io/v1",
            "response": {
                "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
                "allowed": false,
                "status": {
                    "status": "Failure",
                    "reason": reason,
                    "code": code,
                    "message": "squelch: shop/policy compacted",
                },
            },
        });
        assert_eq!(answer, expected);
    }
}

#[test]
fn a_restored_update_equals_the_old_event() {
    let (outcome, answer) = response_to(UPDATE, Answer::Restore).unwrap();
    assert_eq!(outcome, ReviewResult::Restored);
    let review: Value = serde_json::from_slice(UPDATE).unwrap();
    let mut object = review["request"]["object"].clone();
    json_patch::patch(&mut object, &patch_of(&answer)).unwrap();
    assert_eq!(object, review["request"]["oldObject"]);
}

#[test]
fn a_create_cannot_be_restored() {
    assert!(response_to(CREATE, Answer::Restore).is_none());
}

#[test]
fn a_named_create_is_patched_with_its_name() {
    let create = include_bytes!("../testdata/generate_name.json");
    let (outcome, answer) = response_to(create, Answer::AllowNamed("web-x7k2m".to_owned())).unwrap();
    assert_eq!(outcome, ReviewResult::Named);
    let mut object = serde_json::from_slice::<Value>(create).unwrap()["request"]["object"].clone();
    json_patch::patch(&mut object, &patch_of(&answer)).unwrap();
    assert_eq!(object["metadata"]["name"], "web-x7k2m");
}

#[test]
fn a_panic_is_caught() {
    assert_eq!(catch_panic(|| 3), Some(3));
    assert_eq!(catch_panic::<()>(|| panic!("expected by this test")), None);
}

#[test]
fn a_long_message_is_cut_if_a_stage_of_an_enforced_policy_admitted_the_write() {
    let long = Rules { max_message_bytes: Some(9), ..rules() };
    let whole = Rules { max_message_bytes: Some(100_000), ..rules() };
    let observe = Rules { mode: Mode::Observe, ..long.clone() };
    let named = Answer::AllowNamed("web-x7k2m".to_owned());
    for (rules, answer, disposition, stage, name, is_cut) in [
        (&long, Answer::Allow, Some(Disposition::Admitted), Stage::Admit, None, true),
        (&long, Answer::Allow, Some(Disposition::Admitted), Stage::Series, None, true),
        (&long, named.clone(), Some(Disposition::Admitted), Stage::Admit, Some("web-x7k2m"), true),
        (&whole, named, Some(Disposition::Admitted), Stage::Admit, Some("web-x7k2m"), false),
        (&whole, Answer::Allow, Some(Disposition::Admitted), Stage::Admit, None, false),
        (&long, Answer::Allow, Some(Disposition::Admitted), Stage::Exempt, None, false),
        (&long, Answer::Allow, Some(Disposition::Admitted), Stage::Standby, None, false),
        (&long, Answer::Allow, None, Stage::Edit, None, false),
        (&observe, Answer::Allow, Some(Disposition::Compacted), Stage::Series, None, false),
        (&observe, Answer::Allow, Some(Disposition::Admitted), Stage::Admit, None, false),
    ] {
        let mut update: Value = serde_json::from_slice(CORE_UPDATE).unwrap();
        let unchanged = serde_json::to_vec(&update).unwrap();
        assert_eq!(update["request"]["object"]["message"], update["request"]["oldObject"]["message"]);
        update["request"]["oldObject"]["message"] = json!("an older message");
        let changed = serde_json::to_vec(&update).unwrap();
        for (bytes, is_changed) in [(CREATE, true), (&changed, true), (&unchanged, false)] {
            let is_cut = is_cut && is_changed;
            let review = review::decode(bytes).unwrap();
            let governing = Some(Governing { rules, treatment: Treatment::Stages });
            let verdict = Verdict { disposition, stage, occurrences: 1, answer: answer.clone() };
            let (_, response) = respond(&review, governing, &verdict).unwrap();
            let response = serde_json::from_slice::<Value>(&response).unwrap();
            let written = serde_json::from_slice::<Value>(bytes).unwrap()["request"]["object"].take();
            let mut stored = written.clone();
            if is_cut || name.is_some() {
                json_patch::patch(&mut stored, &patch_of(&response)).unwrap();
            } else {
                assert!(response["response"].get("patch").is_none(), "{stage:?}");
            }
            let message = written["message"].as_str().unwrap();
            let expected = if is_cut { &message[..9] } else { message };
            assert_eq!(stored["message"], expected, "{stage:?}");
            assert!(name.is_none_or(|name| stored["metadata"]["name"] == name));
        }
    }
}

/// The API server accepts no other message of an Event of events.k8s.io later. Its client would fail while squelch does not
/// decide.
#[test]
fn the_message_of_an_event_of_the_new_api_is_never_cut() {
    let create = include_bytes!("../testdata/events_create.json");
    let rules = Rules { max_message_bytes: Some(9), ..rules() };
    let governing = Some(Governing { rules: &rules, treatment: Treatment::Stages });
    let disposition = Some(Disposition::Admitted);
    let review = review::decode(create).unwrap();
    let written = review.written_message();
    assert!(written.len() > 9);
    for answer in [Answer::Allow, Answer::AllowNamed("web-x7k2m".to_owned())] {
        let verdict = Verdict { disposition, stage: Stage::Admit, occurrences: 1, answer };
        let (_, response) = respond(&review, governing, &verdict).unwrap();
        let response = serde_json::from_slice::<Value>(&response).unwrap();
        if response["response"].get("patch").is_some() {
            let patched: Vec<_> =
                patch_of(&response).0.iter().map(|operation| operation.path().to_string()).collect();
            assert!(!patched.contains(&"/note".to_owned()), "{patched:?}");
            assert!(!patched.contains(&"/message".to_owned()), "{patched:?}");
        }
    }
}
