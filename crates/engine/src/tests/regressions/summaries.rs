//! Summaries and their witnesses.

use super::*;

#[test]
fn an_event_of_the_same_name_about_another_object_is_no_witness() {
    let (engine, rules) = (engine(), crate::testing::summing());
    let about = |object: &'static str, name: &'static str| {
        let mut write = named(name, write());
        write.event.regarding.name = object.into();
        write
    };
    engine.decide(by(&rules), &about("refused", "n"), at(0));
    let stored = about("allowed", "n");
    engine.decide(by(&rules), &stored, at(1000));
    engine.decide(by(&rules), &about("refused", "m"), at(2000));
    let task = engine.tick(at(5000), 10).remove(0);
    assert!(matches!(engine.plan(&task, None, at(5000)), FlushPlan::Create { .. }));
    let content = Some(Box::new(Content::of(&stored.event)));
    let read = StoredEvent { count: 1, age: Some(Duration::from_secs(4)), content };
    assert_eq!(engine.check_witness(&task, Some(read), at(5000)), FlushPlan::Lost { occurrences: 1 });
}

/// A user whose Events the API server refuses names one like the summary of another user's group.
#[test]
fn a_summary_is_no_witness_of_another_group() {
    let (engine, rules) = (engine(), crate::testing::summing());
    engine.decide(by(&rules), &named("summary", write()), at(1000));
    engine.decide(by(&rules), &named("m", write()), at(2000));
    let task = engine.tick(at(5000), 10).remove(0);
    assert!(matches!(engine.plan(&task, None, at(5000)), FlushPlan::Create { .. }));
    let mut summary = write().event;
    summary.labels = r#"{"squelch.dev/summary":"true"}"#;
    let content = Some(Box::new(Content::of(&summary)));
    let read = StoredEvent { count: 9, age: Some(Duration::from_secs(4)), content };
    assert_eq!(engine.check_witness(&task, Some(read), at(5000)), FlushPlan::Lost { occurrences: 1 });
}

#[test]
fn a_changed_summary_is_restored_by_the_next_flush() {
    let (engine, rules) = (engine(), crate::testing::summing());
    crate::testing::witness(&engine, &rules, write().user, at(0));
    engine.decide(by(&rules), &named("a.1", write()), at(0));
    let task = engine.tick(at(100), 10).remove(0);
    assert_eq!(flush(&engine, &task, None, at(100)), Some(1));
    for name in ["a.2", "a.3"] {
        engine.decide(by(&rules), &named(name, write()), at(200));
    }
    let task = engine.tick(at(300), 10).remove(0);
    let changed = stored(1, &write().event);
    assert!(matches!(engine.plan(&task, Some(changed), at(300)), FlushPlan::Write { value: 3, .. }));
}

#[test]
fn a_witness_has_a_valid_name_and_is_removed_when_refused() {
    let (engine, rules) = (engine(), crate::testing::summing());
    let long = "x".repeat(1_025);
    engine.decide(by(&rules), &named(&long, write()), at(0));
    assert_eq!(engine.decide(by(&rules), &named("a.1", write()), at(1)).answer, Answer::Allow);
    engine.decide(by(&rules), &named("a.2", write()), at(2));
    let task = engine.tick(at(100), 10).remove(0);
    assert!(matches!(engine.plan(&task, None, at(100)), FlushPlan::Create { witness: Some(_), .. }));
    assert_eq!(engine.discard(&task), 1);
    let next = engine.decide(by(&rules), &named("a.3", write()), at(200));
    assert_eq!(next.answer, Answer::Allow, "its client sees why the API server refuses it");
}

/// Returns rules under which Events about all Pods share a summary.
fn across_objects() -> Rules {
    let aggregation =
        AggregationRules { max_events: 1, idle_timeout: Duration::from_secs(600), group_by: GroupBy::Kind };
    Rules { aggregation: Some(aggregation), ..rules() }
}

/// Returns an Event about this Pod with its own message.
fn about<'a>(pod: &'a str, name: &'a str) -> Observation<'a> {
    let mut about = named(name, write());
    about.event.regarding.name = pod.into();
    about.event.message = name.into();
    about
}

/// Writes Events about this Pod, each of which is aggregated.
fn storm(engine: &Engine, rules: &Rules, pod: &str, names: std::ops::Range<i64>, now: u64) {
    for number in names {
        let verdict = engine.decide(by(rules), &about(pod, &format!("{pod}.{number}")), at(now));
        assert_eq!(verdict.disposition, Some(Disposition::Aggregated), "{pod}.{number}");
    }
}

#[test]
fn the_name_of_the_next_summary_cannot_be_derived_from_a_previous_one() {
    let (engine, rules) = (engine(), across_objects());
    revise(&engine, &rules, at(0));
    let summary_of = |pod: &str, now: u64| {
        engine.decide(by(&rules), &about(pod, &format!("{pod}.1")), at(now));
        storm(&engine, &rules, pod, 2..5, now + 1);
        let tasks = engine.tick(at(now + 3000), 10);
        let task = tasks.into_iter().find(|task| *task.name != *format!("{pod}.1")).unwrap();
        flush(&engine, &task, None, at(now + 3000)).unwrap();
        task.name.to_string()
    };
    let first = summary_of("cart", 0);
    for second in 5..1000 {
        for task in engine.tick(at(second * 1000), 10) {
            engine.plan(&task, Some(StoredEvent::with_count(3)), at(second * 1000));
        }
    }
    assert_eq!(engine.gauges().series, 0);
    let second = summary_of("till", 1_100_000);
    let digits = |name: &str| name.rsplit_once('.').unwrap().1.to_owned();
    assert_ne!(digits(&first), digits(&second));
}

#[test]
fn a_summary_continues_from_a_higher_count_that_squelch_did_not_write() {
    for (found, pending, lost) in [(1000, 100, 0), (i64::from(i32::MAX), 0, 100)] {
        let (engine, rules) = (engine(), across_objects());
        engine.decide(by(&rules), &about("cart", "cart.1"), at(0));
        storm(&engine, &rules, "cart", 2..4, 1);
        let task = engine.tick(at(3000), 10).remove(0);
        assert_eq!(flush(&engine, &task, None, at(3000)), Some(2));
        storm(&engine, &rules, "cart", 4..104, 4000);
        let task = engine.tick(at(5000), 10).remove(0);
        assert_eq!(flush(&engine, &task, Some(found), at(5000)), None, "a tenth more is not due yet");
        assert_eq!((engine.gauges().pending_occurrences, counters(&engine).lost), (pending, lost));
    }
}

#[test]
fn one_user_cannot_exhaust_the_count_of_a_shared_summary() {
    let (engine, rules) = (engine(), across_objects());
    engine.decide(by(&rules), &about("cart", "cart.1"), at(0));
    storm(&engine, &rules, "cart", 2..3, 1);
    let huge = Observation { user: "tenant", value: i64::from(i32::MAX), ..about("x", "tenant.1") };
    let verdict = engine.decide(by(&rules), &huge, at(2));
    assert_eq!((verdict.disposition, &verdict.answer), (Some(Disposition::Admitted), &Answer::Allow));
    storm(&engine, &rules, "cart", 3..103, 3);
    let aggregated = counters(&engine).of(Disposition::Aggregated);
    assert_eq!((aggregated, engine.gauges().pending_occurrences, counters(&engine).lost), (101, 101, 0));
}

/// No other user may claim a generated name, with or without series.
#[test]
fn a_generated_name_belongs_to_the_user_of_the_write() {
    for series in [rules().series, None] {
        let rules = Rules { series, ..across_objects() };
        let engine = engine();
        let generated = Observation { name: None, generate_name: "cart.".into(), user: "owner", ..write() };
        let Answer::AllowNamed(name) = engine.decide(by(&rules), &generated, at(0)).answer else {
            panic!("no name was generated");
        };
        let before = counters(&engine);
        let claimed = Observation { user: "tenant", value: 7, ..about("x", &name) };
        assert_eq!(engine.decide(by(&rules), &claimed, at(1)).answer, Answer::Allow);
        assert_eq!(counters(&engine).received() - before.received(), 1, "the API server refuses it with 409");
    }
}

/// A tenant can write contents of 11 KiB, and the API server has no limit for their fields.
#[test]
fn newer_contents_of_summaries_do_not_exceed_the_limit_on_text() {
    let (engine, rules) = (engine(), crate::testing::summing());
    let of = |pod: usize, number: usize| {
        let mut write = Observation { name: Some(format!("pod-{pod}.{number}").into()), ..write() };
        write.event.regarding.name = format!("pod-{pod}").into();
        write
    };
    for pod in 0..100 {
        for number in 0..2 {
            engine.decide(by(&rules), &of(pod, number), at(1));
        }
    }
    assert_eq!(engine.gauges().series, 100);
    let long = "x".repeat(1000);
    for pod in 0..100 {
        let mut longer = of(pod, 2);
        longer.event.regarding.field_path = long.clone().into();
        longer.event.action = long.clone().into();
        let text = || long.clone().into();
        longer.event.related = Some(ObjectReference {
            api_version: text(),
            kind: text(),
            namespace: text(),
            name: text(),
            uid: text(),
            field_path: text(),
        });
        let verdict = engine.decide(by(&rules), &longer, at(2));
        assert_eq!(verdict.disposition, Some(Disposition::Aggregated));
    }
    // 1,000 series of 96 bytes each. One write may exceed it.
    let (limit, text) = (1000 * 96, engine.gauges().text);
    assert!(text <= limit + limit / 16 + 12_000, "{text} bytes of text");
    assert_eq!(engine.gauges().pending_occurrences, 200, "nothing is lost by it");
}
