//! The reports of what was suppressed in each namespace: [`report`] computes one, [`ReportPlan`] schedules the writes, and
//! [`ReportWriter`] makes them.

mod content;
mod plan;
mod requests;
mod writer;

pub use content::{MAX_REPORT_BYTES, PolicyRef, PolicyUid, Suppressed, report};
pub use plan::{KnownReport, ReportLimits, ReportPlan};
pub use writer::ReportWriter;
