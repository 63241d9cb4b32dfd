//! Whether the API server reaches the webhook, by the results of the probes so far. Pure.

use squelch_engine::Moment;

use crate::metrics::ProbeResult;

/// Consecutive successes that confirm reachability.
const SUCCESS_THRESHOLD: u8 = 3;
/// Consecutive failures that disprove it. A single one may be a lost packet.
pub(super) const FAILURE_THRESHOLD: u8 = 2;

/// What a probe result means for reachability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProbeOutcome {
    /// The API server reaches the webhook.
    Success,
    /// The API server reaches the webhook and is slow: no success, but it ends consecutive failures.
    Slow,
    /// The API server does not reach the webhook.
    Failure,
    /// The API server itself fails. The probe says nothing about the webhook.
    Inconclusive,
}

impl ProbeOutcome {
    pub(super) fn of(result: ProbeResult) -> Self {
        match result {
            ProbeResult::Succeeded => Self::Success,
            ProbeResult::Slow => Self::Slow,
            ProbeResult::Timeout
            | ProbeResult::Unsigned
            | ProbeResult::WrongSignature
            | ProbeResult::NoDescriptors
            | ProbeResult::Rejected => Self::Failure,
            ProbeResult::TooManyRequests
            | ProbeResult::ServerError
            | ProbeResult::ApiserverUnreachable
            | ProbeResult::ApiserverUnhealthy
            | ProbeResult::Unexpected => Self::Inconclusive,
        }
    }
}

/// Whether a probe with this result has exposed the token. The API server logs the whole URL of a failed webhook call,
/// and if another process answers, it has received the token.
pub(super) fn exposes_token(result: ProbeResult) -> bool {
    use ProbeResult::{ApiserverUnhealthy, Timeout, Unsigned, WrongSignature};
    matches!(result, Timeout | Unsigned | WrongSignature | ApiserverUnhealthy)
}

/// The last exposure of the token that is not reported yet. It is reported once probes succeed again: a token that is
/// replaced while they fail would be exposed at once.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TokenExposure(Option<Moment>);

impl TokenExposure {
    /// Records a probe that ended at `at`. The first success after failures returns the time of the last failure.
    pub(super) fn record(&mut self, result: ProbeResult, at: Moment) -> Option<Moment> {
        if exposes_token(result) {
            self.0 = Some(at);
        }
        if ProbeOutcome::of(result) == ProbeOutcome::Success { self.0.take() } else { None }
    }
}

/// Whether reachability is confirmed. It is not at first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Reachability {
    confirmed: bool,
    /// Consecutive outcomes that contradict `confirmed`.
    contradictions: u8,
}

impl Reachability {
    pub(super) fn is_confirmed(self) -> bool {
        self.confirmed
    }

    /// Starts to count consecutive outcomes again.
    pub(super) fn reset_count(&mut self) {
        self.contradictions = 0;
    }

    /// Records an outcome. Returns whether it changed the result.
    pub(super) fn record(&mut self, outcome: ProbeOutcome) -> bool {
        let threshold = match (self.confirmed, outcome) {
            (_, ProbeOutcome::Inconclusive) | (false, ProbeOutcome::Slow) => return false,
            (false, ProbeOutcome::Success) => SUCCESS_THRESHOLD,
            (true, ProbeOutcome::Failure) => FAILURE_THRESHOLD,
            (true, ProbeOutcome::Success | ProbeOutcome::Slow) | (false, ProbeOutcome::Failure) => {
                self.contradictions = 0;
                return false;
            }
        };
        self.contradictions += 1;
        let changes = self.contradictions >= threshold;
        if changes {
            *self = Self { confirmed: !self.confirmed, contradictions: 0 };
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    /// After each outcome of `history` (S success, F failure, L slow, - inconclusive), whether reachability is
    /// confirmed.
    fn confirmed_after_each(history: &str) -> String {
        let mut reachability = Reachability::default();
        let outcome = |letter| match letter {
            'S' => ProbeOutcome::Success,
            'F' => ProbeOutcome::Failure,
            'L' => ProbeOutcome::Slow,
            _ => ProbeOutcome::Inconclusive,
        };
        let mut step = |letter| {
            let before = reachability.is_confirmed();
            let changed = reachability.record(outcome(letter));
            assert_eq!(changed, before != reachability.is_confirmed());
            if reachability.is_confirmed() { '+' } else { '.' }
        };
        history.chars().map(&mut step).collect()
    }

    #[test]
    fn three_successes_confirm_and_two_failures_disprove() {
        for (history, expected) in [
            ("SSS", "..+"),
            ("SSFSSS", ".....+"),
            ("SSSFSFSFF", "..++++++."),
            ("SSSFFSSS", "..++...+"),
            ("FFF", "..."),
        ] {
            assert_eq!(confirmed_after_each(history), expected, "{history}");
        }
    }

    #[test]
    fn a_slow_success_ends_consecutive_failures_and_confirms_nothing() {
        assert_eq!(confirmed_after_each("LLLLSLSLS"), "........+");
        assert_eq!(confirmed_after_each("SSSFLFLFF"), "..++++++.");
    }

    #[test]
    fn a_failing_api_server_changes_nothing() {
        assert_eq!(confirmed_after_each("S-S--S"), ".....+");
        assert_eq!(confirmed_after_each("SSS------"), "..+++++++");
        assert_eq!(confirmed_after_each("SSSF---F"), "..+++++.");
    }

    #[test]
    fn an_exposure_by_failed_probes_is_reported_after_the_next_success() {
        use ProbeResult::{
            ApiserverUnhealthy, Rejected, Succeeded, Timeout, TooManyRequests, Unsigned, WrongSignature,
        };
        let at = |second| Moment::from_epoch(Duration::from_secs(second));
        for (result, reported) in [
            (Succeeded, None),
            (Rejected, None),
            (TooManyRequests, None),
            (Unsigned, Some(at(1))),
            (Timeout, Some(at(1))),
            (WrongSignature, Some(at(1))),
            (ApiserverUnhealthy, Some(at(1))),
        ] {
            let mut exposure = TokenExposure::default();
            assert_eq!(exposure.record(result, at(1)), None, "{result:?}");
            assert_eq!(exposure.record(Succeeded, at(2)), reported, "{result:?}");
            assert_eq!(exposure.record(Succeeded, at(3)), None, "{result:?} is reported once");
        }
        let mut exposure = TokenExposure::default();
        let reports = [Unsigned, Unsigned, TooManyRequests, Succeeded, Succeeded]
            .map(|result| exposure.record(result, at(7)));
        assert_eq!(reports, [None, None, None, Some(at(7)), None]);
    }

    #[test]
    fn the_meaning_of_each_result_names_its_outcome() {
        let of = |wanted: ProbeOutcome| {
            let all = ProbeResult::ALL.iter().filter(|result| ProbeOutcome::of(**result) == wanted);
            all.map(|result| result.as_str()).collect::<Vec<_>>()
        };
        assert_eq!((of(ProbeOutcome::Success), of(ProbeOutcome::Slow)), (vec!["succeeded"], vec!["slow"]));
        for result in ProbeResult::ALL {
            let meaning = result.meaning();
            assert_eq!(
                meaning.starts_with("Failure: "),
                of(ProbeOutcome::Failure).contains(&result.as_str()),
                "{meaning}"
            );
            assert_eq!(
                meaning.starts_with("Ignored: "),
                of(ProbeOutcome::Inconclusive).contains(&result.as_str()),
                "{meaning}"
            );
        }
    }

    proptest! {
        /// The same result from the last conclusive outcomes: three successes or two failures.
        #[test]
        fn the_last_conclusive_outcomes_decide(history in "[SF-]{0,60}") {
            let mut expected = false;
            let mut conclusive = String::new();
            let mut all_expected = String::new();
            for letter in history.chars() {
                if letter != '-' {
                    conclusive.push(letter);
                }
                expected = (expected || conclusive.ends_with("SSS")) && !conclusive.ends_with("FF");
                all_expected.push(if expected { '+' } else { '.' });
            }
            prop_assert_eq!(confirmed_after_each(&history), all_expected);
        }
    }
}
