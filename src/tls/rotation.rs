//! When a new generation of keys is made, when it takes over, and when the old one goes. Pure.
//!
//! A generation is an authority with a token (or a token alone). The API server must trust an authority before it signs
//! what is served, and every replica must accept a token before the API server is given it. So a generation comes in
//! three steps: it is introduced, it is promoted, and a while later the one before it is dropped.
//!
//! A token lives an hour and an authority months, because the API server logs the token with each failed call. Most new
//! generations are therefore a new token with the authority of the generation before.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

/// Keys begin to be good this long before they are made, for an API server whose clock is behind.
pub const BACKDATED: SignedDuration = SignedDuration::from_mins(5);

/// A token whose call failed is renewed at this age or later: at most 12 renewals an hour.
const MIN_EXPOSED_AGE: Duration = Duration::from_secs(5 * 60);

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
    /// When its token was made.
    pub since: Timestamp,
    /// The authority of the generation; `None` where the certificate comes from elsewhere.
    pub authority: Option<AuthorityTerm>,
}

/// When an authority is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuthorityTerm {
    /// Which one it is: generations that differ in the token alone share it.
    pub id: Id,
    /// From then on it is good.
    pub begins: Timestamp,
    /// From then on it is not.
    pub ends: Timestamp,
}

impl Term {
    /// Whether its authority is good at `wall`. A token is good until it is dropped.
    pub fn is_good(&self, wall: Timestamp) -> bool {
        self.authority.is_none_or(|authority| authority.begins <= wall && wall < authority.ends)
    }

    /// Whether both have the same authority.
    pub fn shares_authority(&self, other: &Self) -> bool {
        self.authority.map(|authority| authority.id) == other.authority.map(|authority| authority.id)
    }

    fn token_is_due(&self, wall: Timestamp, lifetimes: Lifetimes) -> bool {
        is_due(self.since, signed(lifetimes.token), wall)
    }
}

impl AuthorityTerm {
    fn is_due(&self, wall: Timestamp, lifetimes: Lifetimes) -> bool {
        let made = later(self.begins, BACKDATED);
        is_due(made, self.ends.duration_since(made).min(signed(lifetimes.authority)), wall)
    }
}

/// Whether what was made at `since` is to be renewed at `wall`.
fn is_due(since: Timestamp, life: SignedDuration, wall: Timestamp) -> bool {
    // A time in the future comes from a clock that was wrong.
    renewal(since, life) <= wall || since > later(wall, BACKDATED)
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
    /// An authority.
    pub authority: Duration,
    /// A token, at most as long as an authority.
    pub token: Duration,
    /// The least age at which a token that was exposed is renewed. It bounds the renewals where calls fail again and
    /// again.
    pub exposed: Duration,
    /// The time between two looks at what is kept.
    pub look: Duration,
    /// What was made known is known everywhere after this: every replica has looked since, and every API server has
    /// heard of the configuration.
    pub settle: Duration,
}

impl Lifetimes {
    /// Those that follow from the life of a served certificate and the life of a token.
    pub fn of(leaf: Duration, token: Duration) -> Self {
        // After two lives of a leaf the next authority takes over; what the last one has signed outlives none.
        let authority = leaf.saturating_mul(3);
        let token = token.min(authority);
        let look = (leaf.min(token) / 10).clamp(Duration::from_millis(500), Duration::from_secs(5));
        let exposed = MIN_EXPOSED_AGE.min(token / 3);
        Self { leaf, authority, token, exposed, look, settle: 3 * look }
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
    /// Make a token with the current authority, and write it to the Secret.
    IntroduceToken,
    /// Make an authority and a token, and write both to the Secret.
    Introduce,
    /// The next one takes over.
    Promote,
    /// The previous one goes.
    Drop,
}

/// What is known to be in force in the API server, and since when (time of the process). A deletion of the Secret begins
/// these times anew, because standbys may have missed what it held.
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
    /// The generation whose token the API server may have logged. No time: a clock that was wrong once must not count
    /// against each token until then.
    exposed: Option<Id>,
    /// What the Secret held when it was last deleted or damaged.
    spoiled: Vec<Id>,
    lifetimes: Lifetimes,
}

impl<G: Generation> Rotation<G> {
    /// Begins with what is kept.
    pub fn new(ring: Ring<G>, lifetimes: Lifetimes) -> Self {
        let in_force = InForce::default();
        let (lingering, spoiled) = (Vec::new(), Vec::new());
        Self { ring, lingering, in_force, replaced: None, exposed: None, spoiled, lifetimes }
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

    /// A call with the token in use failed at `at` (by the API server's clock): the API server has logged its URL.
    pub fn expose(&mut self, at: Timestamp) {
        let current = self.ring.current.term();
        if current.since <= at {
            self.exposed = Some(current.id);
        }
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
            (None, None) if self.spoiled.contains(&current.id) => Step::Introduce,
            (None, None) if current.authority.is_some_and(|its| its.is_due(wall, self.lifetimes)) => {
                Step::Introduce
            }
            (None, None) if self.is_exposed(wall) || current.token_is_due(wall, self.lifetimes) => {
                Step::IntroduceToken
            }
            (None, None) => Step::Keep,
        }
    }

    /// Whether the current token may have been logged, and is old enough to be renewed for that.
    fn is_exposed(&self, wall: Timestamp) -> bool {
        let current = self.ring.current.term();
        self.exposed == Some(current.id) && later(current.since, signed(self.lifetimes.exposed)) <= wall
    }

    /// The Secret was found deleted or damaged at `now`: somebody may know what it held, so none of it is to stay. A
    /// rotation that is under way goes on, since only a generation that is known everywhere can be promoted; the next
    /// rotation follows it. Its wait begins again, because a standby could not read the Secret: until the standby
    /// has read what is next, it refuses that token; until it has read of a promotion, it serves the previous
    /// authority, which therefore stays trusted.
    pub fn spoil(&mut self, now: Duration) {
        self.spoiled = self.ring.iter().map(|generation| generation.term().id).collect();
        if let Some(next) = self.ring.next.as_ref().map(|next| next.term().id) {
            self.in_force.trusted.retain(|(id, _)| *id != next);
        }
        if let Some((_, since)) = &mut self.in_force.asked {
            *since = now;
        }
    }

    /// The ring after that step; `fresh` is the new generation, where one is needed.
    pub fn after(&self, step: Step, fresh: impl FnOnce() -> Option<G>) -> Option<Ring<G>> {
        let Ring { current, next, previous } = self.ring.clone();
        match step {
            Step::Keep => None,
            Step::IntroduceToken | Step::Introduce => Some(Ring { current, next: Some(fresh()?), previous }),
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
