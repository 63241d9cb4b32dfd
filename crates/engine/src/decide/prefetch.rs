//! What a decision will look at is asked for early, and all at once.
//!
//! With a million series nothing that one decision needs is in a cache of the processor, and who goes from one entry to
//! the next waits for memory each time. A processor waits for ten lines as long as for one, if it hears of them
//! together: so each `prefetch` reads a little of what will be read, and does nothing with it. It changes no decision.

use crate::decide::keys::{AGGREGATE_PREFIX, Hasher, Key};
use crate::decide::pipeline::Decision;
use crate::{Observation, Operation, Rules};

/// The keys of a write, each computed once.
#[derive(Default)]
pub(crate) struct WriteKeys {
    /// Of its Event's name; there is none at a CREATE by `generateName`.
    pub(crate) name: Option<Key>,
    /// Of its series, once somebody asked: an UPDATE is found by its name as a rule.
    series: Option<Key>,
    /// Of the group that it may be one too many of, once it has come so far.
    pub(crate) group: Option<Key>,
    /// Of its bucket in the spam filter, once it has come so far.
    pub(crate) bucket: Option<Key>,
}

impl WriteKeys {
    /// Those of a write whose Event has this name.
    pub(crate) fn of_name(hasher: &Hasher, name: Option<&str>) -> Self {
        Self { name: name.map(|name| hasher.name(name)), ..Self::default() }
    }
}

impl Decision<'_> {
    /// Asks for what every decision looks at.
    pub(crate) fn prefetch(&mut self, rules: &Rules, write: &Observation<'_>) {
        if let Some(name) = self.keys.name {
            self.names.prefetch(name, self.at_capacity.names);
        }
        if write.operation == Operation::Create && rules.series.is_some() {
            let key = self.series_key(write);
            self.scope.series.prefetch(key);
        }
    }

    /// Asks for what aggregation and limits look at.
    pub(crate) fn prefetch_steps(&mut self, rules: &Rules, write: &Observation<'_>) {
        let aggregation = rules.aggregation.filter(|_| is_aggregated(write));
        self.keys.group = aggregation.map(|aggregation| self.hasher.group(write, aggregation.group_by));
        self.prefetch_limits(rules, write);
    }

    /// Asks for what limits look at, and for the group, if there is one.
    pub(crate) fn prefetch_limits(&mut self, rules: &Rules, write: &Observation<'_>) {
        let filter = rules.spam_filter.as_ref();
        self.keys.bucket = filter.map(|filter| self.hasher.spam_filter(write, filter.per));
        self.scope.prefetch_tables(self.keys.group, self.keys.bucket, &self.at_capacity);
    }

    /// The key of the write's series.
    pub(crate) fn series_key(&mut self, write: &Observation<'_>) -> Key {
        *self.keys.series.get_or_insert_with(|| self.hasher.series(write))
    }
}

/// What a client has aggregated itself is not aggregated again, and the Event of an UPDATE is stored.
fn is_aggregated(write: &Observation<'_>) -> bool {
    write.operation == Operation::Create && !write.event.message.starts_with(AGGREGATE_PREFIX)
}
