//! The controller of a standby. It never arms. It removes the rules if probes fail and the active replica does not do
//! so, because it is frozen or cut off.

use std::time::Duration;

use serde_json::Value;
use tracing::{info, warn};

use super::{ArmingController, DISARM_RETRY, DISARM_TIMEOUT, READ_INTERVAL, uid, version};
use crate::arming::additions::selects_names;
use crate::arming::configuration::{EVENTS_ENTRY, PROBE_ENTRY, differences, has_rules};
use crate::arming::configuration_api::{ApplyError, Precondition};
use crate::arming::state::BreakGlass;
use crate::clock;
use crate::metrics::ArmTransition;
use crate::policy::WebhookScope;

/// How long the rules of a former process stay without a probe that succeeds or fails. The first three take half a second.
const FIRST_PROBES: Duration = Duration::from_secs(5);

impl ArmingController {
    /// Discards what is known when this replica becomes active or standby.
    pub(super) fn change_role(&mut self, active: bool) {
        let known = &mut self.known;
        (known.applied, known.reported, known.must_read) = (None, None, active);
        known.role_since = clock::now();
        known.drift.clear();
        if active {
            known.rearming.record_takeover(clock::now());
        }
    }

    /// Reads the configuration of the former active replica. Returns false while that fails. Then nothing is written,
    /// because an API server that restarts must not cost the rules. Failing probes end the wait.
    pub(super) async fn has_taken_over(&mut self) -> bool {
        if !self.known.must_read {
            return true;
        }
        if !self.read().await {
            // There may be rules that no probe covers yet.
            self.probe_entry_exists.send_if_modified(|exists| !std::mem::replace(exists, true));
            return *self.probes.failing.borrow_and_update();
        }
        if !has_rules(self.known.live.as_ref(), EVENTS_ENTRY) {
            // Another replica may have removed them for a reason that the probes of this one have not shown.
            self.probes.reset();
        } else if self.probes.unreachable().is_none() {
            // The rules stay in force, so no change is reported.
            self.known.reported = Some(Ok(WebhookScope::none()));
        } else if self.awaits_first_probes() {
            self.probe_entry_exists.send_if_modified(|exists| !std::mem::replace(exists, true));
            return false;
        }
        self.known.must_read = false;
        true
    }

    /// Whether the rules of a former process stay, because no probe of this one has ended yet. Nobody asks to remove them.
    fn awaits_first_probes(&mut self) -> bool {
        let known = &self.known;
        !*self.probes.failing.borrow_and_update()
            && !self.disarmed
            && known.break_glass == BreakGlass::Off
            && clock::now().since(known.role_since) < FIRST_PROBES
    }

    /// Removes the rules if probes fail. Returns when to reconcile again.
    pub(super) async fn reconcile_as_standby(&mut self) -> Option<Duration> {
        self.desired.mark_unchanged();
        self.probes.unreachable.mark_unchanged();
        let failing = *self.probes.failing.borrow_and_update();
        self.probe_entry_exists.send_if_modified(|exists| {
            let has_entry = has_rules(self.known.live.as_ref(), PROBE_ENTRY);
            std::mem::replace(exists, has_entry) != has_entry
        });
        self.show_metrics();
        if !failing {
            return None;
        }
        // The active replica may have removed them since. The watch may fail with the probes.
        self.read().await;
        let unanswered = self.known.unanswered_disarm.take();
        let Some(live) = self.known.live.clone() else { return Some(READ_INTERVAL) };
        if !has_rules(Some(&live), EVENTS_ENTRY) {
            if unanswered.as_ref().is_some_and(|object| differences(object, &live).is_empty()) {
                self.record_disarmed(live);
            }
            return Some(READ_INTERVAL);
        }
        let object = self.desired.borrow().disarmed(self.known.owner.as_ref(), &live);
        // The active replica may have removed them in this moment, and selects other namespaces then.
        let required = Precondition { uid: Some(uid(&live)), version: version(&live) };
        match self.api.apply(&object, required, DISARM_TIMEOUT).await {
            Ok(stored) => {
                self.record_disarmed(stored);
                None
            }
            Err(ApplyError::Outdated) => {
                info!("webhook configuration was changed, reading it again");
                // The API server may have been late to store it.
                self.known.unanswered_disarm = unanswered;
                Some(DISARM_RETRY)
            }
            Err(ApplyError::Failed(error)) => {
                if self.known.failure.as_ref() != Some(&error) {
                    warn!(%error, "cannot disarm the webhook, retrying");
                    self.known.failure = Some(error);
                }
                // For all namespaces the active replica writes the same.
                self.known.unanswered_disarm = selects_names(&object, EVENTS_ENTRY).then_some(object);
                Some(DISARM_RETRY)
            }
        }
    }

    /// Reports that this standby has removed the rules.
    fn record_disarmed(&mut self, stored: Value) {
        self.metrics.arm_transition(ArmTransition::Disarmed);
        self.known.rearming.record_disarmed(clock::now());
        let reason = self.probes.unreachable.borrow().clone().unwrap_or_default().message;
        let note = format!(
            "A standby has removed the rules, because probes of the active replica's webhook fail: {reason}. All Events \
             are stored as written."
        );
        warn!(reason, "probes of the active replica's webhook fail, webhook disarmed by this standby");
        self.api.announce(uid(&stored), false, true, note);
        (self.known.live, self.known.failure) = (Some(stored), None);
        self.show_metrics();
    }

    fn show_metrics(&self) {
        let armed = has_rules(self.known.live.as_ref(), EVENTS_ENTRY);
        self.metrics.armed(armed);
        // During a rollout, the active replica may run without --disarm.
        self.metrics.break_glass(self.known.break_glass != BreakGlass::Off || self.disarmed && !armed);
    }
}
