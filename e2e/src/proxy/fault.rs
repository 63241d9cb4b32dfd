//! Faults: rules, and a seed that makes them reproducible.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fastrand::Rng;

use super::call::ProxiedCall;

/// A fault of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The call is delayed.
    Delay(Duration),
    /// The answer is delayed.
    DelayAnswer(Duration),
    /// The call is not made and never answered; the connection stays open.
    Hang,
    /// The connection is reset; the call was not made.
    CutBefore,
    /// The call is made, and the connection is reset in place of the answer.
    CutAfter,
    /// The call is not made, and answered with this HTTP status.
    Refuse(u16),
    /// Same, with `Retry-After` in seconds.
    RefuseFor(u16, u32),
    /// After this time a watch reports that its `resourceVersion` is too old (410 Gone), and ends.
    Expire(Duration),
    /// After this time the connection is reset within the answer: for watches.
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

/// Selects calls.
type Concerns = Box<dyn Fn(&ProxiedCall) -> bool + Send + Sync>;

/// A rule: which calls get a fault, how often, and which one.
pub struct Rule {
    concerns: Concerns,
    percent: u8,
    ways: Vec<Fault>,
}

impl Rule {
    /// A percentage of the matching calls get a fault, each of them equally often, in an order that the seed
    /// determines.
    pub fn new(
        concerns: impl Fn(&ProxiedCall) -> bool + Send + Sync + 'static,
        percent: u8,
        ways: impl Into<Vec<Fault>>,
    ) -> Self {
        Self { concerns: Box::new(concerns), percent, ways: ways.into() }
    }
}

/// The rules of one direction, and counts of the injected faults. The same seed and the same order of calls give the
/// same faults.
pub struct Faults {
    seed: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    rules: Vec<(Rule, FaultSequence)>,
    asked: usize,
    injected: BTreeMap<String, usize>,
}

impl Faults {
    /// Starts without rules: every call passes unchanged.
    pub fn new(seed: u64) -> Self {
        Self { seed, state: Mutex::default() }
    }

    /// Sets the rules; the first one that matches a call applies.
    pub fn follow(&self, rules: impl IntoIterator<Item = Rule>) {
        let seeded = |(at, rule): (usize, Rule)| {
            let sequence = FaultSequence::new(self.seed.wrapping_add(at as u64));
            (rule, sequence)
        };
        self.state().rules = rules.into_iter().enumerate().map(seeded).collect();
    }

    /// Removes all rules.
    pub fn end(&self) {
        self.follow([]);
    }

    /// The fault of this call.
    pub(super) fn next(&self, asked: &ProxiedCall) -> Option<Fault> {
        let mut state = self.state();
        state.asked += 1;
        let (rule, sequence) = state.rules.iter_mut().find(|(rule, _)| (rule.concerns)(asked))?;
        let fault = sequence.next(rule)?;
        *state.injected.entry(fault.to_string()).or_default() += 1;
        Some(fault)
    }

    /// The number of calls.
    pub fn asked(&self) -> usize {
        self.state().asked
    }

    /// The number of injected faults, by name.
    pub fn injected(&self) -> BTreeMap<String, usize> {
        self.state().injected.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Draws a rule's faults without replacement: each comes up before one repeats.
struct FaultSequence {
    random: Rng,
    deck: Vec<Fault>,
}

impl FaultSequence {
    fn new(seed: u64) -> Self {
        Self { random: Rng::with_seed(seed), deck: Vec::new() }
    }

    fn next(&mut self, rule: &Rule) -> Option<Fault> {
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

    fn asked(path: &str) -> ProxiedCall {
        ProxiedCall::of(&Request::get(path).body(()).unwrap().into_parts().0, b"")
    }

    fn injected(seed: u64, percent: u8) -> Vec<Option<Fault>> {
        let faults = Faults::new(seed);
        faults.follow([Rule::new(|_| true, percent, WAYS)]);
        (0..1000).map(|_| faults.next(&asked("/api/v1/namespaces/a/events"))).collect()
    }

    #[test]
    fn the_same_seed_gives_the_same_faults() {
        assert_eq!(injected(1, 10), injected(1, 10));
        assert_ne!(injected(1, 10), injected(2, 10));
    }

    #[test]
    fn the_percentage_is_kept_and_every_fault_is_equally_frequent() {
        let ways = injected(7, 10).into_iter().flatten().collect::<Vec<_>>();
        assert!((70..130).contains(&ways.len()), "{}", ways.len());
        let shares = WAYS.map(|way| ways.iter().filter(|injected| **injected == way).count());
        assert!(shares.iter().max().unwrap() - shares.iter().min().unwrap() <= 1, "{shares:?}");
    }

    #[test]
    fn the_first_matching_rule_applies() {
        let faults = Faults::new(3);
        let concerned = |word: &'static str| move |asked: &ProxiedCall| asked.path.contains(word);
        faults.follow([
            Rule::new(concerned("events"), 0, WAYS),
            Rule::new(concerned("namespaces"), 100, [Fault::CutBefore]),
        ]);
        assert_eq!(faults.next(&asked("/api/v1/namespaces/a/events/e")), None);
        assert_eq!(faults.next(&asked("/api/v1/namespaces/a")), Some(Fault::CutBefore));
        faults.end();
        assert_eq!(faults.next(&asked("/api/v1/namespaces/a")), None);
        assert_eq!((faults.asked(), faults.injected()["cut before"]), (3, 1));
    }
}
