//! The course of a replay: one write after the other through the same decision as in the webhook.

use std::time::Duration;

use jiff::Timestamp;
use squelch_engine::{Api, Engine, Moment, Observation, Operation, Settings};

use super::Error;
use super::decisions::Decisions;
use super::options::Clients;
use super::payer::Payer;
use super::policies::Policies;
use super::tally::Tally;

/// The key of the engine's hashes. The running squelch takes a random one, so that nobody can make two texts
/// collide; here the same input is to give the same names.
const SEED: [u64; 2] = [0x7371_7565_6c63_6821, 0x7265_706c_6179_2121];

/// What `squelch run` allows unless told otherwise.
const MAX_SERIES: usize = 1_000_000;
/// The same of series that owe.
const MAX_OWING: usize = 100_000;

/// An engine without a past: nothing happened before it began.
pub fn engine() -> Engine {
    Engine::new(Settings {
        seed: SEED,
        max_series: MAX_SERIES,
        max_pending_series: MAX_OWING,
        began: Timestamp::MIN,
    })
}

/// The state of a replay.
pub(super) struct Course {
    engine: Engine,
    /// The whole second of the first write. The engine's time begins there, as that of a process begins with it.
    began: Option<Moment>,
    policies: Policies,
    payer: Payer,
    clients: Clients,
    /// The user of squelch's own writes.
    pub(super) own_user: String,
    pub(super) tally: Tally,
    decisions: Option<Decisions>,
}

impl Course {
    pub(super) fn new(
        policies: Policies,
        clients: Clients,
        own_user: String,
        decisions: Option<Decisions>,
    ) -> Self {
        let engine = engine();
        engine.revise(&policies.standing(), Moment::default());
        Self {
            engine,
            began: None,
            policies,
            payer: Payer::default(),
            clients,
            own_user,
            tally: Tally::default(),
            decisions,
        }
    }

    /// From here on clients write as they would under the policies.
    pub(super) fn adapt_clients(&mut self) {
        self.clients = Clients::Adapted;
    }

    /// Decides a write of an Event whose JSON is this long.
    pub(super) fn write(
        &mut self,
        now: Moment,
        write: &mut Observation<'_>,
        bytes: u64,
    ) -> Result<(), Error> {
        let tally = &mut self.tally;
        let began = *self.began.get_or_insert_with(|| whole_second(now));
        let moment = Moment::from_epoch(now.since(began));
        self.payer.advance(&self.engine, moment, |payment| tally.paid(payment));
        if self.clients == Clients::Adapted {
            adapt(write, &self.payer);
        }
        let governing = self.policies.of(write.namespace).governing(write);
        let verdict = self.engine.decide(governing, write, moment);
        self.payer.decided(&self.engine, write, &verdict, bytes, moment);
        self.tally.decided(now, governing, write, &verdict, bytes);
        match &mut self.decisions {
            Some(decisions) => decisions.write(now, governing, write, &verdict),
            None => Ok(()),
        }
    }

    /// Lets time go on until everything is paid and closed.
    pub(super) fn finish(mut self) -> Result<Finished, Error> {
        let tally = &mut self.tally;
        self.payer.finish(&self.engine, |payment| tally.paid(payment));
        if let Some(decisions) = self.decisions {
            decisions.finish()?;
        }
        Ok(Finished { engine: self.engine, policies: self.policies, tally: self.tally })
    }
}

fn whole_second(moment: Moment) -> Moment {
    Moment::from_epoch(Duration::from_secs(moment.since(Moment::default()).as_secs()))
}

/// What is left of a replay.
pub(super) struct Finished {
    pub(super) engine: Engine,
    pub(super) policies: Policies,
    pub(super) tally: Tally,
}

/// The write as its client would have made it: over what is stored, and a CREATE where nothing is.
fn adapt(write: &mut Observation<'_>, payer: &Payer) {
    let stored = write.name.as_deref().and_then(|name| payer.stored(write.namespace, name));
    match (write.operation, stored) {
        (Operation::Update, Some(0)) if !write.edited => {
            (write.operation, write.old_value) = (Operation::Create, 0);
            (write.unchanged, write.has_series) = (false, write.api == Api::Events && write.value > 1);
        }
        (Operation::Update, Some(stored)) => write.old_value = stored,
        _ => {}
    }
}
