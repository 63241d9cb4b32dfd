//! squelch in the world: what reviews a write, and how one life of it follows another.

use super::clients::Client;
use super::*;
use crate::decide::pipeline::{lowers, refusal};

/// Who answers when the API server asks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Webhook {
    /// The engine of the last life.
    Active,
    /// The same, folding nothing more.
    Draining,
    /// A replica that is not active. It has no memory.
    Standby,
    Nobody,
}

/// One engine, from its beginning.
pub(super) struct Replica {
    pub(super) engine: Engine,
    pub(super) model: Option<NaiveModel>,
    /// It does nothing more, not even pay.
    pub(super) over: bool,
}

impl Replica {
    /// A series had to go for want of room: whether its client's last write was stored is nobody's business.
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

    /// Which namespace it is now.
    pub(super) fn uids(&self) -> Arc<NamespaceUids> {
        Arc::new(NamespaceUids::from([("shop".into(), self.renewals.to_string().into())]))
    }

    /// Admission: squelch decides on what is stored now, which may be another when the write is committed.
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

    /// What the API server is asked, whatever squelch makes of it.
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
        let story =
            format!("{request} (stored {:?}) -> {}", stored.map(|event| event.count), reported(&verdict));
        self.note(story);
        if verdict.answer == Answer::Allow || matches!(verdict.answer, Answer::AllowNamed(_)) {
            request.counted += verdict.occurrences + recovered;
            request.beside_series |= verdict.stage != Stage::Series;
        }
        request.unseen = oversight.is_some();
        self.check_count(request, stored.map_or(0, |event| event.count), &verdict);
        verdict.answer
    }

    /// No engine decides it. A replica that is not active holds back what would lower a stored count.
    fn pass_unseen(&mut self, request: &mut Request, stored: Option<super::etcd::Stored>) -> Answer {
        let asked = request.observed(stored);
        let enforced = self.rules.series.is_some() && self.rules.mode == Mode::Enforce;
        if self.webhook == Webhook::Standby && enforced && lowers(&asked) {
            let answer = refusal(&self.rules, &asked);
            self.note(format_args!("{request}: a replica that is not active says {answer:?}"));
            self.balance.passed_unseen = true;
            return answer;
        }
        self.note(format_args!("{request} passes, nobody decides"));
        self.balance.passed_unseen = true;
        if let Some(name) = &request.name {
            self.knowledge.pass_unseen(name);
        }
        request.unseen = true;
        Answer::Allow
    }

    /// An engine has decided: did it count what is true? The first time that a life hears of a name that had a
    /// history before, it knows no better than what is stored; else it must be exact.
    fn check_count(&mut self, request: &Request, old: i64, verdict: &Verdict) {
        let replica = self.replicas.len() - 1;
        let carried = verdict.occurrences;
        self.balance.truth += carried;
        if request.client == Client::Tenant {
            // Whose name it takes is not always known. Merged into others of its kind, it is asked like theirs.
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
            // It repeats a value whose answer was lost, for an occurrence that is later.
            self.asked_besides += 1;
        } else if carried != news && !self.names_are_forgotten {
            self.break_law(format!("{request} carries {carried}, but {news} are new"));
        }
        if verdict.stage != Stage::Edit {
            self.knowledge.report(request, replica);
        }
    }

    /// Somebody edits what is stored: that is never held back, nor counted.
    pub(super) fn review_edit(&mut self, name: &str) {
        let Some(stored) = self.etcd.get(name) else { return };
        let (rules, now) = (self.rules.clone(), self.now);
        let Some(replica) = self.active() else { return };
        let edit = Observation {
            operation: Operation::Update,
            user: "somebody",
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

    /// All is paid that was folded, and the process ends.
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
        self.webhook = if standby { Webhook::Standby } else { Webhook::Nobody };
        self.note(format!("squelch has ended, {:?} answers", self.webhook));
    }

    pub(super) fn kill(&mut self) {
        if self.active().is_some() {
            let at = self.replicas.len() - 1;
            self.balance.lost += self.replicas[at].engine.gauges().pending_occurrences as i64;
            self.note(format!("SIGKILL, {} owed in all lives", self.balance.lost));
            self.stop_replica(at);
            self.webhook = Webhook::Nobody;
        }
    }

    /// The former active one pays what it owes, once; the new one knows nothing of that.
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
        self.held.retain(|held| held.replica != at);
    }
}

fn reported(verdict: &Verdict) -> String {
    let Verdict { disposition, stage, occurrences, answer } = verdict;
    let disposition = disposition.map_or("passed", Disposition::as_str);
    format!("carries {occurrences}, {disposition} ({}), {answer:?}", stage.as_str())
}
