//! `mute`, `normalize` and `maxMessageBytes`.

mod newest;

use super::*;
use crate::{Mask, Shown, Treatment};

fn masks() -> crate::Masks {
    Mask::ALL.into_iter().collect()
}

fn masking() -> Rules {
    Rules { normalize: masks(), ..rules() }
}

fn says<'a>(message: &'a str, write: Observation<'a>) -> Observation<'a> {
    let first_timestamp = if write.event.event_time.is_empty() { "1970-01-01T00:00:00Z" } else { "" };
    let event = EventView { message: message.into(), first_timestamp: first_timestamp.into(), ..write.event };
    Observation { event, ..write }
}

/// Of the new API.
fn timed<'a>(write: Observation<'a>) -> Observation<'a> {
    let event_time = "1970-01-01T00:00:00.000000Z".into();
    let event = EventView { event_time, first_timestamp: "".into(), ..write.event };
    Observation { api: Api::Events, event, ..write }
}

fn read(count: i64, event: &EventView<'_>) -> Option<StoredEvent> {
    Some(stored(count, event))
}

/// The task of the only series that is due.
fn due(engine: &Engine, now: u64) -> FlushTask {
    engine.tick(at(now), 10).remove(0)
}

/// Flushes what is due over the count in etcd, and changes that.
fn flush_due(engine: &Engine, stored: &mut i64, now: u64) {
    for task in engine.tick(at(now), 10) {
        *stored = flush(engine, &task, Some(*stored), at(now)).unwrap_or(*stored);
    }
}

/// Random numbers.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

#[test]
fn masks_removed_while_occurrences_are_pending_lose_none() {
    let (engine, masked) = (engine(), masking());
    revise(&engine, &masked, at(0));
    let first = timed(says("finished in 1.5s", write()));
    engine.decide(by(&masked), &first, at(1));
    let second = engine.decide(by(&masked), &named("cart.2", timed(says("finished in 2s", write()))), at(2));
    assert_eq!(second.disposition, Some(Disposition::Compacted));
    revise(&engine, &rules(), at(3));
    let task = due(&engine, 4000);
    let plan = engine.plan(&task, read(1, &first.event), at(4000));
    assert!(matches!(plan, FlushPlan::Write { value: 2, .. }), "{plan:?}");
}

#[test]
fn a_policy_without_masks_takes_over_and_loses_none() {
    let (engine, masked) = (engine(), masking());
    let first = timed(says("finished in 1.5s", write()));
    engine.decide(by(&masked), &first, at(1));
    engine.decide(by(&masked), &named("cart.2", timed(says("finished in 2s", write()))), at(2));
    let next = Rules { policy: PolicyId { display: "shop/next".into(), uid: "p2".into() }, ..rules() };
    revise(&engine, &next, at(3));
    // The client creates its Event again, as one that creates before it replaces does.
    engine.decide(by(&next), &first, at(4));
    let mut plans = Vec::new();
    for task in engine.tick(at(9000), 10) {
        plans.push(engine.plan(&task, read(1, &first.event), at(9000)));
    }
    assert_eq!(counters(&engine).lost, 0, "{plans:?}");
}

#[test]
fn a_claimed_name_never_changes_the_message_of_another_users_event() {
    let (engine, masked) = (engine(), masking());
    // cart.1 is stored by another user, whose write no policy governs. The API server refuses this CREATE.
    let claim = Observation { user: "tenant", ..timed(says("forged 1", write())) };
    engine.decide(by(&masked), &claim, at(1));
    engine.decide(by(&masked), &named("cart.2", says("forged 2", claim.clone())), at(2));
    let task = due(&engine, 4000);
    let others = timed(says("disk lost: call the operator", write()));
    let plan = engine.plan(&task, read(1, &others.event), at(4000));
    assert!(!matches!(plan, FlushPlan::Write { shown: Shown::Message(_), .. }), "{plan:?}");
}

#[test]
fn a_claimed_name_never_changes_the_message_of_another_users_core_event() {
    let (engine, masked) = (engine(), masking());
    let claim = Observation { user: "tenant", ..says("forged 1", write()) };
    engine.decide(by(&masked), &claim, at(1));
    engine.decide(by(&masked), &named("cart.2", says("forged 2", claim.clone())), at(2));
    let task = due(&engine, 4000);
    let others = says("disk lost: call the operator", write());
    let plan = engine.plan(&task, read(1, &others.event), at(4000));
    assert!(!matches!(plan, FlushPlan::Write { shown: Shown::Message(_), .. }), "{plan:?}");
}

/// client-go changes the message of an aggregate with each UPDATE. None is a CREATE.
#[test]
fn a_flush_never_brings_back_an_older_message_than_that_of_an_admitted_update() {
    let (engine, masked) = (engine(), masking());
    let of = |number: usize| format!("{AGGREGATE_PREFIX}failure of part {}", &"abcdefgh"[number..=number]);
    let first = of(1);
    engine.decide(by(&masked), &says(&first, write()), at(0));
    let (mut stored, mut message) = (1, first.clone());
    for value in 2..=7 {
        // The observation of an UPDATE has the stored content.
        let shown = message.clone();
        let verdict = engine.decide(by(&masked), &says(&shown, update(value, stored)), at(value as u64));
        if verdict.answer == Answer::Allow {
            (stored, message) = (value, of(value as usize));
        }
    }
    let task = due(&engine, 400_000);
    let shown = says(&message, write());
    let plan = engine.plan(&task, read(stored, &shown.event), at(400_000));
    assert!(
        matches!(plan, FlushPlan::Write { value: 7, shown: Shown::Count, .. }),
        "stored {stored} {message:?}, {plan:?}"
    );
}

#[test]
fn a_flush_never_shortens_a_message_of_core_v1() {
    let (engine, masked) = (engine(), masking());
    let long = |took: &str| format!("finished in {took}: {}", "the reason. ".repeat(200));
    let (one, other) = (long("1.5s"), long("2s"));
    engine.decide(by(&masked), &says(&one, write()), at(1));
    engine.decide(by(&masked), &named("cart.2", says(&other, write())), at(2));
    let task = due(&engine, 4000);
    let first = says(&one, write());
    let plan = engine.plan(&task, read(1, &first.event), at(4000));
    assert!(matches!(plan, FlushPlan::Write { value: 2, shown: Shown::Count, .. }), "{plan:?}");
}

#[test]
fn a_name_that_no_object_can_have_is_not_masked() {
    let masked = |length: usize| {
        let message = format!("{} failed", "n".repeat(length));
        let mut event = says(&message, write()).event;
        event.regarding.name = message[..length].into();
        masks().shown(&event).starts_with("<name>")
    };
    assert_eq!([2, 3, 253, 254].map(masked), [false, true, true, false]);
}

#[test]
fn newer_messages_never_exceed_the_limit_on_text() {
    let settings =
        Settings { seed: [3, 4], max_series: 200, max_pending_series: 100_000, began: Timestamp::UNIX_EPOCH };
    let (engine, masked) = (Engine::new(settings), masking());
    // No mask matches these words.
    let words =
        |number: usize| format!("{} {} failed: ", "p".repeat(1 + number / 10), "z".repeat(1 + number % 10));
    for n in 0..200 {
        for twice in 0..2 {
            let name = format!("n.{n}.{twice}");
            let message = format!("{}0123abc", words(n));
            engine.decide(by(&masked), &named(&name, says(&message, write())), at(1));
        }
    }
    for n in 0..200 {
        let name = format!("n.{n}.3");
        let message = format!("{}{}", words(n), "0a".repeat(480));
        engine.decide(by(&masked), &named(&name, says(&message, write())), at(2));
    }
    let (limit, text) = (200 * 96, engine.gauges().text);
    assert!(text <= limit + limit / 16 + 2048, "{text} bytes");
}

fn recreated(before: &Rules, after: &Rules, again: &str) -> (i64, u64, u64) {
    let engine = engine();
    revise(&engine, before, at(0));
    engine.decide(by(before), &says("finished in 1.5s", write()), at(1));
    engine.decide(by(before), &named("cart.2", says("finished in 1.5s", write())), at(2));
    revise(&engine, after, at(3));
    // The Event was deleted, and its client creates it again.
    let mut stored = 0;
    let created = engine.decide(by(after), &Observation { value: 2, ..says(again, write()) }, at(4));
    if created.answer == Answer::Allow {
        stored = 2;
    }
    engine.decide(by(after), &named("cart.3", says(again, write())), at(5));
    for now in (5000..=900_000).step_by(5000) {
        flush_due(&engine, &mut stored, now);
    }
    let counters = counters(&engine);
    (stored, counters.received(), counters.lost)
}

#[test]
fn masks_added_while_occurrences_are_pending_and_the_event_created_again() {
    let same = recreated(&rules(), &rules(), "finished in 1.5s");
    let other_message = recreated(&rules(), &rules(), "finished in 2s");
    let masked = recreated(&rules(), &masking(), "finished in 1.5s");
    assert_eq!(masked, same, "with another message and no masks: {other_message:?}");
}

/// The API server stopped waiting for the answer (`failurePolicy: Ignore`), and stored the message uncut.
#[test]
fn an_event_stored_uncut_because_the_answer_was_late_loses_nothing() {
    let rules = Rules { max_message_bytes: Some(12), ..rules() };
    let engine = engine();
    let first = timed(says("finished in 1.5s", write()));
    engine.decide(by(&rules), &first, at(1));
    engine.decide(by(&rules), &named("cart.2", first.clone()), at(2));
    let task = due(&engine, 4000);
    let plan = engine.plan(&task, read(1, &first.event), at(4000));
    assert!(matches!(plan, FlushPlan::Write { value: 2, .. }), "{plan:?}");
}

/// The last UPDATE of a client brings a newer message than that of the merged CREATE.
#[test]
fn a_merged_create_never_replaces_a_newer_message_of_its_client() {
    let (engine, masked) = (engine(), masking());
    engine.decide(by(&masked), &says("finished in 1.5s", write()), at(0));
    engine.decide(by(&masked), &named("cart.2", says("finished in 2s", write())), at(1));
    // An edit of the message alone: it passes.
    let edit = Observation { unchanged: true, ..says("finished in 1.5s", update(1, 1)) };
    assert_eq!(engine.decide(by(&masked), &edit, at(2)).stage, Stage::Edit);
    let task = due(&engine, 4000);
    let edited = says("seen by the operator, see ticket", write());
    let plan = engine.plan(&task, read(1, &edited.event), at(4000));
    assert!(matches!(plan, FlushPlan::Write { value: 2, shown: Shown::Count, .. }), "{plan:?}");
}

#[test]
fn any_text_is_split_without_a_panic_and_to_the_same_text_again() {
    let parts = [
        "a",
        "é",
        "µs",
        "1",
        "5",
        ".",
        ":",
        "::",
        "[",
        "]",
        "-",
        " ",
        "_",
        "web",
        "web-",
        "1h",
        "s",
        "Ki",
        "0f",
        "f00",
        "fd00",
        "10.0.0.1",
        "b2x4q",
        "7d4b9c6f5d",
        "<",
        "\u{10ffff}",
        "6f1b6a2e-3b1f-4f43-9d7e-0d3f0a1b2c3d",
        "/",
    ];
    let mut dice = Dice(1);
    let mut next = |limit: usize| dice.below(limit as u64) as usize;
    for _ in 0..30_000 {
        let text: String = (0..1 + next(12)).map(|_| parts[next(parts.len())]).collect();
        let is_padded = next(4) == 0;
        let padded = if is_padded { format!("{}{text}", "x ".repeat(505 + next(8))) } else { text };
        let mut event = says(&padded, write()).event;
        event.regarding.name = ["web", "é-é", "a1.", "web-1"][next(4)].into();
        let shown = masks().shown(&event);
        let again = EventView { message: shown.as_str().into(), ..event.clone() };
        assert!(
            is_padded || masks().shown(&again) == shown,
            "{padded:?} {shown:?} {:?}",
            masks().shown(&again)
        );
    }
}

/// One client counts on; it is muted from 6 to 12. Returns what is stored in the end, and the dispositions.
fn muted_for_a_while(mode: Mode, api: Api, gap: u64) -> (i64, Vec<Option<Disposition>>, crate::Counters) {
    let (engine, rules) = (engine(), Rules { mode, ..rules() });
    let (mut stored, mut now, mut dispositions) = (0, 0, Vec::new());
    for value in 1..=40 {
        now += if value == 13 || value == 6 { gap } else { 100 };
        flush_due(&engine, &mut stored, now);
        let treatment = if (6..=12).contains(&value) { Treatment::Mute } else { Treatment::Stages };
        let write = if value == 1 { write() } else { update(value, stored) };
        let write = Observation { api, has_series: api == Api::Events && value > 1, ..write };
        let verdict = engine.decide(Some(Governing { rules: &rules, treatment }), &write, at(now));
        dispositions.push(verdict.disposition);
        if verdict.answer == Answer::Allow {
            stored = value;
        }
    }
    for _ in 0..500 {
        now += 5000;
        flush_due(&engine, &mut stored, now);
    }
    (stored, dispositions, counters(&engine))
}

#[test]
fn after_muting_counts_go_on_exactly() {
    for api in [Api::Core, Api::Events] {
        for gap in [100, 5000, 500_000] {
            let (stored, _, counters) = muted_for_a_while(Mode::Enforce, api, gap);
            assert_eq!(
                (
                    stored,
                    counters.of(Disposition::Muted),
                    counters.received(),
                    counters.lost,
                    counters.recovered
                ),
                (33, 7, 40, 0, 0),
                "{api:?} {gap}"
            );
        }
    }
}

/// After a longer time than the idle timeout they can differ in what they admit, because the Event that Observe finds
/// shows the muted occurrences too.
#[test]
fn observe_counts_muted_writes_like_enforce() {
    for api in [Api::Core, Api::Events] {
        for gap in [100, 5000] {
            let enforced = muted_for_a_while(Mode::Enforce, api, gap).1;
            let observed = muted_for_a_while(Mode::Observe, api, gap).1;
            assert_eq!(enforced, observed, "{api:?} {gap}");
        }
        let received = |mode| muted_for_a_while(mode, api, 500_000).2.received();
        assert_eq!(received(Mode::Enforce), received(Mode::Observe));
    }
}

/// A client that reads the stored count and adds one (kube-rs). It is muted from 6 to 12.
#[test]
fn a_client_that_reads_is_counted_exactly_around_a_mute() {
    for gap in [100, 5000, 500_000] {
        let (engine, rules) = (engine(), rules());
        let (mut stored, mut now) = (0, 0);
        for number in 1..=40 {
            now += if number == 13 || number == 6 { gap } else { 1100 };
            flush_due(&engine, &mut stored, now);
            let treatment = if (6..=12).contains(&number) { Treatment::Mute } else { Treatment::Stages };
            let seen = Timestamp::from_millisecond(now as i64).unwrap();
            let write = if number == 1 { write() } else { update(stored + 1, stored) };
            let write = Observation { last_observed: Some(seen), occurred_at: seen, ..write };
            let verdict = engine.decide(Some(Governing { rules: &rules, treatment }), &write, at(now));
            if verdict.answer == Answer::Allow {
                stored = write.value;
            }
        }
        for _ in 0..500 {
            now += 5000;
            flush_due(&engine, &mut stored, now);
        }
        let counters = counters(&engine);
        assert_eq!(
            (stored, counters.of(Disposition::Muted), counters.received(), counters.lost, counters.recovered),
            (33, 7, 40, 0, 0),
            "{gap}"
        );
    }
}

/// Conservation with a drain in the middle of a mute.
#[test]
fn a_drained_engine_stores_what_it_counted_of_a_muted_client() {
    for others in [0, 1, 5] {
        let (engine, rules) = (engine(), rules());
        let (mut stored, mut now) = (0, 0);
        for value in 1..=20 {
            now += 100;
            if value == 9 {
                engine.drain();
            }
            let treatment = if value >= 6 { Treatment::Mute } else { Treatment::Stages };
            let governing = Some(Governing { rules: &rules, treatment });
            let write = if value == 1 { write() } else { update(value, stored) };
            if engine.decide(governing, &write, at(now)).answer == Answer::Allow {
                stored = value;
            }
            for other in 0..if value == 3 { others } else { 0 } {
                let name = format!("other.{other}");
                engine.decide(governing, &named(&name, crate::testing::write()), at(now));
            }
        }
        for _ in 0..20 {
            now += 1000;
            flush_due(&engine, &mut stored, now);
        }
        let counters = counters(&engine);
        let of = |disposition| counters.of(disposition);
        let summed = of(Disposition::Admitted) + of(Disposition::Compacted) + counters.recovered;
        assert_eq!(
            (stored as u64, counters.received(), counters.lost),
            (summed, 20 + others, 0),
            "{others} {counters:?}"
        );
    }
}

/// Without masks, the same claim is noticed.
#[test]
fn baseline_without_masks_a_claim_of_an_event_of_the_new_api_is_noticed() {
    let (engine, rules) = (engine(), rules());
    let claim = Observation { user: "tenant", ..timed(says("forged 1", write())) };
    engine.decide(by(&rules), &claim, at(1));
    engine.decide(by(&rules), &named("cart.2", claim.clone()), at(2));
    let task = due(&engine, 4000);
    let others = timed(says("disk lost: call the operator", write()));
    let plan = engine.plan(&task, read(1, &others.event), at(4000));
    assert!(matches!(plan, FlushPlan::Lost { occurrences: 1 }), "{plan:?}");
}

/// The Event under the name of a claim is another user's, and the claim is equal to it outside of the masked parts.
#[test]
fn no_flush_writes_a_message_to_an_event_of_another_time_than_that_of_the_claim() {
    let (engine, masked) = (engine(), masking());
    let claim = timed(says("finished in 7s", write()));
    engine.decide(by(&masked), &claim, at(1));
    let mut others = timed(says("finished in 1.5s", write()));
    others.event.event_time = "1970-01-01T00:00:00.000001Z".into();
    let mut stored = 1;
    for second in 1..100 {
        let repeat = says("finished in 9s", claim.clone());
        engine.decide(by(&masked), &named(&format!("cart.{second}"), repeat), at(second * 10_000));
        for task in engine.tick(at(second * 10_000 + 5000), 10) {
            let plan = engine.plan(&task, read(stored, &others.event), at(second * 10_000 + 5000));
            let FlushPlan::Write { value, shown, .. } = plan else { continue };
            assert_eq!(shown, Shown::Count);
            engine.ack(&task, value, at(second * 10_000 + 5001));
            stored = value;
        }
    }
    assert!(stored > 50, "{stored}");
}

/// A message is stored in the end, whether or not squelch learns that its write succeeded, and whatever is merged in
/// between.
#[test]
fn the_newest_message_is_written_after_any_failed_flush() {
    for is_stored in [false, true] {
        for is_newer in [false, true] {
            let (engine, masked) = (engine(), masking());
            let first = says("finished in 1s", write());
            engine.decide(by(&masked), &first, at(1));
            engine.decide(by(&masked), &named("cart.2", says("finished in 2s", write())), at(2));
            let task = due(&engine, 4000);
            let plan = engine.plan(&task, read(1, &first.event), at(4000));
            let FlushPlan::Write { shown: Shown::Message(message), value: 2, .. } = plan else {
                panic!("{plan:?}")
            };
            engine.requeue_after(&task, Duration::ZERO, at(4001));
            let newest = if is_newer { "finished in 3s" } else { &*message };
            engine.decide(by(&masked), &named("cart.3", says(newest, write())), at(4002));
            let shown = if is_stored { says("finished in 2s", write()) } else { first };
            let task = due(&engine, 400_000);
            let plan = engine.plan(&task, read(1 + i64::from(is_stored), &shown.event), at(400_000));
            let FlushPlan::Write { shown, value: 3, .. } = plan else { panic!("{plan:?}") };
            let expected = Shown::Message(newest.into());
            let expected = if is_stored && !is_newer { Shown::Count } else { expected };
            assert_eq!(shown, expected, "{is_stored} {is_newer}");
        }
    }
}

/// squelch updates an Event of a client that also updates it.
#[test]
fn a_message_is_written_after_an_update_of_the_client() {
    let (engine, masked) = (engine(), masking());
    let first = says("finished in 1s", write());
    engine.decide(by(&masked), &first, at(1));
    let updated = engine.decide(by(&masked), &says("finished in 1s", update(2, 1)), at(2));
    assert_eq!(updated.answer, Answer::Allow);
    let changed = says("finished in 2s", write());
    engine.decide(by(&masked), &named("cart.2", says("finished in 3s", write())), at(3));
    let task = due(&engine, 400_000);
    let plan = engine.plan(&task, read(2, &changed.event), at(400_000));
    let FlushPlan::Write { shown: Shown::Message(message), .. } = plan else { panic!("{plan:?}") };
    assert_eq!(&*message, "finished in 3s");
}
