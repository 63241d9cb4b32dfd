//! Who decides, as a function of what was read of the Lease, and when. Pure.
//!
//! One who holds the Lease decides for [`TERM`] from the moment at which it *sent* its last renewal; another takes the
//! Lease once it has seen the same renewal for [`LEASE`], which is longer. Both measure by their own monotonic clocks,
//! so that no two decide at one time as long as these run equally fast. What the clocks show is never compared.
//!
//! A person may edit or delete the Lease while its holder decides. So a standby takes at once only a Lease with the mark
//! of a release, and one that a former process of its own pod has held since before it began.

use std::time::Duration;

use squelch_engine::Moment;

/// So long a renewal stands before others may take the Lease.
pub const LEASE: Duration = Duration::from_secs(4);

/// So long after it sent its last renewal a replica decides.
pub const TERM: Duration = Duration::from_secs(3);

/// From one renewal to the next.
pub const EVERY: Duration = Duration::from_secs(1);

/// From one look of a replica that stands by to the next: while a Lease that was given back is nobody's, nobody decides.
pub(super) const LOOK: Duration = Duration::from_millis(250);

/// How long the API server may take to commit a write: its own limit on a request.
const REMEMBERED: Duration = Duration::from_secs(60);

/// Two looks that are further apart had a failed one between them: what was the holder to do meanwhile?
const TOGETHER: Duration = Duration::from_secs(2);

/// What stands between a pod's name and what tells its processes apart; no pod's name has it.
const SEPARATOR: char = '_';

/// What is found in the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// No Lease.
    Absent,
    /// A Lease.
    Lease(Record),
}

impl Found {
    /// Whether both are the same renewal of the same holder. Another writer may have changed the rest, as by an
    /// annotation.
    fn is_renewed_as(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Lease(one), Self::Lease(other)) => {
                (&one.holder, one.renewed) == (&other.holder, other.renewed)
            }
            (one, other) => one == other,
        }
    }
}

/// What a Lease says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Whose it is; empty once it was given back, or if a person has emptied it.
    pub holder: String,
    /// Its holder has released it and decides no more.
    pub released: bool,
    /// `resourceVersion`: another with each renewal.
    pub revision: String,
    /// How often it went from one to another.
    pub transitions: i32,
    /// `renewTime` in microseconds: tells one write from another, and is compared with no clock.
    pub renewed: Option<i64>,
}

/// What follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Look again after this long.
    Wait(Duration),
    /// Write the own name into what was found, if it is still that.
    Take,
    /// It is somebody else's now: this one.
    Yield(String),
}

/// The name under which a process holds the Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pod: Option<String>,
    name: String,
}

impl Identity {
    /// Of a process in `pod`, or outside of any; `random` is of this process alone.
    pub fn new(pod: Option<&str>, random: u64) -> Self {
        let name = format!("{}{SEPARATOR}{random:016x}", pod.unwrap_or("squelch"));
        Self { pod: pod.map(ToOwned::to_owned), name }
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether `holder` is another process of the same pod, which has ended: its container was restarted.
    pub fn succeeds(&self, holder: &str) -> bool {
        let pod = holder.split_once(SEPARATOR).map(|(pod, _)| pod);
        self.name != holder && self.pod.is_some() && self.pod.as_deref() == pod
    }
}

/// The last write of the Lease that is known to be committed, and those sent since that have no answer yet.
///
/// Each write has a `renewTime` of its own. A Lease that is read with the `renewTime` of one of them proves that the API
/// server committed this write, whatever became of the answer. A new `resourceVersion` alone proves nothing: another
/// writer may have added an annotation.
#[derive(Debug, Default)]
pub struct Unanswered {
    /// `renewTime`, and when it was sent.
    writes: Vec<(i64, Moment)>,
    /// The same, of the last one that is known to be committed.
    committed: Option<(i64, Moment)>,
    /// The greatest `renewTime` so far. None is used twice: a write that is committed late would prove a younger one.
    last: Option<i64>,
}

impl Unanswered {
    /// Adds a write that is sent at `now`. Returns its `renewTime`: `wall`, in microseconds, or the last one plus 1 if
    /// the clock has not advanced since.
    pub fn send(&mut self, wall: i64, now: Moment) -> i64 {
        // Those beyond TERM prove a deadline that has passed, and that no other replica has written since.
        self.writes.retain(|(_, sent)| now.since(*sent) <= REMEMBERED);
        let renewed = self.last.map_or(wall, |last| wall.max(last.saturating_add(1)));
        self.last = Some(renewed);
        self.writes.push((renewed, now));
        renewed
    }

    /// When the write of `me` was sent that made the Lease what was `found`; `None` if it is none of these, or if
    /// another writer has given it to somebody else since.
    pub fn proven_by(&self, found: &Record, me: &Identity) -> Option<Moment> {
        let renewed = found.renewed.filter(|_| found.holder == me.name)?;
        let mut known = self.committed.iter().chain(&self.writes);
        known.find(|(other, _)| *other == renewed).map(|(_, sent)| *sent)
    }

    /// The write that was sent then is committed: those before it can prove nothing more.
    pub fn commit(&mut self, sent: Moment) {
        self.committed = self.writes.iter().find(|(_, other)| *other == sent).copied().or(self.committed);
        self.writes.retain(|(_, other)| *other > sent);
    }
}

/// One replica's view of the Lease.
#[derive(Debug)]
pub struct Election {
    me: Identity,
    /// When the renewal was sent by which this replica decided last; `None` until it has won.
    leads: Option<Moment>,
    /// What the first look found.
    first: Option<Found>,
    seen: Option<Seen>,
}

#[derive(Debug)]
struct Seen {
    found: Found,
    last: Moment,
    /// For so long it was seen to be so.
    unchanged: Duration,
}

impl Election {
    /// Has seen nothing yet.
    pub fn new(me: Identity) -> Self {
        Self { me, leads: None, first: None, seen: None }
    }

    /// The Lease is this replica's, by what it sent then, and it decides.
    pub fn won(&mut self, sent: Moment) {
        self.leads = Some(sent);
    }

    /// Hears what was found at `now`.
    pub fn hear(&mut self, found: &Found, now: Moment) -> Step {
        let unchanged = self.note(found, now);
        let holder = match found {
            Found::Lease(lease) if lease.released => return Step::Take,
            Found::Lease(lease) => lease.holder.as_str(),
            Found::Absent => "",
        };
        let is_of_another = !holder.is_empty() && holder != self.me.name;
        match self.leads {
            Some(_) if is_of_another => Step::Yield(holder.to_owned()),
            // A person has edited or deleted it: no other replica takes it before this deadline has passed.
            Some(sent) if now.since(sent) <= TERM => Step::Take,
            // Another process of the pod, and nobody has renewed it since this one began.
            None if self.me.succeeds(holder)
                && self.first.as_ref().is_some_and(|first| found.is_renewed_as(first)) =>
            {
                Step::Take
            }
            // Whoever held it before may decide yet, and write it again.
            _ if unchanged >= LEASE => Step::Take,
            _ => Step::Wait(LOOK.min(LEASE.saturating_sub(unchanged))),
        }
    }

    /// For how long this was found, looking. The time of an outage does not count, and what was seen before it counts
    /// no more: whoever holds the Lease needs a while to say so.
    fn note(&mut self, found: &Found, now: Moment) -> Duration {
        let unchanged = match &self.seen {
            Some(seen) if seen.found.is_renewed_as(found) && now.since(seen.last) <= TOGETHER => {
                seen.unchanged + now.since(seen.last)
            }
            _ => Duration::ZERO,
        };
        self.first.get_or_insert_with(|| found.clone());
        self.seen = Some(Seen { found: found.clone(), last: now, unchanged });
        unchanged
    }
}

#[cfg(test)]
mod tests;
