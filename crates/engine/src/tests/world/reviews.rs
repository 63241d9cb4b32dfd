//! Reviews: what the API server asks squelch, and what squelch answers.

use super::*;
use crate::decide::pipeline::{ClientCount, lowers, refusal};

impl World {
    /// Admission: squelch decides on the stored Event, which may change before the commit.
    pub(super) fn review(&mut self, mut request: Request) {
        let mut stored = if request.create { None } else { self.etcd.get(request.stored_name()) };
        if !request.create && stored.is_none() {
            return self.reply(request, Reply::Failed); // deleted meanwhile: 404
        }
        // A reader has read the Event itself, so the API server cannot have read an older one.
        if !request.create && !request.client.reads() && std::mem::take(&mut self.has_read_early) {
            stored = self.etcd.get_before(request.stored_name(), self.now).or(stored);
        }
        request.reviewed_on = stored.map_or(0, |event| event.version);
        self.oracle.asks(&request);
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

    fn ask(&mut self, request: &mut Request, stored: Option<Stored>) -> Answer {
        let oversight = self.oversight.take();
        if self.active().is_none() || matches!(oversight, Some(Step::Overlook)) {
            return self.pass_unseen(request, stored);
        }
        match oversight {
            Some(Step::GiveUp) => {
                self.note(format_args!("{request}: the API server closes the connection and stores it"));
                self.balance.disturbed = true;
                self.late.push((request.clone(), stored));
                if let Some(name) = &request.name {
                    self.knowledge.pass_unseen(name);
                }
                request.unseen = true;
                Answer::Allow
            }
            Some(Step::FailOpen) => {
                request.counted += self.fail_open(request, stored);
                request.unseen = true;
                Answer::Allow
            }
            _ => self.decide(request, stored, oversight.is_some()),
        }
    }

    /// squelch decides. `answer_lost`: the API server does not receive the answer and stores the write.
    fn decide(&mut self, request: &mut Request, stored: Option<Stored>, answer_lost: bool) -> Answer {
        let at = self.replicas.len() - 1;
        let rules = self.rules.clone();
        let asked = request.observed(stored);
        let governing = self.governing(&rules, &asked);
        let verdict = self.replicas[at].engine.decide(Some(governing), &asked, self.now);
        let counted = self.counters();
        let recovered = (counted.recovered - self.counted.recovered) as i64;
        self.counted = counted;
        self.compare_with_model(governing.treatment, &asked, &verdict, recovered);
        self.check_drops(&asked, &verdict);
        let entry =
            format!("{request} (stored {:?}) -> {}", stored.map(|event| event.count), reported(&verdict));
        self.note(entry);
        let minted = match &verdict.answer {
            Answer::AllowNamed(name) => Some(name.clone()),
            _ => None,
        };
        let passes = minted.is_some() || verdict.answer == Answer::Allow;
        if passes {
            request.counted += verdict.occurrences + recovered;
            request.beside_series |= verdict.stage != Stage::Series;
            request.admitted = true;
        }
        if let Some(disposition) = verdict.disposition {
            let decided = Decided {
                disposition,
                passes,
                opens_nothing: passes && verdict.stage == Stage::Standby,
                minted: minted.clone(),
                old: stored.map(|event| event.count),
                replica: at,
                began_before: request.first_seen < self.replicas[at].began,
            };
            self.oracle.decides(request, &decided, &self.etcd, &rules, self.now);
        }
        self.check_count(request, stored.map_or(0, |event| event.count), &verdict);
        if !answer_lost {
            return verdict.answer;
        }
        self.note(format_args!("{request}: the answer is lost, and the API server stores it"));
        self.balance.disturbed = true;
        request.unseen = true;
        self.oracle.loses_answer(request, passes, minted.as_deref());
        Answer::Allow
    }

    /// squelch counts a write that it does not decide. Returns the occurrences.
    fn fail_open(&mut self, request: &Request, stored: Option<Stored>) -> i64 {
        let at = self.replicas.len() - 1;
        let rules = self.rules.clone();
        let asked = request.observed(stored);
        let governing = self.governing(&rules, &asked);
        self.replicas[at].engine.fail_open(Some(governing), &asked, self.now);
        self.replicas[at].model = None; // its rules say nothing of what is let through undecided
        self.balance.disturbed = true;
        let counted = self.counters();
        let occurrences = (counted.received() - self.counted.received()) as i64;
        let failed_open = counted.of(Disposition::FailedOpen) - self.counted.of(Disposition::FailedOpen);
        if failed_open as i64 != occurrences {
            self.break_law(format!("{request} is not counted as failed open"));
        }
        self.counted = counted;
        let stage = if asked.unchanged && occurrences == 0 { Stage::Edit } else { Stage::Admit };
        let verdict = Verdict { occurrences, ..Verdict::passed(stage) };
        self.note(format_args!("{request} is not decided: {}", reported(&verdict)));
        self.oracle.fails_open(request, stored.map(|event| event.count), at);
        self.check_count(request, stored.map_or(0, |event| event.count), &verdict);
        occurrences
    }

    /// squelch finds that the caller of a review has closed. It does not decide the review.
    pub(super) fn find_closed(&mut self, at: usize) {
        if at < self.late.len() && self.active().is_some() {
            let (request, stored) = self.late.remove(at);
            self.fail_open(&request, stored);
        }
    }

    pub(super) fn find_all_closed(&mut self) {
        (0..self.late.len()).for_each(|_| self.find_closed(0));
    }

    /// Passes without a decision. A standby replica refuses what would lower a stored count.
    fn pass_unseen(&mut self, request: &mut Request, stored: Option<Stored>) -> Answer {
        let asked = request.observed(stored);
        let enforced = self.rules.series.is_some() && self.rules.mode == Mode::Enforce;
        if self.webhook == Webhook::Standby && enforced && lowers(&asked) {
            let answer = refusal(&self.rules, &asked, ClientCount::Own);
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

    /// A person edits a stored Event. Edits are never refused nor counted.
    pub(super) fn review_edit(&mut self, name: &str) {
        let Some(stored) = self.etcd.get(name) else { return };
        let (rules, now) = (self.rules.clone(), self.now);
        let edit = Observation {
            operation: Operation::Update,
            user: "person",
            name: Some(name.into()),
            value: stored.count,
            old_value: stored.count,
            edited: true,
            ..crate::testing::write()
        };
        let governing = self.governing(&rules, &edit);
        let Some(replica) = self.active() else { return };
        let verdict = replica.engine.decide(Some(governing), &edit, now);
        if verdict != Verdict::passed(Stage::Edit) {
            self.break_law(format!("an edit of {name}: {verdict:?}"));
        }
    }
}

fn reported(verdict: &Verdict) -> String {
    let Verdict { disposition, stage, occurrences, answer } = verdict;
    let disposition = disposition.map_or("passed", Disposition::as_str);
    format!("carries {occurrences}, {disposition} ({}), {answer:?}", stage.as_str())
}
