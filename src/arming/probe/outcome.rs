//! What the result of a probe means. Pure.

use squelch_engine::Moment;

use crate::metrics::ProbeResult;

/// What a probe result says about the way from one API server to the webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProbeOutcome {
    /// The API server reaches the webhook.
    Success,
    /// The API server reaches the webhook and is slow: no success, but it ends consecutive failures.
    Slow,
    /// The API server waits for the webhook in vain. Event writes through it wait too.
    Hang,
    /// The API server does not reach the webhook and answers at once. Event writes through it pass uncounted.
    FastFailure,
    /// The API server itself fails. The probe says nothing about the webhook.
    Inconclusive,
}

impl ProbeOutcome {
    pub(super) fn of(result: ProbeResult) -> Self {
        match result {
            ProbeResult::Succeeded => Self::Success,
            ProbeResult::Slow => Self::Slow,
            // Without file descriptors this process accepts no connection, and the API server waits for it.
            ProbeResult::Timeout | ProbeResult::NoDescriptors => Self::Hang,
            ProbeResult::Unsigned | ProbeResult::WrongSignature | ProbeResult::Rejected => Self::FastFailure,
            ProbeResult::TooManyRequests
            | ProbeResult::ServerError
            | ProbeResult::ApiserverUnreachable
            | ProbeResult::ApiserverUnhealthy
            | ProbeResult::Unexpected => Self::Inconclusive,
        }
    }

    /// The outcome that a history in a test writes as `letter`.
    #[cfg(test)]
    pub(super) fn of_letter(letter: char) -> Self {
        match letter {
            'S' => Self::Success,
            'L' => Self::Slow,
            'H' => Self::Hang,
            'F' => Self::FastFailure,
            _ => Self::Inconclusive,
        }
    }

    pub(super) fn is_failure(self) -> bool {
        matches!(self, Self::Hang | Self::FastFailure)
    }
}

/// Whether a probe with this result has exposed the token. The API server logs the whole URL of a failed webhook call,
/// and if another process answers, it has received the token.
fn exposes_token(result: ProbeResult) -> bool {
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

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
            let (meaning, outcome) = (result.meaning(), ProbeOutcome::of(*result));
            assert_eq!(meaning.starts_with("Hang: "), outcome == ProbeOutcome::Hang, "{meaning}");
            assert_eq!(
                meaning.starts_with("Fast failure: "),
                outcome == ProbeOutcome::FastFailure,
                "{meaning}"
            );
            assert_eq!(meaning.starts_with("Ignored: "), outcome == ProbeOutcome::Inconclusive, "{meaning}");
        }
    }
}
