//! What a write of a known name must carry, and which sentence allows another number.

use super::clients::{Client, Known};
use super::*;

impl World {
    /// Checks the occurrences that an engine counted. At the first report of a name with a history a replica
    /// only knows the stored count; otherwise it must be exact.
    pub(super) fn check_count(&mut self, request: &Request, old: i64, verdict: &Verdict) {
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
        // A CREATE of a known name carries nothing up to the highest value. The UPDATE that follows it carries its
        // occurrence.
        let may_read = request.client.reads() || request.client == Client::Applier;
        let announces = may_read
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
            let is_explained =
                self.explains(request, old, verdict, news) || is_claimed || self.names_are_forgotten;
            if carried != news && !is_explained {
                self.break_law(format!("{request} carries {carried}, but {news} are new"));
            }
        }
        let repeats = !first_report && request.value <= known.highest && request.value == old + 1;
        if may_read && !request.create && repeats && carried == 1 {
            self.knowledge.reads(request, replica);
        }
        if verdict.stage != Stage::Edit && !announces {
            self.knowledge.report(request, replica);
        }
    }

    /// Whether a sentence allows that a write of a known name carries another number of occurrences than `news`.
    fn explains(&mut self, request: &Request, old: i64, verdict: &Verdict, news: i64) -> bool {
        let replica = self.replicas.len() - 1;
        let (_, known) = self.knowledge.news(request);
        let carried = verdict.occurrences;
        // kube's Recorder repeats a value whose answer was lost, for a later occurrence.
        let is_repeated = matches!(request.client, Client::Kube(_)) && (carried, news) == (1, 0);
        // "An UPDATE that adds one to the stored count carries one occurrence if its time is later than all
        // earlier ones under that name. Otherwise it is taken for a retry and carries nothing." An undecided
        // write, or one that squelch reads late, is not in that order.
        let is_late = request.client.reads()
            && (known.passed_unseen || verdict.stage == Stage::Edit)
            && (0..=news).contains(&carried);
        // "Its next write counts as everything above the highest count that this user reported", if a flush of a
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
        let follows = request.tries > 0 && request.client.sends_a_version();
        let is_retried = follows && request.value > known.highest && (carried, news) == (1, 0);
        if is_raised || is_retried {
            self.balance.reported_again += (carried - news).max(0);
        }
        // semantics.md 2.1, for its own count, which falls when it restarts: "Until the new count exceeds it, only
        // writes that add one to the stored count are counted."
        let is_applied =
            request.client == Client::Applier && carried == carried_by_applied(request, old, &known, replica);
        is_applied || is_retried || is_repeated || is_late || is_raised || is_behind
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
