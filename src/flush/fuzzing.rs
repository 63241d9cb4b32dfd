//! For the fuzzer of what squelch writes.

use jiff::Timestamp;
use squelch_engine::Content;

use super::{checks, event};

/// What the API server would object to in the Event that is created of this.
pub fn objections(namespace: &str, name: &str, content: &Content, value: i64, at: Timestamp) -> Vec<String> {
    checks::objections(&event::recreate(namespace, name, content, value, at), namespace)
}
