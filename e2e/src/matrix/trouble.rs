//! What goes wrong while the clients report.

use std::fmt;
use std::time::Duration;

use crate::accounts::SQUELCH;
use crate::proxy::{Asked, Detour, Fault, Rule};

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// Nothing.
    Quiet,
    /// One call in ten, in every way, in both directions; and no watch lives for more than some seconds.
    Faults,
    /// squelch is ended by SIGTERM each 5 s, and started again.
    Restarts,
    /// The API server is restarted once.
    ApiServer,
}

impl Column {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Quiet, Self::Faults, Self::Restarts, Self::ApiServer];
}

impl fmt::Display for Column {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Quiet => "quiet",
            Self::Faults => "faults",
            Self::Restarts => "restarts",
            Self::ApiServer => "api server",
        })
    }
}

/// How many calls in a hundred go wrong.
const PERCENT: u8 = 10;

/// What can become of a call that changes something.
const WRITES: [Fault; 7] = [
    Fault::Delay(Duration::from_millis(300)),
    Fault::CutBefore,
    Fault::CutAfter,
    Fault::Refuse(409),
    Fault::RefuseFor(429, 1),
    Fault::Refuse(500),
    Fault::Refuse(503),
];

/// What can become of one that only reads: no API server answers it with 409.
const READS: [Fault; 6] = [WRITES[0], WRITES[1], WRITES[2], WRITES[4], WRITES[5], WRITES[6]];

/// What becomes of every watch.
const WATCHES: [Fault; 2] = [Fault::Expire(Duration::from_secs(3)), Fault::BreakOff(Duration::from_secs(4))];

/// Lets a tenth of everything go wrong from now on. (A delayed review is answered within the API server's second.)
pub(super) fn begin(detour: &Detour) {
    detour.to_api_server.follow([
        Rule::new(|asked| asked.watch, 100, WATCHES),
        Rule::new(Asked::writes, PERCENT, WRITES),
        Rule::new(|_| true, PERCENT, READS),
    ]);
    // But not the proofs, two of which would disarm the webhook.
    let reviews_of_writes = |asked: &Asked| !asked.is_within(SQUELCH.namespace);
    detour.to_squelch.follow([Rule::new(reviews_of_writes, PERCENT, WRITES)]);
}
