//! What a review adds to the sums.

use super::*;

impl Oracle {
    /// The API server is asked to store a write, decided or not.
    pub(in super::super) fn asks(&mut self, request: &Request) {
        let user = request.client.user();
        match (&request.name, request.client) {
            (Some(name), Client::Tenant) => {
                self.claimed.insert(name.clone());
            }
            (None, _) => self.sums_of(user).high += 1,
            (Some(name), _) => {
                let ledger = self.ledger(name);
                let news = (request.knows - ledger.asked).max(0);
                ledger.asked += news;
                self.sums_of(user).high += news;
            }
        }
    }

    /// A replica decides a write that is no edit.
    pub(in super::super) fn decides(
        &mut self,
        request: &mut Request,
        decided: &Decided,
        etcd: &Etcd,
        rules: &Rules,
        now: Moment,
    ) {
        let user = request.client.user();
        if request.client == Client::Tenant {
            return self.decides_of_tenant(request, decided);
        }
        let target = self.target(request, decided, rules, now);
        let Some(name) = request.name.clone() else {
            if decided.disposition.is_dropped() {
                self.sums_of(user).high -= 1;
            } else {
                self.add_certain(request, 1, target.as_ref(), etcd);
            }
            return;
        };
        let is_claimed = self.claimed.contains(&name);
        let ledger = self.ledger(&name);
        let report = ledger.reports(request, decided, is_claimed);
        if decided.disposition.is_dropped() {
            let left_out = ledger.drops(&report);
            self.sums_of(user).high -= left_out;
            return;
        }
        let elsewhere = match &target {
            None => None,
            Some(Target::Summary) => Some(true),
            Some(Target::Series(events)) => {
                let is_certain = events.len() == 1;
                (!is_certain || !events.contains(&name)).then_some(is_certain)
            }
        };
        let again = ledger.counts_again(request, decided, &report, elsewhere);
        let certain = ledger.adds_certain(request, decided, &report, is_claimed);
        if decided.passes && !request.create {
            // The total of its series includes the write from now on. A flush can store it before the write itself.
            let is_exact = !self.disturbed;
            let (again, sure) = self.ledger(&name).stores_again(request, is_exact);
            request.sure_again += sure;
            self.sums_of(user).high += again;
        }
        let sums = self.sums_of(user);
        // "Another replica has taken over from a live one: the former active replica flushes once."
        let flushed_late = again.handed_over.clamp(0, sums.handed_over);
        sums.handed_over -= flushed_late;
        sums.high += again.high + flushed_late;
        self.add_certain(request, certain, target.as_ref(), etcd);
    }

    /// A replica counts a write that it does not decide.
    pub(in super::super) fn fails_open(&mut self, request: &Request, old: Option<i64>, replica: usize) {
        if request.client != Client::Tenant
            && let Some(name) = &request.name
        {
            let ledger = self.ledger(name);
            let mut again = ledger.fails_open(request, old, replica);
            if !request.create {
                // The total of its series includes the write from now on. A flush can store it before the write itself.
                again += ledger.stores_again(request, false).0;
            }
            self.sums_of(request.client.user()).high += again;
        }
    }

    /// The answer to a review is lost. A merged write without a name: "Each of them is counted twice." A CREATE
    /// with `generateName`: the API server chooses another name than `minted`.
    pub(in super::super) fn loses_answer(&mut self, request: &Request, passes: bool, minted: Option<&str>) {
        self.disturbed = true;
        let user = request.client.user();
        if request.name.is_none() && !passes {
            self.sums_of(user).high += 1;
        }
        if let Some(minted) = minted {
            self.lose(minted, user, 0);
        }
    }

    /// Nothing of a tenant is stored while the API server refuses their Events: "squelch writes no Event that the
    /// API server refused to its client".
    fn decides_of_tenant(&mut self, request: &Request, decided: &Decided) {
        if decided.passes || decided.disposition.is_dropped() {
            return;
        }
        if self.tenant_is_stored || self.is_shared {
            self.sums_of("tenant").high += request.value;
        } else {
            self.tenant += request.value;
        }
    }

    /// Adds this number of occurrences, which must be stored if nothing happens to their Event. If they can be lost,
    /// subtracts what an earlier review of the same write added.
    fn add_certain(&mut self, request: &mut Request, number: i64, target: Option<&Target>, etcd: &Etcd) {
        // What an earlier review added. The write passed, and met a conflict.
        let (user, before) = (request.client.user(), request.certain);
        let sums = self.sums_of(user);
        let is_lost = match target {
            None => false,
            Some(Target::Summary) => {
                sums.aggregated += number;
                sums.lacks_events
            }
            Some(Target::Series(events)) => {
                let lost = events.iter().filter(|event| self.merge_into(event, user, number + before, etcd));
                lost.count() > 0
            }
        };
        request.certain = if is_lost { 0 } else { before + number };
        self.sums_of(user).low += request.certain - before;
    }

    /// Returns whether the occurrences can be lost because the Event is absent: "If its Event is not stored 5 s
    /// after the CREATE, its pending occurrences are lost and counted." Or because it is the Event of another
    /// user: "squelch never writes another Event under the same name".
    fn merge_into(&mut self, event: &str, user: &'static str, number: i64, etcd: &Etcd) -> bool {
        let is_absent = match etcd.get(event) {
            None => self.absent.contains(event),
            Some(found) => {
                self.absent.contains(event) || found.content.is_some_and(|(owner, _)| owner != user)
            }
        };
        if !is_absent {
            *self.merged_into.entry(event.to_owned()).or_default() += number;
        }
        is_absent
    }

    /// Returns where the occurrences of a write were merged, if they were: semantics.md, section 3. "An UPDATE
    /// belongs to the series of its Event name. If that name has no live series, the key decides."
    fn target(&mut self, request: &Request, decided: &Decided, rules: &Rules, now: Moment) -> Option<Target> {
        match decided.disposition {
            Disposition::Aggregated => return Some(Target::Summary),
            _ if decided.disposition.is_dropped() || decided.opens_nothing => return None, // nor does it revive one
            _ => {}
        }
        let idle_timeout = rules.series?.idle_timeout;
        let key = (decided.replica, request.client.user(), as_compared(request.message, rules));
        let Some(name) = decided.minted.clone().or_else(|| request.name.clone()) else {
            let series = self.series.get_mut(&key).filter(|_| !decided.passes)?;
            series.last = now;
            return Some(Target::Series(series.events.clone()));
        };
        let of_key = self.series.get(&key);
        let lives = of_key.is_some_and(|series| now.since(series.last) <= idle_timeout);
        let of_key = of_key.map(|series| &series.events);
        let only = Events::from([name.clone()]);
        let events = if request.create && decided.passes {
            // "A CREATE of a name that belongs to another user is admitted as one occurrence and changes nothing
            // else": the series of its key stays with its Event.
            let is_claimed = lives && self.claimed.contains(&name);
            of_key.filter(|_| is_claimed).into_iter().flatten().chain(&only).cloned().collect()
        } else if request.create {
            of_key.cloned().unwrap_or(only)
        } else {
            let of_name = self.joined.get(&(decided.replica, name.clone()));
            match (of_name, of_key) {
                (_, None) => only,
                (_, Some(of_key)) if *of_key == only => only,
                (None, Some(of_key)) if lives => of_key.clone(),
                (Some(of_name), Some(of_key)) if of_name == of_key && lives => of_key.clone(),
                (of_name, Some(of_key)) => {
                    of_name.into_iter().flatten().chain(of_key).chain(&only).cloned().collect()
                }
            }
        };
        self.joined.insert((decided.replica, name), events.clone());
        self.series.insert(key, Visible { events: events.clone(), last: now });
        (!decided.passes).then_some(Target::Series(events))
    }
}
