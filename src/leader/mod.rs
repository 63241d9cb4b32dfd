//! Leader election: a Lease in the API server names the active replica, the [`LeaseDeadline`] ends its time by its own
//! clock, and a pod label routes the API server to it.

mod election;
mod lease;
mod lease_deadline;
mod peers;
mod pod_label;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use k8s_openapi::api::core::v1::ObjectReference;
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

pub use election::{
    Action, Election, Identity, InFlightWrites, LEASE_DURATION, LeaseRecord, LeaseState, RENEW_DEADLINE,
    RENEW_INTERVAL,
};
pub use lease::{Lease, LeaseOwner, NAME as LEASE_NAME};
pub use lease_deadline::LeaseDeadline;
pub use peers::Peers;
pub use pod_label::PodLabel;

use squelch_engine::Moment;

use crate::announcer::{Announcement, Announcer};
use crate::clock;
use crate::metrics::Metrics;
use lease::{LeaseWrite, TIMEOUT};

/// The time after which a failed call is retried.
const RETRY: Duration = Duration::from_millis(100);

/// Returns the pause after `refused` consecutive writes that the API server refused while it served reads: [`RETRY`],
/// doubled with each, up to [`RENEW_INTERVAL`].
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
    /// Consecutive writes that the API server refused while it served reads.
    refused: u32,
    /// The last read error that was logged.
    read_failure: Option<String>,
    /// The last write error that was logged.
    write_failure: Option<String>,
}

/// The result of a write, and when it was sent.
struct WriteResult {
    sent: Moment,
    written: Result<LeaseWrite, String>,
}

/// The result of a read of the Lease.
enum ReadOutcome {
    Found(LeaseState),
    /// A late answer to a write arrived first: this replica holds the Lease. Renew it after this time.
    Held(Duration),
    Failed,
}

/// The result of an attempt to acquire or renew the Lease.
enum AcquireOutcome {
    /// This replica holds it. Renew it after this time.
    Held(Duration),
    /// The API server refused the write or was unreachable.
    Refused,
    /// Another writer changed the Lease, or there is no answer yet.
    Unknown,
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
                // Set if the answer to an acquisition came after its deadline.
                self.own = None;
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

    /// Writes the Lease, if it is still as `found`. Unless the result is `Held`, the Lease has to be read: the API
    /// server may commit a write whose answer is an error.
    async fn acquire(&mut self, found: LeaseState) -> AcquireOutcome {
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
    async fn read(&mut self) -> ReadOutcome {
        let lease = self.lease.clone();
        let mut reading = pin!(lease.read());
        loop {
            let answer = tokio::select! {
                biased;
                Some(answer) = self.calls.next() => answer,
                found = &mut reading => {
                    return self.log_read(found).map_or(ReadOutcome::Failed, ReadOutcome::Found);
                }
            };
            if let Some(LeaseWrite::Stored(own)) = self.log_write(answer.written) {
                return ReadOutcome::Held(self.record_held(own, answer.sent));
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
        if deadline <= clock::now() {
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

    /// Makes the tasks of this replica inactive if the lease deadline has passed. Reviews check the deadline
    /// themselves.
    fn check_deadline(&mut self) {
        if *self.active.borrow() && !self.deadline.is_active(clock::now()) {
            warn!(
                renew_deadline_seconds = RENEW_DEADLINE.as_secs(),
                "lease deadline passed without a renewal, allowing all Event writes until the Lease is renewed"
            );
            self.deadline.notify_passed();
            self.set_inactive();
        }
    }

    fn step_down(&mut self, holder: &str) {
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

    /// Logs a read result that differs from the last one. Returns what was read.
    fn log_read(&mut self, answer: Result<LeaseState, String>) -> Option<LeaseState> {
        match answer {
            Ok(found) => {
                if self.read_failure.take().is_some() {
                    info!("Lease can be read again");
                }
                Some(found)
            }
            Err(error) => {
                if self.read_failure.as_ref() != Some(&error) {
                    warn!(error, "cannot read the Lease, retrying");
                    self.read_failure = Some(error);
                }
                None
            }
        }
    }

    /// Logs a write result that differs from the last one. A conflict does not show that the Lease can be written.
    fn log_write(&mut self, answer: Result<LeaseWrite, String>) -> Option<LeaseWrite> {
        match answer {
            Ok(written) => {
                if matches!(written, LeaseWrite::Stored(_)) && self.write_failure.take().is_some() {
                    info!("Lease can be written again");
                }
                Some(written)
            }
            Err(error) => {
                if self.write_failure.as_ref() != Some(&error) {
                    warn!(error, "cannot write the Lease, retrying");
                    self.write_failure = Some(error);
                }
                None
            }
        }
    }

    fn announce(&self) {
        let regarding = ObjectReference {
            api_version: Some("coordination.k8s.io/v1".to_owned()),
            kind: Some("Lease".to_owned()),
            namespace: Some(self.lease.namespace().to_owned()),
            name: Some(LEASE_NAME.to_owned()),
            ..ObjectReference::default()
        };
        let note = format!("{} acquired the Lease and is the active replica.", self.lease.identity().name());
        self.announcer.announce(Announcement {
            regarding,
            warning: false,
            reason: "Active",
            action: "AcquireLease",
            note,
        });
    }
}

/// Runs on a panic of the task too: other tasks must not go on writing as the active replica.
impl Drop for Leader {
    fn drop(&mut self) {
        self.deactivate();
    }
}

#[cfg(test)]
mod tests;
