//! When a generation of keys is introduced, promoted and dropped. Pure.
//!
//! A generation is an authority with a token, or a token alone. The API server must trust an authority before that
//! authority signs the served certificate, and every replica must accept a token before the API server uses it. A
//! generation therefore goes through three steps: it is introduced, it is promoted, and it is dropped after the
//! next promotion.
//!
//! A token lives for an hour and an authority for months, because the API server logs the token with each failed call.
//! Most new generations are a new token with the authority of the generation before.

mod generation;

use std::time::Duration;

use jiff::Timestamp;

pub use generation::{
    AuthorityInfo, BACKDATED, Generation, GenerationInfo, Id, Lifetimes, later, renewal, signed,
};

/// Maximum number of lingering generations, for a Secret that is replaced again and again.
const MAX_LINGERING: usize = 32;

/// The generations in the Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ring<G> {
    /// Signs the served certificate, and has its token in the webhook's path.
    pub current: G,
    /// Introduced, and promoted next.
    pub next: Option<G>,
    /// Current before the last promotion.
    pub previous: Option<G>,
}

impl<G> Ring<G> {
    /// A ring of one generation.
    pub fn of(current: G) -> Self {
        Self { current, next: None, previous: None }
    }

    /// Iterates over the generations, the current one first.
    pub fn iter(&self) -> impl Iterator<Item = &G> {
        std::iter::once(&self.current).chain(&self.next).chain(&self.previous)
    }
}

/// The next step of the rotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing to do.
    Keep,
    /// Make a token with the current authority, and write it to the Secret.
    IntroduceToken,
    /// Make an authority and a token, and write both to the Secret.
    Introduce,
    /// Make the next generation the current one.
    Promote,
    /// Drop the previous generation.
    Drop,
}

/// What is known to be in force in the API server, and since when (time of the process). A deletion of the Secret
/// restarts these times, because standbys may have missed what it held.
#[derive(Clone, Debug, Default)]
struct ConfigurationInForce {
    /// The authorities of these generations are trusted.
    trusted: Vec<(Id, Duration)>,
    /// The API server calls the webhook with the token of this generation.
    token: Option<(Id, Duration)>,
}

/// The ring as one replica has it, and what the API server knows of it.
#[derive(Clone, Debug)]
pub struct Rotation<G> {
    ring: Ring<G>,
    /// Generations that left the ring without the usual steps. The API server may still use them.
    lingering: Vec<G>,
    in_force: ConfigurationInForce,
    /// When the current generation was replaced without the usual steps.
    replaced: Option<Duration>,
    /// The generation whose token the API server may have logged. This is not a time: a wrong clock must not count
    /// against every later token.
    exposed: Option<Id>,
    /// The generations that the Secret held when it was last deleted or damaged.
    compromised: Vec<Id>,
    lifetimes: Lifetimes,
}

impl<G: Generation> Rotation<G> {
    /// Starts with the ring of the Secret.
    pub fn new(ring: Ring<G>, lifetimes: Lifetimes) -> Self {
        let in_force = ConfigurationInForce::default();
        let (lingering, compromised) = (Vec::new(), Vec::new());
        Self { ring, lingering, in_force, replaced: None, exposed: None, compromised, lifetimes }
    }

    /// Returns the ring.
    pub fn ring(&self) -> &Ring<G> {
        &self.ring
    }

    /// Iterates over the generations that the API server has to trust and this replica has to accept.
    pub fn all(&self) -> impl Iterator<Item = &G> {
        self.ring.iter().chain(&self.lingering)
    }

    /// Replaces the ring at `now`, by one that this or another replica has written.
    pub fn adopt(&mut self, ring: Ring<G>, now: Duration) {
        let former = std::mem::replace(&mut self.ring, ring);
        let kept = |generation: &G| self.ring.iter().any(|its| its.info().id == generation.info().id);
        if self.ring.current.info().id != former.current.info().id {
            // After a promotion, the former generation is still in the ring.
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

    /// Records that at `now` the API server trusts the authorities of `trusted` and no others, and uses the token of
    /// `token`.
    pub fn record_in_force(&mut self, trusted: &[Id], token: Id, now: Duration) {
        let since = |id: Id| self.in_force.trusted_since(id).unwrap_or(now);
        self.in_force = ConfigurationInForce {
            trusted: trusted.iter().map(|id| (*id, since(*id))).collect(),
            token: self.in_force.token.filter(|(id, _)| *id == token).or(Some((token, now))),
        };
    }

    /// Records that a call with the token in use failed at `at` (by the API server's clock), and that the API server
    /// has logged its URL.
    pub fn expose(&mut self, at: Timestamp) {
        let current = self.ring.current.info();
        if current.since <= at {
            self.exposed = Some(current.id);
        }
    }

    /// Returns the next step, while the generation `serving` has signed the served certificate.
    pub fn step(&self, serving: Id, wall: Timestamp, now: Duration) -> Step {
        let current = self.ring.current.info();
        match (&self.ring.next, &self.ring.previous) {
            (Some(next), _) if !next.info().is_valid(wall) => Step::Introduce,
            (Some(next), _) if self.may_promote(next.info().id, current.is_valid(wall), now) => Step::Promote,
            (Some(_), _) => Step::Keep,
            (None, _) if !current.is_valid(wall) => Step::Introduce,
            (None, Some(previous)) => {
                let unused = self.token_has_propagated(now) && previous.info().id != serving;
                if unused { Step::Drop } else { Step::Keep }
            }
            (None, None) if self.compromised.contains(&current.id) => Step::Introduce,
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
        let current = self.ring.current.info();
        self.exposed == Some(current.id)
            && later(current.since, signed(self.lifetimes.min_exposed_age)) <= wall
    }

    /// Records that the Secret was found deleted or damaged at `now`. Its content may be known to others, so every
    /// generation in the ring is to be replaced.
    ///
    /// A rotation that is under way continues, because only a generation that is known everywhere can be promoted.
    /// Another rotation follows it. The waiting times restart, because a standby could not read the Secret. Until it
    /// has read the next generation, a standby refuses its token. Until it has read the promotion, it serves the
    /// previous authority, which therefore stays trusted.
    pub fn mark_compromised(&mut self, now: Duration) {
        self.compromised = self.ring.iter().map(|generation| generation.info().id).collect();
        if let Some(next) = self.ring.next.as_ref().map(|next| next.info().id) {
            self.in_force.trusted.retain(|(id, _)| *id != next);
        }
        if let Some((_, since)) = &mut self.in_force.token {
            *since = now;
        }
    }

    /// Returns the ring after `step`, or `None` if it does not change. `fresh` makes a new generation.
    pub fn after(&self, step: Step, fresh: impl FnOnce() -> Option<G>) -> Option<Ring<G>> {
        let Ring { current, next, previous } = self.ring.clone();
        match step {
            Step::Keep => None,
            Step::IntroduceToken | Step::Introduce => Some(Ring { current, next: Some(fresh()?), previous }),
            Step::Promote => Some(Ring { current: next?, next: None, previous: Some(current) }),
            Step::Drop => Some(Ring { current, next, previous: None }),
        }
    }

    /// Whether a certificate signed by `candidate` may be served. The API server must have trusted it for
    /// [`Lifetimes::propagation`]; if the served certificate is not valid, trust is enough.
    pub fn may_serve(&self, candidate: Id, served_is_valid: bool, now: Duration) -> bool {
        if self.in_force.token.is_none() {
            // Another replica writes the configuration, or none has yet. Allow it time.
            let has_propagated = |since| now.saturating_sub(since) >= 2 * self.lifetimes.propagation;
            return !served_is_valid || self.replaced.is_none_or(has_propagated);
        }
        let trusted = self.in_force.trusted_since(candidate).map(|since| now.saturating_sub(since));
        trusted.is_some_and(|trusted| !served_is_valid || trusted >= self.lifetimes.propagation)
    }

    /// Whether `next` may be promoted. Before the first acknowledged configuration, only to replace keys that are no
    /// longer valid.
    fn may_promote(&self, next: Id, current_is_valid: bool, now: Duration) -> bool {
        self.may_serve(next, current_is_valid, now) && (self.in_force.token.is_some() || !current_is_valid)
    }

    /// Drops lingering generations, except `serving`, once the API server uses the current token.
    pub fn drop_lingering(&mut self, serving: Id, now: Duration) {
        if self.token_has_propagated(now) {
            self.lingering.retain(|generation| generation.info().id == serving);
        }
    }

    /// Whether the API server has used the current token for so long that it uses no other.
    fn token_has_propagated(&self, now: Duration) -> bool {
        self.in_force.token.is_some_and(|(id, since)| {
            id == self.ring.current.info().id && now.saturating_sub(since) >= self.lifetimes.propagation
        })
    }
}

impl ConfigurationInForce {
    fn trusted_since(&self, id: Id) -> Option<Duration> {
        self.trusted.iter().find(|(trusted, _)| *trusted == id).map(|(_, since)| *since)
    }
}

#[cfg(test)]
mod tests;
