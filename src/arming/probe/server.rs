//! Whether one API server reaches the webhook, by the outcomes of its probes so far. Pure.

use std::collections::VecDeque;

use super::outcome::ProbeOutcome;

/// Consecutive successes that show that an API server reaches the webhook.
const SUCCESSES: u32 = 3;
/// The same while its probes succeed and fail by turns: longer than a short pause of a fault, and enough probes to
/// find one of five API servers behind the same address.
const STEADY_SUCCESSES: u32 = 20;
/// Consecutive failures that show that it does not, if one of them is a hang. A single one may be a lost packet.
pub(super) const FAILURES: usize = 2;
/// Consecutive fast failures that show that it does not. They delay no Event write, so there is time for another replica
/// to become active: up to 4 s after a shutdown and 7 s after a crash.
const FAST_FAILURES: usize = 10;
/// The probes that are remembered.
const WINDOW: usize = 60;
/// Failures among the remembered probes that count like consecutive ones: more than 5 % of [`WINDOW`]. Several API
/// servers may share an address, so that consecutive probes reach different ones.
const FAILURES_IN_WINDOW: usize = 4;
/// Consecutive inconclusive probes after which nothing is known any more.
const INCONCLUSIVE: u32 = 10;

/// What the probes of one API server show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ServerState {
    /// There are not enough probes yet.
    #[default]
    Pending,
    /// squelch gets no usable answer from it.
    Unknown,
    /// It reaches the webhook.
    Reaches,
    /// It reaches the webhook most of the time. Otherwise it answers without it at once.
    Unsteady,
    /// It does not reach the webhook, and answers at once.
    FailsFast,
    /// It waits for the webhook in vain.
    Hangs,
}

impl ServerState {
    pub(super) fn reaches(self) -> bool {
        matches!(self, Self::Reaches | Self::Unsteady)
    }

    pub(super) fn fails(self) -> bool {
        matches!(self, Self::Hangs | Self::FailsFast)
    }
}

/// The probes of one API server.
#[derive(Clone, Debug, Default)]
pub(super) struct ServerProbes {
    state: ServerState,
    /// The message of the last failure. Empty while nothing is wrong.
    message: String,
    /// The last conclusive outcomes, oldest first.
    recent: VecDeque<ProbeOutcome>,
    /// Successes since the last failure.
    successes: u32,
    /// Consecutive inconclusive probes.
    inconclusive: u32,
    /// The number of conclusive probes.
    probes: u64,
    /// Whether it has reached the webhook since this replica started or took over.
    has_reached: bool,
    /// The numbers of the last two probes that failed after a success. A fast failure before it has reached the webhook
    /// is none: while the Service switches to another replica, probes succeed and fail by turns.
    relapses: [Option<u64>; 2],
}

impl ServerProbes {
    pub(super) fn state(&self) -> ServerState {
        self.state
    }

    pub(super) fn message(&self) -> &str {
        &self.message
    }

    /// Records the outcome of a probe, with the message of a failure.
    pub(super) fn record(&mut self, outcome: ProbeOutcome, message: &str) {
        if outcome == ProbeOutcome::Inconclusive {
            self.inconclusive += 1;
            let is_new = self.state == ServerState::Pending && self.recent.is_empty();
            if is_new || self.inconclusive >= INCONCLUSIVE {
                *self = Self { state: ServerState::Unknown, ..Self::default() };
            }
            return;
        }
        self.inconclusive = 0;
        self.probes += 1;
        if self.state == ServerState::Unknown {
            self.state = ServerState::Pending;
        }
        if self.recent.len() == WINDOW {
            self.recent.pop_front();
        }
        self.recent.push_back(outcome);
        if outcome == ProbeOutcome::Success {
            self.record_success();
        } else if outcome.is_failure() {
            message.clone_into(&mut self.message);
            self.record_failure(outcome);
        }
    }

    fn record_success(&mut self) {
        self.successes += 1;
        if self.state != ServerState::Reaches && self.successes >= self.required_successes() {
            self.state = ServerState::Reaches;
            self.has_reached = true;
            self.message.clear();
            self.recent.clear();
        }
    }

    fn record_failure(&mut self, outcome: ProbeOutcome) {
        let is_hang = |outcome| outcome == ProbeOutcome::Hang;
        if self.successes > 0 && (self.has_reached || is_hang(outcome)) {
            self.relapses = [self.relapses[1], Some(self.probes)];
        }
        self.successes = 0;
        let count = |wanted: fn(ProbeOutcome) -> bool, last: usize| {
            self.recent.iter().rev().take(last).filter(|outcome| wanted(**outcome)).count()
        };
        let all_fail = |last: usize| count(ProbeOutcome::is_failure, last) == last;
        let hangs = all_fail(FAILURES) && count(is_hang, FAILURES) > 0;
        if hangs || !all_fail(FAILURES) && count(is_hang, WINDOW) >= FAILURES_IN_WINDOW {
            self.state = ServerState::Hangs;
        } else if all_fail(FAST_FAILURES) || all_fail(FAILURES) && self.state == ServerState::Hangs {
            self.state = ServerState::FailsFast;
        } else if self.state == ServerState::Reaches
            && !all_fail(FAILURES_IN_WINDOW)
            && count(ProbeOutcome::is_failure, WINDOW) >= FAILURES_IN_WINDOW
        {
            self.state = ServerState::Unsteady;
        }
    }

    /// Returns the consecutive successes that show that the server reaches the webhook.
    fn required_successes(&self) -> u32 {
        let is_recent = |relapse: u64| self.probes - relapse < WINDOW as u64;
        if self.relapses[0].is_some_and(is_recent) { STEADY_SUCCESSES } else { SUCCESSES }
    }

    /// Demands new successes of a server that reaches the webhook.
    pub(super) fn demand_successes(&mut self) {
        self.successes = 0;
        if self.state.reaches() {
            self.state = ServerState::Pending;
            self.recent.clear();
        }
    }

    /// Demands [`STEADY_SUCCESSES`]: several API servers share the address, and few probes reach the one that fails.
    pub(super) fn demand_steadiness(&mut self) {
        self.relapses = [Some(self.probes); 2];
    }

    /// Discards failures: from now on the probes reach the webhook of another replica.
    pub(super) fn discard_failures(&mut self) {
        let state = if self.state.fails() { ServerState::Pending } else { self.state };
        *self = Self { state, has_reached: state.reaches(), ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn letter(state: ServerState) -> char {
        match state {
            ServerState::Pending => '.',
            ServerState::Unknown => '?',
            ServerState::Reaches => '+',
            ServerState::Unsteady => '~',
            ServerState::FailsFast => 'f',
            ServerState::Hangs => 'h',
        }
    }

    /// The state after each outcome of `history` (S success, L slow, H hang, F fast failure, - inconclusive).
    fn states(history: &str) -> String {
        let mut server = ServerProbes::default();
        history
            .chars()
            .map(|its| {
                server.record(ProbeOutcome::of_letter(its), "why");
                letter(server.state())
            })
            .collect()
    }

    #[test]
    fn three_successes_two_hangs_and_ten_fast_failures_decide() {
        for (history, expected) in [
            ("SSS", "..+"),
            ("SSFSSS", ".....+"),
            ("SSSFSHSFFFFFFFFFF", "..++++++~~~~~~~~f"),
            ("SSSFFFFFFFFFF", "..++++++++++f"),
            ("SSSFFFFFFFFFSF", "..+++++++++++~"),
            ("SSSFH", "..++h"),
            ("SSSHHSSS", "..++hhh+"),
            ("SSSHF", "..++h"),
            ("SSSHFF", "..++hf"),
            ("FFHHFF", "..hhhf"),
            ("FFFFFFFFFFSSS", ".........fff+"),
        ] {
            assert_eq!(states(history), expected, "{history}");
        }
    }

    #[test]
    fn a_slow_success_ends_consecutive_failures_and_shows_nothing() {
        assert_eq!(states("LLLLSLSLS"), "........+");
        assert_eq!(states("SSSHLHLHH"), "..++++++h");
    }

    #[test]
    fn an_inconclusive_probe_changes_nothing_before_the_tenth() {
        assert_eq!(states("S-S--S"), ".....+");
        assert_eq!(states("SSSH---H"), "..+++++h");
        let (nine, ten) = ("-".repeat(9), "-".repeat(10));
        assert!(states(&format!("SSS{nine}S")).ends_with("++++"));
        assert!(states(&format!("HH{nine}H")).ends_with("hhhh"));
        assert!(states(&format!("SSS{ten}SSS")).ends_with("+++?..+"));
        assert!(states(&format!("HH{ten}SSS")).ends_with("hhh?..+"));
        assert_eq!(states("--SSS"), "??..+", "nothing was known");
    }

    /// A fault that comes and goes each 15 s, and one of three API servers behind one address.
    #[test]
    fn a_server_that_relapses_needs_twenty_successes() {
        let cycle = "H".repeat(15) + &"S".repeat(15);
        let found = states(&("S".repeat(15) + &cycle.repeat(10)));
        let recoveries = found.matches("h+").count();
        assert_eq!(recoveries, 1, "{found}");
        let found = states(&("SSS".to_owned() + &"SSH".repeat(50)));
        assert_eq!((found.find('h'), found.matches("h+").count()), (Some(14), 0), "{found}");
        assert!(found.ends_with('h'), "{found}");
        let healed = states(&("SSS".to_owned() + &"SSH".repeat(50) + &"S".repeat(20)));
        assert!(healed.ends_with("h+"), "{healed}");
    }

    #[test]
    fn before_it_has_reached_the_webhook_a_server_that_fails_fast_has_no_relapses() {
        assert_eq!(states("SFSSFSFSSS"), ".........+");
        let hung = states(&("SHSSHS".to_owned() + &"S".repeat(19)));
        assert_eq!(hung.find('+'), Some(24), "{hung}");
        let before = states(&("SSS".to_owned() + &"F".repeat(10) + "SFSFSSS" + &"S".repeat(17)));
        assert_eq!(before.rfind("f+"), Some(35), "{before}");
    }

    #[test]
    fn fast_failures_among_successes_make_a_server_unsteady() {
        let found = states(&("SSS".to_owned() + &"SSF".repeat(30) + &"S".repeat(20)));
        assert_eq!(found.find('~'), Some(14), "{found}");
        assert!(!found.contains('f') && found.ends_with("~+"), "{found}");
        // Four hangs of sixty are too many, three are not.
        let seldom = |hangs: usize| "SSS".to_owned() + &("S".repeat(19) + "H").repeat(hangs);
        assert!(!states(&seldom(30)).contains('h'));
        let often = states(&("SSS".to_owned() + &("S".repeat(14) + "H").repeat(4)));
        assert!(often.ends_with("+h"), "{often}");
    }

    #[test]
    fn new_successes_are_required_on_demand_and_failures_can_be_discarded() {
        let mut server = ServerProbes::default();
        let record = |server: &mut ServerProbes, history: &str| {
            history.chars().for_each(|its| server.record(ProbeOutcome::of_letter(its), "why"));
            letter(server.state())
        };
        assert_eq!(record(&mut server, "SSS"), '+');
        server.demand_successes();
        assert_eq!((record(&mut server, "SS"), record(&mut server, "S")), ('.', '+'));
        assert_eq!(record(&mut server, "HH"), 'h');
        server.demand_successes();
        assert_eq!((letter(server.state()), server.message()), ('h', "why"));
        server.discard_failures();
        assert_eq!((letter(server.state()), server.message()), ('.', ""));
        assert_eq!((record(&mut server, "H"), record(&mut server, "SSS")), ('.', '+'));
        // The failure before a takeover does not count.
        record(&mut server, "H");
        server.discard_failures();
        assert_eq!((record(&mut server, "H"), record(&mut server, "H")), ('+', 'h'));
    }

    proptest! {
        #[test]
        fn two_hanging_probes_in_a_row_are_noticed(history in "[SLHF]{0,200}") {
            let found = states(&history);
            for (at, two) in history.as_bytes().windows(2).enumerate() {
                if two == b"HH" {
                    prop_assert_eq!(found.as_bytes()[at + 1], b'h', "{} at {}", found, at);
                }
            }
        }
    }
}
