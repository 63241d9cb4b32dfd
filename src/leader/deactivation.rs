//! How a replica becomes inactive.

use std::convert::Infallible;
use std::future::pending;

use tokio::time::sleep;
use tracing::{info, warn};

use super::lease::LeaseWrite;
use super::{LEASE_DURATION, Leader, LeaseState, RELEASE_ATTEMPTS, RENEW_DEADLINE};
use crate::clock;

impl Leader {
    /// Makes the tasks of this replica inactive if the lease deadline has passed. Reviews check the deadline
    /// themselves.
    pub(super) fn check_deadline(&mut self) {
        if *self.active.borrow() && !self.deadline.is_active(clock::now()) {
            warn!(
                renew_deadline_seconds = RENEW_DEADLINE.as_secs(),
                "lease deadline passed without a renewal, allowing all Event writes until the Lease is renewed"
            );
            self.deadline.notify_passed();
            self.set_inactive();
        }
    }

    pub(super) fn step_down(&mut self, holder: &str) {
        warn!(holder, "lost the Lease to another replica");
        self.own = None;
        self.deactivate();
        self.lost.cancel();
    }

    /// Makes this replica inactive. The Lease stays as it is.
    pub fn deactivate(&self) {
        self.deadline.revoke();
        self.set_inactive();
    }

    /// Keeps the Lease of an inactive replica until this future is dropped, so that no other one writes the same objects
    /// meanwhile.
    pub async fn keep(&mut self) -> Infallible {
        self.is_leaving = true;
        while !self.lost.is_cancelled() {
            let pause = self.step().await;
            sleep(pause).await;
        }
        pending().await
    }

    fn set_inactive(&self) {
        self.metrics.active(false);
        self.active.send_replace(false);
    }

    /// Makes this replica inactive and releases the Lease, so that another replica can acquire it at once.
    pub async fn release(mut self) {
        self.deactivate();
        for attempt in 1..=RELEASE_ATTEMPTS {
            let Some(own) = self.own.take() else { return };
            match self.lease.release(&own).await {
                Ok(LeaseWrite::Stored(_)) => return info!("released the Lease"),
                Ok(LeaseWrite::Conflict) => match self.lease.read().await {
                    Ok(LeaseState::Present(found)) if found.holder == self.lease.identity().name() => {
                        self.own = Some(found);
                    }
                    _ => return,
                },
                Err(error) => {
                    warn!(error, attempt, "cannot release the Lease");
                    self.own = Some(own);
                }
            }
        }
        warn!(
            lease_duration_seconds = LEASE_DURATION.as_secs(),
            "Lease not released, another replica can acquire it when its duration has passed"
        );
    }
}

/// Runs on a panic of the task too: other tasks must not go on writing as the active replica.
impl Drop for Leader {
    fn drop(&mut self) {
        self.deactivate();
    }
}
