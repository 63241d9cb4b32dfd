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
