//! Keeps the webhook configuration as the policies, the probes and a person want it. The active replica writes it. A
//! standby only removes rules that hold up Event writes.

mod drift;
mod report;
mod shutdown;
mod standby;

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use serde_json::Value;
use squelch_engine::Moment;
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::additions::Additions;
use super::configuration::{Desired, EVENTS_ENTRY, OwnerRole, as_stored, has_rules};
use super::configuration_api::{ApplyError, ConfigurationApi, Precondition};
use super::probe::{FailingServers, ProbeStatus, Prober, Probing};
use super::rearming::Rearming;
use super::state::{ArmedState, BreakGlass, DisarmedReason, armed_state};
use super::write_limiter::{ConfigurationChange, RestoreBackoff, WriteLimiter};
use crate::clock;
use crate::metrics::{Metrics, WatchedResource};
use crate::policy::{Armed, WebhookScope};

/// The time after which a failed write is retried.
const RETRY: Duration = Duration::from_secs(1);
/// The same for a write that removes rules.
const DISARM_RETRY: Duration = Duration::from_millis(250);
/// Timeout of a write.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Timeout of a write that removes rules. Each Event write may wait for it.
const DISARM_TIMEOUT: Duration = Duration::from_secs(1);

/// How often the configuration is read while it does not exist, and by a standby while probes fail.
const READ_INTERVAL: Duration = Duration::from_secs(2);

/// The controller of the webhook configuration.
pub struct ArmingController {
    api: ConfigurationApi,
    desired: watch::Receiver<Desired>,
    probes: ProbeStatus,
    active: watch::Receiver<bool>,
    probe_entry_exists: watch::Sender<bool>,
    armed: Arc<watch::Sender<Armed>>,
    /// Which API servers do not reach the armed webhook.
    note: watch::Sender<Option<Arc<str>>>,
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
    /// The fields of what was applied that another writer has changed.
    drift: Vec<String>,
    /// What other writers have added, which stays.
    additions: Additions,
    /// The last write, if it failed: the API server may have stored it.
    unanswered: Option<(Desired, Value)>,
    /// The same for the write of a standby that removes the rules.
    unanswered_disarm: Option<Value>,
    /// When another writer's change of what is sent to squelch was last in force.
    contested: Option<Moment>,
    /// Whether it may have changed since it was read.
    outdated: bool,
    /// Whether it was just read and may be armed.
    is_fresh: bool,
    /// Whether it has to be read, because this replica has become active.
    must_read: bool,
    /// When this replica became active or standby.
    role_since: Moment,
    /// The entries that squelch has not written.
    foreign_entries: Vec<String>,
    limiter: WriteLimiter,
    rearming: Rearming,
    restores: RestoreBackoff,
    break_glass: BreakGlass,
    owner: Option<OwnerRole>,
    /// The last reported armed state, and the API servers that did not reach the armed webhook then.
    reported: Option<ArmedState>,
    tolerated: Option<FailingServers>,
    /// The last logged error.
    failure: Option<String>,
}

/// A configuration that this replica has applied.
struct Applied {
    uid: String,
    scope: WebhookScope,
    /// Without the additions of other writers.
    own: Value,
    /// The same as the API server stored it.
    stored: Value,
}

impl Applied {
    fn new(scope: WebhookScope, own: Value, stored: &Value) -> Self {
        Self { uid: uid(stored).to_owned(), scope, stored: as_stored(&own, stored), own }
    }
}

impl Known {
    /// Returns what a write of `desired` would change. `is_reached`: the API servers reach the webhook.
    fn change(&self, desired: &Desired, state: &ArmedState, is_reached: bool) -> ConfigurationChange {
        if state.as_ref().is_err_and(|reason| *reason != DisarmedReason::NoPolicy || !is_reached) {
            return ConfigurationChange::Disarm;
        }
        let Some(applied) = self.applied.as_ref().filter(|_| self.drift.is_empty()) else {
            return ConfigurationChange::Other;
        };
        let as_wide = Desired { scope: applied.scope.clone(), ..desired.clone() };
        let differs_in_scope_only = as_wide.object(self.owner.as_ref()) == applied.own;
        if differs_in_scope_only && desired.scope.is_subset_of(&applied.scope) {
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
    /// A controller that applies `desired`, with the prober whose probes it follows. `armed` receives the writes for which
    /// there are rules, or why there are none. `active` is whether this replica writes the configuration. With
    /// `disarmed` there are never rules.
    pub fn new(
        api: ConfigurationApi,
        probing: Probing,
        desired: watch::Receiver<Desired>,
        active: watch::Receiver<bool>,
        armed: Arc<watch::Sender<Armed>>,
        disarmed: bool,
        metrics: Arc<Metrics>,
    ) -> (Self, Prober) {
        let (probe_entry_exists, entry_exists) = watch::channel(false);
        let (prober, probes) = Prober::new(probing, entry_exists, active.clone(), metrics.clone());
        let known = Known::default();
        let controller = Self {
            api,
            desired,
            probes,
            active,
            probe_entry_exists,
            armed,
            note: watch::Sender::new(None),
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
        let metrics = self.metrics.clone();
        let responded = move || metrics.watch_response(WatchedResource::WebhookConfiguration, clock::wall());
        let mut changes = self.api.changes(responded);
        let mut was_active = false;
        loop {
            let active = *self.active.borrow_and_update();
            if active != std::mem::replace(&mut was_active, active) {
                self.change_role(active);
            }
            let mut pause = if !active {
                self.reconcile_as_standby().await
            } else if self.has_taken_over().await {
                self.reconcile().await
            } else {
                Some(RETRY)
            };
            if self.known.outdated {
                if self.read().await {
                    continue;
                }
                pause = Some(pause.unwrap_or(RETRY).min(RETRY));
            }
            tokio::select! {
                () = stop.cancelled() => return,
                changed = self.desired.changed() => if changed.is_err() { return },
                changed = self.probes.unreachable.changed() => if changed.is_err() { return },
                changed = self.probes.failing.changed() => if changed.is_err() { return },
                changed = self.probes.tolerated.changed() => if changed.is_err() { return },
                changed = self.active.changed() => if changed.is_err() { return },
                // A ClusterRole that is installed again ends a deletion.
                () = wait(pause) => self.known.outdated |= self.known.break_glass.is_deleted(),
                Some(change) = changes.next() => self.record_change(&change),
            }
        }
    }

    /// Applies the desired configuration if it differs. Returns when to reconcile again.
    async fn reconcile(&mut self) -> Option<Duration> {
        let desired = self.desired.borrow_and_update().clone();
        let unreachable = self.probes.unreachable().map(|failing| {
            let message = self.with_probe_additions(failing.message);
            FailingServers { message, ..failing }
        });
        let (known, now, is_reached) = (&mut self.known, clock::now(), unreachable.is_none());
        let is_fresh = std::mem::take(&mut known.is_fresh);
        if known.break_glass.expire(now) {
            known.applied = None;
        }
        let state = armed_state(&desired.scope, unreachable, &known.break_glass, self.disarmed, now);
        let (state, wait) = known.after_wait(state, now);
        if let Some(left) = known.break_glass.time_to_recreation(now) {
            self.probe_entry_exists.send_replace(false);
            self.report(&state);
            return Some(left.min(READ_INTERVAL));
        }
        let scope = state.clone().unwrap_or_else(|_| WebhookScope::none());
        let desired = Desired { scope, ..desired };
        let own = desired.object(known.owner.as_ref());
        // A write without an answer may have stored other rules than those applied.
        let is_certain = known.unanswered.is_none();
        let is_unchanged = is_certain && known.applied.as_ref().is_some_and(|applied| applied.own == own);
        if is_unchanged && known.drift.is_empty() {
            known.limiter.record_synced();
            self.report(&state);
            return wait.into_iter().chain(self.known.settling(now)).min();
        }
        let change = known.change(&desired, &state, is_reached);
        let removes_rules =
            change == ConfigurationChange::Disarm && has_rules(known.live.as_ref(), EVENTS_ENTRY);
        let restore = if is_unchanged { known.restores.delay(removes_rules, now) } else { None };
        if let Some(delay) = known.limiter.delay(change, now).max(restore) {
            self.report_contested();
            if is_unchanged && state.is_err() {
                self.report(&state);
            }
            return wait.into_iter().chain([delay]).min();
        }
        if (state.is_ok() || is_unchanged && !removes_rules) && !is_fresh {
            // Another replica may have just removed the rules. They must not come back without new probes. A restore
            // must carry the current additions of other writers.
            self.known.is_fresh = self.read().await;
            return Some(if self.known.is_fresh { Duration::ZERO } else { RETRY });
        }
        self.apply(desired, own, &state, is_fresh, removes_rules).await.or(wait)
    }

    async fn apply(
        &mut self,
        desired: Desired,
        own: Value,
        state: &ArmedState,
        is_fresh: bool,
        removes_rules: bool,
    ) -> Option<Duration> {
        let (timeout, retry) = if state.is_err() { (DISARM_TIMEOUT, DISARM_RETRY) } else { (TIMEOUT, RETRY) };
        let known = &mut self.known;
        let mut object = own.clone();
        known.additions.carry(&mut object);
        // Removing the rules does not wait for a read.
        let version = known.live.as_ref().filter(|_| is_fresh).and_then(version);
        let required = Precondition { uid: known.applied.as_ref().map(|applied| &*applied.uid), version };
        // The API server may use the new rules before its answer arrives.
        if state.is_ok() {
            narrow(&self.armed, &desired.scope);
        }
        match self.api.apply(&object, required, timeout).await {
            Ok(stored) => {
                self.record_restore(&own, removes_rules);
                self.known.unanswered = None;
                self.known.limiter.record_write(clock::now());
                self.record_write(desired, own, &stored);
                self.known.failure = None;
                self.record_live(stored);
                self.report(state);
                self.known.settling(clock::now())
            }
            Err(ApplyError::Outdated) => {
                self.read().await;
                Some(DISARM_RETRY)
            }
            Err(ApplyError::Failed(error)) => {
                if known.failure.as_ref() != Some(&error) {
                    warn!(%error, "cannot write the webhook configuration, retrying");
                    known.failure = Some(error);
                }
                known.unanswered = Some((desired, own));
                self.report_contested();
                Some(retry)
            }
        }
    }
}

/// Reports no more writes as sent to squelch than `scope` contains.
fn narrow(armed: &watch::Sender<Armed>, scope: &WebhookScope) {
    armed.send_if_modified(|sent| {
        let Ok(before) = sent else { return false };
        let common = before.common(scope);
        let is_less = common != *before;
        *before = common;
        is_less
    });
}

fn version(configuration: &Value) -> Option<&str> {
    configuration["metadata"]["resourceVersion"].as_str()
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
