//! Which status is to be written next. Pure: time comes as an argument.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::api::{DroppedOccurrences, EventPolicyStatus, PolicyCounters};
use crate::engine::{Account, Counters, Moment, TopDropped};
use crate::policy::{Policy, Set};

use super::desired::{Difference, Facts, desired, difference};
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

/// A status to be written.
#[derive(Clone, Debug)]
pub struct Due {
    /// The policy that shows it.
    pub policy: Arc<Policy>,
    /// What it is to show.
    pub status: EventPolicyStatus,
}

/// What is known of the statuses in the cluster.
#[derive(Debug)]
pub struct Plan {
    interval: Duration,
    /// What stood in the statuses as this replica began, by policy uid, until a policy is tracked.
    found: HashMap<Arc<str>, EventPolicyStatus>,
    /// By policy uid.
    tracked: HashMap<Arc<str>, Tracked>,
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
        Self { interval: limits.interval, found: HashMap::new(), tracked: HashMap::new() }
    }

    /// What stands in the statuses of the policies with these uids: newer than what the watch may have told.
    pub fn start_from(&mut self, statuses: HashMap<Arc<str>, EventPolicyStatus>) {
        self.found = statuses;
    }

    /// How many occurrences were received that no status in the cluster tells of.
    pub fn unwritten(
        &mut self,
        set: &Set,
        accounts: &[Account],
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

    /// The statuses that are due, the most outdated first: news of a policy, then counters. Policies that are
    /// gone are forgotten.
    pub fn due(
        &mut self,
        set: &Set,
        accounts: &[Account],
        unarmed: Option<&str>,
        now: Moment,
        wall: Timestamp,
    ) -> Vec<Due> {
        let interval = self.interval;
        let mut due: Vec<_> = self
            .changed(set, accounts, unarmed, wall)
            .into_iter()
            .filter_map(|(change, tracked, found)| {
                let at = tracked.due_at(change, interval);
                (at <= now).then_some(((std::cmp::Reverse(change), at), found))
            })
            .collect();
        due.sort_by_key(|(order, _)| *order);
        due.into_iter().map(|(_, due)| due).collect()
    }

    /// Every status that differs from what stands in the cluster, due or not: for the last writes before exit. Those
    /// with counts come first: counts end with the process, and of what else a policy is the next one tells.
    pub fn all(
        &mut self,
        set: &Set,
        accounts: &[Account],
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
        let Some(tracked) = self.tracked.get_mut(&due.policy.id.uid) else { return Vec::new() };
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
        accounts: &[Account],
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
            let due = Due { policy: policy.clone(), status };
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

    fn due_at(&self, change: Difference, interval: Duration) -> Moment {
        match (self.attempt, change) {
            (None, _) => Moment::default(),
            (Some((last, true)), Difference::Conditions) => last.plus(NEWS_INTERVAL.min(interval)),
            (Some((last, _)), _) => last.plus(interval),
        }
    }
}

/// What the engine has counted of one policy.
#[derive(Default)]
struct Counted {
    counters: Counters,
    dropped: Vec<DroppedIn>,
}

/// Counts by policy uid: a policy may have a line per namespace and mode.
fn sums(accounts: &[Account]) -> HashMap<Arc<str>, Counted> {
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
mod tests {
    use serde_json::json;

    use super::*;
    use crate::engine::{Disposition, Dropped, Mode, PolicyId};
    use crate::policy::Index;
    use crate::policy::fixtures::{cluster_object, id, labels, object, policy};
    use crate::status::Verdict;

    fn after(seconds: u64) -> Moment {
        Moment::from_epoch(Duration::from_secs(seconds))
    }

    fn account(name: &str, mode: Mode, occurrences: u64) -> Account {
        let mut counters = Counters::default();
        counters.count(Disposition::Compacted, occurrences);
        Account {
            namespace: "ci".into(),
            policy: id("ci", name),
            mode,
            counters,
            dropped: TopDropped::default(),
        }
    }

    struct Scene {
        plan: Plan,
        set: Set,
        accounts: Vec<Account>,
        unarmed: Option<&'static str>,
    }

    impl Scene {
        fn new(names: &[&str]) -> Self {
            let limits = Limits { interval: Duration::from_secs(10), qps: 5 };
            let policies =
                names.iter().map(|name| policy("ci", name, &json!({"match": {"reasons": [name]}}), 0));
            Self { plan: Plan::new(limits), set: Set::new(policies), accounts: Vec::new(), unarmed: None }
        }

        fn due(&mut self, now: u64) -> Vec<Due> {
            self.plan.due(&self.set, &self.accounts, self.unarmed, after(now), Timestamp::UNIX_EPOCH)
        }

        /// Names of what is due, all written with success.
        fn write(&mut self, now: u64) -> Vec<String> {
            let due = self.due(now);
            let names = due.iter().map(|due| due.policy.name.to_string()).collect();
            for due in due {
                self.plan.attempted(due, true, after(now));
            }
            names
        }
    }

    #[test]
    fn a_fresh_policy_is_due_at_once_and_counters_each_interval() {
        let mut scene = Scene::new(&["p"]);
        assert_eq!(scene.write(0), ["p"]);
        assert!(scene.write(60).is_empty(), "nothing has changed");
        scene.accounts = vec![account("p", Mode::Enforce, 1), account("p", Mode::Observe, 2)];
        let status = scene.due(60).remove(0).status;
        assert_eq!(status.counters.unwrap().compacted, 3);
        assert_eq!(scene.write(60), ["p"]);
        scene.accounts[0] = account("p", Mode::Enforce, 5);
        assert!(scene.write(69).is_empty());
        assert_eq!(scene.write(70), ["p"]);
    }

    #[test]
    fn news_waits_a_second_and_comes_before_counters() {
        let mut scene = Scene::new(&["p", "q"]);
        assert_eq!(scene.write(0).len(), 2);
        scene.unarmed = Some("It hangs.");
        assert!(scene.write(0).is_empty());
        assert_eq!(scene.write(1).len(), 2);
        scene.accounts = vec![account("p", Mode::Enforce, 1)];
        let fresh = policy("ci", "fresh", &json!({}), 5);
        scene.set = Set::new(scene.set.policies().iter().cloned().chain([fresh]));
        assert_eq!(scene.write(30), ["fresh", "p"]);
    }

    #[test]
    fn what_is_written_is_news_once() {
        let mut scene = Scene::new(&["p"]);
        let due = scene.due(0).remove(0);
        assert_eq!(scene.plan.attempted(due.clone(), false, after(0)), []);
        let news = scene.plan.attempted(due.clone(), true, after(0));
        assert_eq!(news.iter().map(|news| news.what).collect::<Vec<_>>(), [Verdict::Accepted]);
        assert_eq!(scene.plan.attempted(due, true, after(1)), []);
    }

    #[test]
    fn the_most_outdated_is_first() {
        let mut scene = Scene::new(&["a", "b"]);
        let mut due = scene.due(0);
        scene.plan.attempted(due.remove(1), true, after(3));
        scene.plan.attempted(due.remove(0), true, after(5));
        scene.accounts = vec![account("a", Mode::Enforce, 1), account("b", Mode::Enforce, 1)];
        assert_eq!(scene.write(30), ["b", "a"]);
    }

    #[test]
    fn a_failed_write_is_tried_again_after_the_interval() {
        let mut scene = Scene::new(&["p"]);
        let due = scene.due(0).remove(0);
        scene.plan.attempted(due, false, after(0));
        assert!(scene.due(9).is_empty());
        assert_eq!(scene.write(10), ["p"]);
    }

    #[test]
    fn counters_go_on_over_a_restart_and_begin_anew_with_a_new_policy() {
        let mut index = Index::default();
        let status = json!({"counters": {"received": 7, "compacted": 7}, "since": "2026-01-01T00:00:00Z"});
        let mut stored = object("ci", "p", json!({"spec": {}, "status": status}));
        index.apply(&stored);
        let mut scene =
            Scene { set: index.set(), accounts: vec![account("p", Mode::Enforce, 2)], ..Scene::new(&[]) };
        let shown = scene.due(0).remove(0).status;
        assert_eq!(shown.counters.unwrap().received, 9);
        assert_eq!(shown.since.unwrap().0.to_string(), "2026-01-01T00:00:00Z");
        // What the watch brings back of our own writing is not counted twice.
        stored.data["status"]["counters"]["received"] = json!(9);
        index.apply(&stored);
        scene.set = index.set();
        assert_eq!(scene.due(0).remove(0).status.counters.unwrap().received, 9);

        stored.metadata.uid = Some("another".into());
        stored.data = json!({"spec": {}});
        index.apply(&stored);
        scene.set = index.set();
        assert_eq!(scene.due(0).remove(0).status.counters.unwrap().received, 0);
    }

    #[test]
    fn what_was_dropped_adds_up_over_modes_and_restarts() {
        let dropped = |reason, count| TopDropped {
            entries: vec![Dropped::new([reason, "Pod", "kubelet"], Disposition::Filtered, count)],
            others: 5,
        };
        let line = |mode, dropped| Account { dropped, ..account("p", mode, 0) };
        let mut index = Index::default();
        let mut stored = object("ci", "p", json!({"spec": {}}));
        index.apply(&stored);
        let accounts =
            vec![line(Mode::Enforce, dropped("BackOff", 3)), line(Mode::Observe, dropped("BackOff", 4))];
        let mut scene = Scene { set: index.set(), accounts, ..Scene::new(&[]) };
        let status = scene.due(0).remove(0).status;
        let listed = json!([{
            "namespace": "ci", "reason": "BackOff", "kind": "Pod", "component": "kubelet",
            "disposition": "filtered", "count": 7,
        }]);
        assert_eq!(serde_json::to_value(&status.top_dropped).unwrap(), listed);
        assert_eq!(scene.write(0), ["p"]);
        assert!(scene.write(60).is_empty(), "nothing has changed");

        stored.data["status"] = serde_json::to_value(&status).unwrap();
        let mut index = Index::default();
        index.apply(&stored);
        let accounts =
            vec![line(Mode::Enforce, dropped("BackOff", 10)), line(Mode::Observe, dropped("Pulled", 8))];
        let mut restarted = Scene { set: index.set(), accounts, ..Scene::new(&[]) };
        let listed = restarted.due(0).remove(0).status.top_dropped;
        let said: Vec<_> = listed.iter().map(|line| (&*line.reason, line.count)).collect();
        assert_eq!(said, [("BackOff", 17), ("Pulled", 8)]);
    }

    #[test]
    fn a_cluster_policy_sums_up_its_namespaces() {
        let dropped = |count| TopDropped {
            entries: vec![Dropped::new(["BackOff", "Pod", "kubelet"], Disposition::Filtered, count)],
            others: 0,
        };
        let line = |namespace: &str, dropped| Account {
            namespace: namespace.into(),
            policy: PolicyId { display: "all".into(), uid: "uid-of-all".into() },
            dropped,
            ..account("all", Mode::Enforce, 5)
        };
        let mut index = Index::default();
        let was = |namespace| {
            json!({"namespace": namespace, "reason": "R", "kind": "Pod", "component": "c",
                "disposition": "filtered", "count": 1})
        };
        let status = json!({"topDropped": [was("ci"), was("gone")]});
        index.apply(&cluster_object("all", json!({"spec": {}, "status": status})));
        index.apply_namespace("ci", labels(&[]));
        index.apply_namespace("shop", labels(&[]));
        let accounts =
            vec![line("ci", dropped(3)), line("shop", dropped(4)), line("", TopDropped::default())];
        let mut scene = Scene { set: index.set(), accounts, ..Scene::new(&[]) };
        let due = scene.due(0).remove(0);
        assert_eq!((&*due.policy.id.display, due.status.counters.unwrap().compacted), ("all", 15));
        let listed = due.status.top_dropped.iter();
        let listed: Vec<_> = listed.map(|line| (&*line.namespace, &*line.reason, line.count)).collect();
        assert_eq!(listed, [("shop", "BackOff", 4), ("ci", "BackOff", 3), ("ci", "R", 1)]);
    }

    #[test]
    fn at_the_end_everything_that_changed_is_written() {
        let mut scene = Scene::new(&["p", "q"]);
        scene.write(0);
        scene.accounts = vec![account("p", Mode::Enforce, 1)];
        assert!(scene.due(1).is_empty());
        let all = scene.plan.all(&scene.set, &scene.accounts, None, Timestamp::UNIX_EPOCH);
        assert_eq!(all.iter().map(|due| &*due.policy.name).collect::<Vec<_>>(), ["p"]);
    }

    #[test]
    fn at_the_end_counts_go_before_conditions() {
        let mut scene = Scene::new(&["a", "p"]);
        scene.accounts = vec![account("p", Mode::Enforce, 1)];
        let all = scene.plan.all(&scene.set, &scene.accounts, None, Timestamp::UNIX_EPOCH);
        assert_eq!(all.iter().map(|due| &*due.policy.name).collect::<Vec<_>>(), ["p", "a"]);
    }
}
