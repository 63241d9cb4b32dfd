//! The phases of an engine: deciding, draining, closing.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::state::scope::Scope;
use crate::{Engine, Mode};

/// The engine merges and flushes.
pub(crate) const DECIDING: u8 = 0;
/// The engine merges nothing more and flushes each pending series once.
pub(crate) const DRAINING: u8 = 1;
/// No writes arrive any more. The engine flushes everything pending.
pub(crate) const CLOSING: u8 = 2;

impl Engine {
    /// Stops merging. From now on [`Self::tick`] returns each pending series once, due or not, and regardless
    /// of earlier failures.
    pub fn drain(&self) {
        self.phase.store(DRAINING, Ordering::Release);
    }

    /// Begins the last phase of the drain: no more writes arrive. [`Self::tick`] returns everything still pending.
    pub fn drain_remaining(&self) {
        self.phase.store(CLOSING, Ordering::Release);
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.phase() != DECIDING
    }

    pub(crate) fn phase(&self) -> u8 {
        self.phase.load(Ordering::Acquire)
    }

    /// Returns the number of series that need a flush in this phase or have one in flight.
    pub fn unflushed(&self) -> usize {
        let sizes = self.usage.sizes();
        if self.phase() == DRAINING { sizes.undrained } else { sizes.unflushed }
    }

    /// Discards all pending occurrences, because nothing can be flushed any more, and counts them as lost.
    /// Returns their number by namespace, sorted by name. Visits every series; no writes may arrive any more.
    pub fn discard_pending(&self) -> Vec<(Arc<str>, u64)> {
        let mut lost = Vec::new();
        for name in self.namespace_list.all() {
            let Some(mut namespace) = self.locked(&name) else { continue };
            let before = namespace.sizes();
            // In Observe nothing would be written.
            let scopes = namespace.scopes.iter_mut().filter(|scope| scope.rules.mode == Mode::Enforce);
            let of_namespace: u64 = scopes.map(Scope::discard_pending).sum();
            if of_namespace > 0 {
                lost.push((name, of_namespace));
            }
            self.usage.change(&before, &namespace.sizes());
        }
        lost.sort();
        lost
    }
}

impl Scope {
    fn discard_pending(&mut self) -> u64 {
        let mut lost = 0;
        for position in 0..u32::try_from(self.series.len()).unwrap_or(u32::MAX) {
            let Some((handle, series)) = self.series.nth(position) else { break };
            lost += series.pending().unsigned_abs();
            self.change(handle, series.seen, |series| series.confirm(series.total));
        }
        self.counters.lost += lost;
        lost
    }
}
