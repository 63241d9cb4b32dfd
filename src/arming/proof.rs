//! Whether the webhook is proven to answer, by what became of the proofs so far. Pure.

use squelch_engine::Moment;

use crate::metrics::ProofResult;

/// So many proofs in a row prove it.
const PROOFS: u8 = 3;
/// So many misses in a row take that back. One can be a packet.
pub(super) const MISSES: u8 = 2;

/// What a result says of the webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It answers.
    Proven,
    /// It answers, and the API server is slow: nothing changes, and no row of misses goes on.
    Late,
    /// It does not.
    Missed,
    /// Nothing: it is the API server that fails.
    NoWord,
}

impl Outcome {
    pub(super) fn of(result: ProofResult) -> Self {
        match result {
            ProofResult::Proven => Self::Proven,
            ProofResult::Late => Self::Late,
            ProofResult::NoAnswer
            | ProofResult::NoMark
            | ProofResult::WrongMark
            | ProofResult::NoDescriptors
            | ProofResult::Refused => Self::Missed,
            ProofResult::TooManyRequests
            | ProofResult::ServerError
            | ProofResult::Unreachable
            | ProofResult::NotWell
            | ProofResult::Unexpected => Self::NoWord,
        }
    }
}

/// Whether a probe with this result has shown the token to others: the API server logs the whole URL of a webhook call
/// that fails, and where another process answers, that process has received it.
pub(super) fn exposes_token(result: ProofResult) -> bool {
    use ProofResult::{NoAnswer, NoMark, NotWell, WrongMark};
    matches!(result, NoAnswer | NoMark | WrongMark | NotWell)
}

/// When the token has to be replaced because of failed probes: once they succeed again. A token that is replaced while
/// they fail is logged at once, like the one before it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Exposure(Option<Moment>);

impl Exposure {
    /// Takes the result of a probe that ended at `at`. Returns the time of the last failure with the first success after
    /// it.
    pub(super) fn record(&mut self, result: ProofResult, at: Moment) -> Option<Moment> {
        if exposes_token(result) {
            self.0 = Some(at);
        }
        if Outcome::of(result) == Outcome::Proven { self.0.take() } else { None }
    }
}

/// Nothing is proven at first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Proof {
    proven: bool,
    /// Outcomes in a row that speak against what is held for true.
    against: u8,
}

impl Proof {
    pub(super) fn is_proven(self) -> bool {
        self.proven
    }

    /// The next outcome is the first of its row.
    pub(super) fn forget_what_speaks_against_it(&mut self) {
        self.against = 0;
    }

    /// Hears of one more; true if it changed what is held for true.
    pub(super) fn hear(&mut self, outcome: Outcome) -> bool {
        let enough = match (self.proven, outcome) {
            (_, Outcome::NoWord) | (false, Outcome::Late) => return false,
            (false, Outcome::Proven) => PROOFS,
            (true, Outcome::Missed) => MISSES,
            (true, Outcome::Proven | Outcome::Late) | (false, Outcome::Missed) => {
                self.against = 0;
                return false;
            }
        };
        self.against += 1;
        let changes = self.against >= enough;
        if changes {
            *self = Self { proven: !self.proven, against: 0 };
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    /// After each outcome of `history` (P, M, L or -), whether it is proven.
    fn course(history: &str) -> String {
        let mut proof = Proof::default();
        let outcome = |letter| match letter {
            'P' => Outcome::Proven,
            'M' => Outcome::Missed,
            'L' => Outcome::Late,
            _ => Outcome::NoWord,
        };
        let mut step = |letter| {
            let before = proof.is_proven();
            let changed = proof.hear(outcome(letter));
            assert_eq!(changed, before != proof.is_proven());
            if proof.is_proven() { '+' } else { '.' }
        };
        history.chars().map(&mut step).collect()
    }

    #[test]
    fn three_proofs_arm_and_two_misses_disarm() {
        for (history, expected) in [
            ("PPP", "..+"),
            ("PPMPPP", ".....+"),
            ("PPPMPMPMM", "..++++++."),
            ("PPPMMPPP", "..++...+"),
            ("MMM", "..."),
        ] {
            assert_eq!(course(history), expected, "{history}");
        }
    }

    #[test]
    fn a_late_mark_ends_a_row_of_misses_and_arms_nothing() {
        assert_eq!(course("LLLLPLPLP"), "........+");
        assert_eq!(course("PPPMLMLMM"), "..++++++.");
    }

    #[test]
    fn a_failing_api_server_changes_nothing() {
        assert_eq!(course("P-P--P"), ".....+");
        assert_eq!(course("PPP------"), "..+++++++");
        assert_eq!(course("PPPM---M"), "..+++++.");
    }

    #[test]
    fn a_token_is_exposed_by_failed_calls_and_replaced_after_they_succeed_again() {
        use ProofResult::{NoAnswer, NoMark, NotWell, Proven, Refused, TooManyRequests, WrongMark};
        let at = |second| Moment::from_epoch(Duration::from_secs(second));
        for (result, reported) in [
            (Proven, None),
            (Refused, None),
            (TooManyRequests, None),
            (NoMark, Some(at(1))),
            (NoAnswer, Some(at(1))),
            (WrongMark, Some(at(1))),
            (NotWell, Some(at(1))),
        ] {
            let mut exposure = Exposure::default();
            assert_eq!(exposure.record(result, at(1)), None, "{result:?}");
            assert_eq!(exposure.record(Proven, at(2)), reported, "{result:?}");
            assert_eq!(exposure.record(Proven, at(3)), None, "{result:?} is reported once");
        }
        let mut exposure = Exposure::default();
        let reports =
            [NoMark, NoMark, TooManyRequests, Proven, Proven].map(|result| exposure.record(result, at(7)));
        assert_eq!(reports, [None, None, None, Some(at(7)), None]);
    }

    #[test]
    fn every_result_says_something_or_nothing() {
        let of = |wanted: Outcome| {
            let all = ProofResult::ALL.iter().filter(|result| Outcome::of(**result) == wanted);
            all.map(|result| result.as_str()).collect::<Vec<_>>()
        };
        assert_eq!((of(Outcome::Proven), of(Outcome::Late)), (vec!["proven"], vec!["late"]));
        for result in ProofResult::ALL {
            let meaning = result.meaning();
            assert_eq!(
                meaning.starts_with("A miss: "),
                of(Outcome::Missed).contains(&result.as_str()),
                "{meaning}"
            );
            assert_eq!(
                meaning.starts_with("No miss: "),
                of(Outcome::NoWord).contains(&result.as_str()),
                "{meaning}"
            );
        }
    }

    proptest! {
        /// The same read off the history's end: the last three words, or two, that said something.
        #[test]
        fn any_history_ends_as_its_last_words_say(history in "[PM-]{0,60}") {
            let mut expected = false;
            let mut said = String::new();
            let mut course_expected = String::new();
            for letter in history.chars() {
                if letter != '-' {
                    said.push(letter);
                }
                expected = (expected || said.ends_with("PPP")) && !said.ends_with("MM");
                course_expected.push(if expected { '+' } else { '.' });
            }
            prop_assert_eq!(course(&history), course_expected);
        }
    }
}
