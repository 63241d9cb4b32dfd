//! An oracle without any code of squelch: it reads the API server's audit log, counts the occurrences that were asked
//! of it in each client's own way of counting, and compares them with squelch's reports and with the stored Events.

pub mod audit;
pub mod counting;
pub mod judgement;

pub use audit::{AuditLog, Write};
pub use counting::Counting;
pub use judgement::Judgement;
