//! When a new generation of keys is made, when it takes over, and when the old one goes. Pure.
//!
//! A generation is an authority with a token (or a token alone). The API server must trust an authority before it signs
//! what is served, and every replica must accept a token before the API server is told of it. So a generation comes in
//! three steps: it is made known, it takes over, and a while later the one before it goes.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

/// Keys begin to be good this long before they are made, for an API server whose clock is behind.
pub const BACKDATED: SignedDuration = SignedDuration::from_mins(5);

/// Of a Secret that is replaced again and again, so many states are remembered.
const MAX_LINGERING: usize = 32;

/// Tells generations of this process's life apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Id(pub u64);

/// When a generation is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Term {
    /// Which one it is.
    pub id: Id,
    /// When it was made.
    pub since: Timestamp,
    /// From then on it is good.
    pub begins: Timestamp,
    /// From then on it is not.
    pub ends: Timestamp,
}

impl Term {
    /// Whether it is good at `wall`.
    pub fn is_good(&self, wall: Timestamp) -> bool {
        self.begins <= wall && wall < self.ends
    }

    fn is_due(&self, wall: Timestamp, lifetimes: Lifetimes) -> bool {
        let life = self.ends.duration_since(self.since).min(signed(lifetimes.authority));
        // One that was made in the future is of a clock that was wrong.
        renewal(self.since, life) <= wall || self.since > later(wall, BACKDATED)
    }
}

/// What has a term.
pub trait Generation: Clone {
    /// Its term.
    fn term(&self) -> Term;
}

/// How long everything lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetimes {
    /// A served certificate.
    pub leaf: Duration,
    /// An authority and its token.
    pub authority: Duration,
    /// The time between two looks at what is kept.
    pub look: Duration,
    /// What was made known is known everywhere after this: every replica has looked since, and every API server has
    /// heard of the configuration.
    pub settle: Duration,
}

impl Lifetimes {
    /// Those that follow from the life of a served certificate.
    pub fn of(leaf: Duration) -> Self {
        let look = (leaf / 10).clamp(Duration::from_millis(500), Duration::from_secs(5));
        // After two lives of a leaf the next authority takes over; what the last one has signed outlives none.
        let authority = leaf.saturating_mul(3);
        Self { leaf, authority, look, settle: 3 * look }
    }
}

/// Two thirds of a life that began at `since`.
pub fn renewal(since: Timestamp, life: SignedDuration) -> Timestamp {
    later(since, life / 3 * 2)
}

/// A length of time as the calendar takes it.
pub fn signed(length: Duration) -> SignedDuration {
    SignedDuration::try_from(length).unwrap_or(SignedDuration::MAX)
}

/// So much later, at most the end of the calendar.
pub fn later(at: Timestamp, by: SignedDuration) -> Timestamp {
    at.checked_add(by).unwrap_or(if by.is_negative() { Timestamp::MIN } else { Timestamp::MAX })
}

/// The generations that are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ring<G> {
    /// Signs, and has its token in the webhook's path.
    pub current: G,
    /// Is made known, and takes over next.
    pub next: Option<G>,
    /// Has signed before.
    pub previous: Option<G>,
}

impl<G> Ring<G> {
    /// One generation alone.
    pub fn of(current: G) -> Self {
        Self { current, next: None, previous: None }
    }

    /// Every generation, the current one first.
    pub fn iter(&self) -> impl Iterator<Item = &G> {
        std::iter::once(&self.current).chain(&self.next).chain(&self.previous)
    }
}

/// What is to be done with the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing.
    Keep,
    /// Make a generation, and make it known.
    Introduce,
    /// The next one takes over.
    Promote,
    /// The previous one goes.
    Drop,
}

/// What is known to be in force in the API server, and since when (time of the process).
#[derive(Clone, Debug, Default)]
struct InForce {
    trusted: Vec<(Id, Duration)>,
    asked: Option<(Id, Duration)>,
}

/// The ring of one replica, and what the API server knows of it.
#[derive(Clone, Debug)]
pub struct Rotation<G> {
    ring: Ring<G>,
    /// Were current here and vanished from what is kept, without the usual steps: the API server may still use them.
    lingering: Vec<G>,
    in_force: InForce,
    /// When the current generation came without the usual steps.
    replaced: Option<Duration>,
    lifetimes: Lifetimes,
}

impl<G: Generation> Rotation<G> {
    /// Begins with what is kept.
    pub fn new(ring: Ring<G>, lifetimes: Lifetimes) -> Self {
        Self { ring, lingering: Vec::new(), in_force: InForce::default(), replaced: None, lifetimes }
    }

    /// What is kept.
    pub fn ring(&self) -> &Ring<G> {
        &self.ring
    }

    /// What the API server has to trust and this replica has to accept.
    pub fn all(&self) -> impl Iterator<Item = &G> {
        self.ring.iter().chain(&self.lingering)
    }

    /// This is kept from `now` on: it was written, or somebody else has written it.
    pub fn adopt(&mut self, ring: Ring<G>, now: Duration) {
        let former = std::mem::replace(&mut self.ring, ring);
        let kept = |generation: &G| self.ring.iter().any(|its| its.term().id == generation.term().id);
        if self.ring.current.term().id != former.current.term().id {
            // In the usual steps, the one before it is kept beside the new one.
            self.replaced = (!kept(&former.current)).then_some(now);
        }
        if !kept(&former.current) {
            self.lingering.extend(former.previous);
            self.lingering.push(former.current);
        }
        self.lingering.retain(|generation| !kept(generation));
        let too_many = self.lingering.len().saturating_sub(MAX_LINGERING);
        self.lingering.drain(..too_many);
    }

    /// At `now` the API server trusts `trusted` and no others, and asks with the token of `asked`.
    pub fn hear(&mut self, trusted: &[Id], asked: Id, now: Duration) {
        let since = |id: Id| self.in_force.trusted_since(id).unwrap_or(now);
        self.in_force = InForce {
            trusted: trusted.iter().map(|id| (*id, since(*id))).collect(),
            asked: self.in_force.asked.filter(|(id, _)| *id == asked).or(Some((asked, now))),
        };
    }

    /// What is to be done with the ring, where `serving` has signed what is served.
    pub fn step(&self, serving: Id, wall: Timestamp, now: Duration) -> Step {
        let current = self.ring.current.term();
        match (&self.ring.next, &self.ring.previous) {
            (Some(next), _) if !next.term().is_good(wall) => Step::Introduce,
            (Some(next), _) if self.may_promote(next.term().id, current.is_good(wall), now) => Step::Promote,
            (Some(_), _) => Step::Keep,
            (None, _) if !current.is_good(wall) => Step::Introduce,
            (None, Some(previous)) => {
                let over = self.is_asked_for_good(now) && previous.term().id != serving;
                if over { Step::Drop } else { Step::Keep }
            }
            (None, None) if current.is_due(wall, self.lifetimes) => Step::Introduce,
            (None, None) => Step::Keep,
        }
    }

    /// The ring after that step; `fresh` is the new generation, where one is needed.
    pub fn after(&self, step: Step, fresh: impl FnOnce() -> Option<G>) -> Option<Ring<G>> {
        let Ring { current, next, previous } = self.ring.clone();
        match step {
            Step::Keep => None,
            Step::Introduce => Some(Ring { current, next: Some(fresh()?), previous }),
            Step::Promote => Some(Ring { current: next?, next: None, previous: Some(current) }),
            Step::Drop => Some(Ring { current, next, previous: None }),
        }
    }

    /// Whether what `candidate` has signed may be served: the API server has trusted it for a while; or it does not
    /// trust what is served now (`good` is false), and does trust this.
    pub fn may_serve(&self, candidate: Id, good: bool, now: Duration) -> bool {
        if self.in_force.asked.is_none() {
            // Another replica tells the API server, or nobody has yet: they had time to.
            let settled = |since| now.saturating_sub(since) >= 2 * self.lifetimes.settle;
            return !good || self.replaced.is_none_or(settled);
        }
        let trusted = self.in_force.trusted_since(candidate).map(|since| now.saturating_sub(since));
        trusted.is_some_and(|trusted| !good || trusted >= self.lifetimes.settle)
    }

    /// The same for signing. A process that has told the API server nothing yet does so only where nothing is lost.
    fn may_promote(&self, next: Id, good: bool, now: Duration) -> bool {
        self.may_serve(next, good, now) && (self.in_force.asked.is_some() || !good)
    }

    /// Forgets what lingered for the sake of an API server that knew nothing newer; `serving` is never forgotten.
    pub fn settle(&mut self, serving: Id, now: Duration) {
        if self.is_asked_for_good(now) {
            self.lingering.retain(|generation| generation.term().id == serving);
        }
    }

    /// Whether the API server has asked with the current token for so long that it asks with no other.
    fn is_asked_for_good(&self, now: Duration) -> bool {
        self.in_force.asked.is_some_and(|(id, since)| {
            id == self.ring.current.term().id && now.saturating_sub(since) >= self.lifetimes.settle
        })
    }
}

impl InForce {
    fn trusted_since(&self, id: Id) -> Option<Duration> {
        self.trusted.iter().find(|(trusted, _)| *trusted == id).map(|(_, since)| *since)
    }
}

#[cfg(test)]
mod tests;
