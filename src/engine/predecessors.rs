//! What policies have counted that are gone, where another has taken over under their name.
//!
//! Metrics are told by the name. A scope is forgotten once its policy is gone and paid for; if its counts went with it
//! while its successor's stay, the metric of both would fall, and who reads that as a restart counts the successor twice.

use std::sync::Arc;

use super::Account;
use super::scope::Scope;

/// A line for each name and mode that has a successor: bounded by the scopes of the namespace.
#[derive(Default)]
pub(super) struct Predecessors(Vec<Account>);

impl Predecessors {
    /// A scope is forgotten, for its policy is gone.
    pub(super) fn keep(&mut self, scope: &Scope, namespace: &Arc<str>) {
        // A list of what was dropped belongs to a status, and that went with the policy.
        let line = Account { dropped: Default::default(), ..scope.account(namespace) };
        let of_same =
            |kept: &&mut Account| kept.policy.display == line.policy.display && kept.mode == line.mode;
        match self.0.iter_mut().find(of_same) {
            Some(kept) => kept.counters.add(&line.counters),
            None => self.0.push(line),
        }
    }

    /// Forgets those of whose name nobody stands any more: a metric that goes away may begin anew.
    pub(super) fn retain(&mut self, living: &[Scope]) {
        self.0.retain(|kept| living.iter().any(|scope| scope.policy().display == kept.policy.display));
    }

    pub(super) fn lines(&self) -> impl Iterator<Item = Account> {
        self.0.iter().cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{at, by, engine, named, rules, write};
    use super::super::{Engine, Mode, PolicyId, Rules, Standing};

    /// Rules as a policy has them that was made anew so many times.
    fn remade(times: u32, mode: Mode) -> Rules {
        let uid = format!("p{times}");
        Rules { mode, series: None, policy: PolicyId { uid: uid.into(), ..rules().policy }, ..rules() }
    }

    fn stands(engine: &Engine, rules: &Rules, now: u64) {
        let namespace = Some("shop".into());
        let standing =
            Standing { policy: rules.policy.clone(), namespace, rules: Some(rules.clone().into()) };
        engine.revise(&[standing], at(now));
    }

    /// What is counted under the name, and by the policy that has this uid.
    fn received(engine: &Engine, uid: &str) -> (u64, u64) {
        let accounts = engine.accounts();
        let of = |line: &&super::Account| *line.policy.uid == *uid;
        let sum = |sum, line: &super::Account| sum + line.counters.received();
        (accounts.iter().fold(0, sum), accounts.iter().filter(of).fold(0, sum))
    }

    #[test]
    fn what_is_counted_under_a_name_does_not_fall_while_a_policy_has_it() {
        let engine = engine();
        let mut written = 0;
        for (times, mode) in
            [Mode::Enforce, Mode::Observe, Mode::Enforce, Mode::Enforce].into_iter().enumerate()
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
        assert_eq!(engine.accounts().len(), 3, "the living, and a line for each mode of those before");
        engine.revise(&[], at(written));
        engine.tick(at(written), 10);
        assert!(engine.accounts().is_empty());
    }

    #[test]
    fn a_policy_of_another_name_takes_nothing_over() {
        let engine = engine();
        let first = remade(1, Mode::Enforce);
        stands(&engine, &first, 0);
        engine.decide(by(&first), &write(), at(1));
        let policy = PolicyId { display: "shop/next".into(), uid: "p2".into() };
        let next = Rules { policy, ..first };
        stands(&engine, &next, 2);
        engine.decide(by(&next), &named("cart.2", write()), at(3));
        engine.tick(at(4), 10);
        assert_eq!(received(&engine, "p2"), (1, 1));
    }
}
