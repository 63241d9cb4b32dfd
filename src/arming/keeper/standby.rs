//! The configuration as a replica keeps it that is not the active one: it never arms, and takes the rules away for an
//! active one that cannot, because it is frozen or nobody reaches it.

use std::time::Duration;

use tracing::{info, warn};

use super::{DISARM_DEADLINE, DISARM_PAUSE, Keeper, uid};
use crate::arming::configuration::{EVENTS, PROBE, Reach, has_rules};
use crate::arming::standing::BreakGlass;
use crate::arming::writer::Unwritten;

impl Keeper {
    /// This replica becomes the active one, or is so no more.
    pub(super) fn change_sides(&mut self, active: bool) {
        let state = &mut self.state;
        (state.written, state.edited, state.told, state.unread) = (None, false, None, active);
    }

    /// Reads what the active replica before this one has left. False while that fails: then nothing is written, unless
    /// the webhook does not answer, since an API server that comes back must not cost rules that are in force.
    pub(super) async fn has_taken_over(&mut self) -> bool {
        if !self.state.unread {
            return true;
        }
        if !self.look().await {
            // Rules may be there that nobody probes yet.
            self.asks.send_if_modified(|asks| !std::mem::replace(asks, true));
            return *self.proofs.missing.borrow_and_update();
        }
        self.state.unread = false;
        if !has_rules(self.state.live.as_ref(), EVENTS) {
            // Another replica may have taken them away, for a reason that the probes of this one have not shown.
            self.proofs.renew();
        } else if self.proofs.unproven().is_none() {
            // They stay in force, which is no news.
            self.state.told = Some(Ok(Reach::Nothing));
        }
        true
    }

    /// Looks after what the active replica has written; when to come again.
    pub(super) async fn stand_by(&mut self) -> Option<Duration> {
        self.desired.mark_unchanged();
        self.proofs.unproven.mark_unchanged();
        let missing = *self.proofs.missing.borrow_and_update();
        self.asks.send_if_modified(|asks| {
            let there = has_rules(self.state.live.as_ref(), PROBE);
            std::mem::replace(asks, there) != there
        });
        self.show();
        if !missing || !has_rules(self.state.live.as_ref(), EVENTS) {
            return None;
        }
        // The active one may have done it meanwhile.
        self.look().await;
        let live = self.state.live.clone().filter(|live| has_rules(Some(live), EVENTS))?;
        let object = self.desired.borrow().disarmed(self.state.owner.as_ref(), &live);
        match self.arming.apply(&object, Some(uid(&live)), DISARM_DEADLINE).await {
            Ok(stored) => {
                let why = self.proofs.unproven.borrow().clone().unwrap_or_default();
                let note = format!(
                    "The active replica's webhook misses its proofs, and another replica has taken the rules away: \
                     {why}. Event writes pass."
                );
                warn!(why, "the active replica misses its proofs: the webhook's rules are taken away for it");
                self.arming.announce(uid(&stored), false, true, note);
                (self.state.live, self.state.failure) = (Some(stored), None);
                self.show();
                None
            }
            Err(Unwritten::NotThatOne) => {
                info!("the webhook configuration is another than a moment ago");
                Some(DISARM_PAUSE)
            }
            Err(Unwritten::Failed(error)) => {
                if self.state.failure.as_ref() != Some(&error) {
                    warn!(%error, "the webhook's rules could not be taken away; trying again");
                    self.state.failure = Some(error);
                }
                Some(DISARM_PAUSE)
            }
        }
    }

    fn show(&self) {
        let armed = has_rules(self.state.live.as_ref(), EVENTS);
        self.metrics.armed(armed);
        // While pods are replaced one by one, the active one may have another flag.
        self.metrics.break_glass(self.state.glass != BreakGlass::Whole || !self.enforce && !armed);
    }
}
