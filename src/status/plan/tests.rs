mod fairness;

use serde_json::json;
use squelch_engine::{Counters, Disposition, Dropped, Mode, PolicyId, TopDropped};

use super::*;
use crate::policy::fixtures::{cluster_object, id, labels, object, policy};
use crate::policy::{Index, NamespaceSelection, WebhookScope};
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
    armed: Armed,
}

impl Scene {
    fn new(names: &[&str]) -> Self {
        let limits = WriteLimits { interval: Duration::from_secs(10), qps: 5 };
        let policies =
            names.iter().map(|name| policy("ci", name, &json!({"match": [{"reasons": [name]}]}), 0));
        Self {
            plan: Plan::new(limits),
            set: Set::new(policies),
            counters: Vec::new(),
            armed: Ok(WebhookScope::all_in(NamespaceSelection::All)),
        }
    }

    fn due(&mut self, now: u64) -> Vec<Due> {
        self.plan.due(&self.set, &self.counters, &self.armed, after(now), Timestamp::UNIX_EPOCH)
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
    scene.armed = Err("It hangs.".into());
    assert!(scene.write(0).is_empty());
    assert_eq!(scene.write(1).len(), 2);
    scene.counters = vec![counters("p", Mode::Enforce, 1)];
    let fresh = policy("ci", "fresh", &json!({}), 5);
    scene.set = Set::new(scene.set.policies().iter().cloned().chain([fresh]));
    assert_eq!(scene.write(12), ["fresh", "p"]);
}

#[test]
fn a_policy_is_effective_once_the_webhook_is_armed_for_its_namespace() {
    let mut scene = Scene::new(&["p"]);
    let mut condition = |names: &[&str]| {
        scene.armed =
            Ok(WebhookScope::all_in(NamespaceSelection::of(names.iter().map(ToString::to_string).collect())));
        let condition = scene.due(0).remove(0).status.conditions.remove(1);
        (condition.status, condition.reason)
    };
    assert_eq!(condition(&["another"]), ("False".to_owned(), "WebhookNotArmed".to_owned()));
    assert_eq!(condition(&["another", "ci"]), ("True".to_owned(), "Effective".to_owned()));
}

#[test]
fn a_new_policy_is_effective_once_all_its_namespaces_are_sent() {
    let mut index = Index::default();
    let selecting = json!({"spec": {"namespaceSelector": {"matchLabels": {"team": "x"}}}});
    index.apply(&cluster_object("team", selecting));
    for namespace in ["a", "b"] {
        index.apply_namespace(namespace, "1", labels(&[("team", "x")]));
    }
    let mut scene = Scene { set: index.set(), ..Scene::new(&[]) };
    let mut status = |set: Set, names: &[&str], now: u64| {
        scene.set = set;
        scene.armed =
            Ok(WebhookScope::all_in(NamespaceSelection::of(names.iter().map(ToString::to_string).collect())));
        scene.write(now);
        scene.plan.tracked.values().next().unwrap().current.clone().unwrap().conditions[1].status.clone()
    };
    assert_eq!(status(index.set(), &["a"], 0), "False");
    assert_eq!(status(index.set(), &["a", "b"], 10), "True");
    // A namespace that comes changes nothing for the others.
    index.apply_namespace("c", "1", labels(&[("team", "x")]));
    assert_eq!(status(index.set(), &["a", "b"], 20), "True");
    assert_eq!(status(index.set(), &["z"], 30), "False");
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
fn a_corrected_policy_is_not_delayed_by_refusals_of_its_old_spec() {
    let mut scene = Scene::new(&["p"]);
    let mut second = 0;
    for (refusal, pause) in [10, 20, 40, 80, 160, 320, 600, 600].into_iter().enumerate() {
        let due = scene.due(second).remove(0);
        assert_eq!(scene.plan.refused(&due, after(second)), refusal == 0);
        assert!(scene.due(second + pause - 1).is_empty(), "after refusal {refusal}");
        second += pause;
    }
    let due = scene.due(second).remove(0);
    scene.plan.refused(&due, after(second));
    scene.edit(|_| true);
    assert_eq!(scene.due(second + 10).len(), 1);
    let due = scene.due(second + 10).remove(0);
    assert!(scene.plan.refused(&due, after(second + 10)), "the first with this spec");
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
    let all = scene.plan.all(&scene.set, &scene.counters, &scene.armed, Timestamp::UNIX_EPOCH);
    assert_eq!(all.iter().map(|due| &*due.policy.name).collect::<Vec<_>>(), ["p"]);
}

/// The API server does not compare uids in a write of a status, so that the last one for a deleted policy can reach the next
/// one of its name.
#[test]
fn a_policy_created_again_does_not_inherit_the_counters_of_the_former_one() {
    let mut index = Index::default();
    index.apply(&object("ci", "p", json!({"spec": {}})));
    let mut scene =
        Scene { set: index.set(), counters: vec![counters("p", Mode::Enforce, 7)], ..Scene::new(&[]) };
    let due = scene.due(0).remove(0);
    let mut again = object("ci", "p", json!({"spec": {}, "status": due.status}));
    again.metadata.uid = Some("another".into());
    scene.plan.attempted(due, true, after(0));
    index.delete(&again);
    index.apply(&again);
    scene.set = index.set();
    let received = scene.due(1).first().map(|due| due.status.counters.unwrap().received);
    assert_eq!(received, Some(0));
}

#[test]
fn entries_of_a_namespace_that_was_created_again_are_removed() {
    let entry = json!({"namespace": "ci", "reason": "R", "kind": "Pod", "component": "c",
        "disposition": "filtered", "count": 1});
    let mut index = Index::default();
    index.apply(&cluster_object("all", json!({"spec": {}, "status": {"topDropped": [entry]}})));
    index.apply_namespace("ci", "1", labels(&[]));
    let mut scene = Scene { set: index.set(), ..Scene::new(&[]) };
    assert_eq!(scene.due(0).remove(0).status.top_dropped.len(), 1);
    // A list after an interrupted watch shows only the new namespace.
    index.apply_namespace("ci", "2", labels(&[]));
    scene.set = index.set();
    assert!(scene.due(0).remove(0).status.top_dropped.is_empty());
}
