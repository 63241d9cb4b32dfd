//! Who decides, as a function of what was read of the Lease, and when. Pure.
//!
//! One who holds the Lease decides for [`TERM`] from the moment at which it *sent* its last renewal; another takes the
//! Lease once it has seen the same renewal for [`LEASE`], which is longer. Both measure by their own monotonic clocks,
//! so that no two decide at one time as long as these run equally fast. What the clocks show is never compared.

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

/// What a Lease says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Whose it is; empty once it was given back.
    pub holder: String,
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

/// The writes of the Lease that this replica has sent and that have no answer yet.
///
/// Each write has a `renewTime` of its own. A Lease that is read with the `renewTime` of one of them proves that the API
/// server committed this write, whatever became of the answer. A new `resourceVersion` alone proves nothing: another
/// writer may have added an annotation.
#[derive(Debug, Default)]
pub struct Unanswered {
    /// `renewTime`, and when it was sent.
    writes: Vec<(i64, Moment)>,
    /// The greatest `renewTime` so far. None is used twice: a write that is committed late would prove a younger one.
    last: Option<i64>,
}

impl Unanswered {
    /// Adds a write that is sent at `now`. Returns its `renewTime`: `wall`, in microseconds, or the last one plus 1 if
    /// the clock has not advanced since.
    pub fn send(&mut self, wall: i64, now: Moment) -> i64 {
        // An older one could only prove a deadline that has passed.
        self.writes.retain(|(_, sent)| now.since(*sent) <= TERM);
        let renewed = self.last.map_or(wall, |last| wall.max(last.saturating_add(1)));
        self.last = Some(renewed);
        self.writes.push((renewed, now));
        renewed
    }

    /// When the write of `me` was sent that made the Lease what was `found`; `None` if it is none of these, or if
    /// another writer has given it to somebody else since.
    pub fn proven_by(&self, found: &Record, me: &Identity) -> Option<Moment> {
        let renewed = found.renewed.filter(|_| found.holder == me.name)?;
        self.writes.iter().find(|(other, _)| *other == renewed).map(|(_, sent)| *sent)
    }

    /// The write that was sent then is committed: those before it can prove nothing more.
    pub fn commit(&mut self, sent: Moment) {
        self.writes.retain(|(_, other)| *other > sent);
    }
}

/// One replica's view of the Lease.
#[derive(Debug)]
pub struct Election {
    me: Identity,
    leads: bool,
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
        Self { me, leads: false, seen: None }
    }

    /// The Lease was taken.
    pub fn won(&mut self) {
        self.leads = true;
    }

    /// Hears what was found at `now`.
    pub fn hear(&mut self, found: &Found, now: Moment) -> Step {
        let first = self.seen.is_none();
        let unchanged = self.note(found, now);
        match found {
            Found::Lease(lease) if lease.holder.is_empty() || lease.holder == self.me.name => Step::Take,
            // Somebody has deleted it; or there never was any.
            Found::Absent if self.leads || first => Step::Take,
            Found::Lease(lease) if self.leads => Step::Yield(lease.holder.clone()),
            Found::Lease(lease) if self.me.succeeds(&lease.holder) => Step::Take,
            // One that was there before is still somebody's who may write it again.
            _ if unchanged >= LEASE => Step::Take,
            _ => Step::Wait(LOOK.min(LEASE.saturating_sub(unchanged))),
        }
    }

    /// For how long this was found, looking. The time of an outage does not count, and what was seen before it counts
    /// no more: whoever holds the Lease needs a while to say so.
    fn note(&mut self, found: &Found, now: Moment) -> Duration {
        let unchanged = match &self.seen {
            Some(seen) if seen.found == *found && now.since(seen.last) <= TOGETHER => {
                seen.unchanged + now.since(seen.last)
            }
            _ => Duration::ZERO,
        };
        self.seen = Some(Seen { found: found.clone(), last: now, unchanged });
        unchanged
    }
}

#[cfg(test)]
mod tests;
