//! What scopes that are gone have counted.
//!
//! Namespaces come and go under a cluster-scoped policy, and each leaves a scope behind. The scope is forgotten; what it
//! counted is kept in [`GoneNamespaces`], so that the sum over all namespaces never falls.
//!
//! A scope is forgotten too once its policy is gone and everything pending is written or lost. [`GonePolicies`] keeps
//! its counts for a while, so that the last of them are in the metrics before they are forgotten. Where another policy
//! has taken over under the same name, they stay as long as that one: metrics know a policy by its name, and must not
//! fall.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dashmap::DashMap;

use crate::state::scope::Scope;
use crate::{Counters, KnownPolicy, Moment, ScopeCounters, TopDropped};

/// For so long a namespace has to be unknown to be gone: one that was made a moment ago is not known yet.
pub(crate) const GONE_AFTER: Duration = Duration::from_secs(10 * 60);

/// One line for each policy, by uid: bounded by the policies that stand.
#[derive(Default)]
pub(crate) struct GoneNamespaces {
    by_policy: DashMap<Arc<str>, ScopeCounters>,
    /// Grows with each line that comes.
    moves: AtomicU64,
}

impl GoneNamespaces {
    /// A scope is forgotten although its policy stands. Under the lock of its namespace.
    pub(crate) fn keep(&self, scope: &Scope) {
        self.moves.fetch_add(1, Ordering::SeqCst);
        // What was dropped most in a namespace that is gone helps nobody any more.
        let line = ScopeCounters {
            dropped: TopDropped::default(),
            ..scope.scope_counters(&Arc::from(String::new()))
        };
        match self.by_policy.get_mut(&line.policy.uid) {
            Some(mut kept) => kept.counters.add(&line.counters),
            None => drop(self.by_policy.insert(line.policy.uid.clone(), line)),
        }
    }

    /// Forgets policies that stand no more.
    pub(crate) fn retain(&self, policies: &HashMap<&Arc<str>, &KnownPolicy>) {
        self.by_policy.retain(|uid, _| policies.contains_key(uid));
    }

    /// The lines of the living and of these, none twice and none left out: looked at again if one has moved meanwhile.
    pub(crate) fn with(&self, living: impl Fn() -> Vec<ScopeCounters>) -> Vec<ScopeCounters> {
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

/// Counts of a policy that is gone are kept for this long: longer than the intervals at which metrics are scraped.
const KEPT: Duration = Duration::from_secs(10 * 60);

/// At most so many lines are kept. The oldest goes.
const MAX_LINES: usize = 256;

/// One line for each name and mode.
#[derive(Default)]
pub(crate) struct GonePolicies(Vec<RetainedLine>);

struct RetainedLine {
    scope_counters: ScopeCounters,
    /// When it was first seen here, once it was.
    since: Option<Moment>,
}

impl GonePolicies {
    /// A scope is forgotten, for its policy is gone.
    pub(crate) fn keep(&mut self, scope: &Scope, namespace: &Arc<str>) {
        // A list of what was dropped belongs to a status, and that went with the policy.
        let scope_counters =
            ScopeCounters { dropped: TopDropped::default(), ..scope.scope_counters(namespace) };
        if scope_counters.counters == Counters::default() {
            return;
        }
        let of_same = |kept: &&mut RetainedLine| {
            kept.scope_counters.policy.display == scope_counters.policy.display
                && kept.scope_counters.mode == scope_counters.mode
        };
        if let Some(kept) = self.0.iter_mut().find(of_same) {
            kept.scope_counters.counters.add(&scope_counters.counters);
            kept.since = None;
            return;
        }
        if self.0.len() == MAX_LINES {
            self.0.remove(0);
        }
        self.0.push(RetainedLine { scope_counters, since: None });
    }

    /// Forgets the old ones of whose name no policy stands any more: a metric that goes away may begin anew.
    pub(crate) fn retain(&mut self, living: &[Scope], now: Moment) {
        self.0.retain_mut(|kept| {
            let since = *kept.since.get_or_insert(now);
            let has_successor =
                living.iter().any(|it| it.policy().display == kept.scope_counters.policy.display);
            has_successor || now.since(since) < KEPT
        });
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn lines(&self) -> impl Iterator<Item = ScopeCounters> {
        self.0.iter().map(|kept| kept.scope_counters.clone())
    }
}

#[cfg(test)]
mod departed_tests {
    use super::*;
    use crate::testing::{at, by, engine, flush, named, rules, write};
    use crate::{Applicability, Disposition, Engine, Moment, Observation, Rules};

    fn minutes(minutes: u64) -> Moment {
        at(minutes * 60_000)
    }

    /// The rules stand for a cluster-scoped policy, which has this to do with every namespace.
    fn revise(engine: &Engine, rules: &Rules, applicability: Applicability, now: u64) {
        let known_policy = KnownPolicy {
            policy: rules.policy.clone(),
            namespace: None,
            rules: Some(Arc::new(rules.clone())),
        };
        engine.revise_within(&[known_policy], |_, _| applicability, minutes(now));
    }

    /// Two occurrences in a namespace, of which one was folded.
    fn merged(engine: &Engine, rules: &Rules, namespace: &str) {
        engine.decide(by(rules), &Observation { namespace, ..write() }, at(0));
        let second = Observation { namespace, ..named("cart.2", write()) };
        let second = engine.decide(by(rules), &second, at(1));
        assert_eq!(second.disposition, Some(Disposition::Compacted));
    }

    /// Gives up what is owed, and lets the tick after that see it.
    fn evict_surplus(engine: &Engine, now: Moment) {
        let task = engine.tick(now, 10).remove(0);
        assert_eq!(engine.discard(&task), 1);
        engine.tick(now, 10);
    }

    /// What is counted in namespaces that are gone, by all policies: received and lost.
    fn gone_namespaces(engine: &Engine) -> (u64, u64) {
        let lines = engine.all_counters().into_iter().filter(|line| line.namespace.is_empty());
        lines.fold((0, 0), |sum, line| (sum.0 + line.counters.received(), sum.1 + line.counters.lost))
    }

    #[test]
    fn a_policy_that_governs_no_more_in_a_namespace_pays_there_what_it_owes() {
        let (engine, rules) = (engine(), rules());
        merged(&engine, &rules, "shop");
        let task = engine.tick(at(2001), 10).remove(0);
        assert_eq!(flush(&engine, &task, Some(1), at(2002)), Some(2));
        engine.decide(by(&rules), &named("cart.3", write()), at(2003));
        revise(&engine, &rules, Applicability::Governs, 1);
        assert!(engine.tick(minutes(1), 10).is_empty(), "a debt so small is not due");
        revise(&engine, &rules, Applicability::NotApplicable, 1);
        let task = engine.tick(minutes(1), 10).remove(0);
        assert_eq!(flush(&engine, &task, Some(2), minutes(1)), Some(3));
        engine.tick(minutes(1), 10);
        assert_eq!((engine.gauges().series, engine.gauges().pending_occurrences), (0, 0));
        assert_eq!(engine.counters()[0].counters.received(), 3, "what it counted stays");
    }

    #[test]
    fn a_policy_that_governs_again_goes_on() {
        let (engine, rules) = (engine(), rules());
        merged(&engine, &rules, "shop");
        revise(&engine, &rules, Applicability::NotApplicable, 1);
        revise(&engine, &rules, Applicability::Governs, 1);
        let third = engine.decide(by(&rules), &named("cart.3", write()), minutes(1));
        assert_eq!(third.disposition, Some(Disposition::Compacted));
        assert_eq!(engine.counters().len(), 1);
    }

    #[test]
    fn the_scope_of_a_namespace_that_is_gone_is_forgotten_and_its_counts_are_kept() {
        let (engine, rules) = (engine(), rules());
        merged(&engine, &rules, "shop");
        revise(&engine, &rules, Applicability::Unknown, 1);
        evict_surplus(&engine, minutes(11));
        assert_eq!((engine.counters().len(), gone_namespaces(&engine)), (1, (0, 0)), "it may be a new one");
        engine.tick(minutes(12), 10);
        assert_eq!((engine.counters().len(), gone_namespaces(&engine)), (0, (2, 1)));

        // Another namespace goes the same way; then the policy.
        merged(&engine, &rules, "bank");
        revise(&engine, &rules, Applicability::Unknown, 13);
        evict_surplus(&engine, minutes(24));
        assert_eq!((engine.counters().len(), gone_namespaces(&engine)), (0, (4, 2)));
        assert_eq!(engine.all_counters().len(), 1);
        engine.revise(&[], minutes(26));
        assert!(engine.all_counters().is_empty());
    }

    #[test]
    fn a_namespace_that_becomes_known_in_time_stays() {
        let (engine, rules) = (engine(), rules());
        merged(&engine, &rules, "shop");
        revise(&engine, &rules, Applicability::Unknown, 1);
        revise(&engine, &rules, Applicability::Governs, 2);
        revise(&engine, &rules, Applicability::Unknown, 9);
        evict_surplus(&engine, minutes(18));
        assert_eq!((engine.counters().len(), gone_namespaces(&engine)), (1, (0, 0)));
    }

    #[test]
    fn a_namespaced_policy_has_its_scope_whatever_is_known_of_the_namespace() {
        let (engine, rules) = (engine(), rules());
        let known_policy = KnownPolicy {
            policy: rules.policy.clone(),
            namespace: Some("shop".into()),
            rules: Some(Arc::new(rules.clone())),
        };
        for minute in [0, 20] {
            engine.revise_within(
                std::slice::from_ref(&known_policy),
                |_, _| Applicability::Unknown,
                minutes(minute),
            );
            engine.tick(minutes(minute), 10);
            assert_eq!((engine.counters().len(), gone_namespaces(&engine)), (1, (0, 0)));
        }
    }
}

#[cfg(test)]
mod predecessors_tests {
    use super::{KEPT, MAX_LINES};
    use crate::testing::{at, by, engine, named, rules, write};
    use crate::{Engine, KnownPolicy, Mode, PolicyId, Rules};

    /// Rules as a policy has them that was made anew so many times.
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

    /// What is counted under the name, and by the policy that has this uid.
    fn received(engine: &Engine, uid: &str) -> (u64, u64) {
        let counters = engine.counters();
        let of = |line: &&super::ScopeCounters| *line.policy.uid == *uid;
        let sum = |sum, line: &super::ScopeCounters| sum + line.counters.received();
        (counters.iter().fold(0, sum), counters.iter().filter(of).fold(0, sum))
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
        assert_eq!(engine.counters().len(), 3, "the living, and a line for each mode of those before");
        engine.revise(&[], at(written));
        engine.tick(at(written), 10);
        assert_eq!(received(&engine, "").0, written, "for the last scrape");
        engine.tick(at(written).plus(KEPT), 10);
        assert!(engine.counters().is_empty());
    }

    #[test]
    fn so_many_lines_are_kept_of_policies_that_come_and_go() {
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
        assert_eq!(received(&engine, "p2"), (2, 1), "a line each");
    }
}
