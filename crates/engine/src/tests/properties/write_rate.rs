//! Bounds on the writes that reach etcd.

use std::collections::BTreeMap;

use super::*;
use crate::testing::{flush, named};

/// A stored Event and its number of writes.
#[derive(Clone, Copy, Default)]
struct Stored {
    count: i64,
    writes: u32,
}

/// Recorders that share an identity, an etcd that commits every write at once, and a writer without faults.
struct Shop {
    engine: Engine,
    rules: Rules,
    etcd: BTreeMap<String, Stored>,
    now: u64,
}

impl Shop {
    fn store(&mut self, name: &str, count: i64) {
        let stored = self.etcd.entry(name.to_owned()).or_default();
        *stored = Stored { count, writes: stored.writes + 1 };
    }

    fn report(&mut self, name: &str, value: i64) {
        let stored = self.etcd.get(name).copied();
        let reported = match stored {
            None => Observation { value, ..write() },
            Some(old) => Observation {
                operation: Operation::Update,
                value,
                old_value: old.count,
                // Each write happens in another second than the last.
                unchanged: false,
                ..write()
            },
        };
        if self.engine.decide(by(&self.rules), &named(name, reported), at(self.now)).answer == Answer::Allow {
            self.store(name, value);
        }
    }

    /// Lets time pass. The writer does what is due at each step.
    fn pass(&mut self, milliseconds: u64) {
        let end = self.now + milliseconds;
        while self.now < end {
            self.now = end.min(self.now + 1000.max((end - self.now) / 8));
            for task in self.engine.tick(at(self.now), 1000) {
                let found = self.etcd.get(&*task.name).map(|stored| stored.count);
                if let Some(value) = flush(&self.engine, &task, found, at(self.now)) {
                    self.store(&task.name, value);
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(cases(CASES))]

    #[test]
    fn writes_are_bounded_by_doublings_heartbeats_and_closings(
        reported in prop::collection::vec((prop_oneof![6 => 0u64..2000, 1 => 2000u64..400_000], 0usize..3, 1u64..30), 1..40)
    ) {
        const HEARTBEAT: u64 = 600_000;
        const IDLE: u64 = 360_000;
        let mut rules = rules();
        rules.series.as_mut().unwrap().heartbeat_interval = Duration::from_millis(HEARTBEAT);
        let mut shop = Shop { engine: governed(&rules, 1000), rules, etcd: BTreeMap::new(), now: 0 };
        let (mut values, mut closings) = ([0; 3], 0);
        for (gap, recorder, times) in &reported {
            closings += u32::from(*gap > IDLE);
            shop.pass(*gap);
            for _ in 0..*times {
                values[*recorder] += 1;
                shop.report(["a", "b", "c"][*recorder], values[*recorder]);
            }
        }
        let heartbeats = u32::try_from(shop.now / HEARTBEAT).unwrap();
        shop.pass(2 * IDLE);
        for (name, Stored { count, writes }) in &shop.etcd {
            let most = count.ilog2() + 1 + heartbeats + closings + 1;
            prop_assert!(*writes <= most, "{} was written {} times for {}, at most {}", name, writes, count, most);
        }
    }

    #[test]
    fn no_window_admits_more_than_the_buckets_hold_and_regain(
        filter in (1u32..5, 1u64..5000), budget in (1u32..9, 1u64..5000),
        reported in prop::collection::vec((prop_oneof![Just(0), 1u64..3000], 0usize..3), 1..150)
    ) {
        let bucket = |(burst, refill): (u32, u64)| BucketRules {
            burst: burst.try_into().unwrap(),
            refill_interval: Duration::from_millis(refill),
        };
        let per = Per { emitter: true, object: false, event_type: false, reason: false };
        let spam_filter = Some(SpamFilterRules { bucket: bucket(filter), per });
        let rules = Rules { spam_filter, budget: Some(bucket(budget)), ..rules() };
        let engine = governed(&rules, 1000);
        let (mut now, mut admitted) = (0, Vec::new());
        for (number, (gap, user)) in reported.iter().enumerate() {
            now += gap;
            let name = format!("e.{number}");
            let mut write = Observation { user: ["a", "b", "c"][*user], ..named(&name, write()) };
            write.event.message = number.to_string().into();
            if engine.decide(by(&rules), &write, at(now)).answer == Answer::Allow {
                admitted.push((now, *user));
            }
        }
        let no_more = |times: &[u64], (burst, refill): (u32, u64)| {
            let windows = (0..times.len()).flat_map(|first| (first..times.len()).map(move |last| (first, last)));
            windows.into_iter().all(|(first, last)| {
                let most = u64::from(burst) + (times[last] - times[first]) / refill;
                ((last - first) as u64) < most
            })
        };
        let all: Vec<u64> = admitted.iter().map(|(when, _)| *when).collect();
        prop_assert!(no_more(&all, budget), "{:?} {:?}", budget, all);
        for user in 0..3 {
            let its: Vec<u64> = admitted.iter().filter(|(_, of)| *of == user).map(|(when, _)| *when).collect();
            prop_assert!(no_more(&its, filter), "{:?} {:?}", filter, its);
        }
    }
}
