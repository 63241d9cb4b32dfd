use serde_json::json;
use squelch_engine::{Disposition, Dropped, Mode, PolicyId};

use super::*;
use crate::policy::Index;
use crate::policy::fixtures::{cluster_object, id, labels, object, policy};
use crate::status::Verdict;

fn after(seconds: u64) -> Moment {
    Moment::from_epoch(Duration::from_secs(seconds))
}

fn account(name: &str, mode: Mode, occurrences: u64) -> ScopeCounters {
    let mut counters = Counters::default();
    counters.count(Disposition::Compacted, occurrences);
    ScopeCounters {
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
    accounts: Vec<ScopeCounters>,
    unarmed: Option<&'static str>,
}

impl Scene {
    fn new(names: &[&str]) -> Self {
        let limits = Limits { interval: Duration::from_secs(10), qps: 5 };
        let policies = names.iter().map(|name| policy("ci", name, &json!({"match": {"reasons": [name]}}), 0));
        Self { plan: Plan::new(limits), set: Set::new(policies), accounts: Vec::new(), unarmed: None }
    }

    fn due(&mut self, now: u64) -> Vec<Due> {
        self.plan.due(&self.set, &self.accounts, self.unarmed, after(now), Timestamp::UNIX_EPOCH)
    }

    /// Edits the spec of every policy with such a name.
    fn edit(&mut self, which: impl Fn(&str) -> bool) {
        let policies = self.set.policies().iter().map(|policy| {
            if !which(&policy.name) {
                return policy.clone();
            }
            Arc::new(Policy { generation: policy.generation + 1, ..(**policy).clone() })
        });
        self.set = Set::new(policies.collect::<Vec<_>>());
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
    assert_eq!(scene.write(12), ["fresh", "p"]);
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
    let line = |mode, dropped| ScopeCounters { dropped, ..account("p", mode, 0) };
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
    let line = |namespace: &str, dropped| ScopeCounters {
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
    index.apply_namespace("ci", "1", labels(&[]));
    index.apply_namespace("shop", "2", labels(&[]));
    let accounts = vec![line("ci", dropped(3)), line("shop", dropped(4)), line("", TopDropped::default())];
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

#[test]
fn condition_changes_do_not_starve_counters() {
    let mut scene = Scene::new(&["victim", "h0", "h1", "h2", "h3", "h4"]);
    scene.write(0);
    let mut written = 0;
    for second in 1..=60 {
        scene.edit(|name| name.starts_with('h'));
        scene.accounts = vec![account("victim", Mode::Enforce, second)];
        for due in scene.due(second).into_iter().take(5) {
            written += usize::from(&*due.policy.name == "victim");
            scene.plan.attempted(due, true, after(second));
        }
    }
    assert!(written >= 3, "{written} writes in a minute");
}

/// What happens to some policies while others are edited all the time: a look and a write each 200 ms, which is
/// `--status-qps 5`. Returns when each policy was written, by name.
fn busy(
    scene: &mut Scene,
    seconds: u64,
    mut before_each: impl FnMut(&mut Scene, u64),
) -> HashMap<String, Vec<u64>> {
    let mut written: HashMap<String, Vec<u64>> = HashMap::new();
    for step in 0..seconds * 5 {
        let millisecond = step * 200;
        before_each(scene, millisecond);
        let now = Moment::from_epoch(Duration::from_millis(millisecond));
        let due = scene.plan.due(&scene.set, &scene.accounts, None, now, Timestamp::UNIX_EPOCH);
        let Some(due) = due.into_iter().next() else { continue };
        written.entry(due.policy.name.to_string()).or_default().push(millisecond);
        scene.plan.attempted(due, true, now);
    }
    written
}

fn longest_gap(times: &[u64]) -> u64 {
    times.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(u64::MAX)
}

/// 50 policies with counters every 10 s are all that 5 writes a second can carry.
#[test]
fn counters_are_written_within_two_intervals_however_many_policies_are_edited() {
    let busy_ones: Vec<String> = (0..50).map(|number| format!("busy{number}")).collect();
    let edited: Vec<String> = (0..200).map(|number| format!("edited{number}")).collect();
    let names: Vec<&str> = busy_ones.iter().chain(&edited).map(String::as_str).collect();
    let mut scene = Scene::new(&names);
    scene.write(0);
    let written = busy(&mut scene, 120, |scene, millisecond| {
        if millisecond % 1000 == 0 {
            // One of the busy ones has news too, which waits behind all the other news.
            scene.edit(|name| name.starts_with("edited") || name == "busy7");
            let line = |name: &String| account(name, Mode::Enforce, millisecond + 1);
            scene.accounts = busy_ones.iter().map(line).collect();
        }
    });
    for name in &busy_ones {
        let since_all_were_written: Vec<u64> = [0].iter().chain(&written[name]).copied().collect();
        let gap = longest_gap(&since_all_were_written);
        assert!(gap <= 20_000, "{name}: {gap} ms");
    }
    let news: usize =
        written.iter().filter(|(name, _)| name.starts_with("edited")).map(|(_, times)| times.len()).sum();
    assert!(news >= 200, "{news} writes of news in 600");
}

/// Twice as many as the rate can carry.
#[test]
fn too_many_counters_do_not_starve_news() {
    let names: Vec<String> = (0..100).map(|number| format!("busy{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).chain(["edited"]).collect();
    let mut scene = Scene::new(&names);
    scene.write(0);
    let written = busy(&mut scene, 60, |scene, millisecond| {
        if millisecond % 1000 == 0 {
            scene.edit(|name| name == "edited");
            let line = |name: &&str| account(name, Mode::Enforce, millisecond + 1);
            scene.accounts = names.iter().map(line).collect();
        }
    });
    let gap = longest_gap(&written["edited"]);
    assert!(gap <= 2_000, "edited each second, written after {gap} ms");
}

/// Whoever edits, deletes and creates policies in one namespace delays the news of that namespace.
#[test]
fn news_of_one_namespace_does_not_delay_the_news_of_others() {
    let mut scene = Scene::new(&[]);
    let mut created = 0;
    let other = policy("shop", "other", &json!({}), 0);
    let written = busy(&mut scene, 60, |scene, millisecond| {
        // Each look finds 20 policies that were never written.
        created += 20;
        let names = (created - 20..created).map(|number| format!("fresh{number}"));
        let generation = i64::try_from(millisecond / 1000).unwrap();
        let other = Arc::new(Policy { generation, ..(*other).clone() });
        let fresh: Vec<_> = names.map(|name| policy("ci", &name, &json!({}), 0)).collect();
        scene.set = Set::new(fresh.into_iter().chain([other]));
    });
    let gap = longest_gap(&written["other"]);
    assert!(gap <= 2_000, "edited each second, written after {gap} ms");
}
