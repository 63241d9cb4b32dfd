//! `normalize` and `maxMessageBytes`: messages that differ only in parts that are masked or cut.

use super::*;

fn masking(rules: Rules) -> Rules {
    Rules { normalize: [Mask::Durations].into_iter().collect(), ..rules }
}

const MESSAGES: [&str; 4] =
    ["finished in 1.5s", "finished in 900ms", "finished in 1m3s", "finished in 1.5s, 3 changes"];

#[test]
fn messages_that_differ_in_masked_parts_are_one_series() {
    let (engine, rules) = (engine(), masking(rules()));
    let writes = [saying(MESSAGES[0], "1"), saying(MESSAGES[1], "2"), saying(MESSAGES[3], "3")];
    let verdicts = answers(&engine, &rules, &writes);
    assert_eq!(verdicts, [admitted(Stage::Admit, 1), compacted(1, CONFLICT), admitted(Stage::Admit, 1)]);
}

#[test]
fn each_flush_shows_the_newest_message() {
    let (engine, rules) = (engine(), masking(rules()));
    // Of the new API, whose messages no client changes: the merged ones differ from the stored one.
    let of_new_api = |message, name| {
        let write = saying(message, name);
        let event = EventView { event_time: "1970-01-01T00:00:00.000000Z".into(), ..write.event };
        Observation { api: Api::Events, event, ..write }
    };
    let first = of_new_api(MESSAGES[0], "1");
    answers(&engine, &rules, &[first.clone(), of_new_api(MESSAGES[1], "2"), of_new_api(MESSAGES[2], "3")]);
    let task = engine.tick(at(4000), 10).remove(0);
    let read = &first.event;
    let FlushPlan::Write { value: 3, shown: Shown::Message(message), .. } =
        engine.plan(&task, Some(stored(1, read)), at(4000))
    else {
        panic!("no flush of the message")
    };
    assert_eq!(&*message, MESSAGES[2]);
    engine.ack(&task, 3, at(4001));

    // The same message again changes only the count, and what squelch creates again has the newest message.
    for (name, second) in [("4", 5), ("5", 6), ("6", 7)] {
        engine.decide(by(&rules), &of_new_api(MESSAGES[2], name), at(second * 1000));
    }
    let task = engine.tick(at(8000), 10).remove(0);
    let shown = EventView { message: MESSAGES[2].into(), ..read.clone() };
    let plan = engine.plan(&task, Some(stored(3, &shown)), at(8000));
    assert!(matches!(plan, FlushPlan::Write { value: 6, shown: Shown::Count, .. }), "{plan:?}");
    engine.decide(by(&rules), &of_new_api(MESSAGES[1], "7"), at(8001));
    let FlushPlan::Create { value: 7, content, .. } = engine.plan(&task, None, at(8002)) else {
        panic!("it was read, and is gone")
    };
    assert_eq!(content.view().message, MESSAGES[1]);
}

#[test]
fn without_masks_a_flush_keeps_the_message() {
    let (engine, rules) = (engine(), rules());
    answers(&engine, &rules, &[saying(MESSAGES[0], "1"), saying(MESSAGES[0], "2")]);
    let task = engine.tick(at(4000), 10).remove(0);
    let changed = EventView { message: "changed by a client".into(), ..saying(MESSAGES[0], "1").event };
    let plan = engine.plan(&task, Some(stored(1, &changed)), at(4000));
    assert!(matches!(plan, FlushPlan::Write { value: 2, shown: Shown::Count, .. }), "{plan:?}");
}

#[test]
fn masked_messages_are_one_message_of_a_group() {
    let (engine, rules) = (engine(), masking(Rules { series: None, ..all_stages() }));
    let say = |number: usize, name| saying(MESSAGES[number % 3], name);
    let verdicts = answers(&engine, &rules, &[say(0, "1"), say(1, "2"), say(2, "3"), say(3, "4")]);
    assert!(
        verdicts.iter().all(|verdict| verdict.disposition == Some(Disposition::Admitted)),
        "{verdicts:?}"
    );
}

#[test]
fn messages_are_compared_and_created_again_as_they_are_stored() {
    let rules = Rules { max_message_bytes: Some(12), ..rules() };
    let engine = engine();
    // The twelfth byte is the first of two of a character.
    let writes =
        [saying("finished in ä", "1"), saying("finished in ö, late", "2"), saying("finished at", "3")];
    let verdicts = answers(&engine, &rules, &writes);
    assert_eq!(verdicts, [admitted(Stage::Admit, 1), compacted(1, CONFLICT), admitted(Stage::Admit, 1)]);
    let task = engine.tick(at(4000), 10).remove(0);
    assert!(matches!(planned(&engine, &task, Some(1), at(4000)), FlushPlan::Write { value: 2, .. }));
    let FlushPlan::Create { content, .. } = planned(&engine, &task, None, at(4001)) else {
        panic!("it is gone")
    };
    assert_eq!(content.view().message, "finished in ");
}
