//! Every kind of client under every kind of policy with every kind of fault: no occurrence is lost.
//!
//! A cell is one kind of client under one kind of policy, in its own namespace. All cells of a column run at the same
//! time on one squelch; a column is a kind of fault.

mod cells;
mod column;
mod evidence;
mod invariants;
mod table;
mod trouble;

pub use cells::{Cell, Client, Row};
pub use column::run;
pub use trouble::Column;
