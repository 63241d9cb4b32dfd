//! The pure core: what becomes of a write, what is owed, and when it is to be paid.
//!
//! No I/O, no clock of its own, no logging, no Kubernetes types: the same inputs give the same outputs. Wall
//! time appears only as data ([`Observation::occurred_at`]).

mod observation;
mod rules;
mod verdict;

pub use observation::{Api, EventView, Moment, ObjectReference, Observation, Operation};
pub use rules::{Governing, Mode, PolicyId, Rejection, Rules, SeriesRules};
pub use verdict::{Answer, Denial, Disposition, Stage, Verdict};

mod accounts;
pub use accounts::{Account, Counters};

/// The engine (being written): the signatures that the other parts lean on.
pub struct Engine {}

impl Engine {
    /// Decides one write. Never blocks on I/O; takes the lock of the write's namespace for some microseconds.
    pub fn decide(&self, governing: Option<Governing<'_>>, write: &Observation<'_>, now: Moment) -> Verdict {
        let _ = (governing, write, now);
        Verdict::passed(Stage::NoPolicy)
    }

    /// Counts a write that was let through undecided (overload, a panic) and remembers its value.
    pub fn fail_open(&self, governing: Option<Governing<'_>>, write: &Observation<'_>, now: Moment) {
        let _ = (governing, write, now);
    }

    /// Every line of the accounts, in no order.
    pub fn accounts(&self) -> Vec<Account> {
        Vec::new()
    }

    /// Live series, and occurrences owed to stored Events.
    pub fn gauges(&self) -> (usize, u64) {
        (0, 0)
    }
}
