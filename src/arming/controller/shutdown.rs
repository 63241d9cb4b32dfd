//! Removes the rules at shutdown.

use tracing::{error, info, warn};

use super::{ArmingController, TIMEOUT, uid};
use crate::arming::configuration::Desired;
use crate::arming::configuration_api::{ApplyError, Precondition};
use crate::clock;
use crate::policy::WebhookScope;

/// Maximum attempts to remove the rules at shutdown.
const SHUTDOWN_ATTEMPTS: usize = 3;

impl ArmingController {
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
        let last = Desired { scope: WebhookScope::none(), ..self.desired.borrow().clone() };
        let mut object = last.object(self.known.owner.as_ref());
        self.known.additions.carry(&mut object);
        let mut known_uid = self.known.applied.as_ref().map(|applied| applied.uid.clone());
        for attempt in 1..=SHUTDOWN_ATTEMPTS {
            let required = Precondition { uid: known_uid.as_deref(), version: None };
            match self.api.apply(&object, required, TIMEOUT).await {
                Ok(stored) => {
                    if self.known.is_armed() {
                        let note = "squelch shuts down. All Events are stored as written.".to_owned();
                        self.api.announce(uid(&stored), false, false, note);
                    }
                    return info!("webhook disarmed for the shutdown");
                }
                Err(ApplyError::Outdated) => match self.api.read().await {
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
