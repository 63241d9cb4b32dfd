//! What the API server stores, refuses and deletes.

use super::clients::Client;
use super::*;

impl World {
    pub(super) fn annotate(&mut self, at: usize) {
        let Some(name) = self.etcd.nth(at) else { return };
        self.note(format_args!("a person annotates {name}"));
        self.review_edit(&name);
        self.etcd.annotate(&name);
    }

    pub(super) fn validate(&mut self) {
        self.refused_user = if self.refused_user.is_some() { None } else { Some("core") };
        self.note(format!("refused behind the webhook from now on: {:?}", self.refused_user));
    }

    /// The namespace is deleted after all writes in progress, and created again.
    pub(super) fn renew(&mut self) {
        self.renewals += 1;
        self.note("the namespace is deleted and created again");
        self.commit_all();
        self.give_up_all();
        self.late.clear();
        self.etcd.clear();
        self.oracle.renews();
        self.ever.clear();
        self.ever_users.clear();
        self.tasks.clear();
        let uids = self.uids();
        for replica in &mut self.replicas {
            replica.engine.identify_namespaces(&uids);
            replica.model.iter_mut().for_each(NaiveModel::forget);
        }
        self.knowledge.forget_reports();
    }

    /// squelch never creates an Event that no client has stored, nor a summary of a user without a stored
    /// Event.
    pub(super) fn check_created(&mut self, name: &str) {
        let user = name.split('.').next().unwrap_or_default();
        let across = self.rules.aggregation.is_some_and(|it| it.group_by == GroupBy::Kind);
        let of_group = self.ever_users.contains(user) || across && !self.ever_users.is_empty();
        if !self.ever.contains(name) && !of_group {
            self.break_law(format!("squelch creates {name}, but nothing of it was ever stored"));
        }
    }

    pub(super) fn delete(&mut self, at: usize) {
        let Some(name) = self.etcd.nth(at) else { return };
        self.note(format_args!("a person deletes {name}"));
        let count = self.etcd.get(&name).map_or(0, |event| event.count);
        self.etcd.delete(&name);
        self.oracle.deletes(&name, count);
        self.balance.disturbed = true;
    }

    pub(super) fn commit(&mut self, at: usize, commit: Commit) {
        if at >= self.pending.len() {
            return;
        }
        let mut request = self.pending.remove(at);
        let name = request.stored_name().to_owned();
        let found = self.etcd.get(&name);
        let is_refused = commit == Commit::Refused || self.refused_user == Some(request.client.user());
        if is_refused || found.is_some() == request.create {
            if request.create {
                self.balance.refused += request.counted;
            } else {
                self.balance.disturbed |= request.counted > 0;
            }
            self.note(format_args!("{request} is refused by the API server"));
            self.oracle.refuses(&request, is_refused, &self.etcd, self.now);
            let exists = !is_refused && request.create;
            return self.reply(request, if exists { Reply::Exists } else { Reply::Failed });
        }
        if found.is_some_and(|event| event.version != request.reviewed_on) {
            self.balance.disturbed |= request.beside_series || self.replicas.iter().any(Replica::has_evicted);
            let evicts = self.oracle.names() > self.max_series;
            self.oracle.conflicts(&mut request, evicts);
            self.note(format_args!("{request} meets a conflict"));
            if request.client.sends_a_version() {
                return self.reply(request, Reply::Exists);
            }
            return self.review(request); // 409 Conflict: the API server patches anew
        }
        self.store(&name, request.written(found), request.unseen, &request.to_string());
        let before = found.map_or(0, |event| event.count);
        if request.client == Client::Applier && self.rules.series.is_none() {
            // "Occurrences of a write that does not raise the stored count are in no stored count."
            self.balance.disturbed |= request.counted > request.value - before;
        }
        self.oracle.commits(&request, before);
        self.check_oracle(false);
        self.ever.insert(name);
        self.ever_users.insert(request.client.user());
        let series = request.has_series();
        let done = Reply::Done(ReadBack { count: request.value, series });
        self.reply(request, if commit == Commit::AnswerLost { Reply::Lost } else { done });
    }

    pub(super) fn commit_all(&mut self) {
        while !self.pending.is_empty() {
            self.commit(0, Commit::Tried);
        }
    }

    /// Stores a count. Only a write without a review may lower one, or, under a policy that merges nothing, a write
    /// into another user's Event or of a client that counts anew: it passes as it would without squelch.
    pub(super) fn store(&mut self, name: &str, written: Written, unseen: bool, by: &str) {
        let owner = self.etcd.get(name).and_then(|event| event.content).map(|(user, _)| user);
        let is_foreign = written.content.is_some_and(|(user, _)| owner.is_some_and(|owner| owner != user));
        let counts_anew = written.content.is_some_and(|(user, _)| user == Client::Applier.user());
        let before = self.etcd.put(name, written, self.now);
        self.note(format_args!("etcd: {name} = {} (by {by})", written.count));
        let change = written.count - before;
        if unseen {
            self.balance.unseen += change.abs();
            self.balance.disturbed |= change <= 0; // its occurrences replace those of others
        } else if change < 0 && (self.rules.series.is_some() || !is_foreign && !counts_anew) {
            self.break_law(format!("{name} lowered from {before} to {}", written.count));
        }
    }
}
