use squelch_engine::{Disposition, Mode, PolicyId, TopDropped};

use super::*;

const LIMITS: ReportLimits = ReportLimits {
    interval: Duration::from_secs(30),
    receipt_interval: Some(Duration::from_secs(600)),
    qps: 5,
};

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

/// The reports that are due.
fn due(
    plan: &mut ReportPlan,
    counters: Vec<ScopeCounters>,
    uids: &NamespaceUids,
    now: Moment,
) -> Vec<OutdatedReport> {
    let due = plan.due(counters, &policies(), uids, now, Timestamp::UNIX_EPOCH).into_iter();
    due.filter_map(|due| if let DueWrite::Report(report) = due { Some(report) } else { None }).collect()
}

/// The receipts that are due.
fn receipts(plan: &mut ReportPlan, counters: Vec<ScopeCounters>, now: Moment) -> Vec<DueReceipt> {
    let due = plan.due(counters, &policies(), &uids(), now, Timestamp::UNIX_EPOCH).into_iter();
    due.filter_map(|due| if let DueWrite::Receipt(receipt) = due { Some(receipt) } else { None }).collect()
}

/// Reads and writes the report of `ci`.
fn write_report(plan: &mut ReportPlan, counters: Vec<ScopeCounters>, now: Moment) {
    let reports = due(plan, counters, &uids(), now);
    plan.read("ci", KnownReport { uid: "u".to_owned(), ..KnownReport::default() });
    plan.attempted(&reports[0], true, now);
}

fn names(due: &[OutdatedReport]) -> Vec<&str> {
    due.iter().map(|due| &*due.namespace).collect()
}

#[test]
fn a_report_is_written_only_after_something_was_suppressed_and_after_the_interval() {
    let mut plan = ReportPlan::new(LIMITS);
    let admitted = scope("ci", "p", Disposition::Admitted, 9);
    assert!(due(&mut plan, vec![admitted], &uids(), at(0)).is_empty());
    let found = due(&mut plan, vec![dropping("ci", 1)], &uids(), at(1));
    assert_eq!(names(&found), ["ci"]);
    plan.attempted(&found[0], true, at(1));
    assert!(due(&mut plan, vec![dropping("ci", 1)], &uids(), at(100)).is_empty(), "unchanged");
    let found = due(&mut plan, vec![dropping("ci", 2)], &uids(), at(100));
    plan.attempted(&found[0], false, at(100));
    assert!(due(&mut plan, vec![dropping("ci", 2)], &uids(), at(129)).is_empty(), "failed, and too early");
    assert_eq!(names(&due(&mut plan, vec![dropping("ci", 2)], &uids(), at(130))), ["ci"]);
}

#[test]
fn the_most_outdated_report_comes_first() {
    let mut plan = ReportPlan::new(LIMITS);
    let both = |count| vec![dropping("a", count), dropping("b", count)];
    for due in due(&mut plan, both(1), &uids(), at(0)) {
        plan.attempted(&due, true, at(if &*due.namespace == "a" { 9 } else { 3 }));
    }
    let found = due(&mut plan, [both(2), vec![dropping("c", 1)]].concat(), &uids(), at(60));
    assert_eq!(names(&found), ["c", "b", "a"]);
}

#[test]
fn deleted_policies_and_namespaces_are_left_out() {
    let mut plan = ReportPlan::new(LIMITS);
    let gone = vec![dropping("", 5), scope("ci", "deleted", Disposition::Muted, 3)];
    assert!(due(&mut plan, gone, &uids(), at(0)).is_empty());
    let found = due(&mut plan, vec![dropping("ci", 1)], &uids(), at(0));
    plan.read("ci", KnownReport::default());
    plan.attempted(&found[0], true, at(0));
    assert!(plan.base("ci").is_some());
    due(&mut plan, Vec::new(), &uids(), at(1));
    assert!(plan.base("ci").is_none(), "its namespace is unknown");
}

#[test]
fn before_exit_everything_unwritten_is_due() {
    let mut plan = ReportPlan::new(LIMITS);
    let found = due(&mut plan, vec![dropping("a", 1), dropping("b", 1)], &uids(), at(50));
    found.iter().for_each(|due| plan.attempted(due, true, at(50)));
    let all = plan.all(vec![dropping("a", 2), dropping("b", 1)], &policies(), &uids(), Timestamp::UNIX_EPOCH);
    assert_eq!(names(&all), ["a"]);
}

#[test]
fn before_exit_a_report_gets_what_was_admitted_after_its_last_write() {
    let mut plan = ReportPlan::new(LIMITS);
    write_report(&mut plan, vec![dropping("ci", 1)], at(0));
    let admitted = |namespace| scope(namespace, "p", Disposition::Admitted, 4);
    // The report of `a` is unknown.
    let mut counters = vec![admitted("a"), dropping("ci", 1), admitted("ci")];
    assert!(due(&mut plan, counters.clone(), &uids(), at(100)).is_empty(), "nothing was suppressed");
    counters.push(dropping("b", 1));
    let all = plan.all(counters, &policies(), &uids(), Timestamp::UNIX_EPOCH);
    let all: Vec<_> = all.iter().map(|due| (&*due.namespace, due.may_create)).collect();
    assert_eq!(all, [("b", true), ("ci", false), ("a", false)]);
}

#[test]
fn the_report_of_a_recreated_namespace_starts_anew() {
    let mut plan = ReportPlan::new(LIMITS);
    let found = due(&mut plan, vec![dropping("ci", 3)], &uids(), at(0));
    plan.read("ci", KnownReport { uid: "u1".to_owned(), ..KnownReport::default() });
    plan.attempted(&found[0], true, at(0));
    // The same number of occurrences.
    let again: NamespaceUids = [("ci".into(), "another uid".into())].into();
    let found = due(&mut plan, vec![dropping("ci", 3)], &again, at(1));
    assert_eq!((names(&found), plan.base("ci")), (vec!["ci"], None));
}

#[test]
fn windows_and_receipts_of_a_recreated_namespace_have_nothing_of_the_former_one() {
    let mut plan = ReportPlan::new(LIMITS);
    write_report(&mut plan, vec![dropping("ci", 500)], at(0));
    // The engine keeps its counters.
    let again: NamespaceUids = [("ci".into(), "another uid".into())].into();
    let mut refresh = |occurrences, now| {
        let counters = vec![dropping("ci", occurrences)];
        let due = plan.due(counters, &policies(), &again, now, Timestamp::UNIX_EPOCH).into_iter();
        plan.read("ci", KnownReport { uid: "u2".to_owned(), ..KnownReport::default() });
        let windows = plan.windows("ci").last_hour(&[], Timestamp::UNIX_EPOCH);
        let receipts = due.filter_map(|due| match due {
            DueWrite::Receipt(receipt) => Some(receipt.new.occurrences),
            DueWrite::Report(_) => None,
        });
        (windows.iter().map(|window| window.dropped).sum::<i64>(), receipts.collect::<Vec<_>>())
    };
    assert_eq!(refresh(500, at(5)), (0, Vec::new()));
    assert_eq!(refresh(503, at(10)), (3, vec![3]));
}

#[test]
fn a_receipt_follows_the_report_at_once_and_then_at_its_interval() {
    let mut plan = ReportPlan::new(LIMITS);
    assert!(receipts(&mut plan, vec![dropping("ci", 3)], at(0)).is_empty(), "there is no report yet");
    write_report(&mut plan, vec![dropping("ci", 3)], at(0));
    let first = receipts(&mut plan, vec![dropping("ci", 3)], at(5));
    assert_eq!(first[0].new.occurrences, 3);
    plan.attempted_receipt(&first[0], true, at(5));
    assert!(receipts(&mut plan, vec![dropping("ci", 8)], at(604)).is_empty(), "too early");
    let second = receipts(&mut plan, vec![dropping("ci", 8)], at(605));
    assert_eq!(second[0].new.occurrences, 5);
    plan.attempted_receipt(&second[0], false, at(605));
    assert!(receipts(&mut plan, vec![dropping("ci", 8)], at(1204)).is_empty());
    let third = receipts(&mut plan, vec![dropping("ci", 9)], at(1205));
    assert_eq!(third[0].new.occurrences, 6, "with those of the failed one");
    plan.attempted_receipt(&third[0], true, at(1205));
    assert!(receipts(&mut plan, vec![dropping("ci", 9)], at(9_000)).is_empty(), "nothing was dropped");
}

#[test]
fn there_are_no_receipts_in_mode_observe_for_merged_occurrences_or_without_interval() {
    let observed = ScopeCounters { mode: Mode::Observe, ..dropping("ci", 3) };
    let merged = scope("ci", "p", Disposition::Compacted, 3);
    let none = ReportLimits { receipt_interval: None, ..LIMITS };
    for (limits, counters) in [(LIMITS, observed), (LIMITS, merged), (none, dropping("ci", 3))] {
        let mut plan = ReportPlan::new(limits);
        write_report(&mut plan, vec![counters.clone()], at(0));
        assert!(receipts(&mut plan, vec![counters], at(900)).is_empty());
    }
}

#[test]
fn windows_contain_what_was_counted_between_two_refreshes() {
    let mut plan = ReportPlan::new(LIMITS);
    let minutes = |minutes: i64| Timestamp::from_second(minutes * 60).unwrap();
    let admitted = scope("ci", "p", Disposition::Admitted, 9);
    let mut refresh = |counters, wall| {
        plan.due(counters, &policies(), &uids(), at(0), wall);
        plan.windows("ci").last_hour(&[], wall)
    };
    refresh(vec![admitted.clone(), dropping("ci", 1)], minutes(1));
    let windows = refresh(vec![admitted, dropping("ci", 4)], minutes(7));
    let counts: Vec<_> = windows.iter().map(|it| (it.received, it.admitted, it.dropped)).collect();
    assert_eq!(counts, [(10, 9, 1), (3, 0, 3)]);
}
