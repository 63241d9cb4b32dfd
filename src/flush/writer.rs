//! One order: read, modify, write under `resourceVersion`, and tell the engine.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use scopeguard::ScopeGuard;
use squelch_engine::{Engine, FlushPlan, FlushTask};
use tracing::warn;

use super::call::Calls;
use super::event;
use super::refusal::{Refusal, Then};
use super::stored::Stored;
use crate::clock;
use crate::metrics::{FlushResult, Metrics};

/// An order finds its Event changed since it was read at most this often in a row; then it waits as after any other
/// failure.
const LOOKS: u32 = 8;

/// Carries orders out.
pub struct Writer {
    client: Client,
    pub(super) engine: Arc<Engine>,
    metrics: Arc<Metrics>,
}

/// An order on its way. Dropped unanswered, be it by a panic or because its task is ended, it is given back: it
/// would never be given again otherwise.
pub(super) type Unanswered = ScopeGuard<Pending, fn(Pending)>;

/// An order, and how often its Event was looked at.
pub(super) struct Pending {
    engine: Arc<Engine>,
    pub(super) order: FlushTask,
    looks: u32,
}

/// How one look at an order's Event ended.
pub(super) struct Looked {
    /// The Event was not as it was read: it is the order's turn again.
    pub(super) again: Option<Unanswered>,
    /// What did not work.
    pub(super) refusal: Option<Refusal>,
}

impl Writer {
    /// `client` is for the writer alone, and must not retry by itself: each call of the writer is one call to the
    /// API server.
    pub fn new(client: Client, engine: Arc<Engine>, metrics: Arc<Metrics>) -> Self {
        Self { client, engine, metrics }
    }

    /// Takes an order over from the engine.
    pub(super) fn take(&self, order: FlushTask) -> Unanswered {
        let pending = Pending { engine: self.engine.clone(), order, looks: 0 };
        scopeguard::guard(pending, give_back)
    }

    /// Looks at the order's Event once. The engine is told how that ended, but where it is to be done again.
    pub(super) async fn look(&self, mut unanswered: Unanswered) -> Looked {
        unanswered.looks += 1;
        let looked = self.read_and_write(&unanswered.order).await;
        let refusal = looked.err();
        self.metrics.flushes(looked.unwrap_or_else(Refusal::result));
        match refusal.map(Refusal::then) {
            Some(Then::LookAgain) if unanswered.looks < LOOKS => {
                return Looked { again: Some(unanswered), refusal };
            }
            Some(Then::LookAgain) => postpone(unanswered, Duration::ZERO),
            Some(Then::Later(at_least)) => postpone(unanswered, at_least),
            Some(Then::Never) => abandon(unanswered, refusal),
            None => drop(ScopeGuard::into_inner(unanswered)),
        }
        Looked { again: None, refusal }
    }

    async fn read_and_write(&self, order: &FlushTask) -> Result<FlushResult, Refusal> {
        let calls = Calls::about(order, &self.client)?;
        let mut found = calls.read().await?;
        let planned = self.engine.plan(order, found.as_mut().map(Stored::found), clock::now());
        let planned = self.with_witness(order, &calls, planned).await?;
        let (stored, value, result) = match (planned, found) {
            (FlushPlan::Write { value, occurred_at, content }, Some(found)) => {
                let change = event::change(&found, value, occurred_at, content.as_deref(), &order.namespace);
                (calls.change(change).await?, value, FlushResult::Written)
            }
            (FlushPlan::Create { value, occurred_at, content, .. }, None) => {
                let body = event::recreate(&order.namespace, &order.name, &content, value, occurred_at);
                (calls.create(&body).await?, value, FlushResult::Created)
            }
            // The engine has taken the order as answered.
            (FlushPlan::Wait, _) => return Ok(FlushResult::NotStored),
            (FlushPlan::Lost { occurrences }, _) => {
                log_lost(order, occurrences, "it is not stored, or another Event has its name");
                return Ok(FlushResult::NotStored);
            }
            _ => return Ok(FlushResult::Confirmed),
        };
        if stored.count < value {
            // Somebody's webhook has changed what squelch wrote.
            return Err(Refusal::Unexpected);
        }
        self.engine.ack(order, value, clock::now());
        Ok(result)
    }
}

impl Writer {
    /// A summary is created only once an Event of its group was read: the API server may have refused all of them.
    async fn with_witness(
        &self,
        order: &FlushTask,
        calls: &Calls<'_>,
        planned: FlushPlan,
    ) -> Result<FlushPlan, Refusal> {
        let FlushPlan::Create { witness: Some(witness), .. } = &planned else { return Ok(planned) };
        let mut found = calls.read_other(witness).await?;
        match self.engine.check_witness(order, found.as_mut().map(Stored::found), clock::now()) {
            FlushPlan::Nothing => Ok(planned),
            answered => Ok(answered),
        }
    }
}

/// It is due again at once, but for one that has brought a writer down: that waits like one that failed.
fn give_back(Pending { engine, order, .. }: Pending) {
    if std::thread::panicking() {
        engine.requeue_after(&order, Duration::ZERO, clock::now());
    } else {
        engine.release(&order, clock::now());
    }
}

fn postpone(unanswered: Unanswered, at_least: Duration) {
    let Pending { engine, order, .. } = ScopeGuard::into_inner(unanswered);
    engine.requeue_after(&order, at_least, clock::now());
}

fn abandon(unanswered: Unanswered, refusal: Option<Refusal>) {
    let Pending { engine, order, .. } = ScopeGuard::into_inner(unanswered);
    let reason = match refusal {
        Some(Refusal::TooLarge) => "the stored Event is too large",
        _ => "the API server refused the write",
    };
    log_lost(&order, engine.discard(&order), reason);
}

fn log_lost(order: &FlushTask, lost: u64, reason: &'static str) {
    if lost > 0 {
        // Its name, not its text; and the name, which is a tenant's too, without anything that a terminal obeys.
        let event: String = order.name.escape_debug().take(MAX_SHOWN).collect();
        warn!(namespace = %order.namespace, event, policy = %order.policy.display, lost, reason,
            "pending occurrences of an Event are lost");
    }
}

/// So many characters of an Event's name are logged: the longest that an object's name usually may have.
const MAX_SHOWN: usize = 253;
