use squelch_engine::{Mode, PolicyId, TopDropped};

use super::*;

const LIMITS: ReportLimits = ReportLimits { interval: Duration::from_secs(30), qps: 5 };

fn at(seconds: u64) -> Moment {
    Moment::default().plus(Duration::from_secs(seconds))
}

fn policies() -> BTreeMap<PolicyUid, PolicyRef> {
    [("p".into(), PolicyRef { kind: "EventPolicy", name: "quiet".into() })].into()
}

fn uids() -> NamespaceUids {
    ["a", "b", "c", "ci"].map(|name| (name.into(), format!("uid of {name}").into())).into()
}

fn scope(namespace: &str, uid: &str, disposition: Disposition, occurrences: u64) -> ScopeCounters {
    let mut counters = Counters::default();
    counters.count(disposition, occurrences);
    ScopeCounters {
        namespace: namespace.into(),
        policy: PolicyId { display: "quiet".into(), uid: uid.into() },
        mode: Mode::Enforce,
        counters,
        dropped: TopDropped::default(),
    }
}

fn dropping(namespace: &str, occurrences: u64) -> ScopeCounters {
    scope(namespace, "p", Disposition::Throttled, occurrences)
}

fn names(due: &[OutdatedReport]) -> Vec<&str> {
    due.iter().map(|due| &*due.namespace).collect()
}

#[test]
fn a_report_is_written_only_after_something_was_suppressed_and_after_the_interval() {
    let mut plan = ReportPlan::new(LIMITS);
    let admitted = scope("ci", "p", Disposition::Admitted, 9);
    assert!(plan.due(vec![admitted], &policies(), &uids(), at(0)).is_empty());
    let due = plan.due(vec![dropping("ci", 1)], &policies(), &uids(), at(1));
    assert_eq!(names(&due), ["ci"]);
    plan.attempted(&due[0], true, at(1));
    assert!(plan.due(vec![dropping("ci", 1)], &policies(), &uids(), at(100)).is_empty(), "unchanged");
    let due = plan.due(vec![dropping("ci", 2)], &policies(), &uids(), at(100));
    plan.attempted(&due[0], false, at(100));
    assert!(
        plan.due(vec![dropping("ci", 2)], &policies(), &uids(), at(129)).is_empty(),
        "failed, and too early"
    );
    assert_eq!(names(&plan.due(vec![dropping("ci", 2)], &policies(), &uids(), at(130))), ["ci"]);
}

#[test]
fn the_most_outdated_report_comes_first() {
    let mut plan = ReportPlan::new(LIMITS);
    let both = |count| vec![dropping("a", count), dropping("b", count)];
    for due in plan.due(both(1), &policies(), &uids(), at(0)) {
        plan.attempted(&due, true, at(if &*due.namespace == "a" { 9 } else { 3 }));
    }
    let due = plan.due([both(2), vec![dropping("c", 1)]].concat(), &policies(), &uids(), at(60));
    assert_eq!(names(&due), ["c", "b", "a"]);
}

#[test]
fn deleted_policies_and_namespaces_are_left_out() {
    let mut plan = ReportPlan::new(LIMITS);
    let gone = vec![dropping("", 5), scope("ci", "deleted", Disposition::Muted, 3)];
    assert!(plan.due(gone, &policies(), &uids(), at(0)).is_empty());
    let due = plan.due(vec![dropping("ci", 1)], &policies(), &uids(), at(0));
    plan.read(&due[0], KnownReport::default());
    plan.attempted(&due[0], true, at(0));
    assert!(plan.base("ci").is_some());
    plan.due(Vec::new(), &policies(), &uids(), at(1));
    assert!(plan.base("ci").is_none(), "its namespace is unknown");
}

#[test]
fn before_exit_everything_unwritten_is_due() {
    let mut plan = ReportPlan::new(LIMITS);
    let due = plan.due(vec![dropping("a", 1), dropping("b", 1)], &policies(), &uids(), at(50));
    due.iter().for_each(|due| plan.attempted(due, true, at(50)));
    let all = plan.all(vec![dropping("a", 2), dropping("b", 1)], &policies(), &uids());
    assert_eq!(names(&all), ["a"]);
}

#[test]
fn the_report_of_a_recreated_namespace_starts_anew() {
    let mut plan = ReportPlan::new(LIMITS);
    let due = plan.due(vec![dropping("ci", 3)], &policies(), &uids(), at(0));
    plan.read(&due[0], KnownReport { uid: "u1".to_owned(), ..KnownReport::default() });
    plan.attempted(&due[0], true, at(0));
    // The same number of occurrences.
    let again: NamespaceUids = [("ci".into(), "another uid".into())].into();
    let due = plan.due(vec![dropping("ci", 3)], &policies(), &again, at(1));
    assert_eq!((names(&due), plan.base("ci")), (vec!["ci"], None));
}
