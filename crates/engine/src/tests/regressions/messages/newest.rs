//! The messages that flushes write.

use super::*;

fn of_tenant<'a>(write: Observation<'a>) -> Observation<'a> {
    Observation { user: "tenant", ..write }
}

/// CREATEs under names that no other write of the test has.
fn repeat(engine: &Engine, rules: &Rules, write: &Observation<'_>, times: u64, now: u64) {
    for number in 0..times {
        let name = format!("repeat.{now}.{number}");
        engine.decide(by(rules), &Observation { name: Some(name.into()), ..write.clone() }, at(now));
    }
}

/// The first flush: it finds this Event, and writes the count 2.
fn flush_first(engine: &Engine, found: &EventView<'_>) {
    let task = due(engine, 4000);
    engine.plan(&task, read(1, found), at(4000));
    engine.ack(&task, 2, at(4001));
}

/// Flushes what is due over this Event with the count `stored`, and changes that. Returns what the writes show.
fn shown_over(engine: &Engine, event: &EventView<'_>, stored: &mut i64, now: u64) -> Vec<Shown> {
    let tasks = engine.tick(at(now), 10).into_iter();
    let shown = tasks.filter_map(|task| {
        let plan = engine.plan(&task, read(*stored, event), at(now));
        let FlushPlan::Write { value, shown, .. } = plan else { return None };
        engine.ack(&task, value, at(now + 1));
        *stored = value;
        Some(shown)
    });
    shown.collect()
}

/// The tenant claims the name of the owner's Event, which squelch has not seen. Half an hour later the owner, which reads
/// the count and adds one, updates its Event.
#[test]
fn an_update_of_the_owner_does_not_make_the_event_that_of_the_tenant() {
    let (engine, masked) = (engine(), masking());
    let others = says("disk lost: call the operator", write());
    let forged = of_tenant(says("forged 1", write()));
    engine.decide(by(&masked), &forged, at(1));
    let second = named("cart.2", of_tenant(says("forged 2", write())));
    engine.decide(by(&masked), &second, at(2));
    let task = due(&engine, 4000);
    let plan = engine.plan(&task, read(1, &others.event), at(4000));
    assert!(matches!(plan, FlushPlan::Write { value: 2, shown: Shown::Count, .. }), "{plan:?}");
    engine.ack(&task, 2, at(4001));
    for minute in (5..=30).step_by(5) {
        // It carries nothing, and the series stays live.
        engine.decide(by(&masked), &second, at(minute * 60_000));
    }
    let now = 31 * 60_000;
    let updated = engine.decide(by(&masked), &says("disk lost: call the operator", update(3, 2)), at(now));
    assert_eq!(updated.answer, Answer::Allow, "{updated:?}");
    repeat(&engine, &masked, &of_tenant(says("forged 3", write())), 4, now + 1);
    let task = due(&engine, now + 5000);
    let plan = engine.plan(&task, read(3, &others.event), at(now + 5000));
    assert!(matches!(plan, FlushPlan::Write { shown: Shown::Count, .. }), "{plan:?}");
}

/// The same, and the owner's write is exempt.
#[test]
fn an_exempt_update_of_the_owner_does_not_make_the_event_that_of_the_tenant() {
    let (engine, masked) = (engine(), masking());
    let others = says("disk lost: call the operator", write());
    engine.decide(by(&masked), &of_tenant(says("forged 1", write())), at(1));
    repeat(&engine, &masked, &of_tenant(says("forged 2", write())), 1, 2);
    flush_first(&engine, &others.event);
    let exempt = Some(Governing { rules: &masked, treatment: Treatment::Exempt });
    engine.decide(exempt, &says("disk lost: call the operator", update(3, 2)), at(5000));
    repeat(&engine, &masked, &of_tenant(says("forged 3", write())), 40, 6000);
    for task in engine.tick(at(9000), 10) {
        let plan = engine.plan(&task, read(3, &others.event), at(9000));
        assert!(!matches!(plan, FlushPlan::Write { shown: Shown::Message(_), .. }), "{plan:?}");
    }
}

/// The count of the owner's Event was raised under a policy without masks (documented). Then masks are added.
#[test]
fn masks_added_later_do_not_make_the_event_that_of_the_tenant() {
    let (engine, masked) = (engine(), masking());
    revise(&engine, &rules(), at(0));
    let others = says("disk lost: call the operator", write());
    engine.decide(by(&rules()), &of_tenant(says("forged", write())), at(1));
    repeat(&engine, &rules(), &of_tenant(says("forged", write())), 1, 2);
    flush_first(&engine, &others.event);
    revise(&engine, &masked, at(5000));
    repeat(&engine, &masked, &of_tenant(says("forged", write())), 4, 6000);
    let task = due(&engine, 9000);
    let plan = engine.plan(&task, read(2, &others.event), at(9000));
    assert!(!matches!(plan, FlushPlan::Write { shown: Shown::Message(_), .. }), "{plan:?}");
}

/// The same with another policy that takes over.
#[test]
fn a_policy_with_masks_that_takes_over_does_not_make_the_event_that_of_the_tenant() {
    let (engine, before) = (engine(), rules());
    let next = Rules { policy: PolicyId { display: "shop/next".into(), uid: "p2".into() }, ..masking() };
    revise(&engine, &before, at(0));
    let others = says("disk lost: call the operator", write());
    engine.decide(by(&before), &of_tenant(says("forged", write())), at(1));
    repeat(&engine, &before, &of_tenant(says("forged", write())), 1, 2);
    flush_first(&engine, &others.event);
    revise(&engine, &next, at(5000));
    // A retry of the claim: it carries nothing, and the series moves.
    let claim = of_tenant(says("forged 1", write()));
    engine.decide(by(&next), &claim, at(5001));
    repeat(&engine, &next, &of_tenant(says("forged 2", write())), 4, 6000);
    for task in engine.tick(at(9000), 10) {
        let plan = engine.plan(&task, read(2, &others.event), at(9000));
        assert!(!matches!(plan, FlushPlan::Write { shown: Shown::Message(_), .. }), "{plan:?}");
    }
}

/// Of a long message only the begin is compared.
#[test]
fn a_claim_must_have_the_whole_message() {
    let (engine, masked) = (engine(), masking());
    let long = |took: &str, tail: &str| format!("took {took}: {}{tail}", "x ".repeat(510));
    let (owners, claim, repeated) =
        (long("1s", "call the operator"), long("1s", "all is well"), long("2s", "all is well"));
    let others = says(&owners, write());
    engine.decide(by(&masked), &of_tenant(says(&claim, write())), at(1));
    repeat(&engine, &masked, &of_tenant(says(&repeated, write())), 1, 2);
    let task = due(&engine, 4000);
    let plan = engine.plan(&task, read(1, &others.event), at(4000));
    assert!(!matches!(plan, FlushPlan::Write { shown: Shown::Message(_), .. }), "{plan:?}");
}

/// The tenant's Event expired. The owner, whose writes no policy governs, has created one of this name.
#[test]
fn an_event_of_the_owner_that_replaced_the_tenants_is_left_alone() {
    let (engine, masked) = (engine(), masking());
    let first = of_tenant(says("forged 1", write()));
    let mut others = says("disk lost: call the operator", write());
    others.event.first_timestamp = "2026-01-01T01:00:00Z".into();
    engine.decide(by(&masked), &first, at(1));
    repeat(&engine, &masked, &of_tenant(says("forged 2", write())), 1, 2);
    flush_first(&engine, &first.event);
    let (mut stored, mut shown) = (1, Vec::new());
    for round in 1..=3u64 {
        let now = round * 10_000;
        repeat(&engine, &masked, &of_tenant(says("forged 3", write())), 4 << (2 * round), now);
        shown.extend(shown_over(&engine, &others.event, &mut stored, now + 5000));
    }
    assert!(!shown.iter().any(|shown| matches!(shown, Shown::Message(_))), "{shown:?}");
}

/// A flush fails because the Event was deleted after it was read. The client creates it again.
fn created_again_after_a_failed_flush(rules: &Rules, messages: [&str; 3]) -> FlushPlan {
    let engine = engine();
    let [first, second, third] = messages.map(|message| timed(says(message, write())));
    engine.decide(by(rules), &first, at(1));
    repeat(&engine, rules, &second, 1, 2);
    let task = due(&engine, 4000);
    let plan = engine.plan(&task, read(1, &first.event), at(4000));
    assert!(matches!(plan, FlushPlan::Write { value: 2, .. }), "{plan:?}");
    engine.requeue_after(&task, Duration::ZERO, at(4001));
    let again = engine.decide(by(rules), &Observation { value: 2, ..third.clone() }, at(4002));
    assert_eq!(again.answer, Answer::Allow);
    let task = due(&engine, 8000);
    engine.plan(&task, read(2, &third.event), at(8000))
}

#[test]
fn an_event_created_again_after_a_failed_flush_loses_nothing() {
    let without = created_again_after_a_failed_flush(&rules(), ["finished in 1s"; 3]);
    assert!(!matches!(without, FlushPlan::Lost { .. }), "without masks: {without:?}");
    let messages = ["finished in 1s", "finished in 2s", "finished in 3s"];
    let with = created_again_after_a_failed_flush(&masking(), messages);
    assert!(!matches!(with, FlushPlan::Lost { .. }), "with masks: {with:?}");
}

/// The API server stored the first Event uncut, because the answer was late, and cuts the second one. No masks. A client of
/// core/v1 can write an `eventTime`.
#[test]
fn an_event_stored_uncut_and_created_again_loses_nothing() {
    let rules = Rules { max_message_bytes: Some(256), ..rules() };
    let engine = engine();
    let (long, short) = ("x ".repeat(200), "x ".repeat(128));
    let written = |message| Observation { api: Api::Core, ..timed(says(message, write())) };
    let (first, again) = (written(&long), written(&short));
    engine.decide(by(&rules), &first, at(1));
    repeat(&engine, &rules, &first, 1, 2);
    let task = due(&engine, 4000);
    engine.plan(&task, read(1, &first.event), at(4000));
    engine.requeue_after(&task, Duration::ZERO, at(4001));
    engine.decide(by(&rules), &Observation { value: 2, ..first.clone() }, at(4002));
    let task = due(&engine, 8000);
    let plan = engine.plan(&task, read(2, &again.event), at(8000));
    assert!(!matches!(plan, FlushPlan::Lost { .. }), "{plan:?}");
}

/// The API server refuses messages above 1,024 bytes in an Event with an `eventTime` (422: lost).
#[test]
fn no_flush_writes_a_message_that_the_api_server_refuses() {
    let (engine, masked) = (engine(), masking());
    let first = timed(says("image sha256:0f1c2d3e4b5a6978", write()));
    let long = format!("image sha256:{}", "0f1c2d3e".repeat(150));
    engine.decide(by(&masked), &first, at(1));
    // The API server validates an Event after squelch has refused it.
    repeat(&engine, &masked, &timed(says(&long, write())), 1, 2);
    let task = due(&engine, 4000);
    match engine.plan(&task, read(1, &first.event), at(4000)) {
        FlushPlan::Write { shown: Shown::Message(message), .. } => {
            assert!(message.len() <= 1024, "{} bytes", message.len());
        }
        plan => assert!(matches!(plan, FlushPlan::Write { .. }), "{plan:?}"),
    }
}

/// squelch creates the Event again with a message that no flush has written.
#[test]
fn the_newest_message_is_written_after_squelch_created_the_event_again() {
    let (engine, masked) = (engine(), masking());
    let of = |message| says(message, write());
    engine.decide(by(&masked), &of("finished in 1s"), at(1));
    repeat(&engine, &masked, &of("finished in 2s"), 1, 2);
    flush_first(&engine, &of("finished in 1s").event);
    repeat(&engine, &masked, &of("finished in 3s"), 2, 5000);
    let task = due(&engine, 6000);
    let FlushPlan::Create { content, value: 4, .. } = engine.plan(&task, None, at(6000)) else {
        panic!("it is not created")
    };
    assert_eq!(content.view().message, "finished in 3s");
    engine.ack(&task, 4, at(6001));
    repeat(&engine, &masked, &of("finished in 4s"), 4, 7000);
    let task = due(&engine, 8000);
    let plan = engine.plan(&task, read(4, &content.view()), at(8000));
    assert!(
        matches!(&plan, FlushPlan::Write { shown: Shown::Message(message), .. } if &**message == "finished in 4s"),
        "{plan:?}"
    );
}

/// The API server stores a PATCH after squelch has stopped waiting for it (10 s) and read the Event again.
#[test]
fn the_newest_message_is_written_after_a_late_patch() {
    let (engine, masked) = (engine(), masking());
    let of = |message| says(message, write());
    engine.decide(by(&masked), &of("finished in 1s"), at(1));
    repeat(&engine, &masked, &of("finished in 2s"), 1, 2);
    let task = due(&engine, 4000);
    engine.plan(&task, read(1, &of("finished in 1s").event), at(4000));
    engine.requeue_after(&task, Duration::ZERO, at(14_000));
    repeat(&engine, &masked, &of("finished in 3s"), 1, 14_001);
    let task = due(&engine, 16_000);
    let plan = engine.plan(&task, read(1, &of("finished in 1s").event), at(16_000));
    assert!(matches!(plan, FlushPlan::Write { shown: Shown::Message(_), .. }), "{plan:?}");
    // 409: the first PATCH is stored now.
    engine.requeue_after(&task, Duration::ZERO, at(16_001));
    let task = due(&engine, 20_000);
    let plan = engine.plan(&task, read(2, &of("finished in 2s").event), at(20_000));
    assert!(
        matches!(&plan, FlushPlan::Write { shown: Shown::Message(message), .. } if &**message == "finished in 3s"),
        "{plan:?}"
    );
}

/// The client's last write is an UPDATE of the message alone, which passes as an edit. squelch has not read the Event
/// since the client's previous UPDATE.
#[test]
fn a_merged_create_never_replaces_a_newer_message_after_an_update() {
    let (engine, masked) = (engine(), masking());
    engine.decide(by(&masked), &says("finished in 1s", write()), at(0));
    let updated = engine.decide(by(&masked), &says("finished in 1s", update(2, 1)), at(1));
    assert_eq!(updated.answer, Answer::Allow);
    repeat(&engine, &masked, &says("finished in 2s", write()), 1, 2);
    let edit = Observation { unchanged: true, ..says("finished in 1s", update(2, 2)) };
    assert_eq!(engine.decide(by(&masked), &edit, at(3)).stage, Stage::Edit);
    let task = due(&engine, 400_000);
    let edited = says("seen by the operator, see ticket", write());
    let plan = engine.plan(&task, read(2, &edited.event), at(400_000));
    assert!(matches!(plan, FlushPlan::Write { shown: Shown::Count, .. }), "{plan:?}");
}

/// Masks are removed, then the Event is deleted and created again.
#[test]
fn removed_masks_do_not_bring_back_an_older_message() {
    let (engine, masked) = (engine(), masking());
    let [a, b, c] = ["part a", "part b", "part c"].map(|part| format!("{AGGREGATE_PREFIX}{part}"));
    revise(&engine, &masked, at(0));
    engine.decide(by(&masked), &says(&a, write()), at(1));
    let updated = engine.decide(by(&masked), &says(&a, update(2, 1)), at(2));
    assert_eq!(updated.answer, Answer::Allow);
    repeat(&engine, &masked, &says(&b, write()), 1, 3);
    revise(&engine, &rules(), at(4));
    let third = says(&c, write());
    let again = engine.decide(by(&rules()), &Observation { value: 3, ..third.clone() }, at(5));
    assert_eq!(again.answer, Answer::Allow);
    let task = due(&engine, 400_000);
    let plan = engine.plan(&task, read(3, &third.event), at(400_000));
    assert!(matches!(plan, FlushPlan::Write { shown: Shown::Count, .. }), "{plan:?}");
}

/// The Event was deleted, and its client has created another one of this name, with a message of another series.
#[test]
fn a_former_series_of_a_name_does_not_bring_back_an_older_message() {
    let (engine, masked) = (engine(), masking());
    engine.decide(by(&masked), &says("alpha took 1s", write()), at(0));
    let updated = engine.decide(by(&masked), &says("alpha took 1s", update(2, 1)), at(1));
    assert_eq!(updated.answer, Answer::Allow);
    repeat(&engine, &masked, &says("alpha took 2s", write()), 3, 2);
    let beta = says("beta is done", write());
    let created = engine.decide(by(&masked), &Observation { value: 3, ..beta.clone() }, at(3));
    assert_eq!(created.answer, Answer::Allow);
    for task in engine.tick(at(400_000), 10) {
        let plan = engine.plan(&task, read(3, &beta.event), at(400_000));
        assert!(!matches!(plan, FlushPlan::Write { shown: Shown::Message(_), .. }), "{plan:?}");
    }
}

/// The client retries its first CREATE, because the answer was lost. The API server refuses it: 409.
#[test]
fn a_retry_of_the_first_create_does_not_forget_the_newest_message() {
    let (engine, masked) = (engine(), masking());
    let first = says("finished in 1s", write());
    engine.decide(by(&masked), &first, at(1));
    repeat(&engine, &masked, &says("finished in 2s", write()), 1, 2);
    engine.decide(by(&masked), &first, at(3));
    let task = due(&engine, 6000);
    let plan = engine.plan(&task, read(1, &first.event), at(6000));
    assert!(matches!(plan, FlushPlan::Write { shown: Shown::Message(_), .. }), "{plan:?}");
}

/// The same after a flush: no message is ever written again.
#[test]
fn a_late_retry_of_the_first_create_does_not_end_the_writing_of_messages() {
    let (engine, masked) = (engine(), masking());
    let first = says("finished in 1s", write());
    engine.decide(by(&masked), &first, at(1));
    repeat(&engine, &masked, &says("finished in 2s", write()), 1, 2);
    flush_first(&engine, &first.event);
    engine.decide(by(&masked), &first, at(5000));
    let (mut stored, mut shown) = (2, Vec::new());
    for round in 1..=4u64 {
        let now = round * 10_000;
        repeat(&engine, &masked, &says("finished in 3s", write()), 4 << round, now);
        let found = says("finished in 2s", write());
        shown.extend(shown_over(&engine, &found.event, &mut stored, now + 5000));
    }
    assert!(shown.iter().any(|shown| matches!(shown, Shown::Message(_))), "{shown:?}");
}

/// Masks are added to a policy with many live series, and each Event is created again.
#[test]
fn entries_of_newest_messages_never_exceed_the_limit_on_text() {
    let settings =
        Settings { seed: [3, 4], max_series: 200, max_pending_series: 100_000, began: Timestamp::UNIX_EPOCH };
    let (engine, masked) = (Engine::new(settings), masking());
    let words = |n: usize| format!("{} {} failed", "p".repeat(1 + n / 10), "z".repeat(1 + n % 10));
    revise(&engine, &rules(), at(0));
    let name = |n: usize| format!("{}.{n:03}", "n".repeat(90));
    for n in 0..200 {
        engine.decide(by(&rules()), &named(&name(n), says(&words(n), write())), at(1));
    }
    let (series, text) = (engine.gauges().series, engine.gauges().text);
    revise(&engine, &masked, at(2));
    for n in 0..200 {
        let (name, words) = (name(n), words(n));
        let again = Observation { value: 2, ..says(&words, write()) };
        engine.decide(by(&masked), &named(&name, again), at(3));
    }
    let (limit, after) = (200 * 96, engine.gauges().text);
    assert!(after <= limit + limit / 16 + 2048, "{text} bytes of {series} series, then {after} bytes");
}

/// Plan of the first flush after these CREATEs; the API server stored the first.
fn first_flush(rules: &[&Rules], messages: &[&str], stored: &str) -> FlushPlan {
    let engine = engine();
    for (number, message) in messages.iter().enumerate() {
        let rules = rules[number.min(rules.len() - 1)];
        revise(&engine, rules, at(number as u64));
        let name = format!("cart.{}", number + 1);
        let verdict =
            engine.decide(by(rules), &named(&name, timed(says(message, write()))), at(number as u64));
        let expected = if number == 0 { Disposition::Admitted } else { Disposition::Compacted };
        assert_eq!(verdict.disposition, Some(expected), "{number}");
    }
    let task = due(&engine, 4000);
    engine.plan(&task, read(1, &timed(says(stored, write())).event), at(4000))
}

/// The second is too long for the API server, the third is not.
#[test]
fn a_masked_part_at_the_end_of_a_kept_message_loses_nothing() {
    let text = "x ".repeat(506);
    let of = |part: &str| format!("{text}{part}");
    let (one, two, three) = (of("1s"), of("12h34m56.789012s"), of("3s"));
    assert!(two.len() > 1024 && one.len() < 1020);
    let plan = first_flush(&[&masking()], &[&one, &two, &three], &one);
    assert!(!matches!(plan, FlushPlan::Lost { .. }), "{plan:?}");
}

/// `maxMessageBytes` is set between the two CREATEs.
#[test]
fn edited_max_message_bytes_lose_nothing() {
    let text = format!("{} ", "x".repeat(250));
    let (one, two) = (format!("{text}1h30m15s"), format!("{text}2s"));
    let cut = Rules { max_message_bytes: Some(255), ..masking() };
    let plan = first_flush(&[&masking(), &cut], &[&one, &two], &one);
    assert!(!matches!(plan, FlushPlan::Lost { .. }), "{plan:?}");
}

/// Somebody has replaced a part by its placeholder: that is none of the masked parts.
#[test]
fn a_literal_placeholder_is_not_replaced() {
    let (engine, masked) = (engine(), masking());
    engine.decide(by(&masked), &says("took 1s", write()), at(1));
    engine.decide(by(&masked), &named("cart.2", says("took 2s", write())), at(2));
    let task = due(&engine, 4000);
    let plan = engine.plan(&task, read(1, &says("took <duration>", write()).event), at(4000));
    assert!(matches!(plan, FlushPlan::Write { shown: Shown::Count, .. }), "{plan:?}");
}

/// The owner's message has the placeholder: of the new API it is another message, so another Event.
#[test]
fn a_literal_placeholder_is_another_message() {
    let plan = first_flush(&[&masking()], &["took 1s", "took 2s"], "took <duration>");
    assert!(matches!(plan, FlushPlan::Lost { .. }), "{plan:?}");
}

fn evict(engine: &Engine, now: u64) {
    let mut namespace = engine.locked("shop").unwrap();
    assert!(namespace.scopes.iter_mut().any(|scope| scope.evict_content(at(now))));
}

/// The tenant's Event expired, and the owner has created one of its name at 01:00:00, which no policy governs. The tenant's
/// claim is an hour older and has another time.
#[test]
fn evicted_contents_do_not_make_the_event_that_of_the_tenant() {
    let (engine, masked) = (engine(), masking());
    let first = of_tenant(says("took 1s", write()));
    let merge = |message, seconds, now| {
        let occurred_at = Timestamp::from_second(seconds).unwrap();
        let write = Observation { occurred_at, ..of_tenant(says(message, write())) };
        repeat(&engine, &masked, &write, 8, now);
    };
    engine.decide(by(&masked), &first, at(1));
    merge("took 2s", 2, 2000);
    let task = due(&engine, 4000);
    let FlushPlan::Write { value, .. } = engine.plan(&task, read(1, &first.event), at(4000)) else {
        panic!("no flush")
    };
    engine.ack(&task, value, at(4001));
    let mut owners = says("took 77s", write());
    owners.event.first_timestamp = "1970-01-01T01:00:00Z".into();
    let hour = 3_600_000;
    for minute in (5..60).step_by(5) {
        engine.decide(by(&masked), &named("repeat.2000.0", first.clone()), at(minute * 60_000));
    }
    // The tenant writes the time of the owner's Event.
    merge("took 2s", 3600, hour + 1000);
    let mut stored = 1;
    for task in engine.tick(at(hour + 5000), 10) {
        let plan = engine.plan(&task, read(stored, &owners.event), at(hour + 5000));
        let FlushPlan::Write { value, shown: Shown::Count, .. } = plan else { panic!("{plan:?}") };
        engine.ack(&task, value, at(hour + 5001));
        stored = value;
    }
    evict(&engine, hour + 6000);
    for round in 0..8 {
        merge("took 666s", 3601, hour + 7000 + round);
    }
    let task = due(&engine, hour + 12_000);
    let plan = engine.plan(&task, read(stored, &owners.event), at(hour + 12_000));
    assert!(!matches!(plan, FlushPlan::Write { shown: Shown::Message(_), .. }), "{plan:?}");
}

/// A small engine under random writes, flushes and revisions.
struct Small {
    engine: Engine,
    policies: [Rules; 7],
    current: usize,
    dice: Dice,
    now: u64,
}

impl Small {
    fn new(seed: u64) -> Self {
        let settings =
            Settings { seed: [3, seed], max_series: 12, max_pending_series: 4, began: Timestamp::UNIX_EPOCH };
        let next = PolicyId { display: "shop/next".into(), uid: "p2".into() };
        let policies = [
            masking(),
            rules(),
            Rules { normalize: [Mask::Numbers].into_iter().collect(), ..rules() },
            Rules { policy: next.clone(), ..masking() },
            Rules { policy: next, ..rules() },
            Rules { series: None, ..masking() },
            Rules { max_message_bytes: Some(256), ..masking() },
        ];
        Self { engine: Engine::new(settings), policies, current: 0, dice: Dice(seed), now: 0 }
    }

    fn message(&mut self) -> String {
        let (kind, part) = (self.dice.below(8) as usize, ["1s", "2.5s", "7"][self.dice.below(3) as usize]);
        match kind {
            6 => format!("{AGGREGATE_PREFIX}{part}"),
            7 => format!("took {part} {}", "long ".repeat(900)),
            _ => format!("{} took {part}", "z".repeat(1 + kind)),
        }
    }

    fn step(&mut self) {
        self.now += self.dice.below(2000);
        match self.dice.below(12) {
            0 => {
                self.current = self.dice.below(7) as usize;
                revise(&self.engine, &self.policies[self.current], at(self.now));
            }
            1 | 2 => self.flush_some(),
            kind => self.write(kind < 10),
        }
    }

    fn flush_some(&mut self) {
        let now = at(self.now);
        for task in self.engine.tick(now, 4) {
            let message = self.message();
            let (found, outcome) = (self.dice.below(9) as i64, self.dice.below(4));
            let found = if found > 5 { None } else { read(found, &says(&message, write()).event) };
            let plan = self.engine.plan(&task, found, now);
            let (FlushPlan::Write { value, .. } | FlushPlan::Create { value, .. }) = plan else { continue };
            match outcome {
                0 => drop(self.engine.requeue_after(&task, Duration::ZERO, now)),
                1 => drop(self.engine.discard(&task)),
                _ => self.engine.ack(&task, value, now),
            }
        }
    }

    fn write(&mut self, creates: bool) {
        let (message, name) = (self.message(), format!("cart.{}", self.dice.below(30)));
        let (value, old) = (1 + self.dice.below(5) as i64, self.dice.below(5) as i64);
        let user = ["system:node:n1", "tenant"][self.dice.below(2) as usize];
        let treatment = if self.dice.below(8) == 0 { Treatment::Exempt } else { Treatment::Stages };
        let fails_open = self.dice.below(20) == 0;
        let governing = Some(Governing { rules: &self.policies[self.current], treatment });
        let base = if creates { write() } else { update(value, old) };
        let write = Observation { user, value, ..named(&name, says(&message, base)) };
        if fails_open {
            self.engine.fail_open(governing, &write, at(self.now));
        } else {
            self.engine.decide(governing, &write, at(self.now));
        }
    }

    fn text(&self) -> usize {
        let Some(namespace) = self.engine.locked("shop") else { return 0 };
        namespace.scopes.iter().map(|scope| scope.series.bytes()).sum()
    }
}

#[test]
fn no_text_outlives_its_series() {
    for seed in 1..=60 {
        let mut small = Small::new(seed);
        for _ in 0..600 {
            small.step();
            assert_eq!(small.engine.gauges().text, small.text(), "{seed}");
        }
        for _ in 0..200 {
            small.now += 10_000;
            for task in small.engine.tick(at(small.now), 100) {
                flush(&small.engine, &task, Some(1), at(small.now));
            }
        }
        let gauges = small.engine.gauges();
        assert_eq!((gauges.series, gauges.text), (0, 0), "{seed}");
    }
}
