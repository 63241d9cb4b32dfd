//! Reports the armed state: by metrics, to the policies, and its changes in logs and Events.

use tracing::{info, warn};

use super::ArmingController;
use crate::arming::configuration::NamespaceSelection;
use crate::arming::state::{ArmedState, DisarmedReason};

impl ArmingController {
    /// Reports the armed state. Logs and Events report changes only.
    pub(super) fn report(&mut self, state: &ArmedState) {
        self.metrics.armed(state.is_ok());
        self.metrics.break_glass(state.as_ref().is_err_and(DisarmedReason::is_break_glass));
        let last = self.known.reported.replace(state.clone());
        let uid = self.known.applied.as_ref().map(|applied| applied.uid.as_str()).unwrap_or_default();
        if matches!((&last, state), (Some(Err(last)), Err(reason)) if last.is_same(reason)) {
            return;
        }
        let message = state.as_ref().err().map(DisarmedReason::policy_message);
        self.disarmed_reason.send_if_modified(|sent| std::mem::replace(sent, message.clone()) != message);
        match (&last, state) {
            (Some(last), state) if last == state => {}
            (_, Ok(selection)) => {
                let namespaces = described(selection);
                info!(%namespaces, "webhook armed");
                if !matches!(last, Some(Ok(_))) {
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

fn described(selection: &NamespaceSelection) -> String {
    match selection {
        NamespaceSelection::None => "no namespace".to_owned(),
        NamespaceSelection::Named(namespaces) if namespaces.len() == 1 => "1 namespace".to_owned(),
        NamespaceSelection::Named(namespaces) => format!("{} namespaces", namespaces.len()),
        NamespaceSelection::All => "all namespaces".to_owned(),
    }
}
