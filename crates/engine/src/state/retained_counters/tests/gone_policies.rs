//! Counters of deleted policies.

use super::super::{KEPT, MAX_LINES};
use crate::testing::{at, by, engine, named, rules, write};
use crate::{Engine, KnownPolicy, Mode, PolicyId, Rules, ScopeCounters};

/// Rules of a policy that was recreated this many times.
fn remade(times: u32, mode: Mode) -> Rules {
    let uid = format!("p{times}");
    Rules { mode, series: None, policy: PolicyId { uid: uid.into(), ..rules().policy }, ..rules() }
}

fn stands(engine: &Engine, rules: &Rules, now: u64) {
    let namespace = Some("shop".into());
    let known_policy =
        KnownPolicy { policy: rules.policy.clone(), namespace, rules: Some(rules.clone().into()) };
    engine.revise(&[known_policy], at(now));
}

/// Returns what is counted under the name, and by the policy with this uid.
fn received(engine: &Engine, uid: &str) -> (u64, u64) {
    let counters = engine.counters();
    let of = |line: &&ScopeCounters| *line.policy.uid == *uid;
    let sum = |sum, line: &ScopeCounters| sum + line.counters.received();
    (counters.iter().fold(0, sum), counters.iter().filter(of).fold(0, sum))
}

#[test]
fn counters_of_a_policy_name_never_decrease_while_a_policy_has_it() {
    let engine = engine();
    let mut written = 0;
    for (times, mode) in [Mode::Enforce, Mode::Observe, Mode::Enforce, Mode::Enforce].into_iter().enumerate()
    {
        let rules = remade(times as u32, mode);
        stands(&engine, &rules, written);
        for _ in 0..=times {
            written += 1;
            engine.decide(by(&rules), &named(&format!("cart.{written}"), write()), at(written));
        }
        assert_eq!(received(&engine, &rules.policy.uid), (written, times as u64 + 1));
        engine.tick(at(written), 10);
        assert_eq!(
            received(&engine, &rules.policy.uid),
            (written, times as u64 + 1),
            "{times}, once forgotten"
        );
    }
    assert_eq!(engine.counters().len(), 3, "the living, and a line for each mode of those before");
    engine.revise(&[], at(written));
    engine.tick(at(written), 10);
    assert_eq!(received(&engine, "").0, written, "for the last scrape");
    engine.tick(at(written).plus(KEPT), 10);
    assert!(engine.counters().is_empty());
}

#[test]
fn retained_counters_of_deleted_policies_are_bounded() {
    let engine = engine();
    for times in 0..2 * MAX_LINES as u64 {
        let display = format!("shop/quiet-{times}");
        let policy = PolicyId { display: display.into(), uid: times.to_string().into() };
        let rules = Rules { policy, ..remade(0, Mode::Enforce) };
        stands(&engine, &rules, times);
        engine.decide(by(&rules), &named(&format!("cart.{times}"), write()), at(times));
        engine.revise(&[], at(times));
        engine.tick(at(times), 10);
    }
    let counters = engine.counters();
    assert_eq!(counters.len(), MAX_LINES);
    assert!(counters.iter().all(|line| line.counters.received() == 1));
}

#[test]
fn a_policy_of_another_name_inherits_no_counters() {
    let engine = engine();
    let first = remade(1, Mode::Enforce);
    stands(&engine, &first, 0);
    engine.decide(by(&first), &write(), at(1));
    let policy = PolicyId { display: "shop/next".into(), uid: "p2".into() };
    let next = Rules { policy, ..first };
    stands(&engine, &next, 2);
    engine.decide(by(&next), &named("cart.2", write()), at(3));
    engine.tick(at(4), 10);
    assert_eq!(received(&engine, "p2"), (2, 1), "a line each");
}
