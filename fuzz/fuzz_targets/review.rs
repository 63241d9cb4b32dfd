//! Any bytes as a review: each has a defined answer, and reviews that kube's types can read are answered with their
//! uid.

#![no_main]

use kube::core::DynamicObject;
use kube::core::admission::{AdmissionRequest, AdmissionReview, Operation};
use libfuzzer_sys::fuzz_target;
use serde_json::json;
use squelch_fuzz::{Answer, Served};

thread_local! {
    static SERVED: Served = Served::new(&json!({
        "aggregation": {"maxEvents": 3}, "spamFilter": {"burst": 2}, "budget": {"burst": 20, "refillInterval": "1s"},
    }));
}

fuzz_target!(|bytes: &[u8]| {
    let (status, body) = SERVED.with(|served| served.ask(bytes));
    let review: Option<AdmissionReview<DynamicObject>> = serde_json::from_slice(bytes).ok();
    let request: Option<AdmissionRequest<DynamicObject>> = review.and_then(|review| review.try_into().ok());
    match request {
        Some(request) if !request.uid.is_empty() => {
            assert_eq!(status, 200, "{}", String::from_utf8_lossy(&body));
            let answer = Answer::read(&body);
            assert_eq!(answer.uid, request.uid);
            assert!(answer.allowed || !request.dry_run, "a dry run must be allowed");
            if request.operation == Operation::Create && !request.dry_run {
                changes_at_most_the_name(&answer);
            }
        }
        _ if status == 200 => drop(Answer::read(&body)),
        _ => assert_eq!(status, 400),
    }
});

/// A CREATE is stored as it was written or not at all, even under a name that another user's Event has.
fn changes_at_most_the_name(answer: &Answer) {
    let operations = answer.patch.iter().flat_map(|patch| patch.iter());
    for operation in operations {
        assert_eq!(operation.path().to_string(), "/metadata/name");
    }
}
