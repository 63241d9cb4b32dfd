//! What is told of the rules: by metrics, to the policies, and in words what is new.

use tracing::{info, warn};

use super::Keeper;
use crate::arming::configuration::Reach;
use crate::arming::standing::Unarmed;

impl Keeper {
    /// Tells whether the rules are in force, and why not, to all who want to know; in words only what is new.
    pub(super) fn tell(&mut self, standing: &Result<Reach, Unarmed>) {
        self.metrics.armed(standing.is_ok());
        self.metrics.break_glass(standing.as_ref().is_err_and(Unarmed::is_break_glass));
        let told = self.state.told.replace(standing.clone());
        let about = self.state.written.as_ref().map(|written| written.uid.as_str()).unwrap_or_default();
        if matches!((&told, standing), (Some(Err(told)), Err(why)) if told.is_like(why)) {
            return;
        }
        let why = standing.as_ref().err().map(Unarmed::to_policies);
        self.unarmed.send_if_modified(|held| std::mem::replace(held, why.clone()) != why);
        match (&told, standing) {
            (Some(told), standing) if told == standing => {}
            (_, Ok(reach)) => {
                info!(reach = %described(reach), "the webhook is armed");
                if !matches!(told, Some(Ok(_))) {
                    let note = format!("Event writes in {} are sent to squelch.", described(reach));
                    self.arming.announce(about, true, false, note);
                }
            }
            (_, Err(why)) => {
                let was_armed = matches!(told, Some(Ok(_)));
                if was_armed && why.is_trouble() {
                    warn!(%why, "the webhook is disarmed");
                } else {
                    info!(%why, "the webhook is not armed");
                }
                // What a person wants is news where nothing was armed, too. What stood there before this process was told
                // by the one before; its own flag nobody else has told.
                let wanted = why.is_break_glass() && (told.is_some() || *why == Unarmed::Unenforced);
                if was_armed || wanted {
                    self.arming.announce(about, false, why.is_trouble(), why.to_string());
                }
            }
        }
    }
}

fn described(reach: &Reach) -> String {
    match reach {
        Reach::Nothing => "no namespace".to_owned(),
        Reach::Named(namespaces) if namespaces.len() == 1 => "1 namespace".to_owned(),
        Reach::Named(namespaces) => format!("{} namespaces", namespaces.len()),
        Reach::Everything => "all namespaces".to_owned(),
    }
}
