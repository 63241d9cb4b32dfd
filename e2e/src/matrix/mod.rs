//! Every kind of client under every kind of policy while everything goes wrong: nothing is lost.
//!
//! A cell is one kind of client under one kind of policy, in a namespace of its own. All cells of a column run at
//! the same time on one squelch; a column is what goes wrong meanwhile.

mod cells;
mod column;
mod evidence;
mod laws;
mod table;
mod trouble;

pub use cells::{Cell, Client, Row};
pub use column::run;
pub use trouble::Column;
