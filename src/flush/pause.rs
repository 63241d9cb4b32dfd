//! Pauses for an API server that fails, and for a namespace whose flushes fail. Pure.
//!
//! A flush can fail because of its namespace alone: a webhook of that namespace, or a rate limit. So failures are
//! counted per namespace, and delay the flushes of that namespace. All flushes pause once those of two namespaces
//! fail and none succeeds in between. (Where only one namespace has flushes, its own pause is enough.)

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use squelch_engine::Moment;

/// The number of consecutive failures that cause no pause.
const TOLERATED: u32 = 2;
/// The first pause. Each further failure doubles it.
const FIRST: Duration = Duration::from_secs(1);
/// The failures of a namespace are forgotten after this long without another one. A pending occurrence is retried
/// within five minutes.
const FORGET_AFTER: Duration = Duration::from_secs(10 * 60);

/// The pause of all namespaces, and the pause of each one.
#[derive(Debug)]
pub(super) struct Pauses {
    /// The longest pause, unless the API server asks for one.
    longest: Duration,
    all: Backoff,
    since_success: Failing,
    namespaces: HashMap<Arc<str>, Backoff>,
}

/// The namespaces whose flushes have failed since the last success.
#[derive(Debug)]
enum Failing {
    Nobody,
    One(Arc<str>),
    Several,
}

/// Consecutive failures. Failures within one pause count once.
#[derive(Debug, Default)]
struct Backoff {
    failures: u32,
    last: Moment,
    until: Moment,
}

impl Backoff {
    fn failed(&mut self, longest: Duration, now: Moment) {
        self.last = now;
        // A flush that was in flight when the pause began is no further evidence.
        if now < self.until {
            return;
        }
        self.failures = self.failures.saturating_add(1);
        if let Some(doublings) = self.failures.checked_sub(TOLERATED + 1) {
            let pause = FIRST.saturating_mul(2u32.saturating_pow(doublings)).min(longest);
            self.until = now.plus(pause);
        }
    }

    fn is_failing(&self) -> bool {
        self.failures > TOLERATED
    }
}

impl Pauses {
    /// Begins without a pause. `longest` is the longest pause, unless the API server asks for one.
    pub(super) fn new(longest: Duration) -> Self {
        let (all, namespaces) = (Backoff::default(), HashMap::new());
        Self { longest, all, since_success: Failing::Nobody, namespaces }
    }

    /// The API server has answered a flush of this namespace with anything but an overload.
    pub(super) fn answered(&mut self, namespace: &str) {
        self.namespaces.remove(namespace);
        self.since_success = Failing::Nobody;
        self.all.failures = 0;
    }

    /// A flush of this namespace has failed. `asked` is the pause that the API server asked for; it applies to all
    /// namespaces.
    pub(super) fn failed(&mut self, namespace: &Arc<str>, asked: Option<Duration>, now: Moment) {
        if let Some(asked) = asked {
            self.all.until = self.all.until.max(now.plus(asked));
        }
        if now < self.all.until {
            return;
        }
        match &self.since_success {
            Failing::Nobody => self.since_success = Failing::One(namespace.clone()),
            Failing::One(first) if first == namespace => {}
            Failing::One(_) | Failing::Several => {
                self.since_success = Failing::Several;
                self.all.failed(self.longest, now);
            }
        }
        self.namespaces.retain(|_, backoff| now.since(backoff.last) < FORGET_AFTER);
        self.namespaces.entry(namespace.clone()).or_default().failed(self.longest, now);
    }

    /// Returns the rest of the pause of all namespaces.
    pub(super) fn left(&self, now: Moment) -> Duration {
        self.all.until.since(now)
    }

    /// Whether the flushes of several namespaces fail. One flush at a time shows when they succeed again.
    pub(super) fn several_fail(&self) -> bool {
        self.all.is_failing()
    }

    /// Whether the flushes of this namespace fail. One flush at a time shows when they succeed again.
    pub(super) fn is_failing(&self, namespace: &str) -> bool {
        self.namespaces.get(namespace).is_some_and(Backoff::is_failing)
    }

    /// Whether this namespace has a pause of its own.
    pub(super) fn is_paused(&self, namespace: &str, now: Moment) -> bool {
        self.namespaces.get(namespace).is_some_and(|backoff| now < backoff.until)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LONGEST: Duration = Duration::from_secs(30);

    fn at(milliseconds: u64) -> Moment {
        Moment::from_epoch(Duration::from_millis(milliseconds))
    }

    fn namespace(number: usize) -> Arc<str> {
        format!("n{number}").into()
    }

    /// Returns how long this namespace has to wait from `now` on.
    fn wait(pauses: &Pauses, namespace: &str, now: Moment) -> Duration {
        let own = pauses.namespaces.get(namespace).map_or(Duration::ZERO, |backoff| backoff.until.since(now));
        pauses.left(now).max(own)
    }

    #[test]
    fn an_occasional_failure_pauses_nothing() {
        let mut pauses = Pauses::new(LONGEST);
        for second in 0..100 {
            pauses.failed(&namespace(1), None, at(second * 1000));
            pauses.failed(&namespace(2), None, at(second * 1000 + 1));
            pauses.answered("n1");
            pauses.answered("n2");
            assert_eq!(wait(&pauses, "n1", at(second * 1000 + 2)), Duration::ZERO);
        }
    }

    #[test]
    fn consecutive_failures_pause_for_longer_and_longer() {
        // Failures of one namespace, and of a different one each time.
        for namespaces in [1, 100] {
            let (mut pauses, mut now, mut lengths) = (Pauses::new(LONGEST), at(0), Vec::new());
            for number in 0..10 {
                // Eight in flight fail together.
                (0..8).for_each(|of_them| {
                    pauses.failed(&namespace((8 * number + of_them) % namespaces), None, now);
                });
                let left = wait(&pauses, "n0", now);
                lengths.push(left.as_secs());
                now = now.plus(left);
            }
            assert_eq!(lengths, [1, 2, 4, 8, 16, 30, 30, 30, 30, 30]);
            pauses.answered("n0");
            pauses.failed(&namespace(0), None, now);
            assert_eq!(wait(&pauses, "n0", now), Duration::ZERO);
        }
    }

    #[test]
    fn a_pause_that_the_api_server_asks_for_applies_to_all_namespaces_at_once() {
        let mut pauses = Pauses::new(LONGEST);
        pauses.failed(&namespace(1), Some(Duration::from_secs(7)), at(0));
        pauses.failed(&namespace(1), Some(Duration::from_secs(1)), at(10));
        assert_eq!(wait(&pauses, "n2", at(1000)), Duration::from_secs(6));
        assert_eq!(wait(&pauses, "n2", at(7000)), Duration::ZERO);
    }

    #[test]
    fn namespaces_without_failures_for_ten_minutes_take_no_memory() {
        let mut pauses = Pauses::new(LONGEST);
        for second in 0..10_000 {
            pauses.failed(&namespace(usize::try_from(second).unwrap()), None, at(second * 1000));
        }
        assert!(pauses.namespaces.len() <= 600, "{}", pauses.namespaces.len());
    }

    proptest! {
        #[test]
        fn failures_of_one_namespace_pause_no_other_namespace(
            steps in prop::collection::vec((0u64..60_000, 0u8..4), 1..200),
        ) {
            let (mut pauses, mut now) = (Pauses::new(LONGEST), 0);
            for (later, what) in steps {
                now += later;
                match what {
                    0 => pauses.answered("n0"),
                    _ => pauses.failed(&namespace(1), None, at(now)),
                }
                prop_assert_eq!(wait(&pauses, "n0", at(now)), Duration::ZERO);
                prop_assert!(!pauses.several_fail() && !pauses.is_failing("n0"));
            }
        }

        /// Twenty flushes per second, of the namespaces in any order. None succeeds.
        #[test]
        fn an_api_server_that_fails_is_asked_rarely(
            task in prop::collection::vec(0usize..1000, 1..100), namespaces in 1usize..1000,
        ) {
            let (mut pauses, mut calls) = (Pauses::new(LONGEST), 0);
            let mut task = task.iter().cycle().map(|number| number % namespaces);
            for step in 0..20 * 600 {
                let (now, next) = (at(step * 50), namespace(task.next().unwrap()));
                if wait(&pauses, &next, now).is_zero() {
                    pauses.failed(&next, None, now);
                    calls += 1;
                }
            }
            // At most five of the first namespace alone, two without a pause, and one before each pause: of 1, 2, 4,
            // 8, 16 s, and then of 30 s.
            prop_assert!(calls <= 5 + 2 + 5 + 20, "{calls} calls in ten minutes");
        }
    }
}
