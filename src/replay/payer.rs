//! Time, moved by hand: between two writes everything that falls due is paid, at the moment at which it does.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use squelch_engine::{
    Answer, Content, Engine, FlushPlan, FlushTask, Moment, Observation, Operation, StoredEvent, Verdict,
};

use super::etcd::{Etcd, Stored};

/// How often the running squelch asks what is due, and how many orders it takes at a time.
const TICK: Duration = Duration::from_millis(100);
const ORDERS: usize = 512;

/// What JSON, metadata and `managedFields` add to the texts of an Event that squelch creates, in bytes: as much as
/// in the Event of a kubelet.
const ENVELOPE: usize = 900;

/// One of squelch's own writes.
#[derive(Debug)]
pub struct Payment {
    /// What it answers.
    pub order: FlushTask,
    /// The count that the Event shows now.
    pub count: i64,
    /// How long the JSON of the Event is.
    pub bytes: u64,
    /// What the Event says, if it is a summary.
    pub summary: Option<Box<Content>>,
}

/// Pays what an engine orders, into an etcd in memory that takes everything at once.
#[derive(Default)]
pub struct Payer {
    etcd: Etcd,
    agenda: BinaryHeap<Reverse<(Moment, Arc<str>)>>,
    /// When which namespace is looked at; an entry of the agenda that says otherwise is void.
    due: HashMap<Arc<str>, Moment>,
}

impl Payer {
    /// Pays what falls due until `now`, and tells of each payment.
    pub fn advance(&mut self, engine: &Engine, now: Moment, mut paid: impl FnMut(&Payment)) {
        while let Some(Reverse((at, _))) = self.agenda.peek()
            && *at <= now
        {
            let Some(Reverse((at, namespace))) = self.agenda.pop() else { break };
            if self.due.get(&namespace) != Some(&at) {
                continue;
            }
            self.due.remove(&namespace);
            loop {
                let orders = engine.tick_in(&namespace, at, ORDERS);
                if orders.is_empty() {
                    break;
                }
                for order in orders {
                    self.pay(engine, order, at).iter().for_each(&mut paid);
                }
            }
            self.look(engine, &namespace, at);
        }
    }

    /// Pays until nothing is left to be paid or closed.
    pub fn finish(&mut self, engine: &Engine, paid: impl FnMut(&Payment)) {
        self.advance(engine, Moment::from_epoch(Duration::MAX), paid);
    }

    /// The count of an Event that is stored; 0: it was refused; `None`: nothing is known of it.
    pub fn stored(&self, namespace: &str, name: &str) -> Option<i64> {
        self.etcd.event(namespace, name).map(|event| event.count)
    }

    /// A write was decided; `bytes` is how long the JSON of its Event is.
    pub fn decided(
        &mut self,
        engine: &Engine,
        write: &Observation<'_>,
        verdict: &Verdict,
        bytes: u64,
        now: Moment,
    ) {
        if !write.dry_run {
            self.store(write, &verdict.answer, bytes);
        }
        if verdict.disposition.is_some() {
            self.look(engine, write.namespace, now);
        }
    }

    fn store(&mut self, write: &Observation<'_>, answer: &Answer, bytes: u64) {
        let name = match answer {
            Answer::AllowNamed(name) => Some(name.as_str()),
            _ => write.name.as_deref(),
        };
        let Some(name) = name else { return };
        let count = match (answer, write.operation) {
            (Answer::Allow | Answer::AllowNamed(_), _) => write.value,
            // The request says what is stored.
            (_, Operation::Update) => write.old_value,
            (_, Operation::Create) if self.stored(write.namespace, name).is_none() => 0,
            _ => return,
        };
        self.etcd.store(write.namespace, name, count, bytes);
    }

    fn pay(&mut self, engine: &Engine, order: FlushTask, now: Moment) -> Option<Payment> {
        let stored = self.etcd.event(&order.namespace, &order.name).filter(|event| event.count > 0);
        let planned = engine.plan(&order, stored.map(|event| StoredEvent::with_count(event.count)), now);
        let (count, content) = match planned {
            FlushPlan::Nothing | FlushPlan::Wait | FlushPlan::Lost { .. } => return None,
            FlushPlan::Write { value, content, .. } => (value, content),
            FlushPlan::Create { value, content, witness, .. } => {
                if let Some(witness) = witness {
                    let found = self.stored(&order.namespace, &witness).filter(|count| *count > 0);
                    let found = found.map(StoredEvent::with_count);
                    if engine.check_witness(&order, found, now) != FlushPlan::Nothing {
                        return None;
                    }
                }
                (value, Some(content))
            }
        };
        let bytes = bytes(stored, content.as_deref());
        self.etcd.store(&order.namespace, &order.name, count, bytes);
        engine.ack(&order, count, now);
        let summary = content.filter(|content| is_summary(content));
        Some(Payment { order, count, bytes, summary })
    }

    /// Notes when the namespace is due: at the tick after that.
    fn look(&mut self, engine: &Engine, namespace: &str, now: Moment) {
        let next_tick = tick_at_or_after(now.plus(Duration::from_nanos(1)));
        let known = self.due.get_key_value(namespace);
        if known.is_some_and(|(_, known)| *known <= next_tick) {
            return;
        }
        // What was due before a write is known: only what it brought is news.
        let due = match known {
            Some(_) => engine.due_since_write(namespace, now),
            None => engine.next_due(namespace, now),
        };
        let Some(due) = due else { return };
        let at = tick_at_or_after(due).max(next_tick);
        if known.is_some_and(|(_, known)| *known <= at) {
            return;
        }
        let namespace = known.map_or_else(|| namespace.into(), |(namespace, _)| namespace.clone());
        self.due.insert(Arc::clone(&namespace), at);
        self.agenda.push(Reverse((at, namespace)));
    }
}

fn tick_at_or_after(moment: Moment) -> Moment {
    let beyond = moment.since(Moment::default()).as_nanos() % TICK.as_nanos();
    let short = if beyond == 0 { 0 } else { TICK.as_nanos() - beyond };
    moment.plus(Duration::from_nanos(u64::try_from(short).unwrap_or_default()))
}

fn bytes(stored: Option<Stored>, content: Option<&Content>) -> u64 {
    match (stored, content) {
        (Some(stored), _) => stored.bytes,
        (None, content) => (ENVELOPE + content.map_or(0, texts)) as u64,
    }
}

fn texts(content: &Content) -> usize {
    let event = content.view();
    [&event.message, &event.reason, &event.action, &event.reporting_component, &event.reporting_instance]
        .iter()
        .map(|text| text.len())
        .sum::<usize>()
        + event.labels.len()
        + event.annotations.len()
}

/// Whether it is what squelch tells of look-alikes, by the annotation that says so.
fn is_summary(content: &Content) -> bool {
    content.view().annotations.contains(r#""squelch.dev/summary":"true""#)
}
