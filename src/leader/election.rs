//! Leader election as a pure function of what was read of the Lease, and when.
//!
//! The holder of the Lease is active for [`RENEW_DEADLINE`] after it *sent* its last renewal. Another replica takes
//! the Lease after it has seen the same renewal for [`LEASE_DURATION`], which is longer. Each replica measures by its
//! own monotonic clock, so no two replicas are active at the same time as long as the clocks run equally fast. Clock
//! values of different replicas are never compared.
//!
//! A person may edit or delete the Lease while its holder is active. A standby therefore takes at once only a Lease
//! that is marked as released, or one that an earlier process of its own pod has held since before this process
//! started.

use std::time::Duration;

use squelch_engine::Moment;

/// The time after which others may take a Lease that was not renewed.
pub const LEASE_DURATION: Duration = Duration::from_secs(4);

/// How long a replica is active after it sent its last renewal.
pub const RENEW_DEADLINE: Duration = Duration::from_secs(3);

/// The time between two renewals.
pub const RENEW_INTERVAL: Duration = Duration::from_secs(1);

/// The time between two reads of a standby. While a Lease is released, no replica is active.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// How long the API server may take to commit a write: its own limit on a request.
const COMMIT_TIMEOUT: Duration = Duration::from_secs(60);

/// The longest gap between two reads that count as consecutive. A longer gap contains a failed read, and the holder
/// could not renew either.
const MAX_READ_GAP: Duration = Duration::from_secs(2);

/// Separates the pod's name from the random part of an identity. Pod names cannot contain it.
const SEPARATOR: char = '_';

/// The Lease as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseState {
    /// There is no Lease.
    Absent,
    /// There is a Lease.
    Present(LeaseRecord),
}

impl LeaseState {
    /// Whether both are the same renewal by the same holder. Other fields may differ, such as annotations.
    fn is_same_renewal(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Present(one), Self::Present(other)) => {
                (&one.holder, one.renew_time) == (&other.holder, other.renew_time)
            }
            (one, other) => one == other,
        }
    }
}

/// The fields of a Lease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseRecord {
    /// `holderIdentity`. Empty after a release, or if a person has emptied it.
    pub holder: String,
    /// Whether the holder has released it and is no longer active.
    pub released: bool,
    /// `resourceVersion`: changes with each write.
    pub resource_version: String,
    /// `leaseTransitions`.
    pub transitions: i32,
    /// `renewTime` in microseconds. It identifies a write and is compared with no clock.
    pub renew_time: Option<i64>,
}

/// What to do after a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Read again after this time.
    Wait(Duration),
    /// Write the own identity into the Lease, if it is still as it was read.
    Acquire,
    /// Another holder has the Lease: this one.
    StepDown(String),
}

/// The identity under which a process holds the Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pod: Option<String>,
    name: String,
}

impl Identity {
    /// The identity of a process in `pod`, or outside of a pod. `random` distinguishes processes of one pod.
    pub fn new(pod: Option<&str>, random: u64) -> Self {
        let name = format!("{}{SEPARATOR}{random:016x}", pod.unwrap_or("squelch"));
        Self { pod: pod.map(ToOwned::to_owned), name }
    }

    /// Returns the value for `holderIdentity`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether `holder` is an earlier process of the same pod: the container was restarted.
    pub fn is_restart_of(&self, holder: &str) -> bool {
        let pod = holder.split_once(SEPARATOR).map(|(pod, _)| pod);
        self.name != holder && self.pod.is_some() && self.pod.as_deref() == pod
    }
}

/// The last write of the Lease that is known to be committed, and later writes without an answer.
///
/// Each write has a `renewTime` of its own. If a read shows the `renewTime` of one of them, the API server has
/// committed that write, even if its answer was lost. A new `resourceVersion` alone confirms nothing: another writer may
/// have added an annotation.
#[derive(Debug, Default)]
pub struct InFlightWrites {
    /// `renewTime`, and when the write was sent.
    writes: Vec<(i64, Moment)>,
    /// The same for the last write that is known to be committed.
    committed: Option<(i64, Moment)>,
    /// The greatest `renewTime` so far. None is used twice: a write that is committed late would confirm a younger one.
    last: Option<i64>,
}

impl InFlightWrites {
    /// Adds a write that is sent at `now`. Returns its `renewTime`: `wall`, in microseconds, or the last one plus 1 if
    /// the clock has not advanced since.
    pub fn record_sent(&mut self, wall: i64, now: Moment) -> i64 {
        // Writes older than RENEW_DEADLINE give no time as active, but show that no other replica has written since.
        self.writes.retain(|(_, sent)| now.since(*sent) <= COMMIT_TIMEOUT);
        let renew_time = self.last.map_or(wall, |last| wall.max(last.saturating_add(1)));
        self.last = Some(renew_time);
        self.writes.push((renew_time, now));
        renew_time
    }

    /// Returns when `me` sent the write that `found` shows. `None` if `found` shows another write, or another holder.
    pub fn sent_time_of(&self, found: &LeaseRecord, me: &Identity) -> Option<Moment> {
        let renew_time = found.renew_time.filter(|_| found.holder == me.name)?;
        let mut known = self.committed.iter().chain(&self.writes);
        known.find(|(other, _)| *other == renew_time).map(|(_, sent)| *sent)
    }

    /// Records that the write sent at `sent` is committed. Earlier writes are no longer needed.
    pub fn record_committed(&mut self, sent: Moment) {
        self.committed = self.writes.iter().find(|(_, other)| *other == sent).copied().or(self.committed);
        self.writes.retain(|(_, other)| *other > sent);
    }
}

/// One replica's view of the Lease.
#[derive(Debug)]
pub struct Election {
    me: Identity,
    /// When the renewal was sent by which this replica was last active. `None` before it first was.
    last_renewal: Option<Moment>,
    /// The result of the first read.
    first: Option<LeaseState>,
    last_read: Option<LastRead>,
}

#[derive(Debug)]
struct LastRead {
    found: LeaseState,
    at: Moment,
    /// For how long consecutive reads have shown the same renewal.
    unchanged: Duration,
}

impl Election {
    /// An election that has read nothing yet.
    pub fn new(me: Identity) -> Self {
        Self { me, last_renewal: None, first: None, last_read: None }
    }

    /// Records that this replica holds the Lease by a renewal sent at `sent`, and is active.
    pub fn record_renewal(&mut self, sent: Moment) {
        self.last_renewal = Some(sent);
        // What was read before that is no longer consecutive.
        self.last_read = None;
    }

    /// Records the result of a read at `now`, and returns what to do.
    pub fn observe(&mut self, found: &LeaseState, now: Moment) -> Action {
        let unchanged = self.unchanged_for(found, now);
        let was_active = self.last_renewal.is_some();
        let may_be_active = self.last_renewal.is_some_and(|sent| now.since(sent) <= RENEW_DEADLINE);
        let (holder, is_released) = match found {
            LeaseState::Present(lease) => (lease.holder.as_str(), lease.released),
            LeaseState::Absent => ("", false),
        };
        let is_of_another = !holder.is_empty() && holder != self.me.name;
        // An earlier process of this pod holds it, and nobody has renewed it since this process started.
        let is_restart = !was_active
            && self.me.is_restart_of(holder)
            && self.first.as_ref().is_some_and(|first| found.is_same_renewal(first));
        if was_active && is_of_another {
            return Action::StepDown(holder.to_owned());
        }
        // While this replica may be active, no other one takes a Lease that a person has edited or deleted.
        if may_be_active || is_restart {
            return Action::Acquire;
        }
        // The former holder may still be active and write it again, so a deleted Lease has to wait as well.
        if !is_released && unchanged < LEASE_DURATION {
            return Action::Wait(POLL_INTERVAL.min(LEASE_DURATION.saturating_sub(unchanged)));
        }
        // Another replica may have been active since. Then the counts of this one are outdated.
        if was_active && holder.is_empty() {
            return Action::StepDown("a replica that no longer holds it".to_owned());
        }
        Action::Acquire
    }

    /// Returns for how long consecutive reads have shown this renewal. An outage starts the time again: the holder
    /// needs time to renew after it.
    fn unchanged_for(&mut self, found: &LeaseState, now: Moment) -> Duration {
        let unchanged = match &self.last_read {
            Some(last) if last.found.is_same_renewal(found) && now.since(last.at) <= MAX_READ_GAP => {
                last.unchanged + now.since(last.at)
            }
            _ => Duration::ZERO,
        };
        self.first.get_or_insert_with(|| found.clone());
        self.last_read = Some(LastRead { found: found.clone(), at: now, unchanged });
        unchanged
    }
}

#[cfg(test)]
mod tests;
