//! Who decides, as a function of what was read of the Lease, and when. Pure.
//!
//! One who holds the Lease decides for [`TERM`] from the moment at which it *sent* its last renewal; another takes the
//! Lease once it has seen the same renewal for [`LEASE`], which is longer. Both measure by their own monotonic clocks,
//! so that no two decide at one time as long as these run equally fast. What the clocks show is never compared.

use std::time::Duration;

use crate::engine::Moment;

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
