//! A generation of keys, and the lifetimes of its parts.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

/// Certificates are valid from this long before they are made, for an API server whose clock is behind.
pub const BACKDATED: SignedDuration = SignedDuration::from_mins(5);

/// The age from which an exposed token is renewed: at most 12 renewals an hour.
const MIN_EXPOSED_AGE: Duration = Duration::from_secs(5 * 60);

/// Identifies a generation or an authority within this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Id(pub u64);

/// What the rotation has to know of a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GenerationInfo {
    /// The generation.
    pub id: Id,
    /// When its token was made.
    pub since: Timestamp,
    /// Its authority. `None` if the certificate comes from mounted files.
    pub authority: Option<AuthorityInfo>,
}

/// What the rotation has to know of an authority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuthorityInfo {
    /// The authority. Generations that differ in the token alone share it.
    pub id: Id,
    /// Start of its validity.
    pub begins: Timestamp,
    /// End of its validity.
    pub ends: Timestamp,
}

impl GenerationInfo {
    /// Whether its authority is valid at `wall`. A token is valid until it is dropped.
    pub fn is_valid(&self, wall: Timestamp) -> bool {
        self.authority.is_none_or(|authority| authority.begins <= wall && wall < authority.ends)
    }

    /// Whether both have the same authority.
    pub fn shares_authority(&self, other: &Self) -> bool {
        self.authority.map(|authority| authority.id) == other.authority.map(|authority| authority.id)
    }

    pub(super) fn token_is_due(&self, wall: Timestamp, lifetimes: Lifetimes) -> bool {
        is_due(self.since, signed(lifetimes.token), wall)
    }
}

impl AuthorityInfo {
    pub(super) fn is_due(&self, wall: Timestamp, lifetimes: Lifetimes) -> bool {
        let made = later(self.begins, BACKDATED);
        is_due(made, self.ends.duration_since(made).min(signed(lifetimes.authority)), wall)
    }
}

/// Whether what was made at `since` has to be renewed at `wall`.
fn is_due(since: Timestamp, lifetime: SignedDuration, wall: Timestamp) -> bool {
    // A time in the future comes from a clock that was wrong.
    renewal(since, lifetime) <= wall || since > later(wall, BACKDATED)
}

/// A generation of keys.
pub trait Generation: Clone {
    /// Returns what the rotation has to know.
    fn info(&self) -> GenerationInfo;
}

/// Lifetimes and intervals of the keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetimes {
    /// Lifetime of a served certificate.
    pub leaf: Duration,
    /// Lifetime of an authority.
    pub authority: Duration,
    /// Lifetime of a token, at most that of an authority.
    pub token: Duration,
    /// The age from which an exposed token is renewed. It bounds the renewals if calls keep failing.
    pub min_exposed_age: Duration,
    /// The time between two reads of the Secret and of the mounted files.
    pub poll_interval: Duration,
    /// The time after which a change is known everywhere: every replica has read the Secret, and every API server has
    /// the webhook configuration.
    pub propagation: Duration,
}

impl Lifetimes {
    /// Derives the others from the lifetime of a served certificate and the lifetime of a token.
    pub fn of(leaf: Duration, token: Duration) -> Self {
        // The next authority takes over after two thirds. What the last one has signed then ends before it does.
        let authority = leaf.saturating_mul(3);
        let token = token.min(authority);
        let poll_interval = (leaf.min(token) / 10).clamp(Duration::from_millis(500), Duration::from_secs(5));
        let min_exposed_age = MIN_EXPOSED_AGE.min(token / 3);
        Self { leaf, authority, token, min_exposed_age, poll_interval, propagation: 3 * poll_interval }
    }
}

/// Returns when to renew what was made at `since`: after two thirds of its lifetime.
pub fn renewal(since: Timestamp, lifetime: SignedDuration) -> Timestamp {
    later(since, lifetime / 3 * 2)
}

/// Converts a duration for calculations with timestamps.
pub fn signed(duration: Duration) -> SignedDuration {
    SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX)
}

/// Adds `by`, up to the limits of a timestamp.
pub fn later(at: Timestamp, by: SignedDuration) -> Timestamp {
    at.checked_add(by).unwrap_or(if by.is_negative() { Timestamp::MIN } else { Timestamp::MAX })
}
