//! The flush writer, with faults.

use super::clients::event_time;
use super::model::Planned;
use super::steps::Fate;
use super::*;

/// A write of the writer.
#[derive(Clone, Copy)]
struct PlannedWrite {
    value: i64,
    /// The second of the last merged occurrence.
    second: u64,
    /// The version that was read.
    read: Option<u64>,
}

/// A task of the writer, with what it has read and planned.
pub(super) struct HeldTask {
    task: FlushTask,
    /// The replica that issued it.
    pub(super) replica: usize,
    /// The task in the model.
    due: Option<model::Due>,
    /// What to write.
    planned: Option<PlannedWrite>,
}

/// Returns the content of a stored Event of this user with this message, or of a summary.
fn content(of: Option<(&'static str, &'static str)>, api: Api) -> Box<Content> {
    let mut event = crate::testing::write().event;
    event.event_time = event_time(api).into();
    let (user, message) = of.unwrap_or(("a summary", "(combined from similar events): a"));
    if of.is_none() {
        event.reporting_component = "squelch".into();
        event.source_component = "squelch".into();
    }
    event.regarding.name = user.into();
    event.event_type = type_of(user).into();
    event.message = message.into();
    Box::new(Content::of(&event))
}

/// Returns the plan in terms of the model.
fn called(plan: &FlushPlan) -> Planned {
    match plan {
        FlushPlan::Nothing => Planned::Nothing,
        FlushPlan::Write { value, .. } => Planned::Write(*value),
        FlushPlan::Create { value, witness, .. } => {
            Planned::Create(*value, witness.as_deref().map(str::to_owned))
        }
        FlushPlan::Wait => Planned::Wait,
        FlushPlan::Lost { occurrences } => Planned::Lost(*occurrences as i64),
    }
}

/// Returns the second of the last merged occurrence.
fn second_of(plan: &FlushPlan) -> u64 {
    match plan {
        FlushPlan::Write { occurred_at, .. } | FlushPlan::Create { occurred_at, .. } => {
            occurred_at.as_second().try_into().unwrap_or(0)
        }
        _ => 0,
    }
}

impl World {
    pub(super) fn take(&mut self) {
        for at in 0..self.replicas.len() {
            if self.replicas[at].over {
                continue;
            }
            let now = self.now;
            let tasks = self.replicas[at].engine.tick(now, 1000);
            let mut expected = self.replicas[at].model.as_mut().map(|model| model.tick(now));
            for task in tasks {
                self.note(format_args!("replica {at} issues a task for {}", task.name));
                // The model knows only the beginning of a summary's name. A tenant can copy the whole name.
                let is_summary =
                    |due: &model::Due| due.name.ends_with('.') && task.name.starts_with(&due.name);
                let due = expected.as_mut().map(|dues| {
                    let by_name = dues.iter().position(|due| *due.name == *task.name);
                    Some(dues.remove(by_name.or_else(|| dues.iter().position(is_summary))?))
                });
                if due == Some(None) {
                    self.break_law(format!("{} has a task, but is not due", task.name));
                }
                let same = |held_task: &HeldTask| format!("{:?}", held_task.task) == format!("{task:?}");
                if self.tasks.iter().any(|held_task| held_task.replica == at && same(held_task)) {
                    self.break_law(format!("{} has two tasks", task.name));
                }
                self.tasks.push(HeldTask { task, replica: at, due: due.flatten(), planned: None });
            }
            for due in expected.into_iter().flatten() {
                self.break_law(format!("{} is due, but has no task", due.name));
            }
        }
    }

    pub(super) fn read(&mut self, at: usize) {
        let Some(held_task) = self.tasks.get_mut(at) else { return };
        let now = self.now;
        let found =
            |name: &str| self.etcd.get(name).map(|event| (event.count, event.age(now), event.version, event));
        let read = found(&held_task.task.name);
        let of = |(count, age, _, event): (i64, Duration, u64, Stored)| StoredEvent {
            age: Some(age),
            content: Some(content(event.content, event.api)),
            ..StoredEvent::with_count(count)
        };
        let replica_at = held_task.replica;
        let replica = &mut self.replicas[replica_at];
        let mut model = replica.model.as_mut().zip(held_task.due.as_ref());
        let plan = replica.engine.plan(&held_task.task, read.map(of), now);
        let mut planned = called(&plan);
        let second = second_of(&plan);
        let mut expected = model
            .as_mut()
            .map(|(model, due)| model.plan(due, read.map(|(count, age, ..)| (count, age)), now));
        let mut is_comparable = !self.oracle.is_claimed(&held_task.task.name);
        if let Planned::Create(_, Some(witness)) = &planned {
            is_comparable &= !self.oracle.is_claimed(witness);
            let witness = found(witness);
            let checked = called(&replica.engine.check_witness(&held_task.task, witness.map(of), now));
            let should_be =
                model.map(|(model, due)| model.check_witness(due, witness.map(|(_, age, ..)| age), now));
            if checked != Planned::Nothing {
                (planned, expected) = (checked, should_be);
            }
        }
        held_task.planned = match planned {
            Planned::Write(value) | Planned::Create(value, _) => {
                Some(PlannedWrite { value, second, read: read.map(|(_, _, version, _)| version) })
            }
            _ => None,
        };
        let name = held_task.task.name.clone();
        if held_task.planned.is_none() {
            self.tasks.remove(at);
        }
        let count = read.map(|(count, ..)| count);
        self.note(format_args!("the writer reads {name}, {count:?}, and plans {planned:?}"));
        // The model knows no contents, and mistakes an Event for that of a tenant who takes its name.
        if let Some(expected) = expected.filter(|expected| *expected != planned) {
            if !is_comparable {
                self.replicas[replica_at].model = None;
                return;
            }
            self.break_law(format!("the plan should be {expected:?}"));
        }
    }

    pub(super) fn write(&mut self, at: usize, fate: Fate) {
        let planned = self.tasks.get(at).and_then(|held_task| held_task.planned);
        let Some(PlannedWrite { value, second, read }) = planned else { return };
        let name = self.tasks[at].task.name.to_string();
        let current = self.etcd.get(&name);
        if fate != Fate::Failed && current.map(|event| event.version) != read {
            self.note(format_args!("the flush of {name} meets a conflict"));
            self.tasks[at].planned = None; // 409: read again
            return;
        }
        let HeldTask { task, replica, due, .. } = self.tasks.remove(at);
        if fate != Fate::Failed {
            if current.is_none() {
                self.check_created(&name);
            }
            let api = current.map_or(Api::Core, |event| event.api);
            // What squelch creates again has the content of its user; a summary has its own.
            let content = self.oracle.content_of(&name);
            let series = api == Api::Events;
            // "`lastTimestamp` never goes back."
            let second = second.max(current.map_or(0, |event| event.second));
            let written = Written { count: value, api, series, second, content };
            self.store(&name, written, false, &format!("a flush, {fate:?}"));
            self.oracle.flushes(&name, current.map_or(0, |event| event.count), value);
            self.check_oracle(false);
        }
        let (Replica { engine, model, .. }, now) = (&mut self.replicas[replica], self.now);
        let pause = match fate {
            Fate::Answered => {
                engine.ack(&task, value, now);
                None
            }
            Fate::AnswerLost | Fate::Failed => engine.requeue_after(&task, Duration::from_secs(1), now),
        };
        let Some((model, due)) = model.as_mut().zip(due) else { return };
        match (fate, pause) {
            (Fate::Answered, _) => model.ack(&due, value, now),
            (_, Some(pause)) => model.requeue_after(&due, pause, now),
            (_, None) => {}
        }
    }

    /// The writer completes everything due without faults. Then every Event shows at least half the truth.
    pub(super) fn catch_up(&mut self) {
        for _ in 0..100 {
            self.take();
            if self.tasks.is_empty() {
                return self.check_what_is_shown();
            }
            while !self.tasks.is_empty() {
                self.read(0);
                self.write(0, Fate::Answered);
            }
        }
        self.break_law("the writer never ends".to_owned());
    }

    /// Lets the writer work, with this pause between rounds.
    pub(super) fn flush_all(&mut self, between: Duration) {
        for _ in 0..20 {
            self.now = self.now.plus(between);
            self.catch_up();
        }
    }

    /// Lets everything be reported, committed, flushed and closed.
    pub(super) fn come_to_rest(&mut self) {
        self.find_all_closed();
        self.depart(false);
        self.commit_all();
        for _ in 0..12 {
            self.now = self.now.plus(ASKED_AGAIN);
            self.retry_all();
        }
        self.flush_all(Duration::from_secs(400));
    }
}
