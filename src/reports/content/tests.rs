use squelch_engine::Disposition;

use super::*;

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn policy(name: &str) -> (PolicyUid, PolicyRef) {
    (format!("uid-{name}").into(), PolicyRef { kind: "EventPolicy", name: name.into() })
}

fn counters(compacted: u64, filtered: u64) -> Counters {
    let mut counters = Counters::default();
    counters.count(Disposition::Admitted, 7);
    counters.count(Disposition::Compacted, compacted);
    counters.count(Disposition::Filtered, filtered);
    counters
}

fn dropped(reason: &str, count: u64) -> Dropped {
    Dropped::new([reason, "Pod", "kubelet"], Disposition::Filtered, count)
}

fn suppressed(compacted: u64, entries: Vec<Dropped>) -> Suppressed {
    let filtered = entries.iter().map(|entry| entry.count).sum();
    Suppressed { counters: counters(compacted, filtered), dropped: entries, ..Suppressed::default() }
}

fn of(name: &str, suppressed: Suppressed) -> BTreeMap<PolicyUid, Suppressed> {
    [(policy(name).0, suppressed)].into()
}

/// The windows of a busy day.
fn windows() -> Windows {
    let mut windows = Windows::default();
    for minute in (0..1_440).rev() {
        let now = Timestamp::from_second(NOW.as_second() - minute * 60).unwrap();
        windows.add((&counters(1, u64::MAX / 4_000)).into(), now);
    }
    windows
}

/// A report without windows.
fn report(
    base: &DropReport,
    counted: &BTreeMap<PolicyUid, Suppressed>,
    policies: &BTreeMap<PolicyUid, PolicyRef>,
    now: Timestamp,
) -> DropReport {
    super::report(base, counted, &Windows::default(), policies, now)
}

#[test]
fn a_report_continues_from_the_one_in_the_cluster() {
    let policies = [policy("a"), policy("b")].into();
    let first =
        report(&DropReport::default(), &of("a", suppressed(3, vec![dropped("X", 5)])), &policies, NOW);
    assert_eq!((first.suppressed, first.dropped_occurrences), (8, 5));
    assert_eq!(first.policies[0].counters.received, 15);
    let now = suppressed(1, vec![dropped("X", 2), dropped("Y", 9)]);
    let second = report(&first, &of("a", now), &policies, NOW);
    assert_eq!((second.suppressed, second.dropped_occurrences), (20, 16));
    let listed: Vec<_> = second.dropped.iter().map(|entry| (&*entry.reason, entry.count)).collect();
    assert_eq!(listed, [("Y", 9), ("X", 7)]);
    assert_eq!(report(&second, &BTreeMap::new(), &policies, NOW), second);
}

#[test]
fn a_policy_that_is_created_again_starts_at_0() {
    let before = [policy("a")].into();
    let first = report(&DropReport::default(), &of("a", suppressed(3, vec![dropped("X", 5)])), &before, NOW);
    let again: PolicyUid = "uid-2".into();
    let after = [(again.clone(), policy("a").1)].into();
    let counted = [(again, suppressed(1, vec![dropped("Y", 1)]))].into();
    let second = report(&first, &counted, &after, NOW);
    assert_eq!((second.suppressed, second.policies.len(), second.dropped.len()), (2, 1, 1));
    assert_eq!(second.dropped[0].reason, "Y");
}

#[test]
fn warnings_and_normal_events_have_separate_entries() {
    let mut warning = dropped("X", 2);
    warning.is_warning = true;
    let policies = [policy("a")].into();
    let entries = vec![dropped("X", 5), warning.clone(), warning];
    let report = report(&DropReport::default(), &of("a", suppressed(0, entries)), &policies, NOW);
    let listed: Vec<_> = report.dropped.iter().map(|entry| (entry.event_type, entry.count)).collect();
    assert_eq!(listed, [(EventType::Normal, 5), (EventType::Warning, 4)]);
}

#[test]
fn a_report_of_hostile_text_is_within_its_size_and_loses_no_occurrence() {
    let name = "\"".repeat(63);
    let policies: BTreeMap<_, _> = (0..200).map(|at| policy(&format!("{at}{}", "p".repeat(240)))).collect();
    let texts = (0..32).map(|at| dropped(&format!("{at}{name}"), 1 + at)).collect::<Vec<_>>();
    let counted: BTreeMap<_, _> =
        policies.keys().map(|uid| (uid.clone(), suppressed(1, texts.clone()))).collect();
    let mut base = DropReport::default();
    for round in 1..=3 {
        let report = super::report(&base, &counted, &windows(), &policies, NOW);
        assert_eq!((report.last_hour.len(), report.last_day.len()), (12, 24));
        assert!(serde_json::to_vec(&report).unwrap().len() <= MAX_REPORT_BYTES);
        assert!(!report.policies.is_empty() && report.policies.len() <= MAX_REPORTED_POLICIES as usize);
        assert_eq!(report.suppressed, round * 200 * (1 + 32 * 33 / 2), "round {round}");
        base = report;
    }
}

#[test]
fn the_schema_allows_what_is_written() {
    let (_, crd) =
        crate::api::crds().into_iter().find(|(name, _)| name.contains("eventdropreports")).unwrap();
    let schema = serde_json::to_value(&crd.spec.versions[0].schema).unwrap();
    let schema = &schema["openAPIV3Schema"];
    assert_eq!(schema["properties"]["spec"], serde_json::Value::Null);
    let policies = [policy("a")].into();
    let counted = of("a", suppressed(3, vec![dropped("X", 5)]));
    let written = super::report(&DropReport::default(), &counted, &windows(), &policies, NOW);
    let written = serde_json::to_value(written).unwrap();
    for field in written.as_object().unwrap().keys() {
        assert!(schema["properties"][field].is_object(), "{field} would be pruned");
    }
    for list in ["policies", "dropped", "lastHour", "lastDay"] {
        for field in written[list][0].as_object().unwrap().keys() {
            assert!(schema["properties"][list]["items"]["properties"][field].is_object(), "{list}.{field}");
        }
    }
}
