//! What policies of a namespace have counted that are gone.
//!
//! A scope is forgotten once its policy is gone and everything pending is written or lost. Its counts stay for a while,
//! so that the last of them are in the metrics before they are forgotten. Where another policy has taken over under the
//! same name, they stay as long as that one: metrics know a policy by its name, and must not fall.

use std::sync::Arc;
use std::time::Duration;

use super::scope::Scope;
use super::{Account, Counters, Moment};

/// Counts of a policy that is gone are kept for this long: longer than the intervals at which metrics are scraped.
const KEPT: Duration = Duration::from_secs(10 * 60);

/// At most so many lines are kept. The oldest goes.
const MAX_LINES: usize = 256;

/// One line for each name and mode.
#[derive(Default)]
pub(super) struct Predecessors(Vec<Line>);

struct Line {
    account: Account,
    /// When it was first seen here, once it was.
    since: Option<Moment>,
}

impl Predecessors {
    /// A scope is forgotten, for its policy is gone.
    pub(super) fn keep(&mut self, scope: &Scope, namespace: &Arc<str>) {
        // A list of what was dropped belongs to a status, and that went with the policy.
        let account = Account { dropped: Default::default(), ..scope.account(namespace) };
        if account.counters == Counters::default() {
            return;
        }
        let of_same = |kept: &&mut Line| {
            kept.account.policy.display == account.policy.display && kept.account.mode == account.mode
        };
        if let Some(kept) = self.0.iter_mut().find(of_same) {
            kept.account.counters.add(&account.counters);
            kept.since = None;
            return;
        }
        if self.0.len() == MAX_LINES {
            self.0.remove(0);
        }
        self.0.push(Line { account, since: None });
    }

    /// Forgets the old ones of whose name no policy stands any more: a metric that goes away may begin anew.
    pub(super) fn retain(&mut self, living: &[Scope], now: Moment) {
        self.0.retain_mut(|kept| {
            let since = *kept.since.get_or_insert(now);
            let has_successor = living.iter().any(|it| it.policy().display == kept.account.policy.display);
            has_successor || now.since(since) < KEPT
        });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn lines(&self) -> impl Iterator<Item = Account> {
        self.0.iter().map(|kept| kept.account.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{at, by, engine, named, rules, write};
    use super::super::{Engine, Mode, PolicyId, Rules, Standing};
    use super::{KEPT, MAX_LINES};

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
        assert_eq!(received(&engine, "").0, written, "for the last scrape");
        engine.tick(at(written).plus(KEPT), 10);
        assert!(engine.accounts().is_empty());
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
        let accounts = engine.accounts();
        assert_eq!(accounts.len(), MAX_LINES);
        assert!(accounts.iter().all(|line| line.counters.received() == 1));
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
