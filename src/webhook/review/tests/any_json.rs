//! Reviews of any JSON.

use super::*;

#[test]
fn the_value_is_read_from_any_json() {
    let huge: Value = serde_json::from_str("1e300").unwrap();
    for (series, count, value) in [
        (Value::Null, json!(5), 5),
        (Value::Null, Value::Null, 1),
        (Value::Null, json!(0), 1),
        (Value::Null, json!(-3), 1),
        (Value::Null, json!(2.5), 2),
        (Value::Null, huge.clone(), i64::from(i32::MAX)),
        (Value::Null, json!(u64::MAX), i64::from(i32::MAX)),
        (Value::Null, json!("7"), 1),
        (json!({"count": 9}), json!(5), 9),
        (json!({"count": 0}), json!(5), 5),
        (json!({"count": 9}), json!(12), 12),
        (json!({"count": -1}), json!(5), 5),
        (json!("none"), json!(5), 5),
    ] {
        let mut review = core_create();
        review["request"]["object"]["series"] = series.clone();
        review["request"]["object"]["count"] = count.clone();
        assert_eq!(observed(&review, |seen| seen.value), value, "{series} {count}");
    }
    let text = include_str!("../../testdata/core_create.json").replace("\"count\":1", "\"count\":1e999");
    let review = decode(text.as_bytes()).unwrap();
    assert_eq!(review.observe(OWN, wall()).unwrap().value, i64::from(i32::MAX));
}

#[test]
fn the_last_of_duplicate_keys_wins() {
    let text = include_str!("../../testdata/core_create.json")
        .replace("\"reason\":\"BackOff\"", "\"reason\":\"One\",\"reason\":\"Two\"")
        .replace("\"username\":", "\"username\":\"x\",\"username\":");
    let review = decode(text.as_bytes()).unwrap();
    let seen = review.observe(OWN, wall()).unwrap();
    assert_eq!((&*seen.event.reason, seen.user), ("Two", "system:node:node-1"));
}

#[test]
fn deep_and_wide_events_do_not_crash_the_decoder() {
    let deep = "[".repeat(100_000) + &"]".repeat(100_000);
    let text = include_str!("../../testdata/core_update.json").replacen(
        "\"reason\":\"BackOff\"",
        &format!("\"reason\":\"BackOff\",\"tomorrow\":{deep}"),
        1,
    );
    let review = decode(text.as_bytes()).unwrap();
    assert!(review.observe(OWN, wall()).unwrap().edited);

    let wide: String = (0..1_000).map(|at| format!("\"k{at}\":1,")).collect();
    let text = include_str!("../../testdata/core_create.json").replacen(
        "\"reason\":",
        &format!("{wide}\"reason\":"),
        1,
    );
    assert!(matches!(decode(text.as_bytes()), Err(ReviewDecodeError::Json(_))));
    assert!(matches!(decode(&[0xff]), Err(ReviewDecodeError::Utf8(_))));
    assert!(matches!(decode(b"{}"), Err(ReviewDecodeError::NoRequest)));
}

#[test]
fn the_fast_path_for_kinds_reads_the_same_as_the_slow_path() {
    for usual in [
        include_str!("../../testdata/core_create.json"),
        include_str!("../../testdata/core_update.json"),
        include_str!("../../testdata/events_create.json"),
        include_str!("../../testdata/events_update.json"),
    ] {
        let unusual = usual.replacen("\"version\":\"v1\"", "\"version\": \"v1\"", 1);
        assert_ne!(usual, unusual);
        let show = |text: &str| {
            let review = decode(text.as_bytes()).unwrap();
            format!("{:?} {:?}", review.api(), review.request.kind)
        };
        assert_eq!(show(usual), show(&unusual));
        let other = usual.replace("\"requestKind\":{\"group\":\"", "\"requestKind\":{\"group\":\"other.");
        assert_eq!(decode(other.as_bytes()).unwrap().api(), None);
    }
}

/// A field's value. Some values are prefixes of others.
fn value_text() -> impl Strategy<Value = String> {
    let values =
        ["1", "12", "1.5", "1e2", "null", "[]", "[1]", "{}", "{ }", r#"{"count":1}"#, r#""""#, r#""\u0061""#];
    prop_oneof![
        prop::sample::select(values.to_vec()).prop_map(str::to_owned),
        "[a-z<é]{0,3}".prop_map(|text| json!(text).to_string()),
    ]
}

/// The members of two objects with the same keys.
fn two_objects(keys: &'static [&'static str]) -> impl Strategy<Value = (String, String)> {
    prop::collection::vec((prop::sample::select(keys), value_text(), value_text()), 1..6).prop_map(
        |members| {
            let one: Vec<_> = members.iter().map(|(key, value, _)| format!("\"{key}\":{value}")).collect();
            let another: Vec<_> =
                members.iter().map(|(key, _, value)| format!("\"{key}\":{value}")).collect();
            (one.join(","), another.join(","))
        },
    )
}

proptest! {
    #[test]
    fn the_stored_event_is_read_the_same_before_and_after_the_written_one(
        (object, old) in two_objects(&["count", "series", "message", "source", "tomorrow", "m\\u0065ssage"]),
        (metadata, old_metadata) in two_objects(&["name", "labels", "managedFields", "uid"]),
    ) {
        let object = format!(r#"{{"metadata":{{{metadata}}},{object}}}"#);
        let old = format!(r#"{{{old},"metadata":{{{old_metadata}}}}}"#);
        let after = format!(r#"{{"request":{{"object":{object},"oldObject":{old}}}}}"#);
        // In this order there is no written Event to compare with yet.
        let before = format!(r#"{{"request":{{"oldObject":{old},"object":{object}}}}}"#);
        let read = |text: &str| decode(text.as_bytes()).ok().map(|review| format!("{review:?}"));
        prop_assert_eq!(read(&after), read(&before));
    }

    #[test]
    fn any_text_of_a_tenant_is_decoded_unchanged(message in any::<String>(), reason in any::<String>(), name in any::<String>()) {
        let mut review = core_create();
        review["request"]["object"]["message"] = json!(message);
        review["request"]["object"]["reason"] = json!(reason);
        review["request"]["object"]["involvedObject"]["name"] = json!(name);
        observed(&review, |seen| {
            assert_eq!(seen.event.message, message);
            assert_eq!(seen.event.reason, reason);
            assert_eq!(seen.event.regarding.name, name);
        });
    }

    #[test]
    fn arbitrary_bytes_do_not_crash_the_decoder(bytes in any::<Vec<u8>>(), at in 0_usize..2_000, with in any::<u8>()) {
        let _ = decode(&bytes);
        let mut review = include_bytes!("../../testdata/core_update.json").to_vec();
        let at = at % review.len();
        review[at] = with;
        if let Ok(decoded) = decode(&review) {
            let _ = decoded.observe(OWN, wall());
        }
    }
}
