//! The correlator of client-go's legacy recorder: aggregates, counts and filters.

use std::collections::{BTreeMap, BTreeSet};

use crate::clients::{Millis, Object, Occurrence, SECOND};

/// tools/record/events_cache.go: defaultAggregateMaxEvents, defaultAggregateIntervalInSeconds.
const MAX_EVENTS: usize = 10;
const INTERVAL: Millis = 600 * SECOND;

/// The same file: defaultSpamBurst, defaultSpamQPS.
const BURST: u64 = 25;
const REFILL: Millis = 300 * SECOND;

/// The state of a legacy recorder.
#[derive(Default)]
pub(crate) struct Correlator {
    groups: BTreeMap<String, (BTreeSet<String>, Millis)>,
    pub(crate) observed: BTreeMap<String, (i64, String)>,
    /// Tokens in milliseconds of refill, and the time of the last update.
    buckets: BTreeMap<String, (u64, Millis)>,
}

impl Correlator {
    /// The key of the count, and the message.
    pub(crate) fn aggregate(&mut self, occurrence: &Occurrence) -> (String, String) {
        let about = Object { field_path: String::new(), ..occurrence.about.clone() };
        let key = format!("{about:?} {} {}", occurrence.event_type, occurrence.reason);
        let (messages, last) = self.groups.entry(key.clone()).or_default();
        if occurrence.at - *last > INTERVAL {
            messages.clear();
        }
        *last = occurrence.at;
        messages.insert(occurrence.message.clone());
        if messages.len() < MAX_EVENTS {
            return (
                format!("{key} {} {}", occurrence.about.field_path, occurrence.message),
                occurrence.message.clone(),
            );
        }
        // client-go removes an arbitrary one.
        messages.pop_first();
        (key, format!("(combined from similar events): {}", occurrence.message))
    }

    pub(crate) fn spam_filter_admits(&mut self, occurrence: &Occurrence) -> bool {
        let about = Object { field_path: String::new(), ..occurrence.about.clone() };
        let full = BURST * REFILL;
        let (tokens, then) = self
            .buckets
            .entry(format!("{about:?} {}", occurrence.event_type))
            .or_insert((full, occurrence.at));
        *tokens = full.min(*tokens + (occurrence.at - *then));
        *then = occurrence.at;
        let may = *tokens >= REFILL;
        if may {
            *tokens -= REFILL;
        }
        may
    }
}
