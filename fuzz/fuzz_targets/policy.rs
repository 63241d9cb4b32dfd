//! Any JSON as the spec of a policy: it is refused with a message, or compiles.

#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use squelch_fuzz::{Answer, Served, policies};

const REVIEW: &[u8] = include_bytes!("../../src/webhook/testdata/core_create.json");

fuzz_target!(|bytes: &[u8]| {
    let Ok(spec) = serde_json::from_slice::<Value>(bytes) else { return };
    for policy in policies(&spec).load().policies() {
        if let Err(invalid) = policy.outcome.as_ref() {
            let said = invalid.to_string();
            assert!(!said.is_empty() && said.len() <= 600, "{} bytes", said.len());
            assert!(!said.chars().any(char::is_control), "{said:?}");
            return;
        }
    }
    let served = Served::new(&spec);
    for _ in 0..3 {
        let (status, body) = served.ask(REVIEW);
        assert_eq!(status, 200);
        Answer::read(&body);
    }
});
