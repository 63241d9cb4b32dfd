//! Replicas in a simulated world with random outages.

mod properties;
mod replica;

use std::collections::{BTreeMap, BTreeSet};

use super::super::super::lease_deadline::LeaseDeadline;
use super::*;
use replica::wall;

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
