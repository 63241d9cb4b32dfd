//! Random histories of policies, namespaces and scrapes.

use super::*;

/// A small cluster with policies, namespaces, an engine, and a Prometheus that sums the increases.
struct World {
    engine: Engine,
    scopes: Scopes,
    policies: BTreeMap<usize, (u32, Mode)>,
    namespaces: [bool; NAMESPACES],
    created: u32,
    now: u64,
    /// The number of occurrences decided, and of those that Prometheus saw as an increase.
    decided: u64,
    increased: u64,
    seen: BTreeMap<(SeriesLabels, Mode), Counters>,
}

const NAMESPACES: usize = 4;

/// The first policies are cluster-scoped. After them comes one of each namespace.
const CLUSTER_POLICIES: usize = 3;

#[derive(Clone, Copy, Debug)]
enum Act {
    Write { namespace: usize, policy: usize, times: u8 },
    CreatePolicy(usize),
    DeletePolicy(usize),
    ToggleNamespace(usize),
    Wait { minutes: u64 },
    Scrape,
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let policies = CLUSTER_POLICIES + NAMESPACES;
    let act = prop_oneof![
        8 => (0..NAMESPACES, 0..policies, 1u8..4)
            .prop_map(|(namespace, policy, times)| Act::Write { namespace, policy, times }),
        3 => (0..policies).prop_map(Act::CreatePolicy),
        1 => (0..policies).prop_map(Act::DeletePolicy),
        2 => (0..NAMESPACES).prop_map(Act::ToggleNamespace),
        2 => (1u64..40).prop_map(|minutes| Act::Wait { minutes }),
        4 => Just(Act::Scrape),
    ];
    prop::collection::vec(act, 1..80)
}

impl World {
    fn new() -> Self {
        Self {
            engine: engine(),
            scopes: scopes(6, 3),
            policies: BTreeMap::new(),
            namespaces: [true; NAMESPACES],
            created: 0,
            now: 0,
            decided: 0,
            increased: 0,
            seen: BTreeMap::new(),
        }
    }

    fn rules(&self, policy: usize) -> Option<Rules> {
        let (uid, mode) = self.policies.get(&policy)?;
        let display = match policy.checked_sub(CLUSTER_POLICIES) {
            None => format!("c{policy}"),
            Some(namespace) => format!("n{namespace}/p"),
        };
        let policy = PolicyId { display: display.into(), uid: format!("u{uid}").into() };
        Some(Rules { policy, mode: *mode, series: None, ..rules() })
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Write { namespace, policy, times } => self.write(namespace, policy, times),
            Act::CreatePolicy(policy) => {
                // Counts of a deleted policy that were never scraped are in no metric.
                self.scrape();
                self.created += 1;
                let mode = if self.created.is_multiple_of(3) { Mode::Observe } else { Mode::Enforce };
                self.policies.insert(policy, (self.created, mode));
                self.revise();
                self.tick();
            }
            Act::DeletePolicy(policy) => {
                self.scrape();
                self.policies.remove(&policy);
                self.revise();
                self.tick();
            }
            Act::ToggleNamespace(namespace) => {
                self.namespaces[namespace] ^= true;
                self.revise();
                self.expire();
            }
            Act::Wait { minutes } => {
                self.now += minutes * 60_000;
                self.expire();
            }
            Act::Scrape => self.scrape(),
        }
    }

    fn write(&mut self, namespace: usize, policy: usize, times: u8) {
        let elsewhere = policy.checked_sub(CLUSTER_POLICIES).is_some_and(|own| own != namespace);
        let Some(rules) = self.rules(policy).filter(|_| !elsewhere && self.namespaces[namespace]) else {
            return;
        };
        for _ in 0..times {
            let namespace = format!("n{namespace}");
            self.engine.decide(
                by(&rules),
                &Observation { namespace: &namespace, name: None, ..write() },
                at(self.now),
            );
            self.decided += 1;
        }
    }

    fn revise(&mut self) {
        let known = self.policies.keys().filter_map(|policy| {
            let rules = self.rules(*policy)?;
            let namespace = policy.checked_sub(CLUSTER_POLICIES).map(|own| format!("n{own}").into());
            Some(KnownPolicy { policy: rules.policy.clone(), namespace, rules: Some(Arc::new(rules)) })
        });
        let known: Vec<_> = known.collect();
        let applicability = |namespace: &str, _: &PolicyId| {
            let exists = (0..NAMESPACES).any(|at| self.namespaces[at] && namespace == format!("n{at}"));
            if exists { Applicability::Governs } else { Applicability::Unknown }
        };
        self.engine.revise_within(&known, applicability, at(self.now));
        let existing = (0..NAMESPACES).filter(|at| self.namespaces[*at]);
        let uids: NamespaceUids =
            existing.map(|at| (format!("n{at}").into(), format!("uid of n{at}").into())).collect();
        self.engine.identify_namespaces(&Arc::new(uids));
    }

    /// Removes old counters of deleted policies. They are kept for many scrapes, and a scrape sees their end.
    fn expire(&mut self) {
        let before = self.engine.counters().len();
        self.tick();
        if self.engine.counters().len() < before {
            self.scrape();
        }
    }

    fn tick(&self) {
        for _ in 0..3 * NAMESPACES {
            assert!(self.engine.tick(at(self.now), 10).is_empty(), "nothing is merged");
        }
    }

    fn scrape(&mut self) {
        self.now += 15_000;
        let cluster = self.policies.iter().filter(|(policy, _)| **policy < CLUSTER_POLICIES);
        let policies: Vec<_> =
            cluster.map(|(policy, (_, mode))| (format!("c{policy}").into(), *mode)).collect();
        self.scopes.set_in_force(InForce {
            policies,
            pairs: Vec::new(),
            complete: self.created.is_multiple_of(2),
        });
        self.scopes.add(&self.engine.all_counters(), at(self.now));
        let mut exported = BTreeMap::new();
        let mut of_namespace: BTreeMap<&str, usize> = BTreeMap::new();
        for (labels, by_mode) in self.scopes.all() {
            *of_namespace.entry(&labels.0).or_default() += 1;
            for (mode, counters) in by_mode {
                let Some(counters) = counters else { continue };
                let before = self.seen.get(&(labels.clone(), *mode)).map_or(0, Counters::received);
                assert!(counters.received() >= before, "{labels:?} decreased from {before}");
                self.increased += counters.received() - before;
                exported.insert((labels.clone(), *mode), *counters);
            }
        }
        self.seen = exported;
        assert!(of_namespace.values().sum::<usize>() <= 7, "{of_namespace:?}");
        assert!(of_namespace.iter().all(|(namespace, number)| *number <= 3 || *namespace == OTHER));
    }
}

proptest! {
    #![proptest_config(cases(1000))]

    #[test]
    fn no_series_decreases_and_the_increases_are_the_decided_occurrences(acts in acts()) {
        let mut world = World::new();
        for act in acts {
            world.act(act);
            prop_assert!(world.increased <= world.decided, "counted twice");
        }
        world.scrape();
        prop_assert_eq!(world.increased, world.decided);
    }
}
