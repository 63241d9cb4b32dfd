//! Unit tests first, then property tests: replicas in a simulated world with random outages.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use squelch_engine::testing::cases;

use super::super::lease_deadline::LeaseDeadline;
use super::*;

fn at(milliseconds: u64) -> Moment {
    Moment::from_epoch(Duration::from_millis(milliseconds))
}

/// The Lease after the nth renewal by `holder`.
fn lease(holder: &str, nth: u32) -> LeaseState {
    let (holder, resource_version) = (holder.to_owned(), nth.to_string());
    LeaseState::Present(LeaseRecord {
        holder,
        resource_version,
        renew_time: Some(nth.into()),
        ..LeaseRecord::default()
    })
}

fn released() -> LeaseState {
    LeaseState::Present(LeaseRecord { released: true, ..LeaseRecord::default() })
}

fn election(pod: Option<&str>) -> Election {
    Election::new(Identity::new(pod, 1))
}

/// The actions for a Lease that does not change, read once a second.
fn actions_for(election: &mut Election, found: &LeaseState, seconds: std::ops::Range<u64>) -> Vec<Action> {
    seconds.map(|second| election.observe(found, at(second * 1_000))).collect()
}

/// Asserts that a standby takes this Lease only after it was unchanged for the lease duration.
fn assert_waits_for_lease_duration(found: &LeaseState) {
    let mut standby = election(Some("squelch-b"));
    standby.observe(&lease("squelch-a_1", 7), at(0));
    let steps = actions_for(&mut standby, found, 1..6);
    assert!(steps[..4].iter().all(|step| matches!(step, Action::Wait(_))), "{found:?}: {steps:?}");
    assert_eq!(steps[4], Action::Acquire, "{found:?}");
}

#[test]
fn a_released_lease_is_acquired_at_once() {
    assert_eq!(election(None).observe(&released(), at(0)), Action::Acquire);
    let mut standby = election(None);
    standby.observe(&lease("other", 7), at(0));
    assert_eq!(standby.observe(&released(), at(250)), Action::Acquire);
}

#[test]
fn no_standby_acquires_an_edited_or_deleted_lease_before_its_duration_has_passed() {
    let own = election(Some("squelch-b")).me.name;
    for holder in ["", own.as_str(), "squelch-b_edited", "a person"] {
        assert_waits_for_lease_duration(&lease(holder, 7));
    }
    assert_waits_for_lease_duration(&LeaseState::Absent);
}

#[test]
fn the_holder_reacquires_an_edited_or_deleted_lease_until_its_deadline() {
    let own = election(None).me.name;
    for found in [lease("", 7), lease(&own, 8), LeaseState::Absent] {
        let mut one = election(None);
        one.observe(&lease(&own, 7), at(0));
        one.record_renewal(at(0));
        assert_eq!(one.observe(&found, at(3_000)), Action::Acquire, "{found:?}");
        one.record_renewal(at(3_000));
        // Another replica may have acquired it since.
        assert!(matches!(one.observe(&found, at(6_001)), Action::Wait(_)), "{found:?}");
    }
}

#[test]
fn an_absent_lease_is_created_after_the_lease_duration() {
    let steps = actions_for(&mut election(None), &LeaseState::Absent, 0..5);
    let wait = Action::Wait(POLL_INTERVAL);
    assert_eq!(steps, [wait.clone(), wait.clone(), wait.clone(), wait, Action::Acquire]);
}

#[test]
fn an_annotation_by_another_writer_is_no_renewal() {
    let mut one = election(None);
    let annotated = |revision: u64| match lease("other", 7) {
        LeaseState::Present(record) => {
            LeaseState::Present(LeaseRecord { resource_version: revision.to_string(), ..record })
        }
        LeaseState::Absent => unreachable!(),
    };
    let steps: Vec<_> = (0..5).map(|second| one.observe(&annotated(second), at(second * 1_000))).collect();
    assert!(steps[..4].iter().all(|step| *step == Action::Wait(POLL_INTERVAL)), "{steps:?}");
    assert_eq!(steps[4], Action::Acquire);
}

#[test]
fn a_lease_that_is_not_renewed_is_acquired_after_its_duration() {
    let wait = Action::Wait(POLL_INTERVAL);
    let mut one = election(Some("squelch-b"));
    let steps = actions_for(&mut one, &lease("squelch-a_1", 7), 0..5);
    assert_eq!(steps, [wait.clone(), wait.clone(), wait.clone(), wait.clone(), Action::Acquire]);
    let mut renewed = election(Some("squelch-b"));
    let steps: Vec<_> = (0..10)
        .flat_map(|n| actions_for(&mut renewed, &lease("squelch-a_1", n), n.into()..u64::from(n) + 1))
        .collect();
    assert_eq!(steps, vec![wait; 10]);
}

#[test]
fn the_last_wait_ends_when_the_lease_duration_has_passed() {
    let mut one = election(None);
    for milliseconds in [0, 1_010, 2_020, 3_030] {
        assert_ne!(one.observe(&lease("other", 7), at(milliseconds)), Action::Acquire);
    }
    assert_eq!(one.observe(&lease("other", 7), at(3_990)), Action::Wait(Duration::from_millis(10)));
}

#[test]
fn an_outage_restarts_the_lease_duration() {
    let mut one = election(None);
    actions_for(&mut one, &lease("other", 7), 0..4);
    // The API server was away for a minute.
    let steps = actions_for(&mut one, &lease("other", 7), 64..69);
    assert!(steps[..4].iter().all(|step| *step != Action::Acquire), "{steps:?}");
    assert_eq!(steps[4], Action::Acquire);
}

#[test]
fn a_deleted_lease_is_left_to_its_holder_for_the_lease_duration() {
    let mut one = election(None);
    one.observe(&lease("other", 7), at(0));
    let steps = actions_for(&mut one, &LeaseState::Absent, 1..6);
    assert!(steps[..4].iter().all(|step| *step != Action::Acquire), "{steps:?}");
    assert_eq!(steps[4], Action::Acquire);
}

#[test]
fn a_restarted_container_acquires_the_lease_of_its_earlier_process_at_once() {
    let mut one = election(Some("squelch-a"));
    assert_eq!(one.observe(&lease("squelch-a_00000000000000ff", 7), at(0)), Action::Acquire);
    for other in ["squelch-b_1", "squelch-a2_1", "squelch-a"] {
        assert_eq!(
            election(Some("squelch-a")).observe(&lease(other, 7), at(0)),
            Action::Wait(POLL_INTERVAL),
            "{other}"
        );
    }
    // Only if nobody has renewed it since this process started.
    let mut later = election(Some("squelch-a"));
    later.observe(&lease("squelch-b_1", 7), at(0));
    assert_eq!(later.observe(&lease("squelch-a_2", 7), at(250)), Action::Wait(POLL_INTERVAL));
    // Outside of pods, an earlier process may still run.
    let before = Identity::new(None, 2);
    assert_eq!(election(None).observe(&lease(before.name(), 7), at(0)), Action::Wait(POLL_INTERVAL));
}

#[test]
fn the_holder_steps_down_for_any_other_holder() {
    for other in ["squelch-b_1", "squelch-a_2", "a person"] {
        let mut one = election(Some("squelch-a"));
        one.observe(&LeaseState::Absent, at(0));
        one.record_renewal(at(0));
        let own = one.me.name().to_owned();
        assert_eq!(one.observe(&lease(&own, 7), at(1_000)), Action::Acquire);
        assert_eq!(one.observe(&lease(other, 8), at(1_100)), Action::StepDown(other.to_owned()));
    }
}

#[test]
fn a_read_confirms_the_write_whose_renew_time_it_shows_and_no_other() {
    let mut in_flight = InFlightWrites::default();
    let me = Identity::new(None, 1);
    let shows =
        |renew_time| LeaseRecord { renew_time, holder: me.name().to_owned(), ..LeaseRecord::default() };
    // The wall clock does not advance, or steps back.
    let times = [0, 500, 1_000].map(|sent| in_flight.record_sent(7, at(sent)));
    assert_eq!(times, [7, 8, 9]);
    assert_eq!(in_flight.sent_time_of(&shows(Some(8)), &me), Some(at(500)));
    assert_eq!(in_flight.sent_time_of(&shows(Some(10)), &me), None);
    assert_eq!(in_flight.sent_time_of(&shows(None), &me), None, "a new resourceVersion alone");
    let edited = LeaseRecord { holder: "a person".to_owned(), ..shows(Some(8)) };
    assert_eq!(in_flight.sent_time_of(&edited, &me), None, "another holder with the same renewTime");
    in_flight.record_committed(at(500));
    assert_eq!(
        [7, 8, 9].map(|time| in_flight.sent_time_of(&shows(Some(time)), &me)),
        [None, Some(at(500)), Some(at(1_000))],
        "the last committed write stays stored until the next"
    );
    assert_eq!(in_flight.record_sent(8, at(1_500)), 10, "8 and 9 are used");
    assert_eq!(in_flight.record_sent(9, at(5_000)), 11, "9 may still be committed");
    assert_eq!(in_flight.sent_time_of(&shows(Some(9)), &me), Some(at(1_000)), "however late");
    in_flight.record_sent(9, at(62_000));
    assert_eq!(in_flight.sent_time_of(&shows(Some(9)), &me), None, "longer than any API server takes");
    assert_eq!(in_flight.sent_time_of(&shows(Some(8)), &me), Some(at(500)), "committed");
}

/// Timeout of a call in milliseconds.
const DEADLINE: u64 = 900;
const RETRY: u64 = 250;
/// An answer with this latency is lost.
const LOST: u64 = 4_000;
/// One simulation step in milliseconds.
const STEP: u64 = 10;

/// A fault: a replica is cut off or frozen, or the API server is down.
#[derive(Clone, Debug)]
struct Fault {
    from: u64,
    length: u64,
    /// The replica. `None`: the API server is down for all.
    replica: Option<usize>,
    frozen: bool,
}

impl Fault {
    fn cuts(&self, replica: usize, now: u64) -> bool {
        !self.frozen && self.replica.is_none_or(|cut| cut == replica) && self.holds(now)
    }

    fn freezes(&self, replica: usize, now: u64) -> bool {
        self.frozen && self.replica == Some(replica) && self.holds(now)
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
    take: Option<(LeaseState, i64)>,
    reply: Reply,
}

/// A person's edit of the Lease.
#[derive(Clone, Copy, Debug)]
enum Edit {
    Deletes,
    Empties,
    GivesTo(usize),
    GivesToNobody,
}

/// The API server's answer.
#[derive(Clone)]
enum Reply {
    NotAsked,
    Nothing,
    /// The stored Lease, and whether this call has written it.
    Stored(LeaseState, bool),
}

struct Replica {
    election: Election,
    deadline: LeaseDeadline,
    own: Option<LeaseRecord>,
    /// When the write that stored it was sent.
    sent: u64,
    in_flight: InFlightWrites,
    /// Its wall clock, which never advances. No two processes write the same `renewTime`.
    wall: i64,
    call: Option<Call>,
    /// A write timed out: the Lease is read before it is written again.
    must_read: bool,
    next: u64,
    alive: bool,
}

struct World {
    lease: LeaseState,
    revision: u64,
    replicas: Vec<Replica>,
    /// Calls that timed out. Late answers to writes still count.
    late: Vec<(usize, Call)>,
    faults: Vec<Fault>,
    /// Latencies to and from the API server, used in turn. From [`LOST`] on the answer is lost.
    latencies: Vec<(u64, u64)>,
    /// Latencies of writes, if they differ.
    writes: Option<(u64, u64)>,
    /// When another writer annotates the Lease.
    annotations: BTreeSet<u64>,
    /// When a person edits or deletes it.
    edits: BTreeMap<u64, Edit>,
    processes: usize,
    calls: usize,
    now: u64,
}

impl World {
    fn new(replicas: usize, faults: Vec<Fault>, latencies: Vec<(u64, u64)>) -> Self {
        let replica = |number: usize| Replica {
            election: Election::new(Identity::new(None, number as u64)),
            deadline: LeaseDeadline::default(),
            own: None,
            sent: 0,
            in_flight: InFlightWrites::default(),
            wall: wall(number),
            call: None,
            must_read: false,
            next: 300 * number as u64,
            alive: true,
        };
        let processes = replicas;
        let replicas = (0..replicas).map(replica).collect();
        Self {
            lease: LeaseState::Absent,
            revision: 0,
            replicas,
            late: Vec::new(),
            faults,
            latencies,
            writes: None,
            annotations: BTreeSet::new(),
            edits: BTreeMap::new(),
            processes,
            calls: 0,
            now: 0,
        }
    }

    /// Returns the active replica. Panics if there are two.
    fn active_replica(&self) -> Option<usize> {
        let now = at(self.now);
        let mut active = (0..self.replicas.len())
            .filter(|n| self.replicas[*n].alive && self.replicas[*n].deadline.is_active(now));
        let one = active.next();
        assert_eq!(active.next(), None, "two replicas are active at {} ms", self.now);
        one
    }

    fn run_until(&mut self, end: u64) {
        while self.now < end {
            self.step();
            self.active_replica();
        }
    }

    /// Runs until a replica is active. Returns how long that took.
    fn run_until_active(&mut self, limit: u64) -> u64 {
        let began = self.now;
        while self.active_replica().is_none() {
            assert!(self.now - began < limit, "no replica is active after {limit} ms");
            self.step();
        }
        self.now - began
    }

    fn step(&mut self) {
        self.now += STEP;
        if self.annotations.contains(&self.now)
            && let LeaseState::Present(record) = &mut self.lease
        {
            self.revision += 1;
            record.resource_version = self.revision.to_string();
        }
        if let Some(edit) = self.edits.get(&self.now).copied() {
            self.edit(edit);
        }
        let late = std::mem::take(&mut self.late);
        for (number, mut call) in late {
            self.api_server(number, &mut call);
            let frozen = self.faults.iter().any(|fault| fault.freezes(number, self.now));
            if call.returns.is_some_and(|returns| returns <= self.now) && !frozen {
                if let Reply::Stored(found, true) = call.reply
                    && call.sent + 3_000 > self.now
                    && self.replicas[number].alive
                {
                    let replica = &mut self.replicas[number];
                    // Its current call is no longer awaited.
                    let waits = replica.call.take().filter(|call| call.take.is_some());
                    (replica.next, replica.must_read) =
                        (replica.handle_answer(&found, true, call.sent, self.now), false);
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
            if !self.faults.iter().any(|fault| fault.freezes(number, self.now)) {
                self.replica(number);
            }
        }
    }

    fn edit(&mut self, edit: Edit) {
        let holder = match edit {
            Edit::Deletes => {
                // A create has no resourceVersion: one that is under way could create the Lease again.
                let mut calls = self.replicas.iter().filter_map(|replica| replica.call.as_ref());
                let is_create = |call: &Call| matches!(call.take, Some((LeaseState::Absent, _)));
                if !calls.any(is_create) && !self.late.iter().any(|(_, call)| is_create(call)) {
                    self.lease = LeaseState::Absent;
                }
                return;
            }
            Edit::Empties => String::new(),
            Edit::GivesTo(number) => self.replicas[number % self.replicas.len()].election.me.name.clone(),
            Edit::GivesToNobody => "a person".to_owned(),
        };
        if let LeaseState::Present(record) = &mut self.lease {
            self.revision += 1;
            (record.holder, record.resource_version, record.released) =
                (holder, self.revision.to_string(), false);
        }
    }

    /// Applies a call when it reaches the API server.
    fn api_server(&mut self, number: usize, call: &mut Call) {
        if !matches!(call.reply, Reply::NotAsked) || call.reaches > self.now {
            return;
        }
        call.reply = Reply::Nothing;
        if self.faults.iter().any(|fault| fault.cuts(number, self.now)) {
            return;
        }
        let wins = call.take.as_ref().is_some_and(|(before, _)| *before == self.lease);
        if wins {
            self.revision += 1;
            let holder = self.replicas[number].election.me.name().to_owned();
            let (resource_version, renew_time) =
                (self.revision.to_string(), call.take.as_ref().map(|(_, renew_time)| *renew_time));
            self.lease = LeaseState::Present(LeaseRecord {
                holder,
                resource_version,
                renew_time,
                ..LeaseRecord::default()
            });
        }
        call.reply = Reply::Stored(self.lease.clone(), wins);
    }

    fn replica(&mut self, number: usize) {
        let now = self.now;
        let (there, back) = self.latencies[self.calls % self.latencies.len()];
        let replica = &mut self.replicas[number];
        let answered = |call: &Call| call.returns.is_some_and(|returns| returns <= now);
        if let Some(call) = replica.call.take_if(|call| answered(call) || call.sent + DEADLINE <= now) {
            replica.next = match call.reply.clone() {
                Reply::Stored(found, won) if answered(&call) => {
                    replica.handle_answer(&found, won, call.sent, now)
                }
                // The write may be committed: read at once.
                _ if call.take.is_some() => {
                    replica.must_read = true;
                    now
                }
                _ => now + RETRY,
            };
            if !answered(&call) && call.take.is_some() {
                self.late.push((number, call));
            }
        }
        if replica.wall < 0 {
            replica.wall = wall(self.processes);
            self.processes += 1;
        }
        if replica.call.is_none() && replica.next <= now {
            let renews = replica.own.clone().map(LeaseState::Present).filter(|_| !replica.must_read);
            replica.must_read = false;
            let take = renews.or_else(|| replica.acquires());
            let take = take.map(|found| (found, replica.in_flight.record_sent(replica.wall, at(now))));
            let (there, back) = self.writes.filter(|_| take.is_some()).unwrap_or((there, back));
            let returns = (back < LOST).then_some(now + there + back);
            replica.call =
                Some(Call { sent: now, reaches: now + there, returns, take, reply: Reply::NotAsked });
            self.calls += 1;
        }
    }
}

impl Replica {
    /// The Lease to acquire, after the last observation reply so.
    fn acquires(&mut self) -> Option<LeaseState> {
        let last = self.election.last_read.as_ref().filter(|_| self.next == 0)?;
        self.next = 1;
        Some(last.found.clone())
    }

    /// Handles an answer. Returns the time of the next step.
    fn handle_answer(&mut self, found: &LeaseState, won: bool, sent: u64, now: u64) -> u64 {
        if let LeaseState::Present(record) = found {
            let confirmed = self.in_flight.sent_time_of(record, &self.election.me);
            if let Some(sent) = if won { Some(at(sent)) } else { confirmed } {
                return self.hold(record, sent, now);
            }
        }
        match self.election.observe(found, at(now)) {
            Action::Wait(pause) => {
                self.own = None;
                now + u64::try_from(pause.as_millis()).unwrap().max(1)
            }
            Action::Acquire => {
                self.own = None;
                // Writes at once: see `acquires`.
                0
            }
            Action::StepDown(_) => {
                // The process ends, and its successor campaigns again.
                self.deadline.revoke();
                (self.own, self.in_flight, self.wall) = (None, InFlightWrites::default(), -1);
                let Identity { pod, .. } = self.election.me.clone();
                self.election = Election::new(Identity::new(pod.as_deref(), now));
                now + 1_000
            }
        }
    }

    fn hold(&mut self, record: &LeaseRecord, sent: Moment, now: u64) -> u64 {
        let milliseconds = u64::try_from(sent.since(at(0)).as_millis()).unwrap();
        // From an earlier process, or overtaken by a later answer.
        let own = record.holder == self.election.me.name();
        if !own || self.own.is_some() && milliseconds < self.sent {
            return self.next;
        }
        self.in_flight.record_committed(sent);
        (self.own, self.sent) = (Some(record.clone()), milliseconds);
        if sent.plus(RENEW_DEADLINE) > at(now) {
            self.election.record_renewal(sent);
            self.deadline.extend(sent.plus(RENEW_DEADLINE));
        }
        milliseconds + 1_000
    }
}

/// The wall clock of one process.
fn wall(process: usize) -> i64 {
    i64::try_from(process).unwrap() * 1_000_000
}

/// Random edits, with at most one deletion.
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

fn faults(replicas: usize) -> impl Strategy<Value = Vec<Fault>> {
    let fault = (2_000..40_000_u64, 100..15_000_u64, prop::option::of(0..replicas), any::<bool>());
    let fault = fault.prop_map(|(from, length, replica, frozen)| Fault {
        from,
        length,
        replica,
        frozen: frozen && replica.is_some(),
    });
    prop::collection::vec(fault, 0..6)
}

fn latencies() -> impl Strategy<Value = Vec<(u64, u64)>> {
    // Most calls take milliseconds, some time out, and some answers are lost.
    let one = || prop_oneof![8 => 1..30_u64, 2 => 30..5_000_u64];
    prop::collection::vec((one(), one()), 1..40)
}

fn quick() -> impl Strategy<Value = Vec<(u64, u64)>> {
    prop::collection::vec((1..30_u64, 1..30_u64), 1..40)
}

proptest! {
    #![proptest_config(cases(400))]

    /// Under any faults there is at most one active replica, and one again soon after the faults end.
    #[test]
    fn at_most_one_replica_is_active_and_one_is_again_after_the_faults(
        (replicas, faults) in (2..4_usize).prop_flat_map(|n| (Just(n), faults(n))),
        latencies in latencies(),
        annotations in prop::collection::vec(0..6_000_u64, 0..40),
    ) {
        let mut world = World::new(replicas, faults, latencies);
        world.annotations = annotations.into_iter().map(|ten| ten * 10).collect();
        world.run_until(60_000);
        world.latencies = vec![(10, 10)];
        world.run_until_active(12_000);
    }

    /// The same while a person edits or deletes the Lease.
    #[test]
    fn at_most_one_replica_is_active_while_a_person_edits_the_lease(
        (replicas, faults) in (2..4_usize).prop_flat_map(|n| (Just(n), faults(n))),
        latencies in prop_oneof![quick().boxed(), latencies().boxed()],
        edits in edits(),
    ) {
        let mut world = World::new(replicas, faults, latencies);
        world.edits = edits;
        world.run_until(60_000);
        world.latencies = vec![(10, 10)];
        world.run_until_active(12_000);
    }

    /// Late commits and lost answers do not end the deadline, as long as one round trip takes at most half of it.
    #[test]
    fn late_commits_and_late_answers_do_not_end_a_deadline(
        commits in 10..1_300_u64,
        answers in prop_oneof![1..100_u64, Just(LOST)],
        writes_only in any::<bool>(),
    ) {
        let mut world = World::new(2, Vec::new(), vec![(10, 10)]);
        world.run_until(6_000);
        let active = world.active_replica();
        prop_assert!(active.is_some());
        let lost = answers == LOST;
        world.writes = Some((if lost { commits / 4 } else { commits }, answers));
        if !writes_only && !lost {
            world.latencies = vec![(commits, answers)];
        }
        while world.now < 60_000 {
            world.step();
            prop_assert_eq!(world.active_replica(), active, "at {} ms", world.now);
        }
    }

    /// After a crash at any moment.
    #[test]
    fn a_replica_is_active_within_six_seconds_of_a_crash(crash in 8_000..15_000_u64, latencies in quick()) {
        let mut world = World::new(2, Vec::new(), latencies);
        world.run_until(crash);
        let active = world.active_replica().unwrap();
        world.replicas[active].alive = false;
        let gap = world.run_until_active(6_000);
        prop_assert!(gap < 6_000, "{gap}");
    }

    /// After a release at any moment.
    #[test]
    fn a_replica_is_active_within_two_seconds_of_a_release(end in 8_000..15_000_u64, latencies in quick()) {
        let mut world = World::new(3, Vec::new(), latencies);
        world.run_until(end);
        let active = world.active_replica().unwrap();
        world.replicas[active].alive = false;
        world.revision += 1;
        world.lease = LeaseState::Present(LeaseRecord { resource_version: world.revision.to_string(), released: true, ..LeaseRecord::default() });
        prop_assert!(world.run_until_active(2_000) < 2_000);
    }

    /// After outages of any number and length.
    #[test]
    fn the_same_replica_is_active_after_outages_of_the_api_server(
        outages in prop::collection::vec((6_000..60_000_u64, 100..30_000_u64), 1..5),
        latencies in quick(),
    ) {
        let fault = |(from, length)| Fault { from, length, replica: None, frozen: false };
        let mut world = World::new(3, outages.into_iter().map(fault).collect(), latencies);
        world.run_until(6_000);
        let active = world.active_replica();
        world.run_until(95_000);
        prop_assert_eq!(world.active_replica(), active);
        prop_assert!(world.replicas.iter().enumerate().all(|(n, replica)| replica.own.is_some() == (Some(n) == active)));
    }
}
