//! Exports for the fuzz target of squelch's writes.

use jiff::Timestamp;
use squelch_engine::Content;

use super::{checks, event};

/// Returns what the API server refuses in the Event that is created from `content`.
pub fn objections(namespace: &str, name: &str, content: &Content, value: i64, at: Timestamp) -> Vec<String> {
    checks::objections(&event::recreate(namespace, name, content, value, at), namespace)
}
