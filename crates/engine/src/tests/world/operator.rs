//! squelch in the world: reviews, and replicas one after the other.

use super::clients::Client;
use super::*;
use crate::decide::pipeline::{lowers, refusal};

/// What answers the API server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Webhook {
    /// The last replica.
    Active,
    /// The last replica while it drains.
    Draining,
    /// A standby replica without state.
    Standby,
    Unreachable,
}

/// One engine from its start.
pub(super) struct Replica {
    pub(super) engine: Engine,
    pub(super) model: Option<NaiveModel>,
    /// Whether it has ended and flushes nothing more.
    pub(super) over: bool,
}

impl Replica {
    /// Whether a series was evicted. The fate of its client's last write is unknown then.
    pub(super) fn has_evicted(&self) -> bool {
        self.engine.gauges().series_evicted > 0
    }
}

impl World {
    fn active(&self) -> Option<&Replica> {
        let answers = matches!(self.webhook, Webhook::Active | Webhook::Draining);
        self.replicas.last().filter(|_| answers)
    }

    pub(super) fn start_replica(&mut self, began: Timestamp) {
        let seed = [3, self.replicas.len() as u64];
        let engine =
            Engine::new(Settings { seed, max_series: self.max_series, max_pending_series: 100_000, began });
        let known_policy = KnownPolicy {
            policy: self.rules.policy.clone(),
            namespace: Some("shop".into()),
            rules: Some(Arc::new(self.rules.clone())),
        };
        engine.identify_namespaces(&self.uids());
        engine.revise(&[known_policy], self.now);
        let model = self.with_model.then(|| NaiveModel::new(self.rules.clone(), began));
        self.replicas.push(Replica { engine, model, over: false });
        self.webhook = Webhook::Active;
    }

    /// Returns the current uid of the namespace.
    pub(super) fn uids(&self) -> Arc<NamespaceUids> {
        Arc::new(NamespaceUids::from([("shop".into(), self.renewals.to_string().into())]))
    }

    /// Admission: squelch decides on the stored Event, which may change before the commit.
    pub(super) fn review(&mut self, mut request: Request) {
        let stored = if request.create { None } else { self.etcd.get(request.stored_name()) };
        if !request.create && stored.is_none() {
            return self.reply(request, Reply::Failed); // deleted meanwhile: 404
        }
        request.reviewed_on = stored.map_or(0, |event| event.version);
        self.note_asked(&request);
        let unchanged = request.observed(stored).unchanged;
        let answer = self.ask(&mut request, stored);
        match answer {
            Answer::Allow if request.name.is_none() => {
                request.name = Some(format!("gen.{}", self.clients.new_number())); // the API server's own choice
            }
            Answer::Allow if unchanged => {
                let done = ReadBack { count: request.value, series: request.has_series() };
                return self.reply(request, Reply::Done(done)); // the API server stores nothing
            }
            Answer::Allow => {}
            Answer::AllowNamed(name) => request.name = Some(name),
            Answer::Restore => {
                let stored = stored.expect("only an UPDATE is restored");
                let done = ReadBack { count: stored.count, series: stored.series };
                return self.reply(request, Reply::Done(done));
            }
            Answer::Deny(Denial::AlreadyExists) => return self.reply(request, Reply::Exists),
            Answer::Deny(Denial::Forbidden) => return self.reply(request, Reply::Failed),
        }
        self.pending.push(request);
    }

    /// Records what the API server was asked, independent of squelch.
    fn note_asked(&mut self, request: &Request) {
        match (&request.name, request.client) {
            (_, Client::Tenant) => {}
            (None, _) => self.asked_besides += 1,
            (Some(name), _) => {
                let asked = self.asked.entry(name.clone()).or_default();
                *asked = (*asked).max(request.knows);
            }
        }
    }

    fn ask(&mut self, request: &mut Request, stored: Option<super::etcd::Stored>) -> Answer {
        let oversight = self.oversight.take();
        if self.active().is_none() || matches!(oversight, Some(Step::Overlook)) {
            return self.pass_unseen(request, stored);
        }
        let replica = self.replicas.len() - 1;
        let rules = self.rules.clone();
        let asked = request.observed(stored);
        let verdict = if oversight.is_some() {
            self.replicas[replica].engine.fail_open(by(&rules), &asked, self.now);
            self.replicas[replica].model = None; // its rules say nothing of what is let through undecided
            self.balance.disturbed = true;
            let occurrences = (self.counters().received() - self.counted.received()) as i64;
            let stage = if asked.unchanged && occurrences == 0 { Stage::Edit } else { Stage::Admit };
            Verdict { occurrences, ..Verdict::passed(stage) }
        } else {
            self.replicas[replica].engine.decide(by(&rules), &asked, self.now)
        };
        let counted = self.counters();
        let recovered = (counted.recovered - self.counted.recovered) as i64;
        self.counted = counted;
        self.compare_with_model(&asked, &verdict, recovered);
        let entry =
            format!("{request} (stored {:?}) -> {}", stored.map(|event| event.count), reported(&verdict));
        self.note(entry);
        if verdict.answer == Answer::Allow || matches!(verdict.answer, Answer::AllowNamed(_)) {
            request.counted += verdict.occurrences + recovered;
            request.beside_series |= verdict.stage != Stage::Series;
        }
        request.unseen = oversight.is_some();
        self.check_count(request, stored.map_or(0, |event| event.count), &verdict);
        verdict.answer
    }

    /// Passes without a decision. A standby replica refuses what would lower a stored count.
    fn pass_unseen(&mut self, request: &mut Request, stored: Option<super::etcd::Stored>) -> Answer {
        let asked = request.observed(stored);
        let enforced = self.rules.series.is_some() && self.rules.mode == Mode::Enforce;
        if self.webhook == Webhook::Standby && enforced && lowers(&asked) {
            let answer = refusal(&self.rules, &asked);
            self.note(format_args!("{request}: a standby replica answers {answer:?}"));
            self.balance.passed_unseen = true;
            return answer;
        }
        self.note(format_args!("{request} passes without a decision"));
        self.balance.passed_unseen = true;
        if let Some(name) = &request.name {
            self.knowledge.pass_unseen(name);
        }
        request.unseen = true;
        Answer::Allow
    }

    /// Checks the occurrences that an engine counted. At the first report of a name with a history a replica
    /// only knows the stored count; otherwise it must be exact.
    fn check_count(&mut self, request: &Request, old: i64, verdict: &Verdict) {
        let replica = self.replicas.len() - 1;
        let carried = verdict.occurrences;
        self.balance.truth += carried;
        if request.client == Client::Tenant {
            // The owner of the name is not always known. Merged with others of its kind, it counts as asked.
            self.asked_besides += if verdict.answer == Answer::Allow { 0 } else { carried };
            return;
        }
        let (news, known) = self.knowledge.news(request);
        let first_report = known.reported_to != Some(replica);
        let has_history = known.reported_to.is_some() || known.passed_unseen;
        if first_report && has_history {
            let again = if request.create && !known.renewed { 0 } else { (known.reported - old).max(0) };
            let most = again + news.max(1);
            if carried > most || carried < news.min(1) && verdict.stage != Stage::Edit {
                self.break_law(format!("{request} carries {carried}, {news} are new, at most {most}"));
            }
            self.balance.reported_again += (carried - news).max(0);
        } else if matches!(request.client, Client::Kube(_)) && (carried, news) == (1, 0) {
            // It repeats a value whose answer was lost, for a later occurrence.
            self.asked_besides += 1;
        } else if carried != news && !self.names_are_forgotten {
            self.break_law(format!("{request} carries {carried}, but {news} are new"));
        }
        if verdict.stage != Stage::Edit {
            self.knowledge.report(request, replica);
        }
    }

    /// A person edits a stored Event. Edits are never refused nor counted.
    pub(super) fn review_edit(&mut self, name: &str) {
        let Some(stored) = self.etcd.get(name) else { return };
        let (rules, now) = (self.rules.clone(), self.now);
        let Some(replica) = self.active() else { return };
        let edit = Observation {
            operation: Operation::Update,
            user: "person",
            name: Some(name.into()),
            value: stored.count,
            old_value: stored.count,
            edited: true,
            ..crate::testing::write()
        };
        let verdict = replica.engine.decide(by(&rules), &edit, now);
        if verdict != Verdict::passed(Stage::Edit) {
            self.break_law(format!("an edit of {name}: {verdict:?}"));
        }
    }

    pub(super) fn terminate(&mut self) {
        if self.webhook == Webhook::Active {
            self.note("SIGTERM");
            self.webhook = Webhook::Draining;
            let replica = self.replicas.last_mut().expect("one is active");
            replica.engine.drain();
            replica.model.iter_mut().for_each(NaiveModel::drain);
        }
    }

    /// Everything merged is flushed, and the process ends.
    pub(super) fn depart(&mut self, standby: bool) {
        if self.webhook != Webhook::Draining {
            return;
        }
        let at = self.replicas.len() - 1;
        self.drain_remaining(at);
        self.flush_all(Duration::from_secs(2));
        let gauges = self.replicas[at].engine.gauges();
        if gauges.pending_occurrences > 0 || self.replicas[at].engine.unflushed() > 0 {
            self.break_law(format!("drained, and still: {gauges:?}"));
        }
        self.stop_replica(at);
        self.webhook = if standby { Webhook::Standby } else { Webhook::Unreachable };
        self.note(format!("squelch has ended, {:?} answers", self.webhook));
    }

    pub(super) fn kill(&mut self) {
        if self.active().is_some() {
            let at = self.replicas.len() - 1;
            self.balance.lost += self.replicas[at].engine.gauges().pending_occurrences as i64;
            self.note(format!("SIGKILL: {} pending in all replicas", self.balance.lost));
            self.stop_replica(at);
            self.webhook = Webhook::Unreachable;
        }
    }

    /// The former active replica flushes once; the new one does not know its pending occurrences.
    pub(super) fn lose_lease(&mut self) {
        if self.active().is_some() {
            let at = self.replicas.len() - 1;
            self.balance.lost += self.replicas[at].engine.gauges().pending_occurrences as i64;
            self.note("the lease is lost, another becomes active");
            self.drain_remaining(at);
            self.now = self.now.plus(Duration::from_millis(1));
            self.start_replica(self.wall());
        }
    }

    pub(super) fn begin(&mut self) {
        self.depart(false);
        if self.webhook != Webhook::Active {
            self.note("another becomes active");
            self.now = self.now.plus(Duration::from_millis(1));
            self.start_replica(self.wall());
        }
    }

    pub(super) fn drain_remaining(&mut self, at: usize) {
        let replica = &mut self.replicas[at];
        replica.engine.drain();
        replica.engine.drain_remaining();
        replica.model.iter_mut().for_each(NaiveModel::drain_remaining);
    }

    fn stop_replica(&mut self, at: usize) {
        self.replicas[at].over = true;
        self.tasks.retain(|tasks| tasks.replica != at);
    }
}

fn reported(verdict: &Verdict) -> String {
    let Verdict { disposition, stage, occurrences, answer } = verdict;
    let disposition = disposition.map_or("passed", Disposition::as_str);
    format!("carries {occurrences}, {disposition} ({}), {answer:?}", stage.as_str())
}
