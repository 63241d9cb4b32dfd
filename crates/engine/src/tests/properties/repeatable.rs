//! The same calls give the same answers, and a repeated write counts once.

use super::*;

const NAMESPACES: [&str; 5] = ["shop", "till", "yard", "pier", "dock"];

/// One call to the engine.
#[derive(Clone, Debug)]
enum Call {
    Decide(usize, Observation<'static>),
    FailOpen(usize, Observation<'static>),
    Tick,
    /// The flush writer completes a task with the count that it found.
    Flush(usize, Option<i64>),
    RequeueAfter(usize),
}

fn call() -> impl Strategy<Value = Call> {
    let namespace = 0usize..NAMESPACES.len();
    let found = prop::option::of(1i64..20);
    prop_oneof![
        12 => (namespace.clone(), any_write()).prop_map(|(at, write)| Call::Decide(at, write)),
        1 => (namespace, any_write()).prop_map(|(at, write)| Call::FailOpen(at, write)),
        3 => Just(Call::Tick),
        3 => (0usize..4, found).prop_map(|(at, found)| Call::Flush(at, found)),
        1 => (0usize..4).prop_map(Call::RequeueAfter),
    ]
}

/// An engine, its open tasks, and all its answers.
struct Recorded {
    engine: Engine,
    tasks: Vec<FlushTask>,
    said: Vec<String>,
}

impl Recorded {
    fn call(&mut self, rules: &Rules, call: &Call, now: Moment) {
        let Self { engine, tasks, said } = self;
        match call {
            Call::Decide(namespace, write) => {
                let write = Observation { namespace: NAMESPACES[*namespace], ..write.clone() };
                said.push(format!("{:?}", engine.decide(by(rules), &write, now)));
            }
            Call::FailOpen(namespace, write) => {
                let write = Observation { namespace: NAMESPACES[*namespace], ..write.clone() };
                engine.fail_open(by(rules), &write, now);
            }
            Call::Tick => {
                let due = engine.tick(now, 3);
                said.push(format!("{due:?}"));
                tasks.extend(due);
            }
            Call::Flush(at, found) if *at < tasks.len() => {
                let task = tasks.remove(*at);
                let plan = engine.plan(&task, found.map(StoredEvent::with_count), now);
                if let FlushPlan::Write { value, .. } | FlushPlan::Create { value, .. } = &plan {
                    engine.ack(&task, *value, now);
                }
                said.push(format!("{plan:?}"));
            }
            Call::RequeueAfter(at) if *at < tasks.len() => {
                engine.requeue_after(&tasks.remove(*at), Duration::from_secs(1), now);
            }
            Call::Flush(..) | Call::RequeueAfter(_) => {}
        }
        said.push(format!("{:?}", engine.gauges()));
    }
}

proptest! {
    #![proptest_config(cases(CASES))]

    #[test]
    fn the_same_calls_give_the_same_answers_in_the_same_order(
        rules in any_rules(), calls in prop::collection::vec((gap(), call()), 1..100)
    ) {
        let recorded = || Recorded { engine: governed(&rules, 20), tasks: Vec::new(), said: Vec::new() };
        let (mut one, mut other) = (recorded(), recorded());
        let mut now = 0;
        for (gap, call) in &calls {
            now += gap;
            one.call(&rules, call, at(now));
            other.call(&rules, call, at(now));
            prop_assert_eq!(one.said.last(), other.said.last(), "after {:?}", call);
        }
        prop_assert_eq!(one.said, other.said);
    }

    /// A late or missing `tick` changes no decision as long as nothing is flushed.
    #[test]
    fn a_tick_alone_changes_no_decision(
        rules in any_rules(), writes in prop::collection::vec((gap(), any_write(), any::<bool>()), 1..100)
    ) {
        let (ticked, left_alone) = (governed(&rules, 100_000), governed(&rules, 100_000));
        let mut now = 0;
        for (gap, write, tick) in &writes {
            now += gap;
            if *tick {
                for task in ticked.tick(at(now), 1000) {
                    ticked.requeue_after(&task, Duration::from_secs(1), at(now));
                }
            }
            let (one, other) = (ticked.decide(by(&rules), write, at(now)), left_alone.decide(by(&rules), write, at(now)));
            prop_assert_eq!(one, other, "{:?} at {}", write, now);
            prop_assert_eq!(counters(&ticked), counters(&left_alone));
        }
    }

    #[test]
    fn a_repeated_write_is_counted_once(
        rules in any_rules(),
        writes in prop::collection::vec((gap(), any_write(), 0usize..100), 1..60)
    ) {
        let engine = governed(&rules, 100_000);
        let (mut now, mut said) = (0, Vec::new());
        // Each name belongs to one user, because each CREATE of another user's name carries one occurrence.
        let of_one_user = |(gap, write, again)| (gap, Observation { user: "core", ..write }, again);
        let writes: Vec<_> = writes.into_iter().map(of_one_user).collect();
        for (gap, write, again) in &writes {
            now += gap;
            if engine.decide(by(&rules), write, at(now)).disposition.is_some() {
                said.push(write);
            }
            let Some(again) = said.get(again % said.len().max(1)) else { continue };
            let before = counters(&engine).received();
            let verdict = engine.decide(by(&rules), again, at(now));
            let expected = if again.name.is_none() { again.value } else { 0 };
            prop_assert_eq!(verdict.occurrences, expected, "{:?}", again);
            prop_assert_eq!(counters(&engine).received(), before + expected as u64);
        }
    }
}
