//! Keeps the configuration as it should be: by the policies, by the proof, by what a person wants. The active replica
//! writes it; the others see to it that it holds nobody up.

mod others;
mod standby;
mod telling;

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, sleep};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::configuration::{Desired, Owner, Reach};
use super::pace::{Change, Pace};
use super::probe::Probe;
use super::proving::{Proofs, Proving};
use super::standing::{BreakGlass, Unarmed, in_force};
use super::writer::{Arming, Unwritten};
use crate::clock;
use crate::metrics::Metrics;

/// A write that failed is tried again after this long.
const PAUSE: Duration = Duration::from_secs(1);
/// The same of one that takes rules away.
const DISARM_PAUSE: Duration = Duration::from_millis(250);
/// A write without an answer after this long is tried again.
const DEADLINE: Duration = Duration::from_secs(2);
/// The same of one that takes rules away, for which every Event write may wait.
const DISARM_DEADLINE: Duration = Duration::from_secs(1);
/// How often it is looked whether somebody has changed the configuration.
const LOOK: Duration = Duration::from_secs(2);
/// How often it is tried to take the rules away when squelch ends.
const LAST_ATTEMPTS: usize = 3;

/// Keeps the configuration.
pub struct Keeper {
    arming: Arming,
    desired: watch::Receiver<Desired>,
    proofs: Proofs,
    active: watch::Receiver<bool>,
    asks: watch::Sender<bool>,
    unarmed: Arc<watch::Sender<Option<Arc<str>>>>,
    /// False: the break glass `--enforce=false`.
    enforce: bool,
    metrics: Arc<Metrics>,
    state: State,
}

/// What it knows of the configuration.
#[derive(Default)]
struct State {
    /// What stood there at the last look.
    live: Option<Value>,
    written: Option<Written>,
    /// Somebody has changed what was written.
    edited: bool,
    /// It was read a moment ago, and may be written.
    looked: bool,
    /// It was not read yet since this replica has become the active one.
    unread: bool,
    /// The entries that squelch has not written.
    foreign: Vec<String>,
    pace: Pace,
    glass: BreakGlass,
    owner: Option<Owner>,
    /// What was told last of the rules.
    told: Option<Result<Reach, Unarmed>>,
    /// What the last call failed of, which is told once.
    failure: Option<String>,
}

struct Written {
    uid: String,
    reach: Reach,
    object: Value,
    /// As the API server had it then: others may change what anybody writes, each time, on its way there.
    stored: Value,
}

impl Written {
    fn new(reach: Reach, object: Value, stored: Value) -> Self {
        Self { uid: uid(&stored).to_owned(), reach, object, stored }
    }
}

impl State {
    /// What a write of `desired` would change.
    fn change(&self, desired: &Desired, standing: &Result<Reach, Unarmed>) -> Change {
        if standing.as_ref().is_err_and(|why| *why != Unarmed::NoPolicy) {
            return Change::Disarms;
        }
        let Some(written) = self.written.as_ref().filter(|_| !self.edited) else { return Change::Other };
        let as_wide = Desired { reach: written.reach.clone(), ..desired.clone() };
        let same = as_wide.object(self.owner.as_ref()) == written.object;
        if same && desired.reach.is_within(&written.reach) { Change::Narrows } else { Change::Other }
    }
}

fn uid(configuration: &Value) -> &str {
    configuration["metadata"]["uid"].as_str().unwrap_or_default()
}

impl Keeper {
    /// One that follows `desired`, and the proofs that `probe` asks for. `unarmed` hears why the API server asks squelch
    /// about no write, in a sentence, or nothing while it asks; `active` tells whether it is this replica that writes it.
    /// Without `enforce` there never are rules.
    pub fn new(
        arming: Arming,
        probe: Probe,
        desired: watch::Receiver<Desired>,
        active: watch::Receiver<bool>,
        unarmed: Arc<watch::Sender<Option<Arc<str>>>>,
        enforce: bool,
        metrics: Arc<Metrics>,
    ) -> (Self, Proving) {
        let (asks, asked) = watch::channel(false);
        let (proving, proofs) = Proving::new(probe, asked, active.clone(), metrics.clone());
        let state = State::default();
        (Self { arming, desired, proofs, active, asks, unarmed, enforce, metrics, state }, proving)
    }

    /// Keeps it until `stop`. Until the policies are known nothing is written: rules that a process before this one
    /// left stay.
    pub async fn run(&mut self, stop: CancellationToken) {
        if !matches!(stop.run_until_cancelled(self.desired.changed()).await, Some(Ok(()))) {
            return;
        }
        self.find_owner().await;
        // What a person wanted of the process before this one, before anything is armed.
        self.look().await;
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut was_active = false;
        loop {
            let active = *self.active.borrow_and_update();
            if active != std::mem::replace(&mut was_active, active) {
                self.change_sides(active);
            }
            let pause = if !active {
                self.stand_by().await
            } else if self.has_taken_over().await {
                self.write().await
            } else {
                Some(PAUSE)
            };
            tokio::select! {
                () = stop.cancelled() => return,
                changed = self.desired.changed() => if changed.is_err() { return },
                changed = self.proofs.unproven.changed() => if changed.is_err() { return },
                changed = self.proofs.missing.changed() => if changed.is_err() { return },
                changed = self.active.changed() => if changed.is_err() { return },
                () = wait(pause) => {}
                _ = looks.tick() => drop(self.look().await),
            }
        }
    }

    /// Writes what should be there unless it is; when to come again.
    async fn write(&mut self) -> Option<Duration> {
        let desired = self.desired.borrow_and_update().clone();
        let unproven = self.proofs.unproven();
        let (state, now) = (&mut self.state, clock::now());
        let looked = std::mem::take(&mut state.looked);
        if state.glass.ends(now) {
            state.written = None;
        }
        let standing = in_force(&desired.reach, unproven.as_deref(), &state.glass, self.enforce, now);
        if let Some(left) = state.glass.left_away(now) {
            self.asks.send_replace(false);
            self.tell(&standing);
            return Some(left);
        }
        let reach = standing.clone().unwrap_or(Reach::Nothing);
        let desired = Desired { reach, ..desired };
        let object = desired.object(state.owner.as_ref());
        let there = state.written.as_ref().filter(|_| !state.edited);
        if there.is_some_and(|written| written.object == object) {
            state.pace.settle();
            self.tell(&standing);
            return None;
        }
        let change = state.change(&desired, &standing);
        if let Some(wait) = state.pace.wait(change, now) {
            return Some(wait);
        }
        if standing.is_ok() && !looked {
            // Another replica may have taken the rules away a moment ago. They must not come back without new probes.
            self.state.looked = self.look().await;
            return Some(if self.state.looked { Duration::ZERO } else { PAUSE });
        }
        self.apply(desired, object, &standing).await
    }

    async fn apply(
        &mut self,
        desired: Desired,
        object: Value,
        standing: &Result<Reach, Unarmed>,
    ) -> Option<Duration> {
        let (deadline, pause) =
            if standing.is_err() { (DISARM_DEADLINE, DISARM_PAUSE) } else { (DEADLINE, PAUSE) };
        let state = &mut self.state;
        let known = state.written.as_ref().map(|written| written.uid.as_str());
        match self.arming.apply(&object, known, deadline).await {
            Ok(stored) => {
                state.live = Some(stored.clone());
                state.written = Some(Written::new(desired.reach, object, stored));
                state.pace.wrote(clock::now());
                self.metrics.configuration_write();
                self.arming.acknowledge(desired.client);
                (state.edited, state.failure) = (false, None);
                self.asks.send_replace(true);
                self.tell(standing);
                None
            }
            Err(Unwritten::NotThatOne) => {
                self.look().await;
                Some(DISARM_PAUSE)
            }
            Err(Unwritten::Failed(error)) => {
                if state.failure.as_ref() != Some(&error) {
                    warn!(%error, "the webhook configuration could not be written; trying again");
                    state.failure = Some(error);
                }
                Some(pause)
            }
        }
    }

    /// Takes the rules away for good, trying more than once: left behind they cost each Event write a refused
    /// connection.
    pub async fn disarm(&mut self) {
        if self.state.glass.left_away(clock::now()).is_some() {
            // Who took over after somebody deleted it has never written it, and would make it here.
            self.look().await;
            if self.state.glass.left_away(clock::now()).is_some() {
                return info!("the webhook configuration is gone");
            }
        }
        let last = Desired { reach: Reach::Nothing, ..self.desired.borrow().clone() };
        let object = last.object(self.state.owner.as_ref());
        let mut known = self.state.written.as_ref().map(|written| written.uid.clone());
        for attempt in 1..=LAST_ATTEMPTS {
            match self.arming.apply(&object, known.as_deref(), DEADLINE).await {
                Ok(stored) => {
                    if self.unarmed.borrow().is_none() {
                        let note = "squelch ends: Event writes pass as if there were no policy.".to_owned();
                        self.arming.announce(uid(&stored), false, false, note);
                    }
                    return info!("the webhook's rules are taken away");
                }
                Err(Unwritten::NotThatOne) => match self.arming.look().await {
                    Ok(None) => return info!("the webhook configuration is gone"),
                    Ok(Some(live)) => known = Some(uid(&live).to_owned()),
                    Err(error) => warn!(%error, attempt, "the webhook configuration could not be read"),
                },
                Err(Unwritten::Failed(error)) => {
                    warn!(%error, attempt, "the webhook's rules could not be taken away");
                }
            }
        }
        error!(
            "the webhook's rules are still there: Events are written all the same (failurePolicy Ignore); remove \
             them with `kubectl delete mutatingwebhookconfiguration squelch`"
        );
    }
}

/// Waits for `pause`, or for ever if there is none.
async fn wait(pause: Option<Duration>) {
    match pause {
        Some(pause) => sleep(pause).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
