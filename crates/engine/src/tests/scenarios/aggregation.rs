//! Step 9: aggregation and summaries.

use super::*;

#[test]
fn one_message_too_many_is_merged_into_the_summary() {
    let (engine, rules) = (engine(), all_stages());
    let reported =
        answers(&engine, &rules, &[saying("a", "1"), saying("b", "2"), saying("c", "3"), saying("d", "4")]);
    assert_eq!(reported[1], admitted(Stage::Admit, 1));
    assert_eq!(reported[2], denied(Disposition::Aggregated, Stage::Aggregation));
    assert_eq!(reported[3], denied(Disposition::Aggregated, Stage::Aggregation));
    let task = engine.tick(at(4000), 10).remove(0);
    assert!(task.name.starts_with("cart.") && task.name.len() == "cart.".len() + 16, "{}", task.name);
    let FlushPlan::Create { value: 2, content, .. } = planned(&engine, &task, None, at(4001)) else {
        panic!("no summary")
    };
    let says = content.view();
    assert_eq!(says.message, "(combined from similar events): d");
    assert_eq!(says.labels, r#"{"squelch.dev/summary":"true"}"#);
    assert_eq!(says.annotations, r#"{"squelch.dev/policy":"shop/quiet"}"#);
    engine.ack(&task, 2, at(4002));
    engine.decide(by(&rules), &saying("e", "5"), at(5000));
    engine.decide(by(&rules), &saying("f", "6"), at(5001));
    let task = engine.tick(at(6000), 10).remove(0);
    let plan = planned(&engine, &task, Some(2), at(6001));
    let FlushPlan::Write { value: 4, shown: Shown::Summary(content), .. } = plan else { panic!("{plan:?}") };
    assert_eq!(content.view().message, "(combined from similar events): f");
}

#[test]
fn a_group_whose_first_event_took_the_last_token_is_aggregated() {
    let (engine, mut rules) = (engine(), all_stages());
    let bucket = &mut rules.spam_filter.as_mut().unwrap().bucket;
    (bucket.burst, bucket.refill_interval) = (1.try_into().unwrap(), Duration::from_secs(3600));
    rules.aggregation.as_mut().unwrap().max_events = 3;
    let reported =
        answers(&engine, &rules, &[saying("a", "1"), saying("b", "2"), saying("c", "3"), saying("d", "4")]);
    assert_eq!(reported[0], admitted(Stage::Admit, 1));
    assert_eq!(reported[1], denied(Disposition::Filtered, Stage::SpamFilter));
    assert_eq!(reported[2], denied(Disposition::Aggregated, Stage::Aggregation));
    assert_eq!(reported[3], denied(Disposition::Aggregated, Stage::Aggregation));
}

#[test]
fn a_summary_counts_from_the_stored_count() {
    let (engine, rules) = (engine(), all_stages());
    answers(&engine, &rules, &[saying("a", "1"), saying("b", "2"), saying("c", "3")]);
    let task = engine.tick(at(4000), 10).remove(0);
    assert_eq!(
        planned(&engine, &task, Some(7), at(4001)),
        FlushPlan::Nothing,
        "one more than seven is not due"
    );
    engine.drain();
    let task = engine.tick(at(4002), 10).into_iter().find(|task| task.name.len() > 10).unwrap();
    assert!(matches!(planned(&engine, &task, Some(7), at(4003)), FlushPlan::Write { value: 8, .. }));
}

#[test]
fn a_summary_across_objects_reports_their_number() {
    let mut rules = all_stages();
    rules.aggregation.as_mut().unwrap().group_by = GroupBy::Kind;
    let engine = engine();
    for (at_second, (pod, user)) in
        [("a", "n1"), ("b", "n2"), ("c", "n3"), ("d", "n4")].into_iter().enumerate()
    {
        let mut write = Observation { user, ..named(pod, write()) };
        write.event.regarding.name = pod.into();
        write.event.reporting_instance = user.into();
        engine.decide(by(&rules), &write, at(at_second as u64));
    }
    let task = engine.tick(at(4000), 10).remove(0);
    let FlushPlan::Create { value: 2, content, .. } = planned(&engine, &task, None, at(4001)) else {
        panic!("no summary")
    };
    let says = content.view();
    assert!(
        says.message.starts_with("(combined from similar events): on 4 objects, the last: "),
        "{}",
        says.message
    );
    assert_eq!(says.regarding.name, "d");
}

#[test]
fn a_summary_without_a_stored_witness_is_never_created() {
    let (engine, rules) = (engine(), all_stages());
    answers(&engine, &rules, &[saying("a", "1"), saying("b", "2"), saying("c", "3"), saying("d", "4")]);
    let task = engine.tick(at(4000), 10).remove(0);
    let FlushPlan::Create { witness: Some(witness), .. } = engine.plan(&task, None, at(4001)) else {
        panic!("no witness")
    };
    assert_eq!(&*witness, "1", "the first Event of the group that was admitted");
    assert_eq!(
        engine.check_witness(&task, None, at(4002)),
        FlushPlan::Wait,
        "the API server may still store it"
    );
    let task = engine.tick(at(7001), 10).remove(0);
    assert!(matches!(engine.plan(&task, None, at(7001)), FlushPlan::Create { witness: Some(_), .. }));
    assert_eq!(engine.check_witness(&task, None, at(7001)), FlushPlan::Lost { occurrences: 2 });
    assert_eq!((counters(&engine).lost, engine.gauges().pending_occurrences), (2, 0));
    let next = engine.decide(by(&rules), &saying("e", "5"), at(7002));
    assert_eq!(next.answer, Answer::Allow, "its client sees why the API server refuses it");
}

#[test]
fn an_older_event_is_no_witness() {
    let (engine, rules) = (engine(), all_stages());
    answers(&engine, &rules, &[saying("a", "1"), saying("b", "2"), saying("c", "3")]);
    let task = engine.tick(at(6000), 10).remove(0);
    assert!(matches!(engine.plan(&task, None, at(6000)), FlushPlan::Create { witness: Some(_), .. }));
    // The witness was admitted 5 s ago, and clocks may differ by 60 s.
    let aged =
        |seconds| Some(StoredEvent { age: Some(Duration::from_secs(seconds)), ..StoredEvent::with_count(1) });
    assert_eq!(engine.check_witness(&task, aged(65), at(6001)), FlushPlan::Nothing);
    assert_eq!(engine.check_witness(&task, aged(66), at(6001)), FlushPlan::Lost { occurrences: 1 });
}

#[test]
fn an_event_of_another_reason_is_no_witness() {
    let (engine, rules) = (engine(), all_stages());
    answers(&engine, &rules, &[saying("a", "1"), saying("b", "2"), saying("c", "3")]);
    let task = engine.tick(at(6000), 10).remove(0);
    assert!(matches!(engine.plan(&task, None, at(6000)), FlushPlan::Create { witness: Some(_), .. }));
    let other = EventView { reason: "Pulled".into(), ..write().event };
    assert_eq!(
        engine.check_witness(&task, Some(stored(1, &other)), at(6001)),
        FlushPlan::Lost { occurrences: 1 }
    );
}

#[test]
fn a_group_whose_events_were_all_filtered_is_not_aggregated() {
    let (engine, rules) = (engine(), all_stages());
    // Four other Events about the same object empty the bucket.
    for n in 0..4 {
        let name = format!("other.{n}");
        let mut other = named(&name, write());
        other.event.reason = n.to_string().into();
        engine.decide(by(&rules), &other, at(n));
    }
    for (name, message) in [("1", "a"), ("2", "b"), ("3", "c")] {
        let verdict = engine.decide(by(&rules), &saying(message, name), at(10));
        assert_eq!(verdict.disposition, Some(Disposition::Filtered), "{message}");
    }
}

#[test]
fn client_side_aggregates_are_not_aggregated_again() {
    let (engine, rules) = (engine(), all_stages());
    answers(&engine, &rules, &[saying("a", "1"), saying("b", "2")]);
    let by_client = saying("(combined from similar events): z", "3");
    assert_eq!(engine.decide(by(&rules), &by_client, at(9000)), admitted(Stage::Admit, 1));
}

#[test]
fn an_update_of_a_summary_by_a_user_hides_no_aggregated_occurrence() {
    let (engine, rules) = (engine(), Rules { series: rules().series, ..crate::testing::summing() });
    engine.decide(by(&rules), &named("a.1", write()), at(1));
    let second = engine.decide(by(&rules), &saying("another", "a.2"), at(2));
    assert_eq!(second.disposition, Some(Disposition::Aggregated));
    let task = engine.tick(at(5000), 10).remove(0);
    assert_eq!(flush(&engine, &task, None, at(5000)), Some(1));

    let raised = Observation { user: "admin", ..named(&task.name, update(2, 1)) };
    assert_eq!(engine.decide(by(&rules), &raised, at(6000)).answer, Answer::Allow);

    let third = engine.decide(by(&rules), &saying("one more", "a.3"), at(20_000));
    assert_eq!(third.disposition, Some(Disposition::Aggregated));
    let mut stored = 2;
    // The second time it is idle, and closes.
    for now in [at(25_000), at(1_000_000)] {
        for task in engine.tick(now, 10).iter().filter(|other| other.name == task.name) {
            stored = flush(&engine, task, Some(stored), now).unwrap_or(stored);
        }
    }
    // Created by squelch, raised by the user, and aggregated since.
    assert_eq!((stored, counters(&engine).lost), (3, 0));
}
