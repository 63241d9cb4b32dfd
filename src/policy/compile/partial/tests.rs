use proptest::prelude::*;
use serde_json::json;
use squelch_engine::Treatment;
use squelch_engine::testing::cases;

use super::*;
use crate::policy::compile;
use crate::policy::fixtures::generated::{known_of, specs, writes};
use crate::policy::fixtures::id;

fn compiled(spec: serde_json::Value) -> Compiled {
    compile(id("ci", "p"), &serde_json::from_value(spec).unwrap()).unwrap()
}

proptest! {
    #![proptest_config(cases(4000))]

    #[test]
    fn a_certain_answer_holds_for_every_completion(spec in specs(), write in writes(), bits in 0u8..128) {
        let policy = compile(id("ci", "p"), &spec).unwrap();
        let known = known_of(&write, bits);
        let PartialMatch { certainty, clauses } = policy.governs_known(&known);
        let governs = policy.governs(&write);
        prop_assert!(certainty != Certainty::Always || governs, "{known:?}");
        prop_assert!(certainty != Certainty::Never || !governs, "{known:?}");
        prop_assert_eq!(certainty == Certainty::Always, clauses.is_empty());
        let treatment = policy.treatment(&write);
        let exempts = policy.exempts_known(&known).certainty;
        prop_assert!(exempts != Certainty::Always || treatment == Treatment::Exempt);
        prop_assert!(exempts != Certainty::Never || treatment != Treatment::Exempt);
        let mutes = policy.mutes_known(&known).certainty;
        prop_assert!(mutes != Certainty::Always || treatment != Treatment::Stages);
        prop_assert!(mutes != Certainty::Never || treatment != Treatment::Mute);
    }

    #[test]
    fn with_all_fields_only_messages_are_undecided(mut spec in specs(), write in writes()) {
        for list in [&mut spec.matching, &mut spec.exclude] {
            list.iter_mut().for_each(|entry| entry.messages.clear());
            list.retain(|entry| !entry.is_empty());
        }
        let policy = compile(id("ci", "p"), &spec).unwrap();
        let certainty = policy.governs_known(&known_of(&write, 127)).certainty;
        prop_assert_eq!(certainty, Certainty::from(policy.governs(&write)));
    }
}

#[test]
fn an_answer_names_the_clauses_that_it_depends_on() {
    let policy = compiled(json!({
        "match": [
            {"reasons": ["Failed*", "BackOff"], "regarding": [{"kind": "Pod", "name": "web-*"}]},
            {"regarding": [{"kind": "Node"}]},
        ],
        "exclude": [{"users": ["system:node:*"]}],
    }));
    let pod = KnownFields { kind: Some("Pod"), name: Some("web-1"), ..KnownFields::default() };
    let answer = |known: KnownFields<'_>| {
        let PartialMatch { certainty, clauses } = policy.governs_known(&known);
        (certainty, clauses.join("; "))
    };
    let expected = "match[0]: reasons [Failed*, BackOff]; exclude[0]: users [system:node:*]";
    assert_eq!(answer(pod), (Certainty::Sometimes, expected.to_owned()));
    let back_off = KnownFields { reason: Some("BackOff"), user: Some("me"), ..pod };
    assert_eq!(answer(back_off), (Certainty::Always, String::new()));
    let other = KnownFields { reason: Some("Pulled"), ..pod };
    let expected = "match[0]: reasons [Failed*, BackOff]; match[1]: regarding [{kind: Node}]";
    assert_eq!(answer(other), (Certainty::Never, expected.to_owned()));
    let excluded = KnownFields { user: Some("system:node:n1"), ..back_off };
    assert_eq!(answer(excluded), (Certainty::Never, "exclude[0]: users [system:node:*]".to_owned()));
}

#[test]
fn entries_for_both_types_hold_for_every_write() {
    let policy = compiled(json!({"match": [{"types": ["Normal"]}, {"types": ["Warning"]}]}));
    assert_eq!(policy.governs_known(&KnownFields::default()).certainty, Certainty::Always);
    let policy = compiled(json!({"match": [{"types": ["Normal"]}], "exclude": [{"types": ["Normal"]}]}));
    let nothing = policy.governs_known(&KnownFields::default());
    assert_eq!((nothing.certainty, &*nothing.clauses[0]), (Certainty::Never, "exclude[0]: types [Normal]"));
    let policy = compiled(json!({"exclude": [{"types": ["Normal", "Warning"]}]}));
    assert_eq!(policy.governs_known(&KnownFields::default()).clauses, ["exclude[0]: every write"]);
}

#[test]
fn clauses_have_no_control_characters() {
    let policy = compiled(json!({"match": [{"messages": ["a\u{1b}[31m\u{202e}b"]}]}));
    assert_eq!(policy.governs_known(&KnownFields::default()).clauses, ["match[0]: messages [a [31m b]"]);
}
