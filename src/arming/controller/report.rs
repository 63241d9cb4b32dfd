//! Reports the armed state: by metrics, to the policies, and its changes in logs and Events.

use std::sync::Arc;
use std::time::Duration;

use squelch_engine::Moment;
use tokio::sync::watch;
use tracing::{info, warn};

use super::{ArmingController, Known};
use crate::arming::configuration::EVENTS_ENTRY;
use crate::arming::state::{ArmedState, DisarmedReason, tolerated_message};
use crate::clock;
use crate::metrics::ArmTransition;
use crate::policy::{Armed, NamespaceSelection};

/// How long a configuration that another writer has contested must stay as squelch wrote it.
const SETTLED: Duration = Duration::from_secs(10);

impl ArmingController {
    /// Reports the armed state. Logs and Events report changes only.
    pub(super) fn report(&mut self, state: &ArmedState) {
        self.metrics.armed(state.is_ok());
        self.metrics.break_glass(state.as_ref().is_err_and(DisarmedReason::is_break_glass));
        let last = self.known.reported.replace(state.clone());
        self.record_transition(last.as_ref(), state);
        self.report_tolerated(state);
        let uid = self.known.applied.as_ref().map(|applied| applied.uid.as_str()).unwrap_or_default();
        if matches!((&last, state), (Some(Err(last)), Err(reason)) if last.is_same(reason)) {
            return;
        }
        let armed = state.clone().map_err(|reason| reason.policy_message());
        let is_settling = state.is_ok() && self.known.settling(clock::now()).is_some();
        self.armed.send_if_modified(|sent| !is_settling && std::mem::replace(sent, armed.clone()) != armed);
        match (&last, state) {
            (Some(last), state) if last == state => {}
            (_, Ok(scope)) => {
                let namespaces = described(&scope.namespaces);
                let last = last.and_then(Result::ok);
                if last.as_ref().is_none_or(|last| last.namespaces != scope.namespaces) {
                    info!(%namespaces, "webhook armed");
                }
                if last.is_none() {
                    let note = format!("Event writes in {namespaces} are sent to squelch.");
                    self.api.announce(uid, true, false, note);
                }
            }
            (_, Err(reason)) => {
                let was_armed = matches!(last, Some(Ok(_)));
                if was_armed && reason.is_fault() {
                    warn!(%reason, "webhook disarmed");
                } else {
                    info!(%reason, "webhook not armed");
                }
                // A break glass is reported although the webhook was not armed. One that was set before this process
                // started has been reported by the earlier process, except for the flag of this process.
                let is_new_break_glass =
                    reason.is_break_glass() && (last.is_some() || *reason == DisarmedReason::Flag);
                if was_armed || is_new_break_glass {
                    self.api.announce(uid, false, reason.is_fault(), reason.to_string());
                }
            }
        }
    }
}

/// Whether a field of the configuration decides which Event writes are sent to squelch. Excluded namespaces are reported as
/// `ExcludedByPlatform`.
fn selects_writes(field: &str) -> bool {
    let Some(of_entry) = field.strip_prefix(EVENTS_ENTRY) else { return false };
    ["", ": clientConfig", ": matchConditions", ": matchPolicy", ": rules"].contains(&of_entry)
}

impl Known {
    /// Whether the last reported state is armed.
    pub(super) fn is_armed(&self) -> bool {
        matches!(self.reported, Some(Ok(_)))
    }

    /// Returns how long a restored configuration must stay as it is until policies are in force again. Otherwise their statuses
    /// would change with each restore.
    pub(super) fn settling(&self, now: Moment) -> Option<Duration> {
        let left = SETTLED.saturating_sub(now.since(self.contested?));
        (!left.is_zero()).then_some(left)
    }

    /// Delays the arming after a disarming. Returns the time until then, too.
    pub(super) fn after_wait(&self, state: ArmedState, now: Moment) -> (ArmedState, Option<Duration>) {
        match self.rearming.delay(now).filter(|_| state.is_ok() && !self.is_armed()) {
            Some(left) => (Err(DisarmedReason::Waiting(self.rearming.wait())), Some(left)),
            None => (state, None),
        }
    }
}

impl ArmingController {
    /// Reports that no policy is in force, if another writer has changed what decides which writes are sent to squelch.
    pub(super) fn report_contested(&mut self) {
        let fields: Vec<_> =
            { self.known.drift.iter() }.map(String::as_str).filter(|field| selects_writes(field)).collect();
        if fields.is_empty() || !self.known.is_armed() {
            return;
        }
        let contested: Armed = Err(format!(
            "Its rules are not those of squelch for now: another writer has changed {}. squelch restores them, with \
             increasing delays if they are changed again.",
            fields.join(", ")
        )
        .into());
        self.armed.send_if_modified(|sent| std::mem::replace(sent, contested.clone()) != contested);
        self.known.contested = Some(clock::now());
    }

    /// Returns which API servers do not reach the armed webhook, in a sentence for the policies. `None` if all do.
    pub fn note(&self) -> watch::Receiver<Option<Arc<str>>> {
        self.note.subscribe()
    }

    /// Records that the rules were written or removed, unless the reason is that policies come or go.
    fn record_transition(&mut self, last: Option<&ArmedState>, state: &ArmedState) {
        let without_policy = |state: &ArmedState| *state == Err(DisarmedReason::NoPolicy);
        if last.is_some_and(without_policy) || without_policy(state) {
            return;
        }
        match (last.is_some_and(Result::is_ok), state.is_ok()) {
            (false, true) => self.metrics.arm_transition(ArmTransition::Armed),
            (true, false) => {
                self.metrics.arm_transition(ArmTransition::Disarmed);
                self.known.rearming.record_disarmed(clock::now());
            }
            _ => {}
        }
    }

    /// Reports the API servers that do not reach the webhook while it is armed.
    fn report_tolerated(&mut self, state: &ArmedState) {
        let tolerated = self.probes.tolerated.borrow_and_update().clone().filter(|_| state.is_ok());
        let is_same = match (&self.known.tolerated, &tolerated) {
            (Some(last), Some(failures)) => last.api_servers == failures.api_servers,
            (last, failures) => last == failures,
        };
        if is_same {
            return;
        }
        match &tolerated {
            Some(failures) => {
                warn!(failures = failures.message, "API servers do not reach the webhook, others do");
                let uid = self.known.applied.as_ref().map(|applied| applied.uid.as_str()).unwrap_or_default();
                self.api.announce_failing(uid, tolerated_message(failures).to_string());
            }
            None if state.is_ok() => info!("all API servers reach the webhook again"),
            None => {}
        }
        self.note.send_replace(tolerated.as_ref().map(tolerated_message));
        self.known.tolerated = tolerated;
    }
}

fn described(selection: &NamespaceSelection) -> String {
    match selection {
        NamespaceSelection::None => "no namespace".to_owned(),
        NamespaceSelection::Named(namespaces) if namespaces.len() == 1 => "1 namespace".to_owned(),
        NamespaceSelection::Named(namespaces) => format!("{} namespaces", namespaces.len()),
        NamespaceSelection::All => "all namespaces".to_owned(),
    }
}
