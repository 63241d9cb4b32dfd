//! What became of every occurrence, counted per namespace and policy.

use std::sync::Arc;

use super::{Disposition, Mode, PolicyId};

/// Occurrences by what became of them. Counts saturate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// By [`Disposition`], in the order of [`Disposition::ALL`].
    pub by_disposition: [u64; 6],
    /// Occurrences that a client's absolute count told again, so that they are stored without having been received anew.
    pub recovered: u64,
    /// Owed occurrences that could never be paid.
    pub lost: u64,
}

impl Counters {
    /// The count of one disposition.
    pub fn of(&self, disposition: Disposition) -> u64 {
        self.by_disposition[disposition as usize]
    }

    /// All that was received: the sum over the dispositions, by the law of conservation.
    pub fn received(&self) -> u64 {
        self.by_disposition.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Counts `occurrences` of one disposition.
    pub fn count(&mut self, disposition: Disposition, occurrences: u64) {
        let slot = &mut self.by_disposition[disposition as usize];
        *slot = slot.saturating_add(occurrences);
    }

    /// Adds another's counts.
    pub fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.by_disposition.iter_mut().zip(other.by_disposition) {
            *mine = mine.saturating_add(theirs);
        }
        self.recovered = self.recovered.saturating_add(other.recovered);
        self.lost = self.lost.saturating_add(other.lost);
    }
}

/// One line of the accounts: a scope, in one mode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// The namespace of the scope.
    pub namespace: Arc<str>,
    /// The policy of the scope.
    pub policy: PolicyId,
    /// The mode in which these were counted.
    pub mode: Mode,
    /// The counts since the process began.
    pub counters: Counters,
}
