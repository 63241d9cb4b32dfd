//! Prefetches the memory that a decision reads.
//!
//! With a million series, no entry that a decision needs is in the processor's cache. Reading one entry after
//! the other waits for memory each time. Loads that are issued together overlap, so each `prefetch` reads a
//! little of what is needed later. It changes no decision. docs/benchmarks/results.md has the gain.

use crate::decide::keys::{AGGREGATE_PREFIX, Hasher, Key};
use crate::decide::pipeline::Decision;
use crate::{Observation, Operation, Rules};

/// The keys of a write. Each is computed at most once.
#[derive(Default)]
pub(crate) struct WriteKeys {
    /// Key of the Event's name; `None` for a CREATE with `generateName`.
    pub(crate) name: Option<Key>,
    /// Key of the series. Computed on demand, because an UPDATE usually finds its series by name.
    series: Option<Key>,
    /// Key of the aggregation group, set before step 9.
    pub(crate) group: Option<Key>,
    /// Key of the spam filter bucket, set before step 10.
    pub(crate) bucket: Option<Key>,
}

impl WriteKeys {
    /// Returns the keys of a write to an Event of this name.
    pub(crate) fn of_name(hasher: &Hasher, name: Option<&str>) -> Self {
        Self { name: name.map(|name| hasher.name(name)), ..Self::default() }
    }
}

impl Decision<'_> {
    /// Prefetches what every decision reads.
    pub(crate) fn prefetch(&mut self, rules: &Rules, write: &Observation<'_>) {
        if let Some(name) = self.keys.name {
            self.names.prefetch(name, self.at_capacity.names);
        }
        if write.operation == Operation::Create && rules.series.is_some() {
            let key = self.series_key(write);
            self.scope.series.prefetch(key);
        }
    }

    /// Prefetches what aggregation and limits read.
    pub(crate) fn prefetch_steps(&mut self, rules: &Rules, write: &Observation<'_>) {
        let aggregation = rules.aggregation.filter(|_| is_aggregated(write));
        self.keys.group = aggregation.map(|aggregation| self.hasher.group(write, aggregation.group_by));
        self.prefetch_limits(rules, write);
    }

    /// Prefetches what the limits read, and the group if there is one.
    pub(crate) fn prefetch_limits(&mut self, rules: &Rules, write: &Observation<'_>) {
        let filter = rules.spam_filter.as_ref().filter(|_| rules.may_drop(&write.event));
        self.keys.bucket = filter.map(|filter| self.hasher.spam_filter(write, filter.per));
        self.scope.prefetch_tables(self.keys.group, self.keys.bucket, &self.at_capacity);
    }

    /// Returns the key of the write's series.
    pub(crate) fn series_key(&mut self, write: &Observation<'_>) -> Key {
        *self.keys.series.get_or_insert_with(|| self.hasher.series(write, self.scope.rules.normalize))
    }
}

/// Whether the write can be aggregated: it is no UPDATE, and its client has not aggregated it.
fn is_aggregated(write: &Observation<'_>) -> bool {
    write.operation == Operation::Create && !write.event.message.starts_with(AGGREGATE_PREFIX)
}
