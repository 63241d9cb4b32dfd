//! Counters of removed scopes.
//!
//! Namespaces come and go under a cluster-scoped policy. When the engine removes the scope of a deleted
//! namespace, [`GoneNamespaces`] keeps its counters, so that a policy's sum never decreases.
//!
//! When a policy is deleted, its scope is removed after everything pending is written or lost. [`GonePolicies`]
//! keeps its counters for a while, so that the last scrape sees them. If another policy takes the same name,
//! they are kept as long as that policy exists. Metrics identify a policy by its name and must not decrease.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dashmap::DashMap;

use crate::state::scope::Scope;
use crate::{Counters, KnownPolicy, Moment, ScopeCounters, TopDropped};

/// Time after which an unknown namespace counts as deleted. A new one may not be known yet.
pub(crate) const GONE_AFTER: Duration = Duration::from_secs(10 * 60);

/// One entry for each policy, by uid. Bounded by the number of existing policies.
#[derive(Default)]
pub(crate) struct GoneNamespaces {
    by_policy: DashMap<Arc<str>, ScopeCounters>,
    /// Number of entries added so far.
    moves: AtomicU64,
}

impl GoneNamespaces {
    /// Keeps the counters of a scope whose policy still exists. Called under the lock of its namespace.
    pub(crate) fn keep(&self, scope: &Scope) {
        self.moves.fetch_add(1, Ordering::SeqCst);
        // The top dropped of a deleted namespace are of no use.
        let line = ScopeCounters {
            dropped: TopDropped::default(),
            ..scope.scope_counters(&Arc::from(String::new()))
        };
        match self.by_policy.get_mut(&line.policy.uid) {
            Some(mut kept) => kept.counters.add(&line.counters),
            None => drop(self.by_policy.insert(line.policy.uid.clone(), line)),
        }
    }

    /// Removes the entries of deleted policies.
    pub(crate) fn retain(&self, policies: &HashMap<&Arc<str>, &KnownPolicy>) {
        self.by_policy.retain(|uid, _| policies.contains_key(uid));
    }

    /// Returns the current counters and the retained ones, each exactly once. Repeats if a scope moved
    /// meanwhile.
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

/// Retention of a deleted policy's counters. Longer than any scrape interval.
const KEPT: Duration = Duration::from_secs(10 * 60);

/// Maximum number of retained entries. At the limit the oldest is removed.
const MAX_LINES: usize = 256;

/// One entry for each policy name and mode.
#[derive(Default)]
pub(crate) struct GonePolicies(Vec<RetainedLine>);

struct RetainedLine {
    scope_counters: ScopeCounters,
    /// Time of the first tick that saw the entry.
    since: Option<Moment>,
}

impl GonePolicies {
    /// Keeps the counters of a scope whose policy was deleted.
    pub(crate) fn keep(&mut self, scope: &Scope, namespace: &Arc<str>) {
        // The list of dropped Events belongs to the status of the deleted policy.
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

    /// Removes old entries whose policy name no longer exists. A metric that disappears may start anew.
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

    /// Sets one cluster-scoped policy with this applicability to every namespace.
    fn revise(engine: &Engine, rules: &Rules, applicability: Applicability, now: u64) {
        let known_policy = KnownPolicy {
            policy: rules.policy.clone(),
            namespace: None,
            rules: Some(Arc::new(rules.clone())),
        };
        engine.revise_within(&[known_policy], |_, _| applicability, minutes(now));
    }

    /// Two occurrences in a namespace, one of them merged.
    fn merge_one(engine: &Engine, rules: &Rules, namespace: &str) {
        engine.decide(by(rules), &Observation { namespace, ..write() }, at(0));
        let second = Observation { namespace, ..named("cart.2", write()) };
        let second = engine.decide(by(rules), &second, at(1));
        assert_eq!(second.disposition, Some(Disposition::Compacted));
    }

    /// Discards the pending occurrences and ticks once more.
    fn discard_pending(engine: &Engine, now: Moment) {
        let task = engine.tick(now, 10).remove(0);
        assert_eq!(engine.discard(&task), 1);
        engine.tick(now, 10);
    }

    /// Returns received and lost occurrences of deleted namespaces, over all policies.
    fn gone_counts(engine: &Engine) -> (u64, u64) {
        let lines = engine.all_counters().into_iter().filter(|line| line.namespace.is_empty());
        lines.fold((0, 0), |sum, line| (sum.0 + line.counters.received(), sum.1 + line.counters.lost))
    }

    #[test]
    fn a_policy_that_no_longer_applies_flushes_its_pending_occurrences() {
        let (engine, rules) = (engine(), rules());
        merge_one(&engine, &rules, "shop");
        let task = engine.tick(at(2001), 10).remove(0);
        assert_eq!(flush(&engine, &task, Some(1), at(2002)), Some(2));
        engine.decide(by(&rules), &named("cart.3", write()), at(2003));
        revise(&engine, &rules, Applicability::Governs, 1);
        assert!(engine.tick(minutes(1), 10).is_empty(), "one pending occurrence is not due");
        revise(&engine, &rules, Applicability::NotApplicable, 1);
        let task = engine.tick(minutes(1), 10).remove(0);
        assert_eq!(flush(&engine, &task, Some(2), minutes(1)), Some(3));
        engine.tick(minutes(1), 10);
        assert_eq!((engine.gauges().series, engine.gauges().pending_occurrences), (0, 0));
        assert_eq!(engine.counters()[0].counters.received(), 3, "what it counted stays");
    }

    #[test]
    fn a_policy_that_governs_again_keeps_its_series() {
        let (engine, rules) = (engine(), rules());
        merge_one(&engine, &rules, "shop");
        revise(&engine, &rules, Applicability::NotApplicable, 1);
        revise(&engine, &rules, Applicability::Governs, 1);
        let third = engine.decide(by(&rules), &named("cart.3", write()), minutes(1));
        assert_eq!(third.disposition, Some(Disposition::Compacted));
        assert_eq!(engine.counters().len(), 1);
    }

    #[test]
    fn the_counters_of_a_deleted_namespace_are_retained() {
        let (engine, rules) = (engine(), rules());
        merge_one(&engine, &rules, "shop");
        revise(&engine, &rules, Applicability::Unknown, 1);
        discard_pending(&engine, minutes(11));
        assert_eq!((engine.counters().len(), gone_counts(&engine)), (1, (0, 0)), "it may be a new one");
        engine.tick(minutes(12), 10);
        assert_eq!((engine.counters().len(), gone_counts(&engine)), (0, (2, 1)));

        // Another namespace is deleted the same way, then the policy.
        merge_one(&engine, &rules, "bank");
        revise(&engine, &rules, Applicability::Unknown, 13);
        discard_pending(&engine, minutes(24));
        assert_eq!((engine.counters().len(), gone_counts(&engine)), (0, (4, 2)));
        assert_eq!(engine.all_counters().len(), 1);
        engine.revise(&[], minutes(26));
        assert!(engine.all_counters().is_empty());
    }

    #[test]
    fn a_namespace_that_becomes_known_again_keeps_its_scope() {
        let (engine, rules) = (engine(), rules());
        merge_one(&engine, &rules, "shop");
        revise(&engine, &rules, Applicability::Unknown, 1);
        revise(&engine, &rules, Applicability::Governs, 2);
        revise(&engine, &rules, Applicability::Unknown, 9);
        discard_pending(&engine, minutes(18));
        assert_eq!((engine.counters().len(), gone_counts(&engine)), (1, (0, 0)));
    }

    #[test]
    fn a_namespaced_policy_keeps_its_scope_in_an_unknown_namespace() {
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
            assert_eq!((engine.counters().len(), gone_counts(&engine)), (1, (0, 0)));
        }
    }
}

#[cfg(test)]
mod retention_tests {
    use super::{KEPT, MAX_LINES};
    use crate::testing::{at, by, engine, named, rules, write};
    use crate::{Engine, KnownPolicy, Mode, PolicyId, Rules};

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
        let of = |line: &&super::ScopeCounters| *line.policy.uid == *uid;
        let sum = |sum, line: &super::ScopeCounters| sum + line.counters.received();
        (counters.iter().fold(0, sum), counters.iter().filter(of).fold(0, sum))
    }

    #[test]
    fn counters_of_a_policy_name_never_decrease_while_a_policy_has_it() {
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
}
