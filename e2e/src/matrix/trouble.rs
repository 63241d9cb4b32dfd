//! The faults of the columns.

use std::fmt;
use std::time::Duration;

use crate::accounts::SQUELCH;
use crate::proxy::{Fault, FaultProxy, ProxiedCall, Rule};
use crate::test;

/// A column of the matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// No faults.
    Quiet,
    /// Every fault in both directions on one call in ten; watches last for some seconds only.
    Faults,
    /// squelch is restarted with SIGTERM every 5 s.
    Restarts,
    /// The API server is restarted once, and then stopped for some seconds.
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

/// Percentage of calls with a fault.
const PERCENT: u8 = 10;

/// Faults of writes.
const WRITES: [Fault; 7] = [
    Fault::Delay(Duration::from_millis(300)),
    Fault::CutBefore,
    Fault::CutAfter,
    Fault::Refuse(409),
    Fault::RefuseFor(429, 1),
    Fault::Refuse(500),
    Fault::Refuse(503),
];

/// Faults of reads: an API server never answers them with 409.
const READS: [Fault; 6] = [WRITES[0], WRITES[1], WRITES[2], WRITES[4], WRITES[5], WRITES[6]];

/// The fault of every watch.
const WATCHES: [Fault; 2] = [Fault::Expire(Duration::from_secs(3)), Fault::BreakOff(Duration::from_secs(4))];

/// Injects faults into a tenth of all calls. (A delayed review is answered within the webhook timeout of one second.)
pub(super) fn begin(proxy: &FaultProxy) {
    proxy.to_api_server.follow([
        Rule::new(|asked| asked.watch, 100, WATCHES),
        Rule::new(ProxiedCall::writes, PERCENT, WRITES),
        Rule::new(|_| true, PERCENT, READS),
    ]);
    // Except for probes: two failed ones disarm the webhook.
    let reviews_of_writes = |asked: &ProxiedCall| !asked.is_within(SQUELCH.namespace);
    test::disturb();
    proxy.to_squelch.follow([Rule::new(reviews_of_writes, PERCENT, WRITES)]);
}
