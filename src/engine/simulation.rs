//! Random lives: clients of every kind, an etcd, a flush writer that meets conflicts and lost answers. The law
//! of conservation must hold in each, and no stored count may ever fall.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

use super::testing::{by, engine, rules, write};
use super::*;

/// One thing that happens.
#[derive(Clone, Debug)]
enum Step {
    /// A legacy recorder tells of an occurrence: absolute counts, CREATE after 404.
    Legacy(usize),
    /// kube's Recorder: PATCHes every repeat through events.k8s.io, and counts only what succeeded.
    Kube(usize),
    /// A client that CREATEs an Event per occurrence, with one of several messages.
    CreateOnly(usize),
    /// The same by `generateName`.
    Generate,
    /// Somebody annotates the first Event.
    Annotate,
    /// Time passes, in milliseconds.
    Pass(u64),
    /// The writer takes what is due.
    Take,
    /// The writer reads for one of its orders.
    Read(usize),
    /// The writer writes what it planned for one of its orders; the answer may get lost.
    Write(usize, bool),
}

const MESSAGES: [&str; 5] = ["a", "b", "c", "d", "e"];

/// Policies with every choice of stages.
fn policy() -> impl Strategy<Value = Rules> {
    let bucket = (1u32..6, prop_oneof![Just(30u64), Just(900)]).prop_map(|(burst, seconds)| BucketRules {
        burst: burst.try_into().unwrap(),
        refill_interval: Duration::from_secs(seconds),
    });
    let group_by = prop_oneof![Just(GroupBy::Object), Just(GroupBy::Kind)];
    let aggregation = (1u32..4, group_by).prop_map(|(max_events, group_by)| AggregationRules {
        max_events,
        interval: Duration::from_secs(600),
        group_by,
    });
    let per = Per { emitter: true, regarding: true, event_type: true, reason: false };
    let spam_filter = bucket.clone().prop_map(move |bucket| SpamFilterRules { bucket, per });
    use prop::option::of;
    (of(aggregation), of(spam_filter), of(bucket), prop::bool::weighted(0.8)).prop_map(
        |(aggregation, spam_filter, budget, series)| {
            let rules = rules();
            Rules { aggregation, spam_filter, budget, series: rules.series.filter(|_| series), ..rules }
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0usize..2).prop_map(Step::Legacy),
        3 => (0usize..2).prop_map(Step::Kube),
        4 => (0usize..MESSAGES.len()).prop_map(Step::CreateOnly),
        1 => Just(Step::Generate),
        1 => Just(Step::Annotate),
        3 => prop_oneof![1u64..50, 50u64..5_000, 300_000u64..400_000, 1_700_000u64..1_900_000].prop_map(Step::Pass),
        3 => Just(Step::Take),
        4 => (0usize..4).prop_map(Step::Read),
        4 => ((0usize..4), prop::bool::weighted(0.15)).prop_map(|(at, lost)| Step::Write(at, lost)),
    ]
}

/// A stored Event.
#[derive(Clone, Copy)]
struct Stored {
    count: i64,
    version: u64,
    api: Api,
}

/// An order in the writer's hands, with what it has read and planned.
struct Held {
    order: Order,
    planned: Option<(i64, Option<u64>)>,
}

struct World {
    engine: Engine,
    rules: Rules,
    now: Moment,
    etcd: BTreeMap<String, Stored>,
    version: u64,
    increments: i64,
    truth: i64,
    legacy: [i64; 2],
    kube: [Option<(u64, i64, Moment)>; 2],
    made: u64,
    held: Vec<Held>,
}

impl World {
    fn new(rules: Rules) -> Self {
        Self {
            engine: engine(),
            rules,
            now: Moment::from_epoch(Duration::from_secs(1)),
            etcd: BTreeMap::new(),
            version: 0,
            increments: 0,
            truth: 0,
            legacy: [0; 2],
            kube: [None; 2],
            made: 0,
            held: Vec::new(),
        }
    }

    fn run(&mut self, step: &Step) {
        match step {
            Step::Legacy(client) => self.legacy(*client),
            Step::Kube(client) => self.kube(*client),
            Step::CreateOnly(message) => {
                self.made += 1;
                self.create(Some(&format!("c.{}", self.made)), Api::Core, 1, "creating", MESSAGES[*message]);
            }
            Step::Generate => {
                self.create(None, Api::Core, 1, "creating", MESSAGES[0]);
            }
            Step::Annotate => {
                if let Some(event) = self.etcd.values_mut().next() {
                    self.version += 1;
                    event.version = self.version;
                }
            }
            Step::Pass(milliseconds) => self.now = self.now.plus(Duration::from_millis(*milliseconds)),
            Step::Take => self.take(),
            Step::Read(at) => self.read(*at),
            Step::Write(at, lost) => self.write(*at, *lost),
        }
    }

    fn legacy(&mut self, client: usize) {
        self.legacy[client] += 1;
        let (name, count) = (format!("l.{client}"), self.legacy[client]);
        if count > 1 && self.etcd.contains_key(&name) {
            self.update(&name, Api::Core, count, "legacy");
            if let Some(event) = self.etcd.get(&name).filter(|event| event.count == count) {
                self.legacy[client] = event.count; // it adopts what it reads back
            }
        } else {
            self.create(Some(&name), Api::Core, count, "legacy", MESSAGES[0]);
        }
    }

    fn kube(&mut self, client: usize) {
        let known = self.kube[client].filter(|(.., seen)| self.now.since(*seen) < Duration::from_secs(360));
        let (number, count) = known.map_or((self.made + 1, 1), |(number, count, _)| (number, count + 1));
        let name = format!("k.{client}.{number}");
        let done = if count == 1 {
            self.made = number;
            self.create(Some(&name), Api::Events, 1, "kube", MESSAGES[0])
        } else {
            self.update(&name, Api::Events, count, "kube")
        };
        self.kube[client] = if done { Some((number, count, self.now)) } else { known };
    }

    fn create(&mut self, name: Option<&str>, api: Api, value: i64, user: &str, message: &str) -> bool {
        let mut asked = Observation { api, value, user, name: name.map(Into::into), ..write() };
        (asked.has_series, asked.generate_name) = (api == Api::Events && value > 1, "g.".into());
        asked.event.message = message.to_owned().into();
        self.truth += 1;
        let verdict = self.engine.decide(by(&self.rules), &asked, self.now);
        let name = match (verdict.answer, name) {
            (Answer::Allow, Some(name)) => name.to_owned(),
            (Answer::AllowNamed(name), None) => name,
            (Answer::Allow, None) => {
                self.made += 1;
                format!("g.{}", self.made) // the API server's own choice
            }
            (Answer::Deny(_), _) => return false,
            (answer, name) => panic!("{answer:?} for {name:?}"),
        };
        if self.etcd.contains_key(&name) {
            return false;
        }
        self.store(name, value, api);
        true
    }

    fn update(&mut self, name: &str, api: Api, value: i64, user: &str) -> bool {
        let old = self.etcd[name];
        let asked = Observation {
            operation: Operation::Update,
            old_value: old.count,
            api,
            value,
            user,
            name: Some(name.into()),
            has_series: api == Api::Events,
            unchanged: value == old.count,
            ..write()
        };
        self.truth += 1;
        match self.engine.decide(by(&self.rules), &asked, self.now).answer {
            Answer::Allow => self.store(name.to_owned(), value, old.api),
            Answer::Restore => {}
            _ => return false,
        }
        true
    }

    fn store(&mut self, name: String, count: i64, api: Api) {
        let before = self.etcd.get(&name).map_or(0, |event| event.count);
        assert!(count >= before, "{name} lowered from {before} to {count}");
        self.increments += count - before;
        self.version += 1;
        self.etcd.insert(name, Stored { count, version: self.version, api });
    }

    fn take(&mut self) {
        for order in self.engine.tick(self.now, 100) {
            self.held.push(Held { order, planned: None });
        }
    }

    fn read(&mut self, at: usize) {
        let Some(held) = self.held.get_mut(at) else { return };
        let found = self.etcd.get(&*held.order.name).copied();
        held.planned = match self.engine.plan(&held.order, found.map(|event| event.count), self.now) {
            Plan::Nothing => {
                self.held.remove(at);
                return;
            }
            Plan::Write { value, .. } | Plan::Create { value, .. } => {
                Some((value, found.map(|event| event.version)))
            }
        };
    }

    fn write(&mut self, at: usize, answer_lost: bool) {
        let Some((value, read)) = self.held.get(at).and_then(|held| held.planned) else { return };
        let name = self.held[at].order.name.to_string();
        let current = self.etcd.get(&name).copied();
        if current.map(|event| event.version) != read {
            self.held[at].planned = None; // 409: read again
            return;
        }
        let order = self.held.remove(at).order;
        self.store(name, value, current.map_or(Api::Core, |event| event.api));
        if answer_lost {
            self.engine.postpone(&order, Duration::from_secs(1), self.now);
        } else {
            self.engine.settle(&order, value, self.now);
        }
    }

    /// Lets everything be paid and closed.
    fn come_to_rest(&mut self) {
        for _ in 0..20 {
            self.now = self.now.plus(Duration::from_secs(400));
            self.take();
            while !self.held.is_empty() {
                self.read(0);
                self.write(0, false);
            }
        }
    }

    fn counters(&self) -> Counters {
        let mut all = Counters::default();
        self.engine.accounts().iter().for_each(|account| all.add(&account.counters));
        all
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(
        std::env::var("SQUELCH_PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(2000)) })]

    #[test]
    fn every_occurrence_is_received_once_and_stored_once(rules in policy(), steps in prop::collection::vec(step(), 1..120)) {
        let mut world = World::new(rules);
        for step in &steps {
            world.run(step);
            prop_assert_eq!(world.counters().received() as i64, world.truth, "after {:?}", step);
        }
        world.come_to_rest();
        let counters = world.counters();
        let stored = [Disposition::Admitted, Disposition::Compacted, Disposition::Aggregated];
        let law = stored.iter().map(|it| counters.of(*it)).sum::<u64>() + counters.recovered;
        prop_assert_eq!(world.increments, law as i64, "{:?}", counters);
        prop_assert_eq!(world.engine.unpaid(), 0);
        prop_assert_eq!(world.engine.gauges().series, 0);
        prop_assert_eq!(world.engine.gauges().owed, 0);
    }
}
