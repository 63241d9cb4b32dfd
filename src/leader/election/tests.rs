//! Sentences first; then replicas in a world of random outages, where time is a number.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use squelch_engine::testing::cases;

use super::super::term::Term;
use super::*;

fn at(milliseconds: u64) -> Moment {
    Moment::from_epoch(Duration::from_millis(milliseconds))
}

/// As `holder` has renewed it for the nth time.
fn lease(holder: &str, nth: u32) -> Found {
    let (holder, revision) = (holder.to_owned(), nth.to_string());
    Found::Lease(Record { holder, revision, renewed: Some(nth.into()), ..Record::default() })
}

fn released() -> Found {
    Found::Lease(Record { released: true, ..Record::default() })
}

fn election(pod: Option<&str>) -> Election {
    Election::new(Identity::new(pod, 1))
}

/// What it says to a Lease that stays as it is, looked at each second.
fn looking(election: &mut Election, found: &Found, seconds: std::ops::Range<u64>) -> Vec<Step> {
    seconds.map(|second| election.hear(found, at(second * 1_000))).collect()
}

/// A standby never takes what this is before it was so for the length of a Lease.
fn is_waited_for(found: &Found) {
    let mut standby = election(Some("squelch-b"));
    standby.hear(&lease("squelch-a_1", 7), at(0));
    let steps = looking(&mut standby, found, 1..6);
    assert!(steps[..4].iter().all(|step| matches!(step, Step::Wait(_))), "{found:?}: {steps:?}");
    assert_eq!(steps[4], Step::Take, "{found:?}");
}

#[test]
fn what_its_holder_has_released_is_taken_at_once() {
    assert_eq!(election(None).hear(&released(), at(0)), Step::Take);
    let mut standby = election(None);
    standby.hear(&lease("other", 7), at(0));
    assert_eq!(standby.hear(&released(), at(250)), Step::Take);
}

#[test]
fn what_a_person_edits_or_deletes_is_taken_by_no_standby_before_the_lease_has_passed() {
    let own = election(Some("squelch-b")).me.name;
    for holder in ["", own.as_str(), "squelch-b_somebody", "somebody"] {
        is_waited_for(&lease(holder, 7));
    }
    is_waited_for(&Found::Absent);
}

#[test]
fn the_holder_takes_what_a_person_edits_or_deletes_until_its_deadline_has_passed() {
    let own = election(None).me.name;
    for found in [lease("", 7), lease(&own, 8), Found::Absent] {
        let mut one = election(None);
        one.hear(&lease(&own, 7), at(0));
        one.won(at(0));
        assert_eq!(one.hear(&found, at(3_000)), Step::Take, "{found:?}");
        one.won(at(3_000));
        // Another may have taken it since.
        assert!(matches!(one.hear(&found, at(6_001)), Step::Wait(_)), "{found:?}");
    }
}

#[test]
fn a_lease_that_is_absent_is_made_once_it_was_so_for_the_length_of_a_lease() {
    let steps = looking(&mut election(None), &Found::Absent, 0..5);
    let wait = Step::Wait(LOOK);
    assert_eq!(steps, [wait.clone(), wait.clone(), wait.clone(), wait, Step::Take]);
}

#[test]
fn another_writers_annotation_is_no_renewal() {
    let mut one = election(None);
    let annotated = |revision: u64| match lease("other", 7) {
        Found::Lease(record) => Found::Lease(Record { revision: revision.to_string(), ..record }),
        Found::Absent => unreachable!(),
    };
    let steps: Vec<_> = (0..5).map(|second| one.hear(&annotated(second), at(second * 1_000))).collect();
    assert!(steps[..4].iter().all(|step| *step == Step::Wait(LOOK)), "{steps:?}");
    assert_eq!(steps[4], Step::Take);
}

#[test]
fn what_another_holds_is_taken_once_it_was_the_same_for_the_length_of_a_lease() {
    let wait = Step::Wait(LOOK);
    let mut one = election(Some("squelch-b"));
    let steps = looking(&mut one, &lease("squelch-a_1", 7), 0..5);
    assert_eq!(steps, [wait.clone(), wait.clone(), wait.clone(), wait.clone(), Step::Take]);
    let mut renewed = election(Some("squelch-b"));
    let steps: Vec<_> = (0..10)
        .flat_map(|n| looking(&mut renewed, &lease("squelch-a_1", n), n.into()..u64::from(n) + 1))
        .collect();
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
}

#[test]
fn a_process_takes_over_from_the_one_before_it_in_its_container() {
    let mut one = election(Some("squelch-a"));
    assert_eq!(one.hear(&lease("squelch-a_00000000000000ff", 7), at(0)), Step::Take);
    for other in ["squelch-b_1", "squelch-a2_1", "squelch-a"] {
        assert_eq!(election(Some("squelch-a")).hear(&lease(other, 7), at(0)), Step::Wait(LOOK), "{other}");
    }
    // Only as it stood when this process began: who renews it since, or writes it, is another.
    let mut later = election(Some("squelch-a"));
    later.hear(&lease("squelch-b_1", 7), at(0));
    assert_eq!(later.hear(&lease("squelch-a_2", 7), at(250)), Step::Wait(LOOK));
    // Outside of pods nobody knows what has ended.
    let before = Identity::new(None, 2);
    assert_eq!(election(None).hear(&lease(before.name(), 7), at(0)), Step::Wait(LOOK));
}

#[test]
fn the_holder_yields_to_any_other() {
    for other in ["squelch-b_1", "squelch-a_2", "a person"] {
        let mut one = election(Some("squelch-a"));
        one.hear(&Found::Absent, at(0));
        one.won(at(0));
        let own = one.me.name().to_owned();
        assert_eq!(one.hear(&lease(&own, 7), at(1_000)), Step::Take);
        assert_eq!(one.hear(&lease(other, 8), at(1_100)), Step::Yield(other.to_owned()));
    }
}

#[test]
fn a_read_proves_the_write_whose_time_it_shows_and_nothing_else() {
    let mut unanswered = Unanswered::default();
    let me = Identity::new(None, 1);
    let shows = |renewed| Record { renewed, holder: me.name().to_owned(), ..Record::default() };
    // The wall clock stands still, or steps back to where it was.
    let times = [0, 500, 1_000].map(|sent| unanswered.send(7, at(sent)));
    assert_eq!(times, [7, 8, 9]);
    assert_eq!(unanswered.proven_by(&shows(Some(8)), &me), Some(at(500)));
    assert_eq!(unanswered.proven_by(&shows(Some(10)), &me), None);
    assert_eq!(unanswered.proven_by(&shows(None), &me), None, "a new revision alone");
    let edited = Record { holder: "a person".to_owned(), ..shows(Some(8)) };
    assert_eq!(unanswered.proven_by(&edited, &me), None, "another holder, and the rest as it was");
    unanswered.commit(at(500));
    assert_eq!(
        [7, 8, 9].map(|time| unanswered.proven_by(&shows(Some(time)), &me)),
        [None, Some(at(500)), Some(at(1_000))],
        "the last one that is committed stands there until the next"
    );
    assert_eq!(unanswered.send(8, at(1_500)), 10, "8 and 9 are taken");
    assert_eq!(unanswered.send(9, at(5_000)), 11, "9 may still be committed");
    assert_eq!(unanswered.proven_by(&shows(Some(9)), &me), Some(at(1_000)), "however late");
    unanswered.send(9, at(62_000));
    assert_eq!(unanswered.proven_by(&shows(Some(9)), &me), None, "no API server takes this long");
    assert_eq!(unanswered.proven_by(&shows(Some(8)), &me), Some(at(500)), "committed");
}

/// How long a call is waited for, in milliseconds.
const DEADLINE: u64 = 900;
const RETRY: u64 = 250;
/// An answer that would take this long is lost.
const LOST: u64 = 4_000;
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
    /// `None`: the answer is lost.
    returns: Option<u64>,
    /// What a write replaces, and its `renewTime`.
    take: Option<(Found, i64)>,
    said: Said,
}

/// What a person does to the Lease.
#[derive(Clone, Copy, Debug)]
enum Edit {
    Deletes,
    Empties,
    GivesTo(usize),
    GivesToNobody,
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
    /// When the write was sent that made it so.
    sent: u64,
    unanswered: Unanswered,
    /// What its wall clock shows all its life: no two lives write the same `renewTime`.
    wall: i64,
    call: Option<Call>,
    /// A write had no answer in time: the Lease is read before it is written again.
    unsure: bool,
    next: u64,
    alive: bool,
}

struct World {
    lease: Found,
    revision: u64,
    replicas: Vec<Replica>,
    /// Calls that their replica waits for no more; it takes the answer of a write all the same.
    late: Vec<(usize, Call)>,
    troubles: Vec<Trouble>,
    /// How long calls take on their way there and back, in turn. Beyond [`LOST`] the answer is lost.
    latencies: Vec<(u64, u64)>,
    /// How long writes take instead.
    writes: Option<(u64, u64)>,
    /// When another writer annotates the Lease.
    annotations: BTreeSet<u64>,
    /// When a person edits or deletes it.
    edits: BTreeMap<u64, Edit>,
    lives: usize,
    calls: usize,
    now: u64,
}

impl World {
    fn new(replicas: usize, troubles: Vec<Trouble>, latencies: Vec<(u64, u64)>) -> Self {
        let replica = |number: usize| Replica {
            election: Election::new(Identity::new(None, number as u64)),
            term: Term::default(),
            mine: None,
            sent: 0,
            unanswered: Unanswered::default(),
            wall: wall(number),
            call: None,
            unsure: false,
            next: 300 * number as u64,
            alive: true,
        };
        let lives = replicas;
        let replicas = (0..replicas).map(replica).collect();
        Self {
            lease: Found::Absent,
            revision: 0,
            replicas,
            late: Vec::new(),
            troubles,
            latencies,
            writes: None,
            annotations: BTreeSet::new(),
            edits: BTreeMap::new(),
            lives,
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
        if self.annotations.contains(&self.now)
            && let Found::Lease(record) = &mut self.lease
        {
            self.revision += 1;
            record.revision = self.revision.to_string();
        }
        if let Some(edit) = self.edits.get(&self.now).copied() {
            self.edit(edit);
        }
        let late = std::mem::take(&mut self.late);
        for (number, mut call) in late {
            self.api_server(number, &mut call);
            let frozen = self.troubles.iter().any(|trouble| trouble.freezes(number, self.now));
            if call.returns.is_some_and(|returns| returns <= self.now) && !frozen {
                if let Said::There(found, true) = call.said
                    && call.sent + 3_000 > self.now
                    && self.replicas[number].alive
                {
                    let replica = &mut self.replicas[number];
                    // It waits no more for what it is waiting for.
                    let waits = replica.call.take().filter(|call| call.take.is_some());
                    (replica.next, replica.unsure) = (replica.hear(&found, true, call.sent, self.now), false);
                    self.late.extend(waits.map(|call| (number, call)));
                }
            } else if call.sent + 10_000 > self.now {
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

    fn edit(&mut self, edit: Edit) {
        let holder = match edit {
            Edit::Deletes => {
                // A write that makes the Lease depends on no revision: an earlier one could make it again.
                let mut calls = self.replicas.iter().filter_map(|replica| replica.call.as_ref());
                let is_made = |call: &Call| matches!(call.take, Some((Found::Absent, _)));
                if !calls.any(is_made) && !self.late.iter().any(|(_, call)| is_made(call)) {
                    self.lease = Found::Absent;
                }
                return;
            }
            Edit::Empties => String::new(),
            Edit::GivesTo(number) => self.replicas[number % self.replicas.len()].election.me.name.clone(),
            Edit::GivesToNobody => "a person".to_owned(),
        };
        if let Found::Lease(record) = &mut self.lease {
            self.revision += 1;
            (record.holder, record.revision, record.released) = (holder, self.revision.to_string(), false);
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
        let wins = call.take.as_ref().is_some_and(|(before, _)| *before == self.lease);
        if wins {
            self.revision += 1;
            let holder = self.replicas[number].election.me.name().to_owned();
            let (revision, renewed) =
                (self.revision.to_string(), call.take.as_ref().map(|(_, renewed)| *renewed));
            self.lease = Found::Lease(Record { holder, revision, renewed, ..Record::default() });
        }
        call.said = Said::There(self.lease.clone(), wins);
    }

    fn replica(&mut self, number: usize) {
        let now = self.now;
        let (there, back) = self.latencies[self.calls % self.latencies.len()];
        let replica = &mut self.replicas[number];
        let answered = |call: &Call| call.returns.is_some_and(|returns| returns <= now);
        if let Some(call) = replica.call.take_if(|call| answered(call) || call.sent + DEADLINE <= now) {
            replica.next = match call.said.clone() {
                Said::There(found, won) if answered(&call) => replica.hear(&found, won, call.sent, now),
                // What was written may stand there: it is read at once.
                _ if call.take.is_some() => {
                    replica.unsure = true;
                    now
                }
                _ => now + RETRY,
            };
            if !answered(&call) && call.take.is_some() {
                self.late.push((number, call));
            }
        }
        if replica.wall < 0 {
            replica.wall = wall(self.lives);
            self.lives += 1;
        }
        if replica.call.is_none() && replica.next <= now {
            let renews = replica.mine.clone().map(Found::Lease).filter(|_| !replica.unsure);
            replica.unsure = false;
            let take = renews.or_else(|| replica.wants());
            let take = take.map(|found| (found, replica.unanswered.send(replica.wall, at(now))));
            let (there, back) = self.writes.filter(|_| take.is_some()).unwrap_or((there, back));
            let returns = (back < LOST).then_some(now + there + back);
            replica.call =
                Some(Call { sent: now, reaches: now + there, returns, take, said: Said::NotAsked });
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
        if let Found::Lease(record) = found {
            let proven = self.unanswered.proven_by(record, &self.election.me);
            if let Some(sent) = if won { Some(at(sent)) } else { proven } {
                return self.hold(record, sent, now);
            }
        }
        match self.election.hear(found, at(now)) {
            Step::Wait(pause) => {
                self.mine = None;
                now + u64::try_from(pause.as_millis()).unwrap().max(1)
            }
            Step::Take => {
                self.mine = None;
                // Asks at once: see `wants`.
                0
            }
            Step::Yield(_) => {
                // The process ends, and its next life stands again.
                self.term.end();
                (self.mine, self.unanswered, self.wall) = (None, Unanswered::default(), -1);
                let Identity { pod, .. } = self.election.me.clone();
                self.election = Election::new(Identity::new(pod.as_deref(), now));
                now + 1_000
            }
        }
    }

    fn hold(&mut self, record: &Record, sent: Moment, now: u64) -> u64 {
        let milliseconds = u64::try_from(sent.since(at(0)).as_millis()).unwrap();
        // Of a former life, or an answer that a later one has overtaken.
        let mine = record.holder == self.election.me.name();
        if !mine || self.mine.is_some() && milliseconds < self.sent {
            return self.next;
        }
        self.unanswered.commit(sent);
        (self.mine, self.sent) = (Some(record.clone()), milliseconds);
        if sent.plus(TERM) > at(now) {
            self.election.won(sent);
            self.term.extend(sent.plus(TERM));
        }
        milliseconds + 1_000
    }
}

/// What the wall clock shows in one life.
fn wall(life: usize) -> i64 {
    i64::try_from(life).unwrap() * 1_000_000
}

/// One deletion at most.
fn edits() -> impl Strategy<Value = BTreeMap<u64, Edit>> {
    let edit =
        prop_oneof![Just(Edit::Empties), (0..3_usize).prop_map(Edit::GivesTo), Just(Edit::GivesToNobody),];
    let when = || (200..5_000_u64).prop_map(|ten| ten * 10);
    let edits = prop::collection::btree_map(when(), edit, 0..6);
    (edits, prop::option::of(when())).prop_map(|(mut edits, deleted)| {
        edits.extend(deleted.map(|at| (at, Edit::Deletes)));
        edits
    })
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

fn latencies() -> impl Strategy<Value = Vec<(u64, u64)>> {
    // Most calls take milliseconds, some longer than they are waited for, and some answers are lost.
    let one = || prop_oneof![8 => 1..30_u64, 2 => 30..5_000_u64];
    prop::collection::vec((one(), one()), 1..40)
}

fn quick() -> impl Strategy<Value = Vec<(u64, u64)>> {
    prop::collection::vec((1..30_u64, 1..30_u64), 1..40)
}

proptest! {
    #![proptest_config(cases(400))]

    /// Whatever goes wrong: never two at one time, and one again soon after all is well.
    #[test]
    fn never_two_decide_and_one_does_in_the_end(
        (replicas, troubles) in (2..4_usize).prop_flat_map(|n| (Just(n), troubles(n))),
        latencies in latencies(),
        annotations in prop::collection::vec(0..6_000_u64, 0..40),
    ) {
        let mut world = World::new(replicas, troubles, latencies);
        world.annotations = annotations.into_iter().map(|ten| ten * 10).collect();
        world.run_until(60_000);
        world.latencies = vec![(10, 10)];
        world.until_decided(12_000);
    }

    /// The same while a person edits the Lease, or deletes it, at any moment.
    #[test]
    fn never_two_decide_while_a_person_edits_the_lease(
        (replicas, troubles) in (2..4_usize).prop_flat_map(|n| (Just(n), troubles(n))),
        latencies in prop_oneof![quick().boxed(), latencies().boxed()],
        edits in edits(),
    ) {
        let mut world = World::new(replicas, troubles, latencies);
        world.edits = edits;
        world.run_until(60_000);
        world.latencies = vec![(10, 10)];
        world.until_decided(12_000);
    }

    /// However late the API server commits each write, or loses each answer: as long as one half of what a deadline
    /// lasts is enough for one of both, the same replica stays the active one.
    #[test]
    fn late_commits_and_late_answers_end_no_deadline(
        commits in 10..1_300_u64,
        answers in prop_oneof![1..100_u64, Just(LOST)],
        writes_only in any::<bool>(),
    ) {
        let mut world = World::new(2, Vec::new(), vec![(10, 10)]);
        world.run_until(6_000);
        let active = world.deciding();
        prop_assert!(active.is_some());
        let lost = answers == LOST;
        world.writes = Some((if lost { commits / 4 } else { commits }, answers));
        if !writes_only && !lost {
            world.latencies = vec![(commits, answers)];
        }
        while world.now < 60_000 {
            world.step();
            prop_assert_eq!(world.deciding(), active, "at {} ms", world.now);
        }
    }

    /// Whoever crashes, at any moment.
    #[test]
    fn one_decides_six_seconds_after_a_crash(crash in 8_000..15_000_u64, latencies in quick()) {
        let mut world = World::new(2, Vec::new(), latencies);
        world.run_until(crash);
        let active = world.deciding().unwrap();
        world.replicas[active].alive = false;
        let gap = world.until_decided(6_000);
        prop_assert!(gap < 6_000, "{gap}");
    }

    /// Whoever gives the Lease back, at any moment.
    #[test]
    fn one_decides_two_seconds_after_a_release(end in 8_000..15_000_u64, latencies in quick()) {
        let mut world = World::new(3, Vec::new(), latencies);
        world.run_until(end);
        let active = world.deciding().unwrap();
        world.replicas[active].alive = false;
        world.revision += 1;
        world.lease = Found::Lease(Record { revision: world.revision.to_string(), released: true, ..Record::default() });
        prop_assert!(world.until_decided(2_000) < 2_000);
    }

    /// However long the API server is away, and however often.
    #[test]
    fn an_api_server_that_goes_and_comes_back_flips_nothing(
        outages in prop::collection::vec((6_000..60_000_u64, 100..30_000_u64), 1..5),
        latencies in quick(),
    ) {
        let trouble = |(from, length)| Trouble { from, length, whom: None, frozen: false };
        let mut world = World::new(3, outages.into_iter().map(trouble).collect(), latencies);
        world.run_until(6_000);
        let active = world.deciding();
        world.run_until(95_000);
        prop_assert_eq!(world.deciding(), active);
        prop_assert!(world.replicas.iter().enumerate().all(|(n, replica)| replica.mine.is_some() == (Some(n) == active)));
    }
}
