//! How a replica campaigns and renews.

use super::*;

impl Replica {
    /// The Lease to acquire, after the last observation reply so.
    pub(super) fn acquires(&mut self) -> Option<LeaseState> {
        let last = self.election.last_read.as_ref().filter(|_| self.next == 0)?;
        self.next = 1;
        Some(last.found.clone())
    }

    /// Handles an answer. Returns the time of the next step.
    pub(super) fn handle_answer(&mut self, found: &LeaseState, won: bool, sent: u64, now: u64) -> u64 {
        if let LeaseState::Present(record) = found {
            let confirmed = self.in_flight.sent_time_of(record, &self.election.me);
            if let Some(sent) = if won { Some(at(sent)) } else { confirmed } {
                return self.hold(record, sent, now);
            }
        }
        match self.election.observe(found, at(now)) {
            Action::Wait(pause) => {
                self.own = None;
                now + u64::try_from(pause.as_millis()).unwrap().max(1)
            }
            Action::Acquire => {
                self.own = None;
                // Writes at once: see `acquires`.
                0
            }
            Action::StepDown(_) => {
                // The process ends, and its successor campaigns again.
                self.deadline.revoke();
                (self.own, self.in_flight, self.wall) = (None, InFlightWrites::default(), -1);
                let Identity { pod, .. } = self.election.me.clone();
                self.election = Election::new(Identity::new(pod.as_deref(), now));
                now + 1_000
            }
        }
    }

    fn hold(&mut self, record: &LeaseRecord, sent: Moment, now: u64) -> u64 {
        let milliseconds = u64::try_from(sent.since(at(0)).as_millis()).unwrap();
        // From an earlier process, or overtaken by a later answer.
        let own = record.holder == self.election.me.name();
        if !own || self.own.is_some() && milliseconds < self.sent {
            return self.next;
        }
        self.in_flight.record_committed(sent);
        (self.own, self.sent) = (Some(record.clone()), milliseconds);
        if sent.plus(RENEW_DEADLINE) > at(now) {
            self.election.record_renewal(sent);
            self.deadline.extend(sent.plus(RENEW_DEADLINE));
        }
        milliseconds + 1_000
    }
}

/// The wall clock of one process.
pub(super) fn wall(process: usize) -> i64 {
    i64::try_from(process).unwrap() * 1_000_000
}
