//! A small set of fingerprints.

use crate::state::groups::ObjectCount;

/// Distinct fingerprints. Most groups have one, which needs no allocation.
#[derive(Default)]
pub(super) enum Fingerprints {
    #[default]
    None,
    One(u64),
    // The heap holds the length as well, which saves 8 bytes in every group.
    #[expect(clippy::box_collection, reason = "half as large as a Vec in a group, and few groups have one")]
    Many(Box<Vec<u64>>),
    /// The first ones. Others were left out for lack of capacity.
    #[expect(clippy::box_collection, reason = "as above")]
    Partial(Box<Vec<u64>>),
}

impl Fingerprints {
    pub(super) fn len(&self) -> usize {
        self.as_slice().len()
    }

    pub(super) fn contains(&self, fingerprint: u64) -> bool {
        self.as_slice().contains(&fingerprint)
    }

    /// Adds a fingerprint unless it is present.
    pub(super) fn insert(&mut self, fingerprint: u64) {
        if self.contains(fingerprint) {
            return;
        }
        match self {
            Self::None => *self = Self::One(fingerprint),
            Self::One(first) => *self = Self::Many(Box::new(vec![*first, fingerprint])),
            Self::Many(all) | Self::Partial(all) => all.push(fingerprint),
        }
    }

    /// Records that a fingerprint was left out for lack of capacity.
    pub(super) fn mark_partial(&mut self) {
        *self = Self::Partial(match std::mem::take(self) {
            Self::Many(all) | Self::Partial(all) => all,
            few => Box::new(few.as_slice().to_vec()),
        });
    }

    /// Returns the number of objects with these fingerprints.
    pub(super) fn count(&self) -> ObjectCount {
        ObjectCount { number: self.len(), is_lower_bound: matches!(self, Self::Partial(_)) }
    }

    fn as_slice(&self) -> &[u64] {
        match self {
            Self::None => &[],
            Self::One(one) => std::slice::from_ref(one),
            Self::Many(all) | Self::Partial(all) => all,
        }
    }
}
