//! Observe counts what Enforce would do.

use std::collections::BTreeMap;

use super::*;
use crate::testing::{flush, named};

/// An engine and its rules. For Enforce an etcd that commits every write at once, and a writer that flushes
/// what is due; Observe needs neither.
struct Side<'r> {
    engine: Engine,
    rules: &'r Rules,
    etcd: BTreeMap<String, i64>,
}

impl<'r> Side<'r> {
    fn of(rules: &'r Rules) -> Self {
        Self { engine: governed(rules, 1000), rules, etcd: BTreeMap::new() }
    }

    /// Returns the verdict on a write of `value`.
    fn report(
        &mut self,
        name: &str,
        message: &str,
        value: i64,
        now: Moment,
    ) -> (Option<Disposition>, Stage, i64) {
        let old = self.etcd.get(name).copied();
        let mut reported = match old {
            None => Observation { value, ..write() },
            Some(old_value) => Observation { operation: Operation::Update, value, old_value, ..write() },
        };
        reported.event.message = message.to_owned().into();
        let verdict = self.engine.decide(by(self.rules), &named(name, reported), now);
        if verdict.answer == Answer::Allow {
            self.etcd.insert(name.to_owned(), value);
        }
        (verdict.disposition, verdict.stage, verdict.occurrences)
    }

    fn flush(&mut self, now: Moment) -> usize {
        let tasks = self.engine.tick(now, 1000);
        for task in &tasks {
            let found = self.etcd.get(&*task.name).copied();
            if let Some(value) = flush(&self.engine, task, found, now) {
                self.etcd.insert(task.name.to_string(), value);
            }
        }
        tasks.len()
    }
}

proptest! {
    #![proptest_config(cases(CASES))]

    /// Each Event has a client of its own, which repeats its CREATE until one is stored. (After a refusal by
    /// Enforce, a client CREATEs again where it PATCHes under Observe, so the two engines would see different
    /// writes.)
    #[test]
    fn observe_decides_what_enforce_decides(
        rules in any_rules(),
        reported in prop::collection::vec((gap(), 0usize..4, prop::bool::weighted(0.7)), 1..100)
    ) {
        let observing = Rules { mode: Mode::Observe, ..rules.clone() };
        let (mut enforced, mut observed) = (Side::of(&rules), Side::of(&observing));
        // Number of each message's Event, and its client's count.
        let mut recorders: [(usize, i64); 4] = [(usize::MAX, 0); 4];
        let (mut now, mut said) = (0, Vec::new());
        for (number, (gap, message, repeats)) in reported.iter().enumerate() {
            now += gap;
            let (made, count) = &mut recorders[*message];
            if !*repeats || !enforced.etcd.contains_key(&format!("e.{made}")) {
                (*made, *count) = (number, 0);
            }
            *count += 1;
            let (name, message) = (format!("e.{made}"), ["a", "b", "c", "d"][*message]);
            let expected = enforced.report(&name, message, *count, at(now));
            let counted = observed.report(&name, message, *count, at(now));
            said.push(format!("{now}: {name} = {count} {expected:?}, {counted:?}; stored {:?}", enforced.etcd.get(&name)));
            prop_assert_eq!(counted, expected, "{}", said.join("\n"));
            // The writer runs after the grace time of the client's write.
            enforced.flush(at(now + 2000));
            prop_assert_eq!(observed.flush(at(now + 2000)), 0, "Observe issues no tasks");
            now += 2000;
        }
        // Not `recovered`: only Enforce stores occurrences a second time.
        prop_assert_eq!(counters(&observed.engine).by_disposition, counters(&enforced.engine).by_disposition);
    }
}
