//! Random lives in which nothing is atomic: writes are under way between admission and commit, meet conflicts and
//! are reviewed again, are refused after admission; clients forget names and share identities; flushes get lost.

use super::testing::{by, engine, rules, write};
use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::time::Duration;

#[derive(Clone, Debug)]
enum Step {
    Legacy(usize),
    Forget(usize),
    Kube(usize),
    Tools,
    Refresh,
    Finish,
    ToolsRestart,
    CreateOnly,
    Generate,
    Annotate,
    Delete(usize),
    Pass(u64),
    Take,
    Read(usize),
    Write(usize, u8),
    Commit(usize, bool),
}
fn step(harsh: bool) -> impl Strategy<Value = Step> {
    let h = if harsh { 1 } else { 0 };
    prop_oneof![
        8 => (0usize..2).prop_map(Step::Legacy),
        1 => (0usize..2).prop_map(Step::Forget),
        4 => (0usize..2).prop_map(Step::Kube),
        4 => Just(Step::Tools), 2 => Just(Step::Refresh), 2 => Just(Step::Finish), 1 => Just(Step::ToolsRestart),
        2 => Just(Step::CreateOnly), 1 => Just(Step::Generate), 1 => Just(Step::Annotate),
        1 => (0usize..4).prop_map(move |i| if h == 1 { Step::Delete(i) } else { Step::Annotate }),
        4 => prop_oneof![1u64..50, 50u64..5_000, 995u64..1005, 300_000u64..400_000, 359_990u64..360_010, 1_700_000u64..1_900_000].prop_map(Step::Pass),
        4 => Just(Step::Take),
        5 => (0usize..4).prop_map(Step::Read),
        5 => ((0usize..4), 0u8..12).prop_map(|(at, lost)| Step::Write(at, lost)),
        12 => ((0usize..4), prop::bool::weighted(if harsh { 0.1 } else { 0.0 })).prop_map(|(at, refused)| Step::Commit(at, refused)),
    ]
}
#[derive(Clone, Copy)]
struct Stored {
    count: i64,
    version: u64,
    api: Api,
    series: bool,
    stamp: u64,
}
struct Held {
    order: Order,
    planned: Option<(i64, Option<u64>)>,
}
#[derive(Clone, Copy, PartialEq, Debug)]
enum Who {
    L(usize),
    K(usize),
    T(bool),
    None,
}
#[derive(Clone, Debug)]
struct Req {
    who: Who,
    user: &'static str,
    api: Api,
    create: bool,
    name: Option<String>,
    value: i64,
    old_version: u64,
    restore: Option<(i64, bool)>,
    stamp: u64,
}
#[derive(Clone, Copy, Default)]
struct ToolsState {
    number: u64,
    count: i64,
    series: bool,
    last: Moment,
}
struct World {
    engine: Engine,
    rules: Rules,
    now: Moment,
    etcd: BTreeMap<String, Stored>,
    version: u64,
    increments: i64,
    truth: i64,
    told: BTreeMap<String, (i64, i64)>, // occurrences, heard
    legacy: [(u64, i64); 2],
    kube: [Option<(u64, i64, Moment)>; 2],
    tools: Option<ToolsState>,
    made: u64,
    held: Vec<Held>,
    pending: Vec<Req>,
    tolerant: bool,
    log: Vec<String>,
    refreshed: Moment,
    notools: bool,
    still: bool,
}
impl World {
    fn new(rules: Rules) -> Self {
        let engine = engine();
        engine.revise(
            &[Standing {
                policy: rules.policy.clone(),
                namespace: Some("shop".into()),
                rules: Some(Arc::new(rules.clone())),
            }],
            Moment::default(),
        );
        Self {
            engine,
            rules,
            now: Moment::from_epoch(Duration::from_secs(1)),
            etcd: BTreeMap::new(),
            version: 0,
            increments: 0,
            truth: 0,
            told: BTreeMap::new(),
            legacy: [(1, 0), (2, 0)],
            kube: [None; 2],
            tools: None,
            made: 10,
            held: vec![],
            pending: vec![],
            tolerant: false,
            log: vec![],
            refreshed: Moment::default(),
            notools: false,
            still: false,
        }
    }
    fn busy(&self, who: Who) -> bool {
        self.pending.iter().any(|r| r.who == who || matches!((r.who, who), (Who::T(_), Who::T(_))))
    }
    fn occ(&mut self, name: &str) {
        self.told.entry(name.to_owned()).or_default().0 += 1;
    }
    fn run(&mut self, step: &Step) {
        let line = format!("{:?} {step:?}", self.now);
        self.log.push(line);
        match step {
            Step::Legacy(c) if !self.busy(Who::L(*c)) => {
                self.legacy[*c].1 += 1;
                let name = format!("l.{}", self.legacy[*c].0);
                self.occ(&name);
                self.send(Req {
                    who: Who::L(*c),
                    user: "core",
                    api: Api::Core,
                    create: self.legacy[*c].1 == 1,
                    name: Some(name),
                    value: self.legacy[*c].1,
                    old_version: 0,
                    restore: None,
                    stamp: self.stamp(),
                });
            }
            Step::Forget(c) if !self.busy(Who::L(*c)) => {
                self.made += 1;
                self.legacy[*c] = (self.made, 0);
            }
            Step::Kube(c) if !self.busy(Who::K(*c)) => {
                let known =
                    self.kube[*c].filter(|(.., seen)| self.now.since(*seen) < Duration::from_secs(360));
                let (n, count) = match known {
                    Some((n, count, _)) => (n, count + 1),
                    None => {
                        self.made += 1;
                        (self.made, 1)
                    }
                };
                self.kube[*c] = known.or(Some((n, 0, self.now)));
                let name = format!("k.{n}");
                let heard = self.told.get(&name).map_or(0, |t| t.1);
                self.told.insert(name.clone(), (count.max(heard), heard));
                self.send(Req {
                    who: Who::K(*c),
                    user: "kube",
                    api: Api::Events,
                    create: count == 1,
                    name: Some(name),
                    value: count,
                    old_version: 0,
                    restore: None,
                    stamp: self.stamp(),
                });
            }
            Step::Tools if !self.notools && !self.busy(Who::T(false)) => match &mut self.tools {
                None => {
                    self.made += 1;
                    self.tools =
                        Some(ToolsState { number: self.made, count: 1, series: false, last: self.now });
                    let name = format!("t.{}", self.made);
                    self.occ(&name);
                    self.send(Req {
                        who: Who::T(false),
                        user: "tools",
                        api: Api::Events,
                        create: true,
                        name: Some(name),
                        value: 1,
                        old_version: 0,
                        restore: None,
                        stamp: self.stamp(),
                    });
                }
                Some(t) => {
                    t.last = self.now;
                    t.count += 1;
                    let (first, name) = (!t.series, format!("t.{}", t.number));
                    t.series = true;
                    if first {
                        t.count = 2;
                    }
                    self.occ(&name);
                    if first {
                        self.send(Req {
                            who: Who::T(false),
                            user: "tools",
                            api: Api::Events,
                            create: false,
                            name: Some(name),
                            value: 2,
                            old_version: 0,
                            restore: None,
                            stamp: self.stamp(),
                        });
                    }
                }
            },
            Step::Refresh
                if !self.busy(Who::T(true))
                    && self.now.since(self.refreshed) >= Duration::from_secs(1700) =>
            {
                if let Some(t) = self.tools.filter(|t| t.series) {
                    self.refreshed = self.now;
                    self.send(Req {
                        who: Who::T(true),
                        user: "tools",
                        api: Api::Events,
                        create: false,
                        name: Some(format!("t.{}", t.number)),
                        value: t.count,
                        old_version: 0,
                        restore: None,
                        stamp: self.stamp(),
                    });
                }
            }
            Step::Finish if !self.busy(Who::T(true)) => {
                if let Some(t) = self.tools
                    && self.now.since(t.last) > Duration::from_secs(360)
                {
                    self.tools = None;
                    if t.series {
                        self.send(Req {
                            who: Who::T(false),
                            user: "tools",
                            api: Api::Events,
                            create: false,
                            name: Some(format!("t.{}", t.number)),
                            value: t.count,
                            old_version: 0,
                            restore: None,
                            stamp: self.stamp(),
                        });
                    }
                }
            }
            Step::ToolsRestart if !self.busy(Who::T(true)) => {
                if let Some(t) = self.tools.take() {
                    let n = format!("t.{}", t.number);
                    let e = self.told.entry(n).or_default();
                    e.0 = e.1;
                }
            }
            Step::CreateOnly => {
                self.made += 1;
                let name = format!("c.{}", self.made);
                self.occ(&name);
                self.send(Req {
                    who: Who::None,
                    user: "core",
                    api: Api::Core,
                    create: true,
                    name: Some(name),
                    value: 1,
                    old_version: 0,
                    restore: None,
                    stamp: self.stamp(),
                });
            }
            Step::Generate => {
                self.truth += 1;
                self.send(Req {
                    who: Who::None,
                    user: "core",
                    api: Api::Core,
                    create: true,
                    name: None,
                    value: 1,
                    old_version: 0,
                    restore: None,
                    stamp: self.stamp(),
                });
            }
            Step::Annotate if !self.still => {
                self.version += 1;
                let v = self.version;
                if let Some(e) = self.etcd.values_mut().next() {
                    e.version = v;
                }
            }
            Step::Delete(i) => {
                let n = self.etcd.keys().nth(*i).cloned();
                if let Some(n) = n {
                    self.etcd.remove(&n);
                    self.tolerant = true;
                }
            }
            Step::Pass(ms) => {
                if *ms >= 900 {
                    while !self.pending.is_empty() {
                        self.commit(0, false);
                    }
                }
                self.now = self.now.plus(Duration::from_millis(*ms))
            }
            Step::Take => self.take(),
            Step::Read(at) => self.read(*at),
            Step::Write(at, fault) => self.write(*at, *fault),
            Step::Commit(at, refused) => self.commit(*at, *refused),
            _ => {}
        }
    }
    fn stamp(&self) -> u64 {
        self.now.since(Moment::default()).as_secs()
    }
    fn send(&mut self, mut r: Req) {
        if !r.create {
            match self.etcd.get(r.name.as_ref().unwrap()).copied() {
                None if r.who == Who::None || matches!(r.who, Who::K(_)) => {
                    self.done(&r, false, 0, false);
                    return;
                }
                None => {
                    r.create = true;
                }
                Some(_) => {}
            }
        }
        if let Some(n) = &r.name {
            let t = self.told.entry(n.clone()).or_default();
            let new = (t.0 - t.1).max(0);
            t.1 = t.1.max(t.0);
            self.truth += new;
        }
        self.review(r);
    }
    fn review(&mut self, mut r: Req) {
        let base = Observation {
            api: r.api,
            value: r.value,
            user: r.user,
            name: r.name.as_deref().map(Into::into),
            ..write()
        };
        let asked = if r.create {
            Observation {
                has_series: r.api == Api::Events && r.value > 1,
                generate_name: "g.".into(),
                ..base
            }
        } else {
            let old = self.etcd[r.name.as_ref().unwrap()];
            r.old_version = old.version;
            Observation {
                operation: Operation::Update,
                old_value: old.count,
                has_series: r.api == Api::Events,
                unchanged: r.value == old.count && (r.api == Api::Core && r.stamp == old.stamp),
                ..base
            }
        };
        let unchanged = asked.unchanged;
        let verdict = self.engine.decide(by(&self.rules), &asked, self.now);
        self.log.push(format!(
            "   {:?} {} {:?}={} old {} -> {:?} {} {:?}",
            r.who,
            if r.create { "C" } else { "U" },
            r.name,
            r.value,
            asked.old_value,
            verdict.disposition,
            verdict.occurrences,
            verdict.answer
        ));
        match verdict.answer {
            Answer::Allow if r.create && r.name.is_none() => {
                self.made += 1;
                r.name = Some(format!("gen.{}", self.made));
            }
            Answer::Allow if unchanged => {
                let c = r.value;
                self.done(&r, true, c, true);
                return;
            }
            Answer::Allow => {}
            Answer::AllowNamed(name) => r.name = Some(name),
            Answer::Restore => {
                let o = self.etcd[r.name.as_ref().unwrap()];
                r.restore = Some((o.count, o.series));
                self.done(&r.clone(), true, o.count, o.series);
                return;
            }
            Answer::Deny(_) => {
                self.done(&r, false, 0, false);
                return;
            }
        }
        self.pending.push(r);
    }
    fn commit(&mut self, at: usize, refused: bool) {
        if at >= self.pending.len() {
            return;
        }
        let r = self.pending.remove(at);
        if refused {
            self.tolerant = true;
            self.log.push(format!("   refused {r:?}"));
            self.done(&r, false, 0, false);
            return;
        }
        let name = r.name.clone().unwrap();
        match self.etcd.get(&name).copied() {
            Some(_) if r.create => {
                self.tolerant = true;
                self.done(&r, false, 0, false);
            }
            None if !r.create => {
                self.tolerant = true;
                self.done(&r, false, 0, false);
            }
            Some(e) if e.version != r.old_version => {
                if self.still {
                    self.tolerant = true;
                }
                self.review(r)
            }
            e => {
                self.store(
                    name,
                    r.value,
                    e.map_or(r.api, |e| e.api),
                    r.api == Api::Events && r.value > 1,
                    r.stamp,
                );
                self.done(&r, true, r.value, r.value > 1);
            }
        }
    }
    fn done(&mut self, r: &Req, ok: bool, count: i64, series: bool) {
        match r.who {
            Who::L(c) if ok => self.legacy[c].1 = count,
            Who::K(c) => {
                let n: u64 = r.name.as_ref().unwrap()[2..].parse().unwrap();
                if ok {
                    self.kube[c] = Some((n, r.value, self.now));
                } else if self.kube[c].is_some_and(|k| k.1 == 0) {
                    self.kube[c] = None;
                }
            }
            Who::T(true) if ok => {
                if let Some(t) = &mut self.tools
                    && r.name == Some(format!("t.{}", t.number))
                {
                    if series {
                        t.count = count;
                    } else {
                        t.series = false;
                        t.count = 1;
                    }
                }
            }
            _ => {}
        }
    }
    fn store(&mut self, name: String, count: i64, api: Api, series: bool, stamp: u64) {
        let (before, had) = self.etcd.get(&name).map_or((0, false), |e| (e.count, e.series));
        assert!(count >= before, "{name} lowered from {before} to {count}\n{}", self.log.join("\n"));
        self.increments += count - before;
        self.version += 1;
        self.log.push(format!("   etcd {name} = {count}"));
        self.etcd.insert(name, Stored { count, version: self.version, api, series: series || had, stamp });
    }
    fn take(&mut self) {
        for order in self.engine.tick(self.now, 100) {
            assert!(!self.held.iter().any(|h| h.order.name == order.name && format!("{:?}", h.order) == format!("{:?}", order)), "ordered twice");
            self.held.push(Held { order, planned: None });
        }
    }
    fn read(&mut self, at: usize) {
        let Some(held) = self.held.get_mut(at) else { return };
        let found = self.etcd.get(&*held.order.name).copied();
        match self.engine.plan(&held.order, found.map(|e| e.count), self.now) {
            Plan::Nothing => {
                self.held.remove(at);
            }
            Plan::Write { value, .. } | Plan::Create { value, .. } => {
                held.planned = Some((value, found.map(|e| e.version)))
            }
        }
    }
    fn write(&mut self, at: usize, fault: u8) {
        let Some((value, read)) = self.held.get(at).and_then(|h| h.planned) else { return };
        let name = self.held[at].order.name.to_string();
        let current = self.etcd.get(&name).copied();
        if fault == 1 {
            let order = self.held.remove(at).order;
            self.engine.postpone(&order, Duration::from_secs(1), self.now);
            return;
        }
        if current.map(|e| e.version) != read {
            self.held[at].planned = None;
            return;
        }
        let order = self.held.remove(at).order;
        let s = self.stamp();
        self.store(
            name,
            value,
            current.map_or(Api::Core, |e| e.api),
            current.is_some_and(|e| e.series || e.api == Api::Events),
            s,
        );
        if fault == 0 {
            self.engine.postpone(&order, Duration::from_secs(1), self.now);
        } else {
            self.engine.settle(&order, value, self.now);
        }
    }
    fn come_to_rest(&mut self) {
        while !self.pending.is_empty() {
            self.commit(0, false);
        }
        for _ in 0..20 {
            self.now = self.now.plus(Duration::from_secs(400));
            self.take();
            while !self.held.is_empty() {
                self.read(0);
                self.write(0, 5);
            }
        }
    }
    fn counters(&self) -> Counters {
        let mut all = Counters::default();
        self.engine.accounts().iter().for_each(|a| all.add(&a.counters));
        all
    }
}
fn cases() -> ProptestConfig {
    ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(
            std::env::var("SQUELCH_PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(1000),
        )
    }
}
fn check(steps: &[Step], rules: Rules, notools: bool) -> Result<(), TestCaseError> {
    let mut world = World::new(rules);
    world.notools = notools;
    for step in steps {
        world.run(step);
        prop_assert_eq!(
            world.counters().received() as i64,
            world.truth,
            "received != truth after {:?}\n{}",
            step,
            world.log.join("\n")
        );
    }
    world.come_to_rest();
    let c = world.counters();
    if !world.tolerant {
        prop_assert_eq!(
            world.increments,
            (c.of(Disposition::Admitted) + c.of(Disposition::Compacted) + c.recovered) as i64,
            "stored != law {:?}\n{}",
            c,
            world.log.join("\n")
        );
    }
    prop_assert_eq!(world.engine.unpaid(), 0);
    prop_assert_eq!(world.engine.gauges().series, 0);
    prop_assert_eq!(world.engine.gauges().owed, 0);
    Ok(())
}
fn short(idle: u64, hb: u64) -> Rules {
    Rules {
        series: Some(SeriesRules {
            idle_timeout: Duration::from_secs(idle),
            heartbeat_interval: Duration::from_secs(hb),
        }),
        ..rules()
    }
}
fn check_small(steps: &[Step]) -> Result<(), TestCaseError> {
    let mut world = World::new(rules());
    world.notools = true;
    world.still = true;
    world.engine = Engine::new(Settings { seed: [3, 4], max_series: 2, began: Timestamp::UNIX_EPOCH });
    let mut law_of_names = true;
    for step in steps {
        world.run(step);
        if world.engine.gauges().names_evicted > 0 {
            law_of_names = false;
        }
        if law_of_names {
            prop_assert_eq!(
                world.counters().received() as i64,
                world.truth,
                "received != truth after {:?}\n{}",
                step,
                world.log.join("\n")
            );
        }
    }
    world.come_to_rest();
    let c = world.counters();
    if !world.tolerant && law_of_names {
        prop_assert_eq!(
            world.increments,
            (c.of(Disposition::Admitted) + c.of(Disposition::Compacted) + c.recovered) as i64,
            "stored != law {:?}\n{}",
            c,
            world.log.join("\n")
        );
    }
    prop_assert_eq!(world.engine.unpaid(), 0);
    prop_assert_eq!(world.engine.gauges().series, 0);
    prop_assert_eq!(world.engine.gauges().owed, 0);
    Ok(())
}
fn check_drain(steps: &[Step], cut: usize) -> Result<(), TestCaseError> {
    let mut world = World::new(rules());
    world.notools = true;
    world.still = true;
    for (n, step) in steps.iter().enumerate() {
        if n == cut {
            world.engine.drain();
            world.log.push("DRAIN".into());
        }
        world.run(step);
        prop_assert_eq!(
            world.counters().received() as i64,
            world.truth,
            "received != truth after {:?}\n{}",
            step,
            world.log.join("\n")
        );
    }
    world.engine.drain();
    while !world.pending.is_empty() {
        world.commit(0, false);
    }
    world.engine.drain_the_rest();
    for _ in 0..20 {
        world.now = world.now.plus(Duration::from_secs(2));
        world.take();
        while !world.held.is_empty() {
            world.read(0);
            world.write(0, 5);
        }
    }
    let c = world.counters();
    prop_assert_eq!(world.engine.unpaid(), 0);
    prop_assert_eq!(world.engine.gauges().owed, 0);
    if !world.tolerant {
        prop_assert_eq!(
            world.increments,
            (c.of(Disposition::Admitted) + c.of(Disposition::Compacted) + c.recovered) as i64,
            "stored != law {:?}\n{}",
            c,
            world.log.join("\n")
        );
    }
    Ok(())
}
proptest! {
    #![proptest_config(cases())]
    #[test] fn a_full_table_keeps_the_law(steps in prop::collection::vec(step(false), 1..120)) { check_small(&steps)?; }
    #[test] fn draining_keeps_the_law(steps in prop::collection::vec(step(false), 1..60), cut in 0usize..60) { check_drain(&steps, cut)?; }
    #[test] fn clients_of_every_kind_keep_the_law(steps in prop::collection::vec(step(false), 1..120)) { check(&steps, rules(), false)?; }
    #[test] fn refusals_and_deletes_lower_nothing(steps in prop::collection::vec(step(true), 1..120)) { check(&steps, rules(), true)?; }
    #[test] fn the_shortest_times_keep_the_law(steps in prop::collection::vec(step(false), 1..120)) { check(&steps, short(1, 1), true)?; }
    #[test] fn the_shortest_idle_timeout_keeps_the_law(steps in prop::collection::vec(step(true), 1..120)) { check(&steps, short(1, 1800), true)?; }
}
