//! What is stored, refused, deleted and lost.

use super::*;

impl Oracle {
    /// A client's write is stored.
    pub(in super::super) fn commits(&mut self, request: &Request, before: i64) {
        let (name, user) = (request.stored_name(), request.client.user());
        let gained = self.gain(name, before, request.value);
        if request.create
            && let Some(former) = self.owners.insert(name.to_owned(), (user, request.message))
            && request.client == Client::Tenant
        {
            self.former_owners.insert(name.to_owned(), former);
        }
        if request.client == Client::Tenant {
            return self.commits_of_tenant(request.value, gained);
        }
        let is_exact = !request.unseen && !self.disturbed;
        self.disturbed |= request.unseen;
        let ledger = self.ledger(name);
        let news_of_undecided = ledger.news_of_undecided(request);
        ledger.commits(request);
        let (again, sure) = ledger.stores_again(request, is_exact);
        let sure = sure + if is_exact { request.sure_again } else { 0 };
        let rise = request.value - before;
        let merged = self.merged_into.get(name).copied().unwrap_or(0);
        let hidden = if gained == rise {
            // "In that time a client's PATCH can lower a count into which other clients' occurrences were merged",
            // or raise it by less than it carries. Only an undecided write does; the world checks this.
            news_of_undecided - rise
        } else {
            // "A fixed Event name that is reused after its Event expired or was deleted keeps its highest count":
            // the new Event starts below the former one.
            (request.certain + sure + merged - gained).min(rise - gained)
        };
        // "If the retry passes without a decision, its occurrence is stored twice and counted once."
        let is_retry = request.unseen && request.client.reads() && news_of_undecided == 0;
        let sums = self.sums_of(user);
        sums.high += again + if is_retry { rise.clamp(0, 1) } else { 0 };
        sums.low += sure - hidden.max(-gained).max(0);
        sums.stored += gained;
    }

    fn commits_of_tenant(&mut self, value: i64, gained: i64) {
        let merged = std::mem::take(&mut self.tenant);
        self.tenant_is_stored = true;
        self.disturbed = true;
        let sums = self.sums_of("tenant");
        sums.high += value + merged;
        sums.stored += gained;
    }

    /// A flush is stored.
    pub(in super::super) fn flushes(&mut self, name: &str, before: i64, after: i64) {
        let gained = self.gain(name, before, after);
        if let Some(merged) = self.merged_into.get_mut(name) {
            *merged = (*merged - (after - before)).max(0);
        }
        // The Event of a tenant who copied the name is gone. squelch creates that of its series.
        if before == 0
            && let Some(former) = self.former_owners.remove(name)
        {
            self.owners.insert(name.to_owned(), former);
        }
        // A tenant can copy the name of a deleted summary. squelch then writes the summary there.
        let of_summary = USERS.into_iter().find(|user| name.split('.').next() == Some(user));
        let user = of_summary.unwrap_or_else(|| self.owners.get(name).map_or("core", |(user, _)| *user));
        let sums = self.sums_of(user);
        sums.stored += gained;
        if before > 0 || gained == 0 {
            sums.low -= after - before - gained;
        }
    }

    /// Returns what a write adds to the stored occurrences. What was stored before a deletion is not added again.
    fn gain(&mut self, name: &str, before: i64, after: i64) -> i64 {
        self.absent.remove(name);
        let floor = self.floors.get(name).copied().unwrap_or(0);
        after.max(floor) - before.max(floor)
    }

    /// The API server refuses an admitted write. `is_refused`: for another reason than the stored Event.
    pub(in super::super) fn refuses(
        &mut self,
        request: &Request,
        is_refused: bool,
        etcd: &Etcd,
        now: Moment,
    ) {
        if request.client == Client::Tenant {
            // Their CREATE can be the witness of a group that others share.
            if self.is_shared {
                let sums = self.sums_of("tenant");
                sums.low -= std::mem::take(&mut sums.aggregated);
                sums.lacks_events = true;
            }
            return;
        }
        let (name, user) = (request.stored_name(), request.client.user());
        self.disturbed = true;
        // "Or another Event has its name": squelch takes one for another that is older than the CREATE.
        let is_absent = match etcd.get(name) {
            None => is_refused,
            Some(found) => found.age(now) > Duration::from_secs(60),
        };
        // "Conservation needs that every admitted write was stored." An UPDATE "still raises the total of its
        // series", so it may be stored by a flush.
        self.sums_of(user).low -= request.certain;
        if request.create && request.client.reads() && !is_refused {
            if is_absent {
                self.lacks_event(user); // the group of its CREATE
            }
            return self.ledger(name).withdraws(request);
        }
        if request.create && !is_refused && !is_absent {
            self.ledger(name).refuses(request);
        }
        if request.create && is_absent {
            self.lose(name, user, 0);
        }
        if !request.create && request.admitted {
            // That flush stores again what was merged into another Event, as the write would have.
            let (again, _) = self.ledger(name).stores_again(request, false);
            self.sums_of(user).high += again;
        }
    }

    /// An admitted write meets a conflict and is reviewed again. Without a series, or if that was evicted, what it
    /// carried is not stored: "Conservation needs that every admitted write was stored."
    pub(in super::super) fn conflicts(&mut self, request: &mut Request, evicts: bool) {
        if request.beside_series || evicts {
            self.disturbed = true;
            self.sums_of(request.client.user()).low -= std::mem::take(&mut request.certain);
        }
    }

    /// An Event is deleted or expires: "squelch creates it again only if occurrences are pending and squelch has
    /// read the Event since its client created it".
    pub(in super::super) fn deletes(&mut self, name: &str, count: i64) {
        self.disturbed = true;
        let user = self.owners.get(name).map_or("core", |(user, _)| *user);
        self.lose(name, user, count);
    }

    pub(super) fn lose(&mut self, name: &str, user: &'static str, count: i64) {
        let merged = self.merged_into.remove(name).unwrap_or(0);
        self.absent.insert(name.to_owned());
        let floor = self.floors.entry(name.to_owned()).or_default();
        *floor = (*floor).max(count);
        self.sums_of(user).low -= merged;
        self.lacks_event(user);
    }

    /// "It is created only after squelch has read an admitted Event of its group": a summary of this user can be lost.
    fn lacks_event(&mut self, user: &'static str) {
        let sums = self.sums_of(user);
        sums.low -= std::mem::take(&mut sums.aggregated);
        sums.lacks_events = true;
    }

    /// "SIGKILL, or the machine fails. Pending occurrences are lost": what is stored stays. `flushes_late`: another
    /// replica takes over from a live one.
    pub(in super::super) fn crashes(&mut self, flushes_late: bool) {
        self.disturbed = true;
        for sums in self.sums.values_mut() {
            if flushes_late {
                sums.handed_over = (sums.high - sums.stored).max(0);
            }
            sums.low = sums.low.min(sums.stored);
        }
    }

    /// Another replica decides.
    pub(in super::super) fn begins(&mut self) {
        self.disturbed = true;
    }

    /// The namespace is deleted and created again: nothing of the former one may be stored.
    pub(in super::super) fn renews(&mut self) {
        let (is_shared, is_blind) = (self.is_shared, self.is_blind);
        *self = Self { is_shared, is_blind, disturbed: true, ..Self::default() };
    }
}
