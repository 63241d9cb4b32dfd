//! Whether the webhook may be armed, by what the probes show of every API server. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::outcome::ProbeOutcome;
use super::server::{ServerProbes, ServerState};

/// Maximum API servers in a message.
const MAX_NAMED: usize = 3;

/// API servers that fail, for conditions, Events and logs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::arming) struct FailingServers {
    /// Their addresses. Empty if the reason is another one.
    pub(in crate::arming) api_servers: Vec<String>,
    /// What is wrong, with the first addresses.
    pub(in crate::arming) message: String,
}

impl FailingServers {
    /// A reason that no API server has given.
    pub(in crate::arming) fn other(message: &str) -> Self {
        Self { api_servers: Vec::new(), message: message.to_owned() }
    }
}

/// What the probes show of all API servers.
#[derive(Debug, Default)]
pub(super) struct Reachability {
    servers: BTreeMap<String, ServerProbes>,
    /// Whether the webhook may be armed.
    confirmed: bool,
}

impl Reachability {
    /// Whether the webhook may be armed: once every API server that can be judged and does not fail fast has reached
    /// it. Stays true until [`Self::must_disarm`].
    pub(super) fn is_confirmed(&self) -> bool {
        self.confirmed
    }

    /// Whether Event writes wait for the webhook, or none reach it.
    pub(super) fn must_disarm(&self) -> bool {
        let any = |wanted: fn(ServerState) -> bool| self.states().any(wanted);
        let hangs = |state| state == ServerState::Hangs;
        any(hangs) || any(ServerState::fails) && !any(ServerState::reaches)
    }

    pub(super) fn state(&self, server: &str) -> Option<ServerState> {
        self.servers.get(server).map(ServerProbes::state)
    }

    fn states(&self) -> impl Iterator<Item = ServerState> {
        self.servers.values().map(ServerProbes::state)
    }

    /// Replaces the API servers. What is known of those that stay is kept.
    pub(super) fn set_servers(&mut self, servers: &BTreeSet<String>) {
        self.servers.retain(|server, _| servers.contains(server));
        for server in servers {
            self.servers.entry(server.clone()).or_default();
        }
        self.evaluate();
    }

    /// Records the outcome of a probe, with the message of a failure.
    pub(super) fn record(&mut self, server: &str, outcome: ProbeOutcome, message: &str) {
        let Some(server) = self.servers.get_mut(server) else { return };
        server.record(outcome, message);
        self.evaluate();
    }

    fn evaluate(&mut self) {
        if self.must_disarm() {
            if std::mem::take(&mut self.confirmed) {
                self.demand_successes();
            }
        } else if self.states().any(ServerState::reaches)
            && !self.states().any(|state| matches!(state, ServerState::Pending | ServerState::Hangs))
        {
            self.confirmed = true;
        }
    }

    /// Demands new successes of every API server before the webhook is armed, because it was disarmed.
    pub(super) fn demand_successes(&mut self) {
        self.confirmed = false;
        self.servers.values_mut().for_each(ServerProbes::demand_successes);
    }

    /// Demands as many successes of an API server as if it had relapsed.
    pub(super) fn demand_steadiness(&mut self, server: &str) {
        if let Some(server) = self.servers.get_mut(server) {
            server.demand_steadiness();
        }
    }

    /// Discards failures: from now on the probes reach the webhook of another replica. What is confirmed stays.
    pub(super) fn discard_failures(&mut self) {
        self.servers.values_mut().for_each(ServerProbes::discard_failures);
    }

    /// Returns the API servers whose last probes have failed.
    pub(super) fn failures(&self) -> FailingServers {
        self.failing(|_| true)
    }

    /// Returns the API servers that do not reach the webhook, although others do and it may be armed.
    pub(super) fn tolerated_failures(&self) -> Option<FailingServers> {
        let fails = |state| matches!(state, ServerState::FailsFast | ServerState::Unsteady);
        (self.confirmed && self.states().any(fails)).then(|| self.failing(fails))
    }

    /// Returns the API servers in a wanted state whose last probes have failed.
    fn failing(&self, wanted: impl Fn(ServerState) -> bool) -> FailingServers {
        let fails = |server: &ServerProbes| wanted(server.state()) && !server.message().is_empty();
        let failing: Vec<_> = self.servers.iter().filter(|(_, server)| fails(server)).collect();
        let named = failing.iter().take(MAX_NAMED);
        let named: Vec<_> =
            named.map(|(address, server)| format!("API server {address}: {}", server.message())).collect();
        let mut message = named.join("; ");
        if failing.len() > MAX_NAMED {
            message = format!("{message}; and {} more", failing.len() - MAX_NAMED);
        }
        FailingServers {
            api_servers: failing.into_iter().map(|(address, _)| address.clone()).collect(),
            message,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(names: &[&str]) -> Reachability {
        let mut reachability = Reachability::default();
        reachability.set_servers(&names.iter().map(ToString::to_string).collect());
        reachability
    }

    /// Records a probe of each server for each letter: the n-th word is the history of the n-th server.
    fn record(reachability: &mut Reachability, histories: &str) -> String {
        let names: Vec<_> = reachability.servers.keys().cloned().collect();
        let histories: Vec<Vec<char>> = histories.split(' ').map(|word| word.chars().collect()).collect();
        let mut confirmed = String::new();
        for round in 0..histories[0].len() {
            for (name, history) in names.iter().zip(&histories) {
                reachability.record(name, ProbeOutcome::of_letter(history[round]), "why");
            }
            confirmed.push(if reachability.is_confirmed() { '+' } else { '.' });
        }
        confirmed
    }

    #[test]
    fn the_table_of_reachability() {
        for (histories, expected, why) in [
            ("SSS SSS SSS", "..+", "each API server has to succeed"),
            ("SSSS SSSS .SSS", "...+", "also one that answers later"),
            ("SSS SSS ---", "..+", "an unknown one does not prevent arming"),
            ("SSSSSSSSSS SSSSSSSSSS FFFFFFFFFF", ".........+", "one that fails fast does not prevent arming"),
            ("SSS SSS HHH", "...", "one that hangs does"),
            ("--- --- ---", "...", "none is known"),
            ("FFF --- ---", "...", "none reaches the webhook"),
            ("SSSSS SSSSS SSSHH", "..++.", "two hanging probes disarm"),
            ("SSSSSSSSSSSSS SSSSSSSSSSSSS SSSFFFFFFFFFF", "..+++++++++++", "fast failures of one do not"),
            ("SSSFFFFFFFFFF SSSFFFFFFFFFF SSSFFFFFFFFFF", "..++++++++++.", "fast failures of all do"),
            (
                "SSSFFFFFFFFFF ------------- -------------",
                "..++++++++++.",
                "unknown ones do not reach the webhook",
            ),
            ("SSSFFFFFFFFFF SSSSSSSSSSSSS -------------", "..+++++++++++", "one that reaches it is enough"),
            ("SSS------------- SSS-------------", "..++++++++++++++", "unknown ones never disarm"),
            ("SSSSSLLLL SSSSSLLLL", "..+++++++", "slow ones do not either"),
            ("SSSSSSSS SSSHHSSS", "..++...+", "three successes of each after the disarming"),
        ] {
            let names = ["a", "b", "c"];
            let mut reachability = of(&names[..histories.split(' ').count()]);
            // A probe that has not ended yet changes nothing.
            let mut confirmed = String::new();
            let words: Vec<Vec<char>> = histories.split(' ').map(|word| word.chars().collect()).collect();
            for round in 0..words[0].len() {
                for (name, word) in names.iter().zip(&words) {
                    if word[round] != '.' {
                        reachability.record(name, ProbeOutcome::of_letter(word[round]), "why");
                    }
                }
                confirmed.push(if reachability.is_confirmed() { '+' } else { '.' });
            }
            assert_eq!(confirmed, expected, "{histories}: {why}");
        }
    }

    #[test]
    fn a_removed_api_server_neither_arms_nor_disarms() {
        let mut reachability = of(&["a", "b"]);
        assert_eq!(record(&mut reachability, "SSSSS SSSHH"), "..++.");
        assert!(reachability.must_disarm());
        reachability.set_servers(&BTreeSet::from(["a".to_owned()]));
        assert!(!reachability.must_disarm() && !reachability.is_confirmed());
        assert_eq!(record(&mut reachability, "SSS"), "..+");
        // A new one is probed before it counts.
        reachability.set_servers(&BTreeSet::from(["a".to_owned(), "b".to_owned()]));
        assert!(reachability.is_confirmed());
        assert_eq!(record(&mut reachability, "SS HH"), "+.");
        reachability.set_servers(&BTreeSet::new());
        assert!(!reachability.must_disarm() && !reachability.is_confirmed());
    }

    #[test]
    fn failing_api_servers_are_named() {
        let mut reachability = of(&["10.0.0.1:6443", "10.0.0.2:6443"]);
        assert_eq!(
            (reachability.failures(), reachability.tolerated_failures()),
            (FailingServers::default(), None)
        );
        record(&mut reachability, "SSSSSSSSSS FFFFFFFFFF");
        let tolerated = reachability.tolerated_failures().unwrap();
        assert_eq!(tolerated.api_servers, ["10.0.0.2:6443"]);
        assert_eq!(tolerated.message, "API server 10.0.0.2:6443: why");
        record(&mut reachability, "SSS HHH");
        assert_eq!((reachability.failures(), reachability.tolerated_failures()), (tolerated, None));
        let mut reachability = of(&["a", "b", "c", "d", "e"]);
        record(&mut reachability, "FF FF FF FF FF");
        assert!(
            reachability.failures().message.ends_with("; and 2 more"),
            "{}",
            reachability.failures().message
        );
    }

    #[test]
    fn after_a_takeover_a_confirmed_verdict_stays_until_two_failures() {
        let mut reachability = of(&["a"]);
        record(&mut reachability, "SSSF");
        reachability.discard_failures();
        assert_eq!(record(&mut reachability, "FS"), "++");
        assert_eq!(record(&mut reachability, "H-H"), "++.");
        reachability.discard_failures();
        assert!(!reachability.must_disarm());
        assert_eq!(record(&mut reachability, "SSS"), "..+");
    }

    proptest! {
        #[test]
        fn never_confirmed_while_an_api_server_hangs_for_two_probes(
            probes in proptest::collection::vec((0..3_usize, "[SLHF-]"), 0..200),
            resets in proptest::collection::vec(0..200_usize, 0..3),
        ) {
            let names = ["a", "b", "c"];
            let mut reachability = of(&names);
            let (mut last, mut inconclusive) = ([' '; 3], [0; 3]);
            let mut successes = [0_u32; 3];
            for (at, (server, letter)) in probes.iter().enumerate() {
                if resets.contains(&at) {
                    reachability.demand_successes();
                    successes = [0; 3];
                }
                let letter = letter.chars().next().unwrap();
                let was_confirmed = reachability.is_confirmed();
                reachability.record(names[*server], ProbeOutcome::of_letter(letter), "why");
                let hangs_twice = letter == 'H' && last[*server] == 'H';
                prop_assert!(!(hangs_twice && reachability.is_confirmed()));
                inconclusive[*server] = if letter == '-' { inconclusive[*server] + 1 } else { 0 };
                // Ten of them make a server unknown.
                if letter != '-' || inconclusive[*server] == 10 {
                    last[*server] = letter;
                }
                if letter == 'S' {
                    successes[*server] += 1;
                }
                if reachability.is_confirmed() && !was_confirmed {
                    prop_assert!(successes.iter().any(|number| *number >= 3), "{:?}", successes);
                }
                if was_confirmed && !reachability.is_confirmed() {
                    successes = [0; 3];
                }
            }
        }
    }
}
