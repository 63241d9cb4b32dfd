//! What a proxy does to whom: rules, and the seed that makes them repeatable.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fastrand::Rng;

use super::asked::Asked;

/// One way in which a call goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The call is made this much later.
    Delay(Duration),
    /// The call is made at once, and its answer comes this much later.
    DelayAnswer(Duration),
    /// The call is not made, and never answered; the connection stays open.
    Hang,
    /// The connection is reset; the call was not made.
    CutBefore,
    /// The call is made, and the connection is reset in place of the answer.
    CutAfter,
    /// The call is not made, and answered with this HTTP status.
    Refuse(u16),
    /// The same, with this many seconds in `Retry-After`.
    RefuseFor(u16, u32),
    /// A watch tells, this much later, that its `resourceVersion` is too old (410 Gone), and ends.
    Expire(Duration),
    /// The connection is reset in the middle of the answer, this much later: for watches.
    BreakOff(Duration),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Delay(_) => f.write_str("delayed"),
            Self::DelayAnswer(_) => f.write_str("answered late"),
            Self::Hang => f.write_str("never answered"),
            Self::CutBefore => f.write_str("cut before"),
            Self::CutAfter => f.write_str("cut after"),
            Self::Refuse(code) => write!(f, "{code}"),
            Self::RefuseFor(code, _) => write!(f, "{code} with Retry-After"),
            Self::Expire(_) => f.write_str("watch gone"),
            Self::BreakOff(_) => f.write_str("watch cut"),
        }
    }
}

/// Whom a rule is about.
type Concerns = Box<dyn Fn(&Asked) -> bool + Send + Sync>;

/// Which calls go wrong, how many of them, and how.
pub struct Rule {
    concerns: Concerns,
    percent: u8,
    ways: Vec<Fault>,
}

impl Rule {
    /// Of the calls that it concerns so many in a hundred, each way in turn, in an order that the seed chooses.
    pub fn new(
        concerns: impl Fn(&Asked) -> bool + Send + Sync + 'static,
        percent: u8,
        ways: impl Into<Vec<Fault>>,
    ) -> Self {
        Self { concerns: Box::new(concerns), percent, ways: ways.into() }
    }
}

/// The rules of one direction, and what they have done. The same seed and the same calls in the same order give
/// the same faults.
pub struct Faults {
    seed: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    rules: Vec<(Rule, Dealer)>,
    asked: usize,
    dealt: BTreeMap<String, usize>,
}

impl Faults {
    /// No rules yet: every call is passed on as it is.
    pub fn new(seed: u64) -> Self {
        Self { seed, state: Mutex::default() }
    }

    /// From now on these rules; of those that concern a call the first counts.
    pub fn follow(&self, rules: impl IntoIterator<Item = Rule>) {
        let seeded = |(at, rule): (usize, Rule)| {
            let dealer = Dealer::new(self.seed.wrapping_add(at as u64));
            (rule, dealer)
        };
        self.state().rules = rules.into_iter().enumerate().map(seeded).collect();
    }

    /// From now on nothing goes wrong.
    pub fn end(&self) {
        self.follow([]);
    }

    /// What goes wrong with this call.
    pub(super) fn deal(&self, asked: &Asked) -> Option<Fault> {
        let mut state = self.state();
        state.asked += 1;
        let (rule, dealer) = state.rules.iter_mut().find(|(rule, _)| (rule.concerns)(asked))?;
        let fault = dealer.deal(rule)?;
        *state.dealt.entry(fault.to_string()).or_default() += 1;
        Some(fault)
    }

    /// How many calls there were.
    pub fn asked(&self) -> usize {
        self.state().asked
    }

    /// How many went wrong, by the way in which they did.
    pub fn dealt(&self) -> BTreeMap<String, usize> {
        self.state().dealt.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Deals a rule's faults like cards: each way comes up before one comes a second time.
struct Dealer {
    random: Rng,
    deck: Vec<Fault>,
}

impl Dealer {
    fn new(seed: u64) -> Self {
        Self { random: Rng::with_seed(seed), deck: Vec::new() }
    }

    fn deal(&mut self, rule: &Rule) -> Option<Fault> {
        if self.random.u8(..100) >= rule.percent {
            return None;
        }
        if self.deck.is_empty() {
            self.deck.clone_from(&rule.ways);
            self.random.shuffle(&mut self.deck);
        }
        self.deck.pop()
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    const WAYS: [Fault; 3] = [Fault::CutBefore, Fault::CutAfter, Fault::Refuse(503)];

    fn asked(path: &str) -> Asked {
        Asked::of(&Request::get(path).body(()).unwrap().into_parts().0, b"")
    }

    fn dealt(seed: u64, percent: u8) -> Vec<Option<Fault>> {
        let faults = Faults::new(seed);
        faults.follow([Rule::new(|_| true, percent, WAYS)]);
        (0..1000).map(|_| faults.deal(&asked("/api/v1/namespaces/a/events"))).collect()
    }

    #[test]
    fn a_seed_repeats_itself_and_another_does_not() {
        assert_eq!(dealt(1, 10), dealt(1, 10));
        assert_ne!(dealt(1, 10), dealt(2, 10));
    }

    #[test]
    fn the_share_is_kept_and_every_way_comes_as_often() {
        let ways = dealt(7, 10).into_iter().flatten().collect::<Vec<_>>();
        assert!((70..130).contains(&ways.len()), "{}", ways.len());
        let shares = WAYS.map(|way| ways.iter().filter(|dealt| **dealt == way).count());
        assert!(shares.iter().max().unwrap() - shares.iter().min().unwrap() <= 1, "{shares:?}");
    }

    #[test]
    fn the_first_rule_that_concerns_a_call_counts() {
        let faults = Faults::new(3);
        let concerned = |word: &'static str| move |asked: &Asked| asked.path.contains(word);
        faults.follow([
            Rule::new(concerned("events"), 0, WAYS),
            Rule::new(concerned("namespaces"), 100, [Fault::CutBefore]),
        ]);
        assert_eq!(faults.deal(&asked("/api/v1/namespaces/a/events/e")), None);
        assert_eq!(faults.deal(&asked("/api/v1/namespaces/a")), Some(Fault::CutBefore));
        faults.end();
        assert_eq!(faults.deal(&asked("/api/v1/namespaces/a")), None);
        assert_eq!((faults.asked(), faults.dealt()["cut before"]), (3, 1));
    }
}
