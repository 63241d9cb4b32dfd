//! The calls of the [`Leader`] to the Lease. The answer to a write may come after its timeout, and still counts.

use std::pin::pin;
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use squelch_engine::Moment;
use tokio::time::sleep;

use super::lease::{CallError, LeaseWrite, TIMEOUT};
use super::{Leader, LeaseState};
use crate::clock;

/// The result of a write, and when it was sent.
pub(super) struct WriteResult {
    pub(super) sent: Moment,
    pub(super) written: Result<LeaseWrite, String>,
}

/// The result of a read of the Lease.
pub(super) enum ReadOutcome {
    Found(LeaseState),
    /// A late answer to a write arrived first: this replica holds the Lease. Renew it after this time.
    Held(Duration),
    /// The API server answered that it serves no such call.
    Refused,
    Failed,
}

/// The result of an attempt to acquire or renew the Lease.
pub(super) enum AcquireOutcome {
    /// This replica holds it. Renew it after this time.
    Held(Duration),
    /// The API server refused the write or was unreachable.
    Refused,
    /// Another writer changed the Lease, or there is no answer yet.
    Unknown,
}

impl Leader {
    /// Writes the Lease, if it is still as `found`. Unless the result is `Held`, the Lease has to be read: the API
    /// server may commit a write whose answer is an error.
    pub(super) async fn acquire(&mut self, found: LeaseState) -> AcquireOutcome {
        let sent = clock::now();
        let renew_time = self.in_flight.record_sent(clock::wall().as_microsecond(), sent);
        let call = self.lease.clone().acquire(found, renew_time);
        self.calls.push(call.map(move |written| WriteResult { sent, written }).boxed());
        let mut timeout = pin!(sleep(TIMEOUT));
        loop {
            let answer = tokio::select! {
                biased;
                Some(answer) = self.calls.next() => answer,
                () = &mut timeout => return AcquireOutcome::Unknown,
            };
            let is_newest = answer.sent == sent;
            match self.log_write(answer.written) {
                Some(LeaseWrite::Stored(own)) => {
                    return AcquireOutcome::Held(self.record_held(own, answer.sent));
                }
                Some(LeaseWrite::Conflict) if is_newest => return AcquireOutcome::Unknown,
                None if is_newest => {
                    self.refused = self.refused.saturating_add(1);
                    return AcquireOutcome::Refused;
                }
                _ => {}
            }
        }
    }

    /// Reads the Lease. A late answer to an earlier write ends the read if it shows that this replica holds the Lease.
    pub(super) async fn read(&mut self) -> ReadOutcome {
        let lease = self.lease.clone();
        let mut reading = pin!(lease.read());
        loop {
            let answer = tokio::select! {
                biased;
                Some(answer) = self.calls.next() => answer,
                found = &mut reading => {
                    let is_refused = matches!(found, Err(CallError::Refused(_)));
                    let failed = if is_refused { ReadOutcome::Refused } else { ReadOutcome::Failed };
                    return self.log_read(found.map_err(String::from)).map_or(failed, ReadOutcome::Found);
                }
            };
            if let Some(LeaseWrite::Stored(own)) = self.log_write(answer.written) {
                return ReadOutcome::Held(self.record_held(own, answer.sent));
            }
        }
    }
}
