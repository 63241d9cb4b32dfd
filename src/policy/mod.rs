//! From policy objects to the one policy that governs a write.

use crate::engine::{Governing, Observation};

/// All compiled policies, in order of precedence (being written: the signature that the webhook leans on).
#[derive(Default)]
pub struct Set {}

impl Set {
    /// The one policy that governs `write`, if any.
    pub fn governing(&self, write: &Observation<'_>) -> Option<Governing<'_>> {
        let _ = write;
        None
    }
}

/// The current [`Set`], swapped as a whole.
#[derive(Default)]
pub struct Store {
    set: arc_swap::ArcSwap<Set>,
}

impl Store {
    /// The current set; no lock, no wait.
    pub fn load(&self) -> arc_swap::Guard<std::sync::Arc<Set>> {
        self.set.load()
    }
}
