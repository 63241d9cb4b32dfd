//! Which status is to be written next. Pure: time comes as an argument.
//!
//! Everybody who can edit a policy can cause writes, and the rate of writes is limited. So writes of news (an edit, a
//! changed condition) and writes of counters take turns: while both are due, each has half of the rate. Counters that
//! would be older than two intervals at half of the rate go first, if the whole rate can carry them. Among the news,
//! namespaces take turns.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use squelch_engine::{Counters, Moment, ScopeCounters, TopDropped};

use crate::api::{DroppedOccurrences, EventPolicyStatus, PolicyCounters};
use crate::policy::{Policy, Set};

use super::desired::{Difference, Facts, counters_differ, desired, difference};
use super::dropped::DroppedIn;
use super::news::{News, news};

/// News of a policy (a condition, a generation) does not wait for the interval of the counters, but two of them
/// are at least this far apart, so that a condition that flaps cannot use up the writes.
const NEWS_INTERVAL: Duration = Duration::from_secs(1);

/// How often statuses may be written.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The least time between two writes of one policy's counters.
    pub interval: Duration,
    /// The most writes a second in all.
    pub qps: u32,
}

impl Limits {
    /// The least time between two writes.
    pub(super) fn pause(self) -> Duration {
        Duration::from_secs(1) / self.qps.max(1)
    }
}

/// A status to be written.
#[derive(Clone, Debug)]
pub struct Due {
    /// The policy that shows it.
    pub policy: Arc<Policy>,
    /// What it is to show.
    pub status: EventPolicyStatus,
    /// Which share of the writes it takes.
    turn: Turn,
}

/// The writes that share the rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    News,
    Counters,
}

/// What is known of the statuses in the cluster.
#[derive(Debug)]
pub struct Plan {
    interval: Duration,
    /// The least time between two writes.
    pause: Duration,
    /// What stood in the statuses as this replica began, by policy uid, until a policy is tracked.
    found: HashMap<Arc<str>, EventPolicyStatus>,
    /// By policy uid.
    tracked: HashMap<Arc<str>, Tracked>,
    /// When news of each namespace's policies was last written (or tried); `None`: of cluster-scoped policies.
    news_of: HashMap<Option<Arc<str>>, Moment>,
    /// Counters were due at the last look.
    counters_wait: bool,
    /// News was written while counters were due: they have the next turn.
    counters_first: bool,
}

#[derive(Debug)]
struct Tracked {
    /// What stood in the status when the policy was first seen; the engine's counts are added to it.
    base: PolicyCounters,
    base_dropped: Vec<DroppedOccurrences>,
    since: Timestamp,
    /// The status as it stands in the cluster, as far as is known: what was first read, then what was written.
    /// (Not what the watch tells later: that may be older than the last write.)
    standing: Option<EventPolicyStatus>,
    /// The last attempt, and whether it succeeded.
    attempt: Option<(Moment, bool)>,
}

impl Plan {
    /// Knows nothing yet.
    pub fn new(limits: Limits) -> Self {
        Self {
            interval: limits.interval,
            pause: limits.pause(),
            found: HashMap::new(),
            tracked: HashMap::new(),
            news_of: HashMap::new(),
            counters_wait: false,
            counters_first: false,
        }
    }

    /// What stands in the statuses of the policies with these uids: newer than what the watch may have told.
    pub fn start_from(&mut self, statuses: HashMap<Arc<str>, EventPolicyStatus>) {
        self.found = statuses;
    }

    /// How many occurrences were received that no status in the cluster tells of.
    pub fn unwritten(
        &mut self,
        set: &Set,
        accounts: &[ScopeCounters],
        unarmed: Option<&str>,
        wall: Timestamp,
    ) -> u64 {
        let received = |status: Option<&EventPolicyStatus>| {
            status.and_then(|status| status.counters).unwrap_or_default().received
        };
        let changed = self.changed(set, accounts, unarmed, wall);
        let missing = changed
            .iter()
            .map(|(_, tracked, due)| received(Some(&due.status)) - received(tracked.standing.as_ref()));
        missing.map(|missing| missing.max(0).unsigned_abs()).sum()
    }

    /// The statuses that are due, in the order in which they are to be written. Policies that are gone are forgotten.
    pub fn due(
        &mut self,
        set: &Set,
        accounts: &[ScopeCounters],
        unarmed: Option<&str>,
        now: Moment,
        wall: Timestamp,
    ) -> Vec<Due> {
        let interval = self.interval;
        let (mut news, mut counters, mut load) = (Vec::new(), Vec::new(), 0);
        for (change, tracked, due) in self.changed(set, accounts, unarmed, wall) {
            let (news_at, counters_at) = (tracked.news_due_at(interval), tracked.counters_due_at(interval));
            let is_news = change == Difference::Conditions && news_at <= now;
            let counters_wait = tracked.counters_wait(&due.status);
            load += u32::from(counters_wait);
            // A policy whose news waits behind the news of many others is not to wait with its counters too.
            if counters_wait && counters_at <= now {
                news.extend(is_news.then(|| (news_at, due.clone())));
                counters.push((counters_at, Due { turn: Turn::Counters, ..due }));
            } else if is_news {
                news.push((news_at, due));
            }
        }
        counters.sort_by_key(|(at, _)| *at);
        self.counters_wait = !counters.is_empty();
        let is_urgent = self.is_urgent(&counters, load, now);
        let (news, counters) = (self.by_namespace(news), counters.into_iter().map(|(_, due)| due));
        let due = if is_urgent {
            counters.chain(news).collect()
        } else {
            take_turns(news.into_iter(), counters, self.counters_first)
        };
        let mut seen = HashSet::new();
        due.into_iter().filter(|due| seen.insert(due.policy.id.uid.clone())).collect()
    }

    /// Whether some of the counters, which are in order, would be older than two intervals if they had half of the
    /// rate. Not if their load, the number of policies whose counters change, is more than the whole rate can carry.
    fn is_urgent(&self, counters: &[(Moment, Due)], load: u32, now: Moment) -> bool {
        // One write more than there are: the rate is not kept to the millisecond.
        let written = (2..).map(|number: u32| now.plus(2 * number * self.pause));
        let is_late = |((at, _), written): (&(Moment, Due), Moment)| written > at.plus(self.interval);
        load * self.pause <= self.interval && counters.iter().zip(written).any(is_late)
    }

    /// The news of each namespace, the oldest first, in turns: first one of each namespace, then a second one of each.
    /// The namespaces in the order in which they had their last turn.
    fn by_namespace(&self, mut news: Vec<(Moment, Due)>) -> Vec<Due> {
        news.sort_by_key(|(at, _)| *at);
        let mut number_of: HashMap<Option<Arc<str>>, usize> = HashMap::new();
        let in_turns = news.into_iter().map(|(at, due)| {
            let namespace = &due.policy.namespace;
            let number = number_of.entry(namespace.clone()).or_default();
            *number += 1;
            ((*number, self.news_of.get(namespace).copied(), at), due)
        });
        let mut in_turns: Vec<_> = in_turns.collect();
        in_turns.sort_by_key(|(order, _)| *order);
        in_turns.into_iter().map(|(_, due)| due).collect()
    }

    /// Every status that differs from what stands in the cluster, due or not: for the last writes before exit. Those
    /// with counts come first: counts end with the process, and of what else a policy is the next one tells.
    pub fn all(
        &mut self,
        set: &Set,
        accounts: &[ScopeCounters],
        unarmed: Option<&str>,
        wall: Timestamp,
    ) -> Vec<Due> {
        let mut all = self.changed(set, accounts, unarmed, wall);
        all.sort_by_key(|(_, tracked, due)| {
            let standing = tracked.standing.as_ref().and_then(|status| status.counters).unwrap_or_default();
            standing == due.status.counters.unwrap_or_default()
        });
        all.into_iter().map(|(_, _, due)| due).collect()
    }

    /// A write was attempted; if it succeeded, that status stands. Returns what it tells that was not known before.
    pub fn attempted(&mut self, due: Due, succeeded: bool, now: Moment) -> Vec<News> {
        self.counters_first = due.turn == Turn::News && self.counters_wait;
        let Some(tracked) = self.tracked.get_mut(&due.policy.id.uid) else { return Vec::new() };
        if due.turn == Turn::News {
            self.news_of.insert(due.policy.namespace.clone(), now);
        }
        tracked.attempt = Some((now, succeeded));
        if !succeeded {
            return Vec::new();
        }
        let news = news(tracked.standing.as_ref(), &due.status);
        tracked.standing = Some(due.status);
        news
    }

    fn changed(
        &mut self,
        set: &Set,
        accounts: &[ScopeCounters],
        unarmed: Option<&str>,
        wall: Timestamp,
    ) -> Vec<(Difference, &Tracked, Due)> {
        self.track(set, wall);
        let counted = sums(accounts);
        let nothing = Counted::default();
        let policies = set.policies().iter();
        let changed = policies.filter_map(|policy| {
            let tracked = self.tracked.get(&policy.id.uid)?;
            let counted = counted.get(&policy.id.uid).unwrap_or(&nothing);
            let status = desired(&Facts {
                generation: policy.generation,
                outcome: &policy.outcome,
                cluster_scoped: policy.namespace.is_none(),
                effect: set.effect(policy),
                unarmed,
                counted: &counted.counters,
                dropped: &counted.dropped,
                base: tracked.base,
                base_dropped: &tracked.base_dropped,
                since: tracked.since,
                previous: tracked.standing.as_ref(),
                now: wall,
            });
            let change = difference(tracked.standing.as_ref(), &status);
            let turn = if change == Difference::Conditions { Turn::News } else { Turn::Counters };
            let due = Due { policy: policy.clone(), status, turn };
            (change > Difference::Nothing).then_some((change, tracked, due))
        });
        changed.collect()
    }

    fn track(&mut self, set: &Set, wall: Timestamp) {
        let mut before = std::mem::take(&mut self.tracked);
        for policy in set.policies() {
            let known = before.remove(&policy.id.uid);
            let found = self.found.remove(&policy.id.uid);
            let mut tracked = known.unwrap_or_else(|| Tracked::first_seen(policy, found, wall));
            if policy.namespace.is_none() {
                // What was dropped in a namespace that is gone would stay on the list for ever.
                tracked.base_dropped.retain(|dropped| set.knows(&dropped.namespace));
            }
            self.tracked.insert(policy.id.uid.clone(), tracked);
        }
        let namespaces: HashSet<_> = set.policies().iter().map(|policy| &policy.namespace).collect();
        self.news_of.retain(|namespace, _| namespaces.contains(namespace));
    }
}

impl Tracked {
    fn first_seen(policy: &Policy, found: Option<EventPolicyStatus>, wall: Timestamp) -> Self {
        let standing = found.or_else(|| policy.reported.clone());
        let reported = standing.as_ref();
        Self {
            base: reported.and_then(|status| status.counters).unwrap_or_default(),
            base_dropped: reported.map(|status| status.top_dropped.clone()).unwrap_or_default(),
            since: reported.and_then(|status| status.since.as_ref()).map_or(wall, |since| since.0),
            standing,
            attempt: None,
        }
    }

    fn news_due_at(&self, interval: Duration) -> Moment {
        match self.attempt {
            None => Moment::default(),
            Some((last, true)) => last.plus(NEWS_INTERVAL.min(interval)),
            Some((last, false)) => last.plus(interval),
        }
    }

    fn counters_due_at(&self, interval: Duration) -> Moment {
        self.attempt.map_or_else(Moment::default, |(last, _)| last.plus(interval))
    }

    /// Whether counters that stand in the cluster are outdated. Those of a new policy come with its first status.
    fn counters_wait(&self, desired: &EventPolicyStatus) -> bool {
        self.standing.as_ref().is_some_and(|standing| counters_differ(standing, desired))
    }
}

/// One of each in turns, as long as there are both.
fn take_turns(
    mut news: impl Iterator<Item = Due>,
    mut counters: impl Iterator<Item = Due>,
    counters_first: bool,
) -> Vec<Due> {
    let mut counters_next = counters_first;
    let in_turns = std::iter::from_fn(|| {
        let next = if counters_next {
            counters.next().or_else(|| news.next())
        } else {
            news.next().or_else(|| counters.next())
        };
        counters_next = next.as_ref()?.turn == Turn::News;
        next
    });
    in_turns.collect()
}

/// What the engine has counted of one policy.
#[derive(Default)]
struct Counted {
    counters: Counters,
    dropped: Vec<DroppedIn>,
}

/// Counts by policy uid: a policy may have a line per namespace and mode.
fn sums(accounts: &[ScopeCounters]) -> HashMap<Arc<str>, Counted> {
    let mut sums: HashMap<Arc<str>, Counted> = HashMap::new();
    let mut dropped: HashMap<(&Arc<str>, &Arc<str>), TopDropped> = HashMap::new();
    for account in accounts {
        let uid = &account.policy.uid;
        sums.entry(uid.clone()).or_default().counters.add(&account.counters);
        if !account.dropped.entries.is_empty() {
            dropped.entry((uid, &account.namespace)).or_default().add(&account.dropped);
        }
    }
    for ((uid, namespace), top) in dropped {
        let counted = sums.entry(uid.clone()).or_default();
        counted.dropped.extend(top.entries.into_iter().map(|entry| (namespace.clone(), entry)));
    }
    sums
}

#[cfg(test)]
mod tests;
