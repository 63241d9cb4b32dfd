//! Sentences first; then replicas in a world of random outages, where time is a number.

use proptest::prelude::*;

use super::super::term::Term;
use super::*;
use crate::engine::testing::cases;

fn at(milliseconds: u64) -> Moment {
    Moment::from_epoch(Duration::from_millis(milliseconds))
}

fn lease(holder: &str, revision: u64) -> Found {
    Found::Lease(Record { holder: holder.to_owned(), revision: revision.to_string(), transitions: 0 })
}

fn election(pod: Option<&str>) -> Election {
    Election::new(Identity::new(pod, 1))
}

/// What it says to a Lease that stays as it is, looked at each second.
fn looking(election: &mut Election, found: &Found, seconds: std::ops::Range<u64>) -> Vec<Step> {
    seconds.map(|second| election.hear(found, at(second * 1_000))).collect()
}

#[test]
fn what_nobody_holds_is_taken_at_once() {
    assert_eq!(election(None).hear(&Found::Absent, at(0)), Step::Take);
    assert_eq!(election(None).hear(&lease("", 7), at(0)), Step::Take);
}

#[test]
fn what_another_holds_is_taken_once_it_was_the_same_for_the_length_of_a_lease() {
    let wait = Step::Wait(LOOK);
    let mut one = election(Some("squelch-b"));
    let steps = looking(&mut one, &lease("squelch-a_1", 7), 0..5);
    assert_eq!(steps, [wait.clone(), wait.clone(), wait.clone(), wait.clone(), Step::Take]);
    let mut renewed = election(Some("squelch-b"));
    let steps: Vec<_> =
        (0..10).flat_map(|n| looking(&mut renewed, &lease("squelch-a_1", n), n..n + 1)).collect();
    assert_eq!(steps, vec![wait; 10]);
}

#[test]
fn the_last_wait_is_as_short_as_it_can_be() {
    let mut one = election(None);
    for milliseconds in [0, 1_010, 2_020, 3_030] {
        assert_ne!(one.hear(&lease("other", 7), at(milliseconds)), Step::Take);
    }
    assert_eq!(one.hear(&lease("other", 7), at(3_990)), Step::Wait(Duration::from_millis(10)));
}

#[test]
fn the_time_of_an_outage_does_not_count_nor_what_was_before_it() {
    let mut one = election(None);
    looking(&mut one, &lease("other", 7), 0..4);
    // The API server was away for a minute.
    let steps = looking(&mut one, &lease("other", 7), 64..69);
    assert!(steps[..4].iter().all(|step| *step != Step::Take), "{steps:?}");
    assert_eq!(steps[4], Step::Take);
}

#[test]
fn one_that_was_deleted_is_left_to_who_held_it() {
    let mut one = election(None);
    one.hear(&lease("other", 7), at(0));
    let steps = looking(&mut one, &Found::Absent, 1..6);
    assert!(steps[..4].iter().all(|step| *step != Step::Take), "{steps:?}");
    assert_eq!(steps[4], Step::Take);
    let mut holder = election(None);
    holder.hear(&lease("", 7), at(0));
    holder.won();
    assert_eq!(holder.hear(&Found::Absent, at(1_000)), Step::Take);
}

#[test]
fn a_process_takes_over_from_the_one_before_it_in_its_container() {
    let mut one = election(Some("squelch-a"));
    assert_eq!(one.hear(&lease("squelch-a_00000000000000ff", 7), at(0)), Step::Take);
    for other in ["squelch-b_1", "squelch-a2_1", "squelch-a"] {
        assert_eq!(election(Some("squelch-a")).hear(&lease(other, 7), at(0)), Step::Wait(LOOK), "{other}");
    }
    // Outside of pods nobody knows what has ended.
    let before = Identity::new(None, 2);
    assert_eq!(election(None).hear(&lease(before.name(), 7), at(0)), Step::Wait(LOOK));
}

#[test]
fn the_holder_yields_to_any_other() {
    for other in ["squelch-b_1", "squelch-a_2", "a person"] {
        let mut one = election(Some("squelch-a"));
        one.hear(&Found::Absent, at(0));
        one.won();
        let own = one.me.name().to_owned();
        assert_eq!(one.hear(&lease(&own, 7), at(1_000)), Step::Take);
        assert_eq!(one.hear(&lease(other, 8), at(1_100)), Step::Yield(other.to_owned()));
    }
}

/// How long a call is waited for, in milliseconds.
const DEADLINE: u64 = 900;
const RETRY: u64 = 250;
/// The world moves in steps of so many milliseconds.
const STEP: u64 = 10;

/// What goes wrong, and when.
#[derive(Clone, Debug)]
struct Trouble {
    from: u64,
    length: u64,
    /// Whose way to the API server is cut, or who is frozen; `None`: the API server is away for all.
    whom: Option<usize>,
    frozen: bool,
}

impl Trouble {
    fn cuts(&self, whom: usize, now: u64) -> bool {
        !self.frozen && self.whom.is_none_or(|cut| cut == whom) && self.holds(now)
    }

    fn freezes(&self, whom: usize, now: u64) -> bool {
        self.frozen && self.whom == Some(whom) && self.holds(now)
    }

    fn holds(&self, now: u64) -> bool {
        (self.from..self.from + self.length).contains(&now)
    }
}

/// A call under way.
struct Call {
    sent: u64,
    reaches: u64,
    returns: u64,
    take: Option<Found>,
    said: Said,
}

/// What the API server has said.
#[derive(Clone)]
enum Said {
    NotAsked,
    Nothing,
    /// What is there, and whether this call has written it.
    There(Found, bool),
}

struct Replica {
    election: Election,
    term: Term,
    mine: Option<Record>,
    call: Option<Call>,
    next: u64,
    alive: bool,
}

struct World {
    lease: Found,
    revision: u64,
    replicas: Vec<Replica>,
    /// Calls that nobody waits for any more, and that may arrive all the same.
    late: Vec<(usize, Call)>,
    troubles: Vec<Trouble>,
    /// How long calls take, in turn.
    latencies: Vec<u64>,
    calls: usize,
    now: u64,
}

impl World {
    fn new(replicas: usize, troubles: Vec<Trouble>, latencies: Vec<u64>) -> Self {
        let replica = |number: usize| Replica {
            election: Election::new(Identity::new(None, number as u64)),
            term: Term::default(),
            mine: None,
            call: None,
            next: 300 * number as u64,
            alive: true,
        };
        let replicas = (0..replicas).map(replica).collect();
        Self {
            lease: Found::Absent,
            revision: 0,
            replicas,
            late: Vec::new(),
            troubles,
            latencies,
            calls: 0,
            now: 0,
        }
    }

    /// Who decides now: never two.
    fn deciding(&self) -> Option<usize> {
        let now = at(self.now);
        let mut deciding =
            (0..self.replicas.len()).filter(|n| self.replicas[*n].alive && self.replicas[*n].term.holds(now));
        let one = deciding.next();
        assert_eq!(deciding.next(), None, "two decide at {} ms", self.now);
        one
    }

    fn run_until(&mut self, end: u64) {
        while self.now < end {
            self.step();
            self.deciding();
        }
    }

    /// Runs until somebody decides; how long that took.
    fn until_decided(&mut self, patience: u64) -> u64 {
        let began = self.now;
        while self.deciding().is_none() {
            assert!(self.now - began < patience, "nobody decides after {patience} ms");
            self.step();
        }
        self.now - began
    }

    fn step(&mut self) {
        self.now += STEP;
        let late = std::mem::take(&mut self.late);
        for (number, mut call) in late {
            self.api_server(number, &mut call);
            if matches!(call.said, Said::NotAsked) {
                self.late.push((number, call));
            }
        }
        for number in 0..self.replicas.len() {
            if !self.replicas[number].alive {
                continue;
            }
            if let Some(mut call) = self.replicas[number].call.take() {
                self.api_server(number, &mut call);
                self.replicas[number].call = Some(call);
            }
            if !self.troubles.iter().any(|trouble| trouble.freezes(number, self.now)) {
                self.replica(number);
            }
        }
    }

    /// What a call does when it arrives.
    fn api_server(&mut self, number: usize, call: &mut Call) {
        if !matches!(call.said, Said::NotAsked) || call.reaches > self.now {
            return;
        }
        call.said = Said::Nothing;
        if self.troubles.iter().any(|trouble| trouble.cuts(number, self.now)) {
            return;
        }
        let wins = call.take.as_ref() == Some(&self.lease);
        if wins {
            self.revision += 1;
            let holder = self.replicas[number].election.me.name().to_owned();
            let revision = self.revision.to_string();
            self.lease = Found::Lease(Record { holder, revision, transitions: 0 });
        }
        call.said = Said::There(self.lease.clone(), wins);
    }

    fn replica(&mut self, number: usize) {
        let now = self.now;
        let latency = self.latencies[self.calls % self.latencies.len()];
        let replica = &mut self.replicas[number];
        let over = |call: &mut Call| call.returns <= now || call.sent + DEADLINE <= now;
        if let Some(call) = replica.call.take_if(over) {
            replica.next = match call.said.clone() {
                Said::There(found, won) if call.returns <= now => replica.hear(&found, won, call.sent, now),
                _ => now + RETRY,
            };
            self.late.push((number, call));
        }
        if replica.call.is_none() && replica.next <= now {
            let take = replica.mine.clone().map(Found::Lease).or_else(|| replica.wants());
            replica.call = Some(Call {
                sent: now,
                reaches: now + latency / 2,
                returns: now + latency,
                take,
                said: Said::NotAsked,
            });
            self.calls += 1;
        }
    }
}

impl Replica {
    /// What it was told to take by what it has just heard.
    fn wants(&mut self) -> Option<Found> {
        let seen = self.election.seen.as_ref().filter(|_| self.next == 0)?;
        self.next = 1;
        Some(seen.found.clone())
    }

    /// An answer; when to come again.
    fn hear(&mut self, found: &Found, won: bool, sent: u64, now: u64) -> u64 {
        if let Found::Lease(record) = found
            && won
        {
            self.mine = Some(record.clone());
            self.election.won();
            self.term.extend(at(sent).plus(TERM));
            return sent + 1_000;
        }
        match self.election.hear(found, at(now)) {
            Step::Wait(pause) => now + u64::try_from(pause.as_millis()).unwrap().max(1),
            Step::Take => {
                self.mine = None;
                // Asks at once: see `wants`.
                0
            }
            Step::Yield(_) => {
                // The process ends, and its next life stands again.
                self.term.end();
                self.mine = None;
                let Identity { pod, .. } = self.election.me.clone();
                self.election = Election::new(Identity::new(pod.as_deref(), now));
                now + 1_000
            }
        }
    }
}

fn troubles(replicas: usize) -> impl Strategy<Value = Vec<Trouble>> {
    let trouble = (2_000..40_000_u64, 100..15_000_u64, prop::option::of(0..replicas), any::<bool>());
    let trouble = trouble.prop_map(|(from, length, whom, frozen)| Trouble {
        from,
        length,
        whom,
        frozen: frozen && whom.is_some(),
    });
    prop::collection::vec(trouble, 0..6)
}

fn latencies() -> impl Strategy<Value = Vec<u64>> {
    // Most calls take milliseconds, some longer than they are waited for.
    prop::collection::vec(prop_oneof![8 => 2..60_u64, 2 => 60..5_000_u64], 1..40)
}

fn quick() -> impl Strategy<Value = Vec<u64>> {
    prop::collection::vec(2..60_u64, 1..40)
}

proptest! {
    #![proptest_config(cases(400))]

    /// Whatever goes wrong: never two at one time, and one again soon after all is well.
    #[test]
    fn never_two_decide_and_one_does_in_the_end(
        (replicas, troubles) in (2..4_usize).prop_flat_map(|n| (Just(n), troubles(n))),
        latencies in latencies(),
    ) {
        let mut world = World::new(replicas, troubles, latencies);
        world.run_until(60_000);
        world.latencies = vec![20];
        world.until_decided(12_000);
    }

    /// Whoever crashes, at any moment.
    #[test]
    fn one_decides_six_seconds_after_a_crash(crash in 5_000..15_000_u64, latencies in quick()) {
        let mut world = World::new(2, Vec::new(), latencies);
        world.run_until(crash);
        let active = world.deciding().unwrap();
        world.replicas[active].alive = false;
        let gap = world.until_decided(6_000);
        prop_assert!(gap < 6_000, "{gap}");
    }

    /// Whoever gives the Lease back, at any moment.
    #[test]
    fn one_decides_two_seconds_after_a_release(end in 5_000..15_000_u64, latencies in quick()) {
        let mut world = World::new(3, Vec::new(), latencies);
        world.run_until(end);
        let active = world.deciding().unwrap();
        world.replicas[active].alive = false;
        world.revision += 1;
        world.lease = Found::Lease(Record { revision: world.revision.to_string(), ..Record::default() });
        prop_assert!(world.until_decided(2_000) < 2_000);
    }

    /// However long the API server is away, and however often.
    #[test]
    fn an_api_server_that_goes_and_comes_back_flips_nothing(
        outages in prop::collection::vec((3_000..60_000_u64, 100..30_000_u64), 1..5),
        latencies in quick(),
    ) {
        let trouble = |(from, length)| Trouble { from, length, whom: None, frozen: false };
        let mut world = World::new(3, outages.into_iter().map(trouble).collect(), latencies);
        world.run_until(3_000);
        let active = world.deciding();
        world.run_until(95_000);
        prop_assert_eq!(world.deciding(), active);
        prop_assert!(world.replicas.iter().enumerate().all(|(n, replica)| replica.mine.is_some() == (Some(n) == active)));
    }
}
