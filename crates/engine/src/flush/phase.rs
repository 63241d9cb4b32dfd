//! From folding to the end: what a shutdown asks of the engine.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::state::scope::Scope;
use crate::{Engine, Mode};

/// The engine folds and pays.
pub(crate) const DECIDING: u8 = 0;
/// It folds nothing more, and pays each debt once.
pub(crate) const DRAINING: u8 = 1;
/// The webhook's rules are away: it pays what is left.
pub(crate) const CLOSING: u8 = 2;

impl Engine {
    /// From now on nothing new is folded, and [`Self::tick`] orders each payment that is open once, due or not, and
    /// whatever failed before.
    pub fn drain(&self) {
        self.phase.store(DRAINING, Ordering::Release);
    }

    /// No write is reviewed any more: [`Self::tick`] orders whatever is left to be paid.
    pub fn drain_remaining(&self) {
        self.phase.store(CLOSING, Ordering::Release);
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.phase() != DECIDING
    }

    pub(crate) fn phase(&self) -> u8 {
        self.phase.load(Ordering::Acquire)
    }

    /// How many series have something to be paid in this phase, or are being paid.
    pub fn unflushed(&self) -> usize {
        let sizes = self.usage.sizes();
        if self.phase() == DRAINING { sizes.undrained } else { sizes.unflushed }
    }

    /// Nothing more can be paid: what is still owed is lost, and counted as that. Returns how many occurrences, by
    /// namespace and in the order of their names. Walks through everything: no write is reviewed any more.
    pub fn discard_pending(&self) -> Vec<(Arc<str>, u64)> {
        let mut lost = Vec::new();
        for name in self.namespace_list.all() {
            let Some(mut namespace) = self.locked(&name) else { continue };
            let before = namespace.sizes();
            // Under Observe nothing is owed to anybody.
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
