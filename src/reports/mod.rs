//! The reports and receipts of what was suppressed in each namespace: [`report`] computes a report, `Receipt` a receipt,
//! [`ReportPlan`] schedules the writes, and [`ReportWriter`] makes them.

mod content;
mod plan;
mod receipts;
mod requests;
mod windows;
mod writer;

pub use content::{MAX_REPORT_BYTES, PolicyRef, PolicyUid, Suppressed, report};
pub use plan::{DueReceipt, DueWrite, KnownReport, OutdatedReport, ReportLimits, ReportPlan};
pub use receipts::{EnforcedDrops, RECEIPT_REASON};
pub use windows::Windows;
pub use writer::ReportWriter;
