//! Flushes in simulated time: between two writes, everything that falls due is flushed at its due time.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use squelch_engine::{
    Answer, Content, Engine, FlushPlan, FlushTask, Moment, Observation, Operation, Shown, StoredEvent,
    Verdict,
};

use super::etcd::{Etcd, EtcdEvent};

/// The tick of the running operator, and the tasks that it takes per tick.
const TICK: Duration = Duration::from_millis(100);
const TASKS: usize = 512;

/// The JSON of an Event that squelch creates, apart from its texts, in bytes: metadata and `managedFields` as in an
/// Event of the kubelet.
const ENVELOPE: usize = 900;

/// One of squelch's own writes.
#[derive(Debug)]
pub struct Flush {
    /// The task that caused it.
    pub task: FlushTask,
    /// The count that the Event shows now.
    pub count: i64,
    /// The length of the Event's JSON.
    pub bytes: u64,
    /// Whether the write creates the Event.
    pub created: bool,
    /// The content of the Event, if it is a summary.
    pub summary: Option<Box<Content>>,
}

/// What is known of an Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    /// It has no name, because the API server generates it.
    Unnamed,
    /// No write of it came before.
    Unknown,
    /// It was written and refused.
    Refused,
    /// It is stored.
    Stored,
}

/// Executes the flush tasks of an engine on an etcd in memory that accepts every write at once.
#[derive(Default)]
pub struct Flusher {
    etcd: Etcd,
    agenda: BinaryHeap<Reverse<(Moment, Arc<str>)>>,
    /// The next due time of each namespace. Entries of the agenda with another time are void.
    due: HashMap<Arc<str>, Moment>,
}

impl Flusher {
    /// Flushes what falls due until `now`. Calls `on_flush` for each write.
    pub fn advance(&mut self, engine: &Engine, now: Moment, mut on_flush: impl FnMut(&Flush)) {
        while let Some(Reverse((at, _))) = self.agenda.peek()
            && *at <= now
        {
            let Some(Reverse((at, namespace))) = self.agenda.pop() else { break };
            if self.due.get(&namespace) != Some(&at) {
                continue;
            }
            self.due.remove(&namespace);
            loop {
                let tasks = engine.tick_in(&namespace, at, TASKS);
                if tasks.is_empty() {
                    break;
                }
                for task in tasks {
                    self.flush(engine, task, at).iter().for_each(&mut on_flush);
                }
            }
            self.schedule(engine, &namespace, at);
        }
    }

    /// Flushes until nothing is pending and every series is closed.
    pub fn finish(&mut self, engine: &Engine, on_flush: impl FnMut(&Flush)) {
        self.advance(engine, Moment::from_epoch(Duration::MAX), on_flush);
    }

    /// Returns the count of a stored Event: 0 if it was refused, `None` if nothing is known of it.
    pub fn stored(&self, namespace: &str, name: &str) -> Option<i64> {
        self.etcd.event(namespace, name).map(|event| event.count)
    }

    /// Returns what is known of the Event of a write, whose name may come from the answer.
    pub(super) fn presence(&self, write: &Observation<'_>, answer: &Answer) -> Presence {
        let name = match answer {
            Answer::AllowNamed(name) => Some(name.as_str()),
            _ => write.name.as_deref(),
        };
        match name.map(|name| self.stored(write.namespace, name)) {
            None => Presence::Unnamed,
            Some(None) => Presence::Unknown,
            Some(Some(0)) => Presence::Refused,
            Some(Some(_)) => Presence::Stored,
        }
    }

    /// Whether the API server answers this CREATE with 409, because another user's Event has its name. A CREATE by
    /// the same user counts as one after the Event has expired.
    pub fn conflicts(&self, write: &Observation<'_>) -> bool {
        let name = write.name.as_deref().filter(|_| write.operation == Operation::Create);
        name.is_some_and(|name| self.etcd.is_of_another(write.namespace, name, write.user))
    }

    /// Records a decided write. `bytes` is the length of its Event's JSON.
    pub fn decided(
        &mut self,
        engine: &Engine,
        write: &Observation<'_>,
        verdict: &Verdict,
        bytes: u64,
        now: Moment,
    ) {
        if !write.dry_run && !self.conflicts(write) {
            self.store(write, &verdict.answer, bytes);
        }
        if verdict.disposition.is_some() {
            self.schedule(engine, write.namespace, now);
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
            // The old object of the request is what stays stored.
            (_, Operation::Update) => write.old_value,
            (_, Operation::Create) if self.stored(write.namespace, name).is_none() => 0,
            _ => return,
        };
        let creator = (write.operation == Operation::Create).then_some(write.user);
        self.etcd.store(write.namespace, name, count, bytes, creator);
    }

    fn flush(&mut self, engine: &Engine, task: FlushTask, now: Moment) -> Option<Flush> {
        let stored = self.etcd.event(&task.namespace, &task.name).filter(|event| event.count > 0);
        let planned = engine.plan(&task, stored.map(|event| StoredEvent::with_count(event.count)), now);
        let (count, content) = match planned {
            FlushPlan::Nothing | FlushPlan::Wait | FlushPlan::Lost { .. } => return None,
            FlushPlan::Write { value, shown: Shown::Summary(content), .. } => (value, Some(content)),
            FlushPlan::Write { value, .. } => (value, None),
            FlushPlan::Create { value, content, witness, .. } => {
                if let Some(witness) = witness {
                    let found = self.stored(&task.namespace, &witness).filter(|count| *count > 0);
                    let found = found.map(StoredEvent::with_count);
                    if engine.check_witness(&task, found, now) != FlushPlan::Nothing {
                        return None;
                    }
                }
                (value, Some(content))
            }
        };
        let bytes = bytes(stored, content.as_deref());
        self.etcd.store(&task.namespace, &task.name, count, bytes, None);
        engine.ack(&task, count, now);
        let summary = content.filter(|content| is_summary(content));
        Some(Flush { task, count, bytes, created: stored.is_none(), summary })
    }

    /// Schedules the namespace for the tick after its next due time.
    fn schedule(&mut self, engine: &Engine, namespace: &str, now: Moment) {
        let next_tick = tick_at_or_after(now.plus(Duration::from_nanos(1)));
        let known = self.due.get_key_value(namespace);
        if known.is_some_and(|(_, known)| *known <= next_tick) {
            return;
        }
        // An earlier due time is known already: only what this write added can be new.
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

fn bytes(stored: Option<EtcdEvent>, content: Option<&Content>) -> u64 {
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

/// Whether this is the content of a summary, by its label.
fn is_summary(content: &Content) -> bool {
    content.view().labels.contains(r#""squelch.dev/summary":"true""#)
}

#[cfg(test)]
mod tests {
    use squelch_engine::testing::{at, by, engine, rules, write};

    use super::*;

    #[test]
    fn a_create_of_another_users_name_stores_nothing() {
        let (engine, rules, mut flusher) = (engine(), rules(), Flusher::default());
        let of_tenant = Observation { user: "tenant", value: 1000, ..write() };
        for write in [&write(), &of_tenant, &of_tenant] {
            let verdict = engine.decide(by(&rules), write, at(0));
            flusher.decided(&engine, write, &verdict, 100, at(0));
        }
        assert!(flusher.conflicts(&of_tenant) && !flusher.conflicts(&write()));
        assert_eq!(flusher.stored("shop", "cart.1"), Some(1));
    }
}
