//! The simulation: each write of the input gets the decision that the webhook would make.

use std::time::Duration;

use jiff::Timestamp;
use squelch_engine::{Api, Engine, Moment, Observation, Operation, Settings};

use super::Error;
use super::decisions::Decisions;
use super::flusher::{Flusher, Presence};
use super::options::ClientBehavior;
use super::policies::Policies;
use super::tally::{StoreEffect, Tally};

/// The key of the engine's hashes. The operator uses a random one, so that hash collisions cannot be crafted; a
/// replay of the same input has to produce the same names.
const SEED: [u64; 2] = [0x7371_7565_6c63_6821, 0x7265_706c_6179_2121];

/// The default of `--max-series`.
const MAX_SERIES: usize = 1_000_000;
/// The default of `--max-pending-series`.
const MAX_PENDING_SERIES: usize = 100_000;

/// Returns an engine that began before every write: the count of a CREATE is taken whole.
pub fn engine() -> Engine {
    Engine::new(Settings {
        seed: SEED,
        max_series: MAX_SERIES,
        max_pending_series: MAX_PENDING_SERIES,
        // The whole second of the first write, where the engine's time begins.
        began: Timestamp::MIN,
    })
}

/// The state of a replay.
pub(super) struct Simulation {
    engine: Engine,
    /// The whole second of the first write. The engine's time begins there, as that of a process begins with it.
    began: Option<Moment>,
    policies: Policies,
    flusher: Flusher,
    clients: ClientBehavior,
    tally: Tally,
    decisions: Option<Decisions>,
}

/// Receives the writes of an input.
pub(super) trait WriteSink {
    /// Returns the user of squelch's own writes.
    fn own_user(&self) -> &str;

    /// From now on clients behave as they would under the policies.
    fn adapt_clients(&mut self);

    /// Processes a write. `bytes` is the length of its Event's JSON.
    fn write(&mut self, now: Moment, write: &Observation<'_>, bytes: u64) -> Result<(), Error>;
}

/// The simulations of the same writes, each with other policies.
pub(super) struct Simulations {
    /// The user of squelch's own writes.
    pub(super) own_user: String,
    pub(super) all: Vec<Simulation>,
}

impl WriteSink for Simulations {
    fn own_user(&self) -> &str {
        &self.own_user
    }

    fn adapt_clients(&mut self) {
        self.all.iter_mut().for_each(|simulation| simulation.clients = ClientBehavior::Adapted);
    }

    fn write(&mut self, now: Moment, write: &Observation<'_>, bytes: u64) -> Result<(), Error> {
        self.all.iter_mut().try_for_each(|simulation| simulation.write(now, write, bytes))
    }
}

impl Simulation {
    pub(super) fn new(policies: Policies, clients: ClientBehavior, decisions: Option<Decisions>) -> Self {
        let engine = engine();
        engine.revise(&policies.known_policies(), Moment::default());
        Self {
            engine,
            began: None,
            policies,
            flusher: Flusher::default(),
            clients,
            tally: Tally::default(),
            decisions,
        }
    }

    fn write(&mut self, now: Moment, write: &Observation<'_>, bytes: u64) -> Result<(), Error> {
        let tally = &mut self.tally;
        let began = *self.began.get_or_insert_with(|| whole_second(now));
        let moment = Moment::from_epoch(now.since(began));
        self.flusher.advance(&self.engine, moment, |flush| tally.flushed(flush));
        let mut adapted = None;
        if self.clients == ClientBehavior::Adapted {
            adapt(adapted.insert(write.clone()), &self.flusher);
        }
        let write = adapted.as_ref().unwrap_or(write);
        let governing = self.policies.of(write.namespace).governing(write);
        let verdict = self.engine.decide(governing, write, moment);
        let reaches_etcd = !write.dry_run && !self.flusher.conflicts(write);
        let before = reaches_etcd.then(|| self.flusher.presence(write, &verdict.answer));
        self.flusher.decided(&self.engine, write, &verdict, bytes, moment);
        let effect = before.map(|before| {
            let is_stored = before == Presence::Stored;
            let after = if is_stored { before } else { self.flusher.presence(write, &verdict.answer) };
            StoreEffect { bytes, before, after }
        });
        self.tally.decided(now, governing, write, &verdict, effect);
        match &mut self.decisions {
            Some(decisions) => decisions.write(now, governing, write, &verdict),
            None => Ok(()),
        }
    }

    /// Advances the time until everything is flushed and closed.
    pub(super) fn finish(mut self) -> Result<Finished, Error> {
        let tally = &mut self.tally;
        self.flusher.finish(&self.engine, |flush| tally.flushed(flush));
        if let Some(decisions) = self.decisions {
            decisions.finish()?;
        }
        Ok(Finished { engine: self.engine, policies: self.policies, tally: self.tally })
    }
}

fn whole_second(moment: Moment) -> Moment {
    Moment::from_epoch(Duration::from_secs(moment.since(Moment::default()).as_secs()))
}

/// The state at the end of a replay.
pub(super) struct Finished {
    pub(super) engine: Engine,
    pub(super) policies: Policies,
    pub(super) tally: Tally,
}

/// Changes the write to what its client would have sent: based on what is stored, and a CREATE if nothing is.
fn adapt(write: &mut Observation<'_>, flusher: &Flusher) {
    let stored = write.name.as_deref().and_then(|name| flusher.stored(write.namespace, name));
    match (write.operation, stored) {
        (Operation::Update, Some(0)) if !write.edited => {
            (write.operation, write.old_value) = (Operation::Create, 0);
            (write.unchanged, write.has_series) = (false, write.api == Api::Events && write.value > 1);
        }
        (Operation::Update, Some(stored)) => write.old_value = stored,
        _ => {}
    }
}
