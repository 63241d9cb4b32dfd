use serde_json::json;
use squelch_engine::{Disposition, Dropped, Mode, PolicyId};

use super::*;
use crate::policy::Index;
use crate::policy::fixtures::{cluster_object, id, labels, object, policy};
use crate::status::TransitionKind;

fn after(seconds: u64) -> Moment {
    Moment::from_epoch(Duration::from_secs(seconds))
}

fn counters(name: &str, mode: Mode, occurrences: u64) -> ScopeCounters {
    let mut counted = Counters::default();
    counted.count(Disposition::Compacted, occurrences);
    ScopeCounters {
        namespace: "ci".into(),
        policy: id("ci", name),
        mode,
        counters: counted,
        dropped: TopDropped::default(),
    }
}

struct Scene {
    plan: Plan,
    set: Set,
    counters: Vec<ScopeCounters>,
    disarmed_reason: Option<&'static str>,
}

impl Scene {
    fn new(names: &[&str]) -> Self {
        let limits = WriteLimits { interval: Duration::from_secs(10), qps: 5 };
        let policies = names.iter().map(|name| policy("ci", name, &json!({"match": {"reasons": [name]}}), 0));
        Self { plan: Plan::new(limits), set: Set::new(policies), counters: Vec::new(), disarmed_reason: None }
    }

    fn due(&mut self, now: u64) -> Vec<Due> {
        self.plan.due(&self.set, &self.counters, self.disarmed_reason, after(now), Timestamp::UNIX_EPOCH)
    }

    /// Edits the spec of the policies with matching names.
    fn edit(&mut self, which: impl Fn(&str) -> bool) {
        let policies = self.set.policies().iter().map(|policy| {
            if !which(&policy.name) {
                return policy.clone();
            }
            Arc::new(Policy { generation: policy.generation + 1, ..(**policy).clone() })
        });
        self.set = Set::new(policies.collect::<Vec<_>>());
    }

    /// Writes all due statuses successfully, and returns the policy names.
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
fn a_new_policy_is_due_immediately_and_its_counters_after_each_interval() {
    let mut scene = Scene::new(&["p"]);
    assert_eq!(scene.write(0), ["p"]);
    assert!(scene.write(60).is_empty(), "nothing has changed");
    scene.counters = vec![counters("p", Mode::Enforce, 1), counters("p", Mode::Observe, 2)];
    let status = scene.due(60).remove(0).status;
    assert_eq!(status.counters.unwrap().compacted, 3);
    assert_eq!(scene.write(60), ["p"]);
    scene.counters[0] = counters("p", Mode::Enforce, 5);
    assert!(scene.write(69).is_empty());
    assert_eq!(scene.write(70), ["p"]);
}

#[test]
fn conditions_are_due_after_a_second_and_before_counters() {
    let mut scene = Scene::new(&["p", "q"]);
    assert_eq!(scene.write(0).len(), 2);
    scene.disarmed_reason = Some("It hangs.");
    assert!(scene.write(0).is_empty());
    assert_eq!(scene.write(1).len(), 2);
    scene.counters = vec![counters("p", Mode::Enforce, 1)];
    let fresh = policy("ci", "fresh", &json!({}), 5);
    scene.set = Set::new(scene.set.policies().iter().cloned().chain([fresh]));
    assert_eq!(scene.write(12), ["fresh", "p"]);
}

#[test]
fn a_transition_is_returned_once_after_a_successful_write() {
    let mut scene = Scene::new(&["p"]);
    let due = scene.due(0).remove(0);
    assert_eq!(scene.plan.attempted(due.clone(), false, after(0)), []);
    let transitions = scene.plan.attempted(due.clone(), true, after(0));
    assert_eq!(
        transitions.iter().map(|transition| transition.kind).collect::<Vec<_>>(),
        [TransitionKind::Accepted]
    );
    assert_eq!(scene.plan.attempted(due, true, after(1)), []);
}

#[test]
fn the_oldest_counters_are_written_first() {
    let mut scene = Scene::new(&["a", "b"]);
    let mut due = scene.due(0);
    scene.plan.attempted(due.remove(1), true, after(3));
    scene.plan.attempted(due.remove(0), true, after(5));
    scene.counters = vec![counters("a", Mode::Enforce, 1), counters("b", Mode::Enforce, 1)];
    assert_eq!(scene.write(30), ["b", "a"]);
}

#[test]
fn a_failed_write_is_retried_after_the_interval() {
    let mut scene = Scene::new(&["p"]);
    let due = scene.due(0).remove(0);
    scene.plan.attempted(due, false, after(0));
    assert!(scene.due(9).is_empty());
    assert_eq!(scene.write(10), ["p"]);
}

#[test]
fn counters_continue_after_a_restart_and_start_at_0_for_a_new_policy() {
    let mut index = Index::default();
    let status = json!({"counters": {"received": 7, "compacted": 7}, "since": "2026-01-01T00:00:00Z"});
    let mut stored = object("ci", "p", json!({"spec": {}, "status": status}));
    index.apply(&stored);
    let mut scene =
        Scene { set: index.set(), counters: vec![counters("p", Mode::Enforce, 2)], ..Scene::new(&[]) };
    let shown = scene.due(0).remove(0).status;
    assert_eq!(shown.counters.unwrap().received, 9);
    assert_eq!(shown.since.unwrap().0.to_string(), "2026-01-01T00:00:00Z");
    // The watch returns the written status. Its counters are not added again.
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
fn dropped_occurrences_are_added_up_over_modes_and_restarts() {
    let dropped = |reason, count| TopDropped {
        entries: vec![Dropped::new([reason, "Pod", "kubelet"], Disposition::Filtered, count)],
        others: 5,
    };
    let scope = |mode, dropped| ScopeCounters { dropped, ..counters("p", mode, 0) };
    let mut index = Index::default();
    let mut stored = object("ci", "p", json!({"spec": {}}));
    index.apply(&stored);
    let counters =
        vec![scope(Mode::Enforce, dropped("BackOff", 3)), scope(Mode::Observe, dropped("BackOff", 4))];
    let mut scene = Scene { set: index.set(), counters, ..Scene::new(&[]) };
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
    let counters =
        vec![scope(Mode::Enforce, dropped("BackOff", 10)), scope(Mode::Observe, dropped("Pulled", 8))];
    let mut restarted = Scene { set: index.set(), counters, ..Scene::new(&[]) };
    let listed = restarted.due(0).remove(0).status.top_dropped;
    let listed: Vec<_> = listed.iter().map(|entry| (&*entry.reason, entry.count)).collect();
    assert_eq!(listed, [("BackOff", 17), ("Pulled", 8)]);
}

#[test]
fn a_cluster_policy_has_the_sums_of_its_namespaces() {
    let dropped = |count| TopDropped {
        entries: vec![Dropped::new(["BackOff", "Pod", "kubelet"], Disposition::Filtered, count)],
        others: 0,
    };
    let scope = |namespace: &str, dropped| ScopeCounters {
        namespace: namespace.into(),
        policy: PolicyId { display: "all".into(), uid: "uid-of-all".into() },
        dropped,
        ..counters("all", Mode::Enforce, 5)
    };
    let mut index = Index::default();
    let entry = |namespace| {
        json!({"namespace": namespace, "reason": "R", "kind": "Pod", "component": "c",
            "disposition": "filtered", "count": 1})
    };
    let status = json!({"topDropped": [entry("ci"), entry("deleted")]});
    index.apply(&cluster_object("all", json!({"spec": {}, "status": status})));
    index.apply_namespace("ci", "1", labels(&[]));
    index.apply_namespace("shop", "2", labels(&[]));
    let counters = vec![scope("ci", dropped(3)), scope("shop", dropped(4)), scope("", TopDropped::default())];
    let mut scene = Scene { set: index.set(), counters, ..Scene::new(&[]) };
    let due = scene.due(0).remove(0);
    assert_eq!((&*due.policy.id.display, due.status.counters.unwrap().compacted), ("all", 15));
    let listed = due.status.top_dropped.iter();
    let listed: Vec<_> = listed.map(|entry| (&*entry.namespace, &*entry.reason, entry.count)).collect();
    assert_eq!(listed, [("shop", "BackOff", 4), ("ci", "BackOff", 3), ("ci", "R", 1)]);
}

#[test]
fn all_changed_statuses_are_written_before_exit() {
    let mut scene = Scene::new(&["p", "q"]);
    scene.write(0);
    scene.counters = vec![counters("p", Mode::Enforce, 1)];
    assert!(scene.due(1).is_empty());
    let all = scene.plan.all(&scene.set, &scene.counters, None, Timestamp::UNIX_EPOCH);
    assert_eq!(all.iter().map(|due| &*due.policy.name).collect::<Vec<_>>(), ["p"]);
}

#[test]
fn counters_are_written_before_conditions_at_exit() {
    let mut scene = Scene::new(&["a", "p"]);
    scene.counters = vec![counters("p", Mode::Enforce, 1)];
    let all = scene.plan.all(&scene.set, &scene.counters, None, Timestamp::UNIX_EPOCH);
    assert_eq!(all.iter().map(|due| &*due.policy.name).collect::<Vec<_>>(), ["p", "a"]);
}

#[test]
fn condition_changes_do_not_starve_counters() {
    let mut scene = Scene::new(&["victim", "h0", "h1", "h2", "h3", "h4"]);
    scene.write(0);
    let mut written = 0;
    for second in 1..=60 {
        scene.edit(|name| name.starts_with('h'));
        scene.counters = vec![counters("victim", Mode::Enforce, second)];
        for due in scene.due(second).into_iter().take(5) {
            written += usize::from(&*due.policy.name == "victim");
            scene.plan.attempted(due, true, after(second));
        }
    }
    assert!(written >= 3, "{written} writes in a minute");
}

/// Computes the due statuses and writes one every 200 ms, the rate of `--status-qps 5`, while policies are edited. Returns
/// the times of the writes in milliseconds, by policy name.
fn writes_under_load(
    scene: &mut Scene,
    seconds: u64,
    mut before_each: impl FnMut(&mut Scene, u64),
) -> HashMap<String, Vec<u64>> {
    let mut written: HashMap<String, Vec<u64>> = HashMap::new();
    for step in 0..seconds * 5 {
        let millisecond = step * 200;
        before_each(scene, millisecond);
        let now = Moment::from_epoch(Duration::from_millis(millisecond));
        let due = scene.plan.due(&scene.set, &scene.counters, None, now, Timestamp::UNIX_EPOCH);
        let Some(due) = due.into_iter().next() else { continue };
        written.entry(due.policy.name.to_string()).or_default().push(millisecond);
        scene.plan.attempted(due, true, now);
    }
    written
}

fn longest_gap(times: &[u64]) -> u64 {
    times.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(u64::MAX)
}

/// 50 policies with counters every 10 s use the whole rate of 5 writes per second.
#[test]
fn counters_are_written_within_two_intervals_regardless_of_edits() {
    let busy_ones: Vec<String> = (0..50).map(|number| format!("busy{number}")).collect();
    let edited: Vec<String> = (0..200).map(|number| format!("edited{number}")).collect();
    let names: Vec<&str> = busy_ones.iter().chain(&edited).map(String::as_str).collect();
    let mut scene = Scene::new(&names);
    scene.write(0);
    let written = writes_under_load(&mut scene, 120, |scene, millisecond| {
        if millisecond % 1000 == 0 {
            // One of the busy policies has changed conditions too, which wait behind those of many others.
            scene.edit(|name| name.starts_with("edited") || name == "busy7");
            let scope = |name: &String| counters(name, Mode::Enforce, millisecond + 1);
            scene.counters = busy_ones.iter().map(scope).collect();
        }
    });
    for name in &busy_ones {
        let since_all_were_written: Vec<u64> = [0].iter().chain(&written[name]).copied().collect();
        let gap = longest_gap(&since_all_were_written);
        assert!(gap <= 20_000, "{name}: {gap} ms");
    }
    let condition_writes: usize =
        written.iter().filter(|(name, _)| name.starts_with("edited")).map(|(_, times)| times.len()).sum();
    assert!(condition_writes >= 200, "{condition_writes} writes of conditions in 600");
}

/// The counters need twice the rate.
#[test]
fn too_many_counters_do_not_starve_conditions() {
    let names: Vec<String> = (0..100).map(|number| format!("busy{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).chain(["edited"]).collect();
    let mut scene = Scene::new(&names);
    scene.write(0);
    let written = writes_under_load(&mut scene, 60, |scene, millisecond| {
        if millisecond % 1000 == 0 {
            scene.edit(|name| name == "edited");
            let scope = |name: &&str| counters(name, Mode::Enforce, millisecond + 1);
            scene.counters = names.iter().map(scope).collect();
        }
    });
    let gap = longest_gap(&written["edited"]);
    assert!(gap <= 2_000, "edited each second, written after {gap} ms");
}

/// A user who edits, deletes and creates policies in one namespace delays only the statuses of that namespace.
#[test]
fn conditions_of_one_namespace_do_not_delay_those_of_others() {
    let mut scene = Scene::new(&[]);
    let mut created = 0;
    let other = policy("shop", "other", &json!({}), 0);
    let written = writes_under_load(&mut scene, 60, |scene, millisecond| {
        // Each time there are 20 policies without a status.
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
