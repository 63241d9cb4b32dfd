//! Reviews: what the API server asks squelch, and what squelch answers.

use super::clients::{Client, Known};
use super::*;
use crate::decide::pipeline::{lowers, refusal};

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
        let verdict = self.replicas[at].engine.decide(by(&rules), &asked, self.now);
        let counted = self.counters();
        let recovered = (counted.recovered - self.counted.recovered) as i64;
        self.counted = counted;
        self.compare_with_model(&asked, &verdict, recovered);
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
        self.replicas[at].engine.fail_open(by(&rules), &asked, self.now);
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
            let answer = refusal(&self.rules, &asked, false);
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
            return; // the owner of the name is not always known
        }
        // If no replica knew the name when a tenant took it, its owner's CREATE carries one occurrence, and the
        // next UPDATE counts from the stored count.
        let is_claimed = request.name.as_deref().is_some_and(|name| self.oracle.is_claimed(name));
        let (news, known) = self.knowledge.news(request);
        // A CREATE of a known name carries nothing up to the highest value. The UPDATE that follows it carries its occurrence.
        let announces = request.client.reads()
            && request.create
            && known.reported_to == Some(replica)
            && request.value <= known.highest;
        let news = if announces { 0 } else { news };
        let first_report = known.reported_to != Some(replica);
        let has_history = known.reported_to.is_some() || known.passed_unseen;
        if first_report && has_history {
            let again = if request.create && !known.renewed { 0 } else { (known.reported - old).max(0) };
            let most = again + news.max(1);
            if !is_claimed && (carried > most || carried < news.min(1) && verdict.stage != Stage::Edit) {
                self.break_law(format!("{request} carries {carried}, {news} are new, at most {most}"));
            }
            self.balance.reported_again += (carried - news).max(0);
        } else {
            // kube's Recorder repeats a value whose answer was lost, for a later occurrence.
            let is_repeated = matches!(request.client, Client::Kube(_)) && (carried, news) == (1, 0);
            // "An UPDATE that adds one to the stored count carries one occurrence if its time is later than all
            // earlier ones under that name. Otherwise it is taken for a retry and carries nothing." An undecided
            // write, or one that squelch reads late, is not in that order.
            let is_late = request.client.reads()
                && (known.passed_unseen || verdict.stage == Stage::Edit)
                && (0..=news).contains(&carried);
            // "Its first write counts as everything above the highest count that this user reported", if a flush of a
            // former replica has raised the stored count meanwhile.
            let is_raised = request.client.reads()
                && (request.create || request.value == old + 1)
                && (request.client == Client::Reader || known.known_to_read != Some(replica))
                && (news..=request.value - known.highest).contains(&carried);
            // "Until squelch has seen a client write a value that it has seen before, at a later time": it patches a count
            // that it read before a flush.
            let is_behind = request.client == Client::Reader
                && request.value <= old
                && known.known_to_read != Some(replica)
                && carried == 0;
            // "If a flush raises the stored count between a write and its retry, the retry is counted as well."
            let is_retried = request.is_retried() && request.value > known.highest && (carried, news) == (1, 0);
            if is_raised || is_retried {
                self.balance.reported_again += (carried - news).max(0);
            }
            // semantics.md 2.1, for its own count, which falls when it restarts: "Until the new count exceeds it, only
            // writes that add one to the stored count are counted."
            let is_applied =
                request.client == Client::Applier && carried == carried_by_applied(request, old, &known, replica);
            let is_explained = is_applied
                || is_retried
                || is_repeated || is_late || is_raised || is_behind || is_claimed || self.names_are_forgotten;
            if carried != news && !is_explained {
                self.break_law(format!("{request} carries {carried}, but {news} are new"));
            }
        }
        let repeats = !first_report && request.value <= known.highest && request.value == old + 1;
        let may_read = request.client.reads() || request.client == Client::Applier;
        if may_read && !request.create && repeats && carried == 1 {
            self.knowledge.reads(request, replica);
        }
        if verdict.stage != Stage::Edit && !announces {
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
}

/// Returns what a write of the client that applies carries, if its name is known.
fn carried_by_applied(request: &Request, old: i64, known: &Known, replica: usize) -> i64 {
    let beyond = (request.value - known.highest).max(0);
    let is_later = request.second > known.latest;
    let adds_one = !request.create && request.value == old + 1;
    let is_behind = !request.create && request.value <= old;
    if request.value == old && request.second == known.latest {
        return 0;
    }
    let reads = known.known_to_read == Some(replica) || adds_one && is_later && beyond == 0;
    if reads && (adds_one || is_behind) {
        i64::from(is_later || beyond > 0)
    } else if reads && request.create {
        beyond.min(1)
    } else {
        beyond
    }
}

fn reported(verdict: &Verdict) -> String {
    let Verdict { disposition, stage, occurrences, answer } = verdict;
    let disposition = disposition.map_or("passed", Disposition::as_str);
    format!("carries {occurrences}, {disposition} ({}), {answer:?}", stage.as_str())
}
