//! Random lives in which nothing is atomic. Writes are under way between admission and commit: they meet conflicts
//! and are reviewed again, find that another was faster, are refused after they were admitted. Clients of every
//! kind forget names and share identities; flushes fail, meet conflicts, and lose their answers; tables overflow,
//! and the process drains.
//!
//! After each step, every occurrence that a client has told of is received exactly once. At no time does a stored
//! count fall, or is the same order given twice. In the end nothing is owed, no series is left, and what etcd has
//! gained is what was admitted, compacted and recovered.

mod clients;
mod laws;
mod steps;

use std::collections::BTreeMap;
use std::time::Duration;

use super::testing::{by, engine, write};
use super::*;
use clients::{Memories, ReadBack, Request};
use steps::{Commit, Fate, Step};

/// A stored Event.
#[derive(Clone, Copy)]
struct Stored {
    count: i64,
    version: u64,
    api: Api,
    series: bool,
    /// The second in which it was last observed.
    second: u64,
}

/// An order in the writer's hands, with what it has read and planned.
struct Held {
    order: Order,
    planned: Option<(i64, Option<u64>)>,
}

struct World {
    engine: Engine,
    rules: Rules,
    now: Moment,
    etcd: BTreeMap<String, Stored>,
    version: u64,
    /// What stored counts have gained in all.
    increments: i64,
    /// The occurrences that some request has carried.
    truth: i64,
    clients: Memories,
    /// The last number that went into a name.
    made: u64,
    /// The writes under way: admitted, and not yet in etcd.
    pending: Vec<Request>,
    held: Vec<Held>,
    /// Something was counted and did not reach etcd as it was admitted: what is stored proves nothing any more.
    disturbed: bool,
    /// Whether client-go's recorder takes part.
    with_tools: bool,
    /// Nobody annotates, and a write that is reviewed again counts as a disturbance.
    still: bool,
}

impl World {
    fn new(engine: Engine, rules: Rules) -> Self {
        Self {
            engine,
            rules,
            now: Moment::from_epoch(Duration::from_secs(1)),
            etcd: BTreeMap::new(),
            version: 0,
            increments: 0,
            truth: 0,
            clients: Memories::default(),
            made: 10,
            pending: Vec::new(),
            held: Vec::new(),
            disturbed: false,
            with_tools: false,
            still: false,
        }
    }

    /// One whose engine knows its rules before the first write.
    fn governed(rules: Rules) -> Self {
        let world = Self::new(engine(), rules);
        let standing = Standing {
            policy: world.rules.policy.clone(),
            namespace: Some("shop".into()),
            rules: Some(Arc::new(world.rules.clone())),
        };
        world.engine.revise(&[standing], Moment::default());
        world
    }

    fn run(&mut self, step: &Step) {
        match step {
            Step::Legacy(number) => self.legacy(*number),
            Step::LegacyForgets(number) => self.legacy_forgets(*number),
            Step::Kube(number) => self.kube(*number),
            Step::Tools => self.tools(),
            Step::ToolsRefresh => self.tools_refresh(),
            Step::ToolsFinish => self.tools_finish(),
            Step::ToolsRestart => self.tools_restart(),
            Step::CreateOnly => self.create_only(),
            Step::Generate => self.generate(),
            Step::Annotate => self.annotate(),
            Step::Delete(at) => self.delete(*at),
            Step::Pass(milliseconds) => self.pass(Duration::from_millis(*milliseconds)),
            Step::Take => self.take(),
            Step::Read(at) => self.read(*at),
            Step::Write(at, fate) => self.write(*at, *fate),
            Step::Commit(at, commit) => self.commit(*at, *commit),
        }
    }

    fn new_number(&mut self) -> u64 {
        self.made += 1;
        self.made
    }

    fn second(&self) -> u64 {
        self.now.since(Moment::default()).as_secs()
    }

    fn annotate(&mut self) {
        if !self.still
            && let Some(event) = self.etcd.values_mut().next()
        {
            self.version += 1;
            event.version = self.version;
        }
    }

    fn delete(&mut self, at: usize) {
        if let Some(name) = self.etcd.keys().nth(at).cloned() {
            self.etcd.remove(&name);
            self.disturbed = true;
        }
    }

    fn pass(&mut self, time: Duration) {
        if time >= Duration::from_millis(900) {
            self.commit_all();
        }
        self.now = self.now.plus(time);
    }

    /// Admission: the engine decides on what is stored now, which may be another when the write is committed.
    fn review(&mut self, mut request: Request) {
        let stored = (!request.create).then(|| self.etcd[request.stored_name()]);
        request.reviewed_on = stored.map_or(0, |event| event.version);
        let asked = request.observed(stored);
        let unchanged = asked.unchanged;
        let verdict = self.engine.decide(by(&self.rules), &asked, self.now);
        match verdict.answer {
            Answer::Allow if request.name.is_none() => {
                request.name = Some(format!("gen.{}", self.new_number())); // the API server's own choice
            }
            Answer::Allow if unchanged => return self.succeed(&request), // the API server stores nothing
            Answer::Allow => {}
            Answer::AllowNamed(name) => request.name = Some(name),
            Answer::Restore => {
                let Stored { count, series, .. } = self.etcd[request.stored_name()];
                return self.answer(&request, Some(ReadBack { count, series }));
            }
            Answer::Deny(_) => return self.answer(&request, None),
        }
        self.pending.push(request);
    }

    fn commit(&mut self, at: usize, commit: Commit) {
        if at >= self.pending.len() {
            return;
        }
        let request = self.pending.remove(at);
        let found = self.etcd.get(request.stored_name()).copied();
        if commit == Commit::Refused || found.is_some() == request.create {
            self.disturbed = true; // refused, 409 AlreadyExists, or 404
            return self.answer(&request, None);
        }
        if found.is_some_and(|event| event.version != request.reviewed_on) {
            self.disturbed |= self.still;
            return self.review(request); // 409 Conflict: the API server patches anew
        }
        let api = found.map_or(request.api(), |event| event.api);
        let name = request.stored_name().to_owned();
        self.store(name, request.value, api, request.has_series(), request.second);
        self.succeed(&request);
    }

    fn commit_all(&mut self) {
        while !self.pending.is_empty() {
            self.commit(0, Commit::Tried);
        }
    }

    fn succeed(&mut self, request: &Request) {
        self.answer(request, Some(ReadBack { count: request.value, series: request.has_series() }));
    }

    fn answer(&mut self, request: &Request, answer: Option<ReadBack>) {
        self.clients.answered(request.client, request.value, answer, self.now);
    }

    fn store(&mut self, name: String, count: i64, api: Api, series: bool, second: u64) {
        let (before, had_series) =
            self.etcd.get(&name).map_or((0, false), |event| (event.count, event.series));
        assert!(count >= before, "{name} lowered from {before} to {count}");
        self.increments += count - before;
        self.version += 1;
        let series = series || had_series;
        self.etcd.insert(name, Stored { count, version: self.version, api, series, second });
    }

    fn take(&mut self) {
        for order in self.engine.tick(self.now, 100) {
            let same = |held: &Held| format!("{:?}", held.order) == format!("{order:?}");
            assert!(!self.held.iter().any(same), "{order:?} given twice");
            self.held.push(Held { order, planned: None });
        }
    }

    fn read(&mut self, at: usize) {
        let Some(held) = self.held.get_mut(at) else { return };
        let found = self.etcd.get(&*held.order.name).copied();
        match self.engine.plan(&held.order, found.map(|event| event.count), self.now) {
            Plan::Nothing => {
                self.held.remove(at);
            }
            Plan::Write { value, .. } | Plan::Create { value, .. } => {
                held.planned = Some((value, found.map(|event| event.version)));
            }
        }
    }

    fn write(&mut self, at: usize, fate: Fate) {
        let Some((value, read)) = self.held.get(at).and_then(|held| held.planned) else { return };
        let name = self.held[at].order.name.to_string();
        let current = self.etcd.get(&name).copied();
        if fate != Fate::Failed && current.map(|event| event.version) != read {
            self.held[at].planned = None; // 409: read again
            return;
        }
        let order = self.held.remove(at).order;
        if fate != Fate::Failed {
            let api = current.map_or(Api::Core, |event| event.api);
            self.store(name, value, api, api == Api::Events, self.second());
        }
        if fate == Fate::Answered {
            self.engine.settle(&order, value, self.now);
        } else {
            self.engine.postpone(&order, Duration::from_secs(1), self.now);
        }
    }

    /// Lets everything be committed, paid and closed.
    fn come_to_rest(&mut self) {
        self.commit_all();
        self.pay_all(Duration::from_secs(400));
    }

    /// Lets the writer work without fault, with so much time between its rounds.
    fn pay_all(&mut self, between: Duration) {
        for _ in 0..20 {
            self.now = self.now.plus(between);
            self.take();
            while !self.held.is_empty() {
                self.read(0);
                self.write(0, Fate::Answered);
            }
        }
    }
}
