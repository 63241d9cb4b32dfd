//! Leader election: a Lease in the API server names the active replica, the [`LeaseDeadline`] ends its time by its own
//! clock, and a pod label routes the API server to it.

mod calls;
mod deactivation;
mod election;
mod lease;
mod lease_deadline;
mod peers;
mod pod_label;
mod report;

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

pub use election::{
    Action, Election, Identity, InFlightWrites, LEASE_DURATION, LeaseRecord, LeaseState, RENEW_DEADLINE,
    RENEW_INTERVAL,
};
pub use lease::{Lease, LeaseOwner, NAME as LEASE_NAME};
pub use lease_deadline::LeaseDeadline;
pub use peers::Peers;
pub use pod_label::PodLabel;

use squelch_engine::Moment;

use crate::announcer::Announcer;
use crate::clock;
use crate::metrics::Metrics;
use calls::{AcquireOutcome, ReadOutcome, WriteResult};

/// The time after which a failed call is retried.
const RETRY: Duration = Duration::from_millis(100);

/// Returns the pause after `refused` consecutive calls that the API server refused: reads, or writes while it served reads.
/// It is [`RETRY`], doubled with each, up to [`RENEW_INTERVAL`].
fn pause_after(refused: u32) -> Duration {
    RETRY.saturating_mul(2_u32.saturating_pow(refused.saturating_sub(1))).min(RENEW_INTERVAL)
}

/// Maximum attempts to release the Lease.
const RELEASE_ATTEMPTS: usize = 3;

/// The exit code of a process that stalled past its Lease (`EX_TEMPFAIL`).
pub const STALLED: i32 = 75;

/// Campaigns for the Lease, then renews it.
pub struct Leader {
    lease: Lease,
    pod_label: Option<PodLabel>,
    election: Election,
    deadline: Arc<LeaseDeadline>,
    /// Whether this replica is active, for the tasks that write.
    active: watch::Sender<bool>,
    /// Cancelled when this replica has been active once, and may have pending occurrences.
    was_active: CancellationToken,
    /// Cancelled when another replica holds the Lease that this one held.
    lost: CancellationToken,
    /// Called before the first decision.
    on_first_active: Option<OnFirstActive>,
    announcer: Announcer,
    metrics: Arc<Metrics>,
    /// The Lease as this replica last wrote it.
    own: Option<LeaseRecord>,
    /// When it sent that write.
    own_sent: Moment,
    /// The writes without an answer.
    in_flight: InFlightWrites,
    /// Their calls. A late answer still counts, from the time its write was sent.
    calls: FuturesUnordered<BoxFuture<'static, WriteResult>>,
    /// When the renew loop last ran.
    last_run: Moment,
    /// Whether this replica holds the Lease for its last writes only.
    is_leaving: bool,
    /// Consecutive calls that the API server refused: reads, or writes while it served reads.
    refused: u32,
    /// The last read error that was logged.
    read_failure: Option<String>,
    /// The last write error that was logged.
    write_failure: Option<String>,
}

/// Work to do before the first decision.
pub type OnFirstActive = Box<dyn FnOnce() + Send>;

impl Leader {
    /// A candidate for `lease`. `pod_label` is `None` outside of a pod. `on_first_active` is called once, before the
    /// first decision.
    pub fn new(
        lease: Lease,
        pod_label: Option<PodLabel>,
        deadline: Arc<LeaseDeadline>,
        on_first_active: OnFirstActive,
        announcer: Announcer,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            election: Election::new(lease.identity().clone()),
            lease,
            pod_label,
            deadline,
            active: watch::Sender::new(false),
            was_active: CancellationToken::new(),
            lost: CancellationToken::new(),
            on_first_active: Some(on_first_active),
            announcer,
            metrics,
            own: None,
            own_sent: Moment::default(),
            in_flight: InFlightWrites::default(),
            calls: FuturesUnordered::new(),
            last_run: clock::now(),
            is_leaving: false,
            refused: 0,
            read_failure: None,
            write_failure: None,
        }
    }

    /// Returns whether this replica is active. Tasks that only the active replica may run wait for it.
    pub fn active(&self) -> watch::Receiver<bool> {
        self.active.subscribe()
    }

    /// Returns a token that is cancelled when this replica becomes active for the first time.
    pub fn was_active(&self) -> CancellationToken {
        self.was_active.clone()
    }

    /// Returns a token that is cancelled when another replica has taken the Lease from this one.
    pub fn lost(&self) -> CancellationToken {
        self.lost.clone()
    }

    /// Campaigns for the Lease once `ready` has completed and the pod has an address, until `stop` or until the Lease
    /// is lost. Then it stops renewing, and returns itself for [`Self::release`].
    pub async fn run(mut self, ready: impl Future<Output = ()>, stop: CancellationToken) -> Self {
        let pod_label = self.pod_label.take();
        let address = pod_label.as_ref().map(PodLabel::wait_for_address);
        // A new pod must not win against another replica that the Service can already reach.
        let ready = async {
            ready.await;
            if let Some(address) = address {
                address.await;
            }
        };
        let (lease, active, stopping) = (self.lease.clone(), self.active(), stop.clone());
        let labelling = async move {
            if let Some(pod_label) = pod_label {
                pod_label.run(lease, active, stopping).await;
            }
        };
        let campaigning = async {
            if stop.run_until_cancelled(ready).await.is_some() {
                self.campaign(&stop).await;
            }
            // The label stays until the next active replica moves it.
            stop.cancel();
        };
        tokio::join!(campaigning, labelling);
        self
    }

    /// Calls are never cancelled: the API server may commit a cancelled write all the same.
    async fn campaign(&mut self, stop: &CancellationToken) {
        self.last_run = clock::now();
        while !stop.is_cancelled() && !self.lost.is_cancelled() {
            self.exit_if_stalled();
            let pause = self.step().await;
            tokio::select! {
                () = stop.cancelled() => {}
                () = sleep(pause) => {}
            }
        }
    }

    /// Exits if this replica holds the Lease and the loop has not run for [`LEASE_DURATION`]. No step takes that long,
    /// so the process was frozen. Another replica may be active, and the API server must not reuse connections to this
    /// one.
    fn exit_if_stalled(&mut self) {
        let now = clock::now();
        let stalled = now.since(self.last_run);
        self.last_run = now;
        if self.own.is_some() && stalled > LEASE_DURATION {
            error!(?stalled, "stalled past the Lease, another replica may be active, exiting");
            std::process::exit(STALLED);
        }
    }

    /// Renews the Lease, or reads it if the renewal failed. After a refused write there is no second write in the step.
    async fn step(&mut self) -> Duration {
        let mut refused = false;
        self.check_deadline();
        if let Some(own) = self.own.clone() {
            let renewed = self.acquire(LeaseState::Present(own)).await;
            self.check_deadline();
            match renewed {
                AcquireOutcome::Held(pause) => return pause,
                AcquireOutcome::Refused => refused = true,
                AcquireOutcome::Unknown => {}
            }
        }
        let found = match self.read().await {
            ReadOutcome::Found(found) => found,
            ReadOutcome::Held(pause) => return pause,
            ReadOutcome::Refused => {
                // A step counts once.
                self.refused = self.refused.saturating_add(u32::from(!refused));
                return pause_after(self.refused);
            }
            ReadOutcome::Failed => {
                // The API server serves nothing. Retry quickly, to renew as soon as it is back.
                self.refused = 0;
                return RETRY;
            }
        };
        if let LeaseState::Present(record) = &found
            && let Some(sent) = self.in_flight.sent_time_of(record, self.lease.identity())
        {
            return self.record_held(record.clone(), sent).max(pause_after(self.refused));
        }
        match self.election.observe(&found, clock::now()) {
            Action::Wait(pause) => {
                self.refused = 0;
                // Set if the answer to an acquisition came after its deadline.
                self.own = None;
                self.check_deadline();
                pause
            }
            Action::Acquire if refused => pause_after(self.refused),
            Action::Acquire => match self.acquire(found).await {
                AcquireOutcome::Held(pause) => pause,
                AcquireOutcome::Refused => pause_after(self.refused),
                AcquireOutcome::Unknown => RETRY,
            },
            Action::StepDown(holder) => {
                self.step_down(&holder);
                Duration::ZERO
            }
        }
    }

    /// Records that this replica holds the Lease by the write sent at `sent`. Returns when to renew it.
    fn record_held(&mut self, own: LeaseRecord, sent: Moment) -> Duration {
        let pause = RENEW_INTERVAL.saturating_sub(clock::now().since(sent));
        if self.own.is_some() && sent < self.own_sent {
            // A later write was answered first.
            return pause;
        }
        if sent > self.own_sent {
            self.refused = 0;
        }
        self.in_flight.record_committed(sent);
        (self.own, self.own_sent) = (Some(own), sent);
        let deadline = sent.plus(RENEW_DEADLINE);
        if deadline <= clock::now() || self.is_leaving {
            return pause;
        }
        self.election.record_renewal(sent);
        let identity = self.lease.identity().name();
        if let Some(on_first_active) = self.on_first_active.take() {
            on_first_active();
            self.was_active.cancel();
            info!(identity, "acquired the Lease, this replica is active");
            self.announce();
        } else if !*self.active.borrow() {
            info!(identity, "renewed the Lease after its deadline, this replica is active again");
        }
        self.deadline.extend(deadline);
        self.metrics.active(true);
        self.active.send_if_modified(|active| !std::mem::replace(active, true));
        pause
    }
}

#[cfg(test)]
mod tests;
