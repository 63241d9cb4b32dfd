//! What the probes show, for the controller.

use tokio::sync::watch;

use super::reachability::{FailingServers, Reachability};

/// The reason before the first probe.
const NOT_PROBED: &str = "no probe has succeeded yet";

/// The reason after the rules were removed.
const RULES_REMOVED: &str =
    "another replica or a person removed the rules, and new probes have to succeed first";

/// What the probes show.
pub(in crate::arming) struct ProbeStatus {
    /// Why the webhook may not be armed. `None` while it may.
    pub(in crate::arming) unreachable: watch::Receiver<Option<FailingServers>>,
    /// Whether Event writes wait for the webhook, or none reach it.
    pub(in crate::arming) failing: watch::Receiver<bool>,
    /// The API servers that do not reach the webhook, while the webhook may be armed.
    pub(in crate::arming) tolerated: watch::Receiver<Option<FailingServers>>,
    reset: watch::Sender<u64>,
    reset_done: watch::Receiver<u64>,
}

impl ProbeStatus {
    /// Returns why the webhook may not be armed by the probes since the last [`Self::reset`]. `None` if it may.
    pub(in crate::arming) fn unreachable(&mut self) -> Option<FailingServers> {
        // In this order: a value that was sent after the reset comes from new probes.
        let is_current = *self.reset_done.borrow() == *self.reset.borrow();
        let unreachable = self.unreachable.borrow_and_update().clone();
        if is_current { unreachable } else { Some(FailingServers::other(RULES_REMOVED)) }
    }

    /// Discards all probes so far, including those that are under way.
    pub(in crate::arming) fn reset(&self) {
        self.reset.send_modify(|times| *times += 1);
    }
}

/// Publishes what the probes show.
pub(super) struct Publisher {
    unreachable: watch::Sender<Option<FailingServers>>,
    failing: watch::Sender<bool>,
    tolerated: watch::Sender<Option<FailingServers>>,
    /// The number of requested resets, and the number of resets that are done.
    pub(super) reset: watch::Receiver<u64>,
    reset_done: watch::Sender<u64>,
}

impl Publisher {
    pub(super) fn new() -> (Self, ProbeStatus) {
        let (unreachable, unreachable_rx) = watch::channel(Some(FailingServers::other(NOT_PROBED)));
        let (failing, failing_rx) = watch::channel(false);
        let (tolerated, tolerated_rx) = watch::channel(None);
        let (reset, reset_rx) = watch::channel(0);
        let (reset_done, reset_done_rx) = watch::channel(0);
        let status = ProbeStatus {
            unreachable: unreachable_rx,
            failing: failing_rx,
            tolerated: tolerated_rx,
            reset,
            reset_done: reset_done_rx,
        };
        (Self { unreachable, failing, tolerated, reset: reset_rx, reset_done }, status)
    }

    /// Publishes that there are no probes yet.
    pub(super) fn begin(&self) {
        self.unreachable.send_replace(Some(FailingServers::other(NOT_PROBED)));
        self.failing.send_replace(false);
        self.tolerated.send_replace(None);
    }

    /// Returns the number of resets if one was requested since the last one.
    pub(super) fn requested_reset(&mut self) -> Option<u64> {
        let reset = *self.reset.borrow_and_update();
        (reset != *self.reset_done.borrow()).then_some(reset)
    }

    /// Publishes that all probes so far are discarded.
    pub(super) fn reset_to(&self, reset: u64) {
        self.unreachable.send_replace(Some(FailingServers::other(RULES_REMOVED)));
        self.reset_done.send_replace(reset);
    }

    /// Publishes what the probes show.
    pub(super) fn publish(&self, reachability: &Reachability) {
        let unreachable = (!reachability.is_confirmed()).then(|| reachability.failures());
        // Without a failure, the last reason stays.
        let is_known = unreachable.as_ref().is_none_or(|failures| !failures.api_servers.is_empty());
        self.unreachable.send_if_modified(|sent| is_known && replace(sent, unreachable));
        self.tolerated.send_if_modified(|sent| replace(sent, reachability.tolerated_failures()));
        self.failing.send_if_modified(|sent| replace(sent, reachability.must_disarm()));
    }
}

/// Sets a value. Returns whether it has changed.
fn replace<T: PartialEq>(sent: &mut T, value: T) -> bool {
    let changed = *sent != value;
    *sent = value;
    changed
}
