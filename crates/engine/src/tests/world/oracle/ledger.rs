//! The occurrences under one name: which ones must be stored, and which ones may be stored again.

use super::*;

/// The occurrences under one name.
#[derive(Default)]
pub(super) struct Ledger {
    /// Highest index that the API server was asked to store.
    pub(super) asked: i64,
    /// Highest index that a replica has decided.
    counted: i64,
    /// The last replica that decided a write of this name.
    replica: Option<usize>,
    /// The highest count that it was sent.
    highest: i64,
    /// Whether the first write that it decided was not above the stored count.
    began_behind: bool,
    /// Indices that are part of `low`.
    certain: BTreeSet<i64>,
    /// Indices that were dropped or refused, and are no part of `high`.
    left_out: BTreeSet<i64>,
    /// Highest index that an undecided write has stored.
    unseen: i64,
    /// Indices of the last CREATE, which the API server refused because the Event exists.
    withdrawn: Vec<i64>,
    /// Whether the last write was such a CREATE of a client that reads, with an occurrence. Its UPDATE has it again.
    is_withdrawn: bool,
    /// Indices merged into another Event. The flag says whether this is certain.
    elsewhere: BTreeMap<i64, bool>,
}

/// What a decided write reports.
pub(super) struct Report {
    /// The indices that no replica has decided.
    news: Vec<i64>,
    is_other_replica: bool,
    /// Whether the replica does not know the name, although it has a history.
    is_first: bool,
    /// How much a write that adds one to the stored count is above the highest count that the replica was sent.
    above_highest: i64,
    /// Whether its value is above the highest one that the replica was sent.
    is_above: bool,
}

/// What is stored again.
#[derive(Default)]
pub(super) struct Again {
    /// Increases `high`.
    pub(super) high: i64,
    /// The same, as far as a former replica still flushes.
    pub(super) handed_over: i64,
}

impl Ledger {
    /// A replica decides a write of this name. `is_claimed`: another user asked for the name, so that the replica may
    /// not know it as the client's: "A CREATE of a name that belongs to another user carries one occurrence within the
    /// limits, and changes nothing else."
    pub(super) fn reports(&mut self, request: &mut Request, decided: &Decided, is_claimed: bool) -> Report {
        let is_other_replica = self.replica != Some(decided.replica);
        let has_history = self.replica.is_some() || self.counted > 0 || request.knows > 1;
        // Also if the write was admitted, met a conflict, and is reviewed again.
        let is_first = (is_other_replica || is_claimed) && has_history || request.is_first;
        request.is_first = is_first && decided.passes;
        let adds_one = decided.old == Some(request.value - 1);
        let above_highest = if adds_one && !is_other_replica { request.value - self.highest } else { 0 };
        if is_other_replica {
            self.began_behind = decided.old.is_some_and(|old| request.value <= old);
        }
        let before = if is_other_replica { 0 } else { self.highest };
        self.highest = before.max(request.value);
        // semantics.md 2.1: "name is known: value - highest value, at least 0". The UPDATE after this CREATE carries its
        // occurrence.
        let announces = request.create && request.client.reads() && request.value <= before;
        let news = if announces { Vec::new() } else { self.counts(request, decided.replica) };
        Report { news, is_other_replica, is_first, above_highest, is_above: request.value > before }
    }

    /// The API server refuses an admitted CREATE, because the Event exists. The UPDATE that follows has the same occurrence.
    pub(super) fn withdraws(&mut self, request: &Request) {
        if request.admitted && self.counted == request.knows && self.certain.remove(&request.knows) {
            self.counted -= 1;
            self.is_withdrawn = true;
        }
    }

    /// The API server refuses an admitted CREATE of a client that counts by itself, because the Event exists.
    pub(super) fn refuses(&mut self, request: &Request) {
        let news = request.knows - request.certain + 1..=request.knows;
        self.withdrawn = news.filter(|index| self.certain.remove(index)).collect();
    }

    /// Returns the indices that no replica has counted yet.
    fn counts(&mut self, request: &Request, replica: usize) -> Vec<i64> {
        let news = (self.counted + 1..=request.knows).collect();
        self.replica = Some(replica);
        self.counted = self.counted.max(request.knows);
        news
    }

    /// A replica counts a write that it does not decide. Returns the occurrences that are stored again: "The retry
    /// is counted, and its occurrences are stored twice."
    pub(super) fn fails_open(&mut self, request: &Request, old: Option<i64>, replica: usize) -> i64 {
        let news = self.counts(request, replica).len() as i64;
        let retried = if request.knows <= self.unseen { news } else { 0 };
        retried + i64::from(news == 0 && repeats_count(request, old))
    }

    /// The write is dropped. Returns the number of indices that are left out.
    pub(super) fn drops(&mut self, report: &Report) -> i64 {
        let unseen = self.unseen;
        let left_out = report.news.iter().filter(|index| **index > unseen && self.left_out.insert(**index));
        left_out.count() as i64
    }

    /// The write is admitted or merged. `elsewhere`: it is merged into another Event; the flag says whether this is
    /// certain. Returns which occurrences are stored again.
    pub(super) fn counts_again(
        &mut self,
        request: &Request,
        decided: &Decided,
        Report { news, is_other_replica, is_first, above_highest, .. }: &Report,
        elsewhere: Option<bool>,
    ) -> Again {
        let mut again = Again::default();
        // After a restart, a client that creates with 1 before it replaces "is counted from 1" by its first UPDATE.
        let from_one = matches!(request.client, Client::Replacer(_)) && *above_highest > 0;
        let is_new_here = *is_other_replica || *is_first || from_one;
        let covered = |index: &i64| news.contains(index) || is_new_here && *index <= request.knows;
        let mut reported_again: Vec<i64> = self.left_out.extract_if(.., |index| covered(index)).collect();
        if *is_first && !decided.passes {
            // semantics.md 2.1: "name is new, UPDATE: value - stored count, at least 1", so the new replica counts
            // everything that the stored count lacks, also what was dropped or merged elsewhere before.
            let carried = carried_by_new_name(request, decided);
            let extracted = self.elsewhere.extract_if(..=request.knows, |_, _| true);
            reported_again.extend(extracted.map(|(index, _)| index));
            if let Some(sure) = elsewhere {
                let indices = (request.knows - carried + 1).max(1)..=request.knows;
                self.elsewhere.extend(indices.map(|index| (index, sure)));
            }
            let beyond = carried - news.len() as i64;
            if request.create || request.value <= decided.old.unwrap_or(0) && news.is_empty() {
                again.high += beyond.max(0); // a retry
            } else {
                again.handed_over = beyond;
            }
        }
        if from_one && !decided.passes && self.elsewhere.remove(&request.knows).is_some() {
            reported_again.push(request.knows);
        }
        if request.client.reads() && !decided.passes {
            // "Its next write counts as everything above the highest count that this user reported": a flush of a
            // former replica has raised the stored count meanwhile.
            let beyond = (above_highest - news.len() as i64).max(0);
            if beyond > 0 && std::mem::take(&mut self.began_behind) {
                // "Or its first write to a new replica was of a count that it read before a flush."
                again.high += beyond;
            } else {
                again.handed_over += beyond;
            }
        }
        let is_retried = request.is_retried() && news.is_empty() || std::mem::take(&mut self.is_withdrawn);
        if is_retried && *above_highest > 0 {
            // "If a flush raises the stored count between a write and its retry, the retry is counted as well."
            again.high += 1;
        }
        again.high += reported_again.len() as i64;
        again.high += i64::from(news.is_empty() && repeats_count(request, decided.old));
        if let Some(sure) = elsewhere {
            self.elsewhere.extend(news.iter().chain(&reported_again).map(|index| (*index, sure)));
        }
        // Undecided writes have stored them. The next decided write carries them.
        let stored_undecided = news.iter().filter(|index| **index <= self.unseen).count() as i64;
        if elsewhere.is_some() || !decided.passes && request.knows <= self.unseen {
            // It merges them into another Event, or it is a retry: "The retry is counted, and its occurrences are
            // stored twice".
            again.high += stored_undecided;
        } else if !decided.passes {
            // A flush of a former replica has raised the stored count meanwhile, as if these were not stored.
            again.handed_over += stored_undecided;
        }
        again
    }

    /// Returns how many new occurrences must be stored. `is_claimed`: another user asked for the name.
    pub(super) fn adds_certain(
        &mut self,
        request: &Request,
        decided: &Decided,
        Report { news, is_other_replica, is_first, is_above, .. }: &Report,
        is_claimed: bool,
    ) -> i64 {
        let mut certain = news.clone();
        if *is_first {
            // "At least 1" of them, if the stored count includes occurrences of others.
            certain.drain(..certain.len().saturating_sub(1));
        }
        if request.client.reads() {
            // It carries its own occurrence only, and only if it adds one. Its undecided write passed uncounted,
            // and can have stored the pending occurrence instead of its own occurrence: both wrote the same number.
            let adds_one = decided.old.is_none_or(|old| request.value == old + 1);
            certain.retain(|index| adds_one && *index == request.knows && *index > self.unseen);
        }
        if request.client == Client::Applier {
            // "Until the new count exceeds it, only writes that add one to the stored count are counted."
            // "Occurrences of a write that does not raise the stored count are in no stored count."
            let raises = !decided.passes || decided.old.is_none_or(|old| request.value > old);
            certain.retain(|index| *index == request.knows && (*is_first || *is_above) && raises);
        }
        if is_claimed {
            // "A CREATE of a name that belongs to another user carries one occurrence within the limits".
            certain.clear();
        }
        let withdrawn = std::mem::take(&mut self.withdrawn);
        if !request.create && !is_other_replica && !is_claimed {
            // "Its next UPDATE has the missing occurrence."
            certain.extend(withdrawn);
        }
        certain.retain(|index| self.certain.insert(*index));
        certain.len() as i64
    }

    /// Returns how many occurrences of an undecided write no write has reported or stored before.
    pub(super) fn news_of_undecided(&self, request: &Request) -> i64 {
        if request.unseen { (request.knows - self.counted.max(self.unseen)).max(0) } else { 0 }
    }

    /// A write is stored.
    pub(super) fn commits(&mut self, request: &Request) {
        if request.unseen {
            self.unseen = self.unseen.max(request.knows);
        }
        if request.create && request.client.reads() {
            self.counted = self.counted.max(request.knows);
        }
    }

    /// A write is to be stored, by itself or as part of the total of its series. Returns how many occurrences are stored
    /// again, and how many of them must be.
    pub(super) fn stores_again(&mut self, request: &Request, is_exact: bool) -> (i64, i64) {
        // The write of a client that reads and adds one includes only its own occurrence.
        // That of a client that applies includes those since its last restart.
        let covered = match request.client {
            client if client.reads() => request.knows..=request.knows,
            Client::Applier => request.knows - request.value + 1..=request.knows,
            _ => 1..=request.knows,
        };
        // After a restart, its count rises above one that includes others.
        let is_exact = is_exact && (request.client != Client::Applier || request.value == request.knows);
        // "Conservation": what was merged into another Event and is reported again by an absolute count is stored
        // again. Undecided: "What was merged from that client into another Event is then stored a second time".
        let twice = self.elsewhere.extract_if(covered.clone(), |_, _| true);
        let twice: Vec<bool> = twice.map(|(_, sure)| sure).collect();
        let left_out: Vec<i64> = self.left_out.extract_if(covered, |_| true).collect();
        let added = left_out.iter().filter(|index| is_exact && self.certain.insert(**index)).count();
        let sure = twice.iter().filter(|sure| is_exact && **sure).count();
        ((twice.len() + left_out.len()) as i64, (added + sure) as i64)
    }
}

/// "kube-rs' Recorder sends the same count again after a lost answer. That occurrence is counted if it adds one to the
/// stored count at a later time."
fn repeats_count(request: &Request, old: Option<i64>) -> bool {
    matches!(request.client, Client::Kube(_)) && old == Some(request.value - 1)
}

/// Returns what a write carries if its name is new. semantics.md 2.1: "CREATE: its value; 1 if the Event began before
/// this replica became active", "UPDATE: value - stored count, at least 1".
fn carried_by_new_name(request: &Request, decided: &Decided) -> i64 {
    match (request.create, decided.began_before) {
        (true, true) => 1,
        (true, false) => request.value,
        (false, _) => (request.value - decided.old.unwrap_or(0)).max(1),
    }
}
