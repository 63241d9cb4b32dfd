//! Keeps the webhook configuration as the policies, the probes and a person want it. The active replica writes it. A
//! standby only removes rules that hold up Event writes.

mod drift;
mod report;
mod standby;

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, sleep};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::configuration::{Desired, NamespaceSelection, OwnerRole};
use super::configuration_api::{ApplyError, ConfigurationApi};
use super::probe::{Probe, ProbeStatus, Prober};
use super::state::{ArmedState, BreakGlass, DisarmedReason, armed_state};
use super::write_limiter::{ConfigurationChange, WriteLimiter};
use crate::clock;
use crate::metrics::Metrics;

/// The time after which a failed write is retried.
const RETRY: Duration = Duration::from_secs(1);
/// The same for a write that removes rules.
const DISARM_RETRY: Duration = Duration::from_millis(250);
/// Timeout of a write.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Timeout of a write that removes rules. Each Event write may wait for it.
const DISARM_TIMEOUT: Duration = Duration::from_secs(1);
/// How often the configuration is read, to find changes by other writers.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// Maximum attempts to remove the rules at shutdown.
const SHUTDOWN_ATTEMPTS: usize = 3;

/// The controller of the webhook configuration.
pub struct ArmingController {
    api: ConfigurationApi,
    desired: watch::Receiver<Desired>,
    probes: ProbeStatus,
    active: watch::Receiver<bool>,
    probe_entry_exists: watch::Sender<bool>,
    disarmed_reason: Arc<watch::Sender<Option<Arc<str>>>>,
    /// The flag `--disarm`.
    disarmed: bool,
    metrics: Arc<Metrics>,
    known: Known,
}

/// What the controller knows of the configuration.
#[derive(Default)]
struct Known {
    /// The configuration as it was last read or written.
    live: Option<Value>,
    applied: Option<Applied>,
    /// Whether another writer has changed what was applied.
    drifted: bool,
    /// Whether it was just read and may be armed.
    is_fresh: bool,
    /// Whether it has to be read, because this replica has become active.
    must_read: bool,
    /// The entries that squelch has not written.
    foreign_entries: Vec<String>,
    limiter: WriteLimiter,
    break_glass: BreakGlass,
    owner: Option<OwnerRole>,
    /// The last reported armed state.
    reported: Option<ArmedState>,
    /// The last logged error.
    failure: Option<String>,
}

/// A configuration that this replica has applied.
struct Applied {
    uid: String,
    namespaces: NamespaceSelection,
    object: Value,
    /// The object as the API server stored it. Other webhooks may change each write.
    stored: Value,
}

impl Applied {
    fn new(namespaces: NamespaceSelection, object: Value, stored: Value) -> Self {
        Self { uid: uid(&stored).to_owned(), namespaces, object, stored }
    }
}

impl Known {
    /// Returns what a write of `desired` would change.
    fn change(&self, desired: &Desired, state: &ArmedState) -> ConfigurationChange {
        if state.as_ref().is_err_and(|reason| *reason != DisarmedReason::NoPolicy) {
            return ConfigurationChange::Disarm;
        }
        let Some(applied) = self.applied.as_ref().filter(|_| !self.drifted) else {
            return ConfigurationChange::Other;
        };
        let as_wide = Desired { namespaces: applied.namespaces.clone(), ..desired.clone() };
        let differs_in_namespaces_only = as_wide.object(self.owner.as_ref()) == applied.object;
        if differs_in_namespaces_only && desired.namespaces.is_subset_of(&applied.namespaces) {
            ConfigurationChange::Narrow
        } else {
            ConfigurationChange::Other
        }
    }
}

fn uid(configuration: &Value) -> &str {
    configuration["metadata"]["uid"].as_str().unwrap_or_default()
}

impl ArmingController {
    /// A controller that applies `desired`, with the prober whose probes it follows. `disarmed_reason` receives why
    /// the webhook is disarmed, or `None` while it is armed. `active` is whether this replica writes the
    /// configuration. With `disarmed` there are never rules.
    pub fn new(
        api: ConfigurationApi,
        probe: Probe,
        desired: watch::Receiver<Desired>,
        active: watch::Receiver<bool>,
        disarmed_reason: Arc<watch::Sender<Option<Arc<str>>>>,
        disarmed: bool,
        metrics: Arc<Metrics>,
    ) -> (Self, Prober) {
        let (probe_entry_exists, entry_exists) = watch::channel(false);
        let (prober, probes) = Prober::new(probe, entry_exists, active.clone(), metrics.clone());
        let known = Known::default();
        let controller = Self {
            api,
            desired,
            probes,
            active,
            probe_entry_exists,
            disarmed_reason,
            disarmed,
            metrics,
            known,
        };
        (controller, prober)
    }

    /// Runs until `stop`. Writes nothing before the policies are known, so that the rules of an earlier process stay.
    pub async fn run(&mut self, stop: CancellationToken) {
        if !matches!(stop.run_until_cancelled(self.desired.changed()).await, Some(Ok(()))) {
            return;
        }
        self.read_owner().await;
        // Finds a break glass that was set before the start.
        self.read().await;
        let mut polls = interval(POLL_INTERVAL);
        polls.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut was_active = false;
        loop {
            let active = *self.active.borrow_and_update();
            if active != std::mem::replace(&mut was_active, active) {
                self.change_role(active);
            }
            let pause = if !active {
                self.reconcile_as_standby().await
            } else if self.has_taken_over().await {
                self.reconcile().await
            } else {
                Some(RETRY)
            };
            tokio::select! {
                () = stop.cancelled() => return,
                changed = self.desired.changed() => if changed.is_err() { return },
                changed = self.probes.unreachable.changed() => if changed.is_err() { return },
                changed = self.probes.failing.changed() => if changed.is_err() { return },
                changed = self.active.changed() => if changed.is_err() { return },
                () = wait(pause) => {}
                _ = polls.tick() => drop(self.read().await),
            }
        }
    }

    /// Applies the desired configuration if it differs. Returns when to reconcile again.
    async fn reconcile(&mut self) -> Option<Duration> {
        let desired = self.desired.borrow_and_update().clone();
        let unreachable = self.probes.unreachable();
        let (known, now) = (&mut self.known, clock::now());
        let is_fresh = std::mem::take(&mut known.is_fresh);
        if known.break_glass.expire(now) {
            known.applied = None;
        }
        let state =
            armed_state(&desired.namespaces, unreachable.as_deref(), &known.break_glass, self.disarmed, now);
        if let Some(left) = known.break_glass.time_to_recreation(now) {
            self.probe_entry_exists.send_replace(false);
            self.report(&state);
            return Some(left);
        }
        let namespaces = state.clone().unwrap_or(NamespaceSelection::None);
        let desired = Desired { namespaces, ..desired };
        let object = desired.object(known.owner.as_ref());
        let applied = known.applied.as_ref().filter(|_| !known.drifted);
        if applied.is_some_and(|applied| applied.object == object) {
            known.limiter.record_synced();
            self.report(&state);
            return None;
        }
        let change = known.change(&desired, &state);
        if let Some(delay) = known.limiter.delay(change, now) {
            return Some(delay);
        }
        if state.is_ok() && !is_fresh {
            // Another replica may have just removed the rules. They must not come back without new probes.
            self.known.is_fresh = self.read().await;
            return Some(if self.known.is_fresh { Duration::ZERO } else { RETRY });
        }
        self.apply(desired, object, &state).await
    }

    async fn apply(&mut self, desired: Desired, object: Value, state: &ArmedState) -> Option<Duration> {
        let (timeout, retry) = if state.is_err() { (DISARM_TIMEOUT, DISARM_RETRY) } else { (TIMEOUT, RETRY) };
        let known = &mut self.known;
        let uid = known.applied.as_ref().map(|applied| applied.uid.as_str());
        match self.api.apply(&object, uid, timeout).await {
            Ok(stored) => {
                known.live = Some(stored.clone());
                known.applied = Some(Applied::new(desired.namespaces, object, stored));
                known.limiter.record_write(clock::now());
                self.metrics.configuration_write();
                self.api.acknowledge(desired.client);
                (known.drifted, known.failure) = (false, None);
                self.probe_entry_exists.send_replace(true);
                self.report(state);
                None
            }
            Err(ApplyError::Replaced) => {
                self.read().await;
                Some(DISARM_RETRY)
            }
            Err(ApplyError::Failed(error)) => {
                if known.failure.as_ref() != Some(&error) {
                    warn!(%error, "cannot write the webhook configuration, retrying");
                    known.failure = Some(error);
                }
                Some(retry)
            }
        }
    }

    /// Removes the rules at shutdown, with retries. Rules without a webhook would cost each Event write a refused
    /// connection.
    pub async fn disarm(&mut self) {
        if self.known.break_glass.time_to_recreation(clock::now()).is_some() {
            // An apply without a known uid would create a deleted configuration again.
            self.read().await;
            if self.known.break_glass.time_to_recreation(clock::now()).is_some() {
                return info!("webhook configuration does not exist, nothing to disarm");
            }
        }
        let last = Desired { namespaces: NamespaceSelection::None, ..self.desired.borrow().clone() };
        let object = last.object(self.known.owner.as_ref());
        let mut known_uid = self.known.applied.as_ref().map(|applied| applied.uid.clone());
        for attempt in 1..=SHUTDOWN_ATTEMPTS {
            match self.api.apply(&object, known_uid.as_deref(), TIMEOUT).await {
                Ok(stored) => {
                    if self.disarmed_reason.borrow().is_none() {
                        let note = "squelch shuts down. All Events are stored as written.".to_owned();
                        self.api.announce(uid(&stored), false, false, note);
                    }
                    return info!("webhook disarmed for the shutdown");
                }
                Err(ApplyError::Replaced) => match self.api.read().await {
                    Ok(None) => return info!("webhook configuration does not exist, nothing to disarm"),
                    Ok(Some(live)) => known_uid = Some(uid(&live).to_owned()),
                    Err(error) => warn!(%error, attempt, "cannot read the webhook configuration"),
                },
                Err(ApplyError::Failed(error)) => {
                    warn!(%error, attempt, "cannot disarm the webhook");
                }
            }
        }
        error!(
            "cannot disarm the webhook, the API server still stores all Events (failurePolicy Ignore), remove the rules \
             with `kubectl delete mutatingwebhookconfiguration squelch`"
        );
    }
}

/// Sleeps for `pause`, or forever without one.
async fn wait(pause: Option<Duration>) {
    match pause {
        Some(pause) => sleep(pause).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
