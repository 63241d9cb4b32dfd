//! What cluster-scoped policies have counted in namespaces that are gone.
//!
//! Namespaces come and go under a cluster-scoped policy, and each leaves a scope behind. The scope is forgotten; what it
//! counted is kept here, so that the sum over all namespaces never falls.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dashmap::DashMap;

use super::scope::Scope;
use super::{Account, Standing, TopDropped};

/// For so long a namespace has to be unknown to be gone: one that was made a moment ago is not known yet.
pub(super) const GONE_AFTER: Duration = Duration::from_secs(10 * 60);

/// One line for each policy, by uid: bounded by the policies that stand.
#[derive(Default)]
pub(super) struct Departed {
    by_policy: DashMap<Arc<str>, Account>,
    /// Grows with each line that comes.
    moves: AtomicU64,
}

impl Departed {
    /// A scope is forgotten although its policy stands. Under the lock of its namespace.
    pub(super) fn keep(&self, scope: &Scope) {
        self.moves.fetch_add(1, Ordering::SeqCst);
        // What was dropped most in a namespace that is gone helps nobody any more.
        let line = Account { dropped: TopDropped::default(), ..scope.account(&Arc::from(String::new())) };
        match self.by_policy.get_mut(&line.policy.uid) {
            Some(mut kept) => kept.counters.add(&line.counters),
            None => drop(self.by_policy.insert(line.policy.uid.clone(), line)),
        }
    }

    /// Forgets policies that stand no more.
    pub(super) fn retain(&self, policies: &HashMap<&Arc<str>, &Standing>) {
        self.by_policy.retain(|uid, _| policies.contains_key(uid));
    }

    /// The lines of the living and of these, none twice and none left out: looked at again if one has moved meanwhile.
    pub(super) fn with(&self, living: impl Fn() -> Vec<Account>) -> Vec<Account> {
        loop {
            let moves = self.moves.load(Ordering::SeqCst);
            let mut lines = living();
            lines.extend(self.by_policy.iter().map(|line| line.clone()));
            if self.moves.load(Ordering::SeqCst) == moves {
                return lines;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{at, by, engine, named, pay, rules, write};
    use super::super::{Disposition, Engine, Footing, Moment, Observation, Rules};
    use super::*;

    fn minutes(minutes: u64) -> Moment {
        at(minutes * 60_000)
    }

    /// The rules stand for a cluster-scoped policy, which has this to do with every namespace.
    fn revise(engine: &Engine, rules: &Rules, footing: Footing, now: u64) {
        let standing =
            Standing { policy: rules.policy.clone(), namespace: None, rules: Some(Arc::new(rules.clone())) };
        engine.revise_within(&[standing], |_, _| footing, minutes(now));
    }

    /// Two occurrences in a namespace, of which one was folded.
    fn folded(engine: &Engine, rules: &Rules, namespace: &str) {
        engine.decide(by(rules), &Observation { namespace, ..write() }, at(0));
        let second = Observation { namespace, ..named("cart.2", write()) };
        let second = engine.decide(by(rules), &second, at(1));
        assert_eq!(second.disposition, Some(Disposition::Compacted));
    }

    /// Gives up what is owed, and lets the tick after that see it.
    fn give_up(engine: &Engine, now: Moment) {
        let order = engine.tick(now, 10).remove(0);
        assert_eq!(engine.abandon(&order), 1);
        engine.tick(now, 10);
    }

    /// What is counted in namespaces that are gone, by all policies: received and lost.
    fn departed(engine: &Engine) -> (u64, u64) {
        let lines = engine.all_accounts().into_iter().filter(|line| line.namespace.is_empty());
        lines.fold((0, 0), |sum, line| (sum.0 + line.counters.received(), sum.1 + line.counters.lost))
    }

    #[test]
    fn a_policy_that_governs_no_more_in_a_namespace_pays_there_what_it_owes() {
        let (engine, rules) = (engine(), rules());
        folded(&engine, &rules, "shop");
        let order = engine.tick(at(2001), 10).remove(0);
        assert_eq!(pay(&engine, &order, Some(1), at(2002)), Some(2));
        engine.decide(by(&rules), &named("cart.3", write()), at(2003));
        revise(&engine, &rules, Footing::Governs, 1);
        assert!(engine.tick(minutes(1), 10).is_empty(), "a debt so small is not due");
        revise(&engine, &rules, Footing::Nothing, 1);
        let order = engine.tick(minutes(1), 10).remove(0);
        assert_eq!(pay(&engine, &order, Some(2), minutes(1)), Some(3));
        engine.tick(minutes(1), 10);
        assert_eq!((engine.gauges().series, engine.gauges().owed), (0, 0));
        assert_eq!(engine.accounts()[0].counters.received(), 3, "what it counted stays");
    }

    #[test]
    fn a_policy_that_governs_again_goes_on() {
        let (engine, rules) = (engine(), rules());
        folded(&engine, &rules, "shop");
        revise(&engine, &rules, Footing::Nothing, 1);
        revise(&engine, &rules, Footing::Governs, 1);
        let third = engine.decide(by(&rules), &named("cart.3", write()), minutes(1));
        assert_eq!(third.disposition, Some(Disposition::Compacted));
        assert_eq!(engine.accounts().len(), 1);
    }

    #[test]
    fn the_scope_of_a_namespace_that_is_gone_is_forgotten_and_its_counts_are_kept() {
        let (engine, rules) = (engine(), rules());
        folded(&engine, &rules, "shop");
        revise(&engine, &rules, Footing::Unknown, 1);
        give_up(&engine, minutes(11));
        assert_eq!((engine.accounts().len(), departed(&engine)), (1, (0, 0)), "it may be a new one");
        engine.tick(minutes(12), 10);
        assert_eq!((engine.accounts().len(), departed(&engine)), (0, (2, 1)));

        // Another namespace goes the same way; then the policy.
        folded(&engine, &rules, "bank");
        revise(&engine, &rules, Footing::Unknown, 13);
        give_up(&engine, minutes(24));
        assert_eq!((engine.accounts().len(), departed(&engine)), (0, (4, 2)));
        assert_eq!(engine.all_accounts().len(), 1);
        engine.revise(&[], minutes(26));
        assert!(engine.all_accounts().is_empty());
    }

    #[test]
    fn a_namespace_that_becomes_known_in_time_stays() {
        let (engine, rules) = (engine(), rules());
        folded(&engine, &rules, "shop");
        revise(&engine, &rules, Footing::Unknown, 1);
        revise(&engine, &rules, Footing::Governs, 2);
        revise(&engine, &rules, Footing::Unknown, 9);
        give_up(&engine, minutes(18));
        assert_eq!((engine.accounts().len(), departed(&engine)), (1, (0, 0)));
    }

    #[test]
    fn a_namespaced_policy_has_its_scope_whatever_is_known_of_the_namespace() {
        let (engine, rules) = (engine(), rules());
        let standing = Standing {
            policy: rules.policy.clone(),
            namespace: Some("shop".into()),
            rules: Some(Arc::new(rules.clone())),
        };
        for minute in [0, 20] {
            engine.revise_within(&[standing.clone()], |_, _| Footing::Unknown, minutes(minute));
            engine.tick(minutes(minute), 10);
            assert_eq!((engine.accounts().len(), departed(&engine)), (1, (0, 0)));
        }
    }
}
