//! For the fuzzer of what squelch writes.

use jiff::Timestamp;

use super::{checks, event};
use crate::engine::Content;

/// What the API server would object to in the Event that is created of this.
pub fn objections(namespace: &str, name: &str, content: &Content, value: i64, at: Timestamp) -> Vec<String> {
    checks::objections(&event::recreate(namespace, name, content, value, at), namespace)
}
