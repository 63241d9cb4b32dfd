//! Groups of look-alikes: who said how many different things about one object, or one kind of objects.

use super::key::Key;
use super::table::{Handle, Table};
use super::{AggregationRules, Moment};

/// One group.
pub(super) struct Group {
    /// When a write of it reached aggregation last.
    seen: Moment,
    /// Fingerprints of the distinct messages it remembers, at most `max_events - 1`.
    remembered: Vec<u64>,
    /// Fingerprints of the distinct objects that it saw, at most [`MAX_OBJECTS`].
    objects: Vec<u64>,
}

/// A summary across objects says on how many of them, up to this many.
const MAX_OBJECTS: usize = 256;

/// The groups of a scope.
#[derive(Default)]
pub(super) struct Groups {
    table: Table<Group>,
    evicted: u64,
}

impl Groups {
    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// Groups given up for want of room; they start anew.
    pub(super) fn evicted(&self) -> u64 {
        self.evicted
    }

    /// Whether a write with this message is one too many for its group (client-go, tools/record,
    /// `EventAggregate`): the group remembers `max_events - 1` distinct messages, and this is another one. Then
    /// the answer is on how many objects the group saw them. If it is not, it is remembered. A group that was
    /// silent for strictly more than the interval starts anew. `full`: there is no room for one more group, so
    /// the oldest of these goes.
    pub(super) fn too_many(
        &mut self,
        key: Key,
        message: u64,
        object: u64,
        rules: &AggregationRules,
        full: bool,
        now: Moment,
    ) -> Option<usize> {
        let handle = self.table.find(key).or_else(|| self.open(key, full, now))?;
        self.table.touch(handle);
        let group = self.table.get_mut(handle)?;
        if now.since(group.seen) > rules.interval {
            group.remembered.clear();
            group.objects.clear();
        }
        group.seen = now;
        if group.objects.len() < MAX_OBJECTS && !group.objects.contains(&object) {
            group.objects.push(object);
        }
        if group.remembered.contains(&message) {
            return None;
        }
        if group.remembered.len() + 1 >= rules.max_events as usize {
            return Some(group.objects.len());
        }
        group.remembered.push(message);
        None
    }

    fn open(&mut self, key: Key, full: bool, now: Moment) -> Option<Handle> {
        if full {
            self.table.remove(self.table.oldest()?);
            self.evicted += 1;
        }
        Some(self.table.insert(key, Group { seen: now, remembered: Vec::new(), objects: Vec::new() }))
    }

    /// Forgets groups that would start anew anyhow, looking at `budget` of the oldest.
    pub(super) fn forget(&mut self, rules: &AggregationRules, budget: usize, now: Moment) {
        for _ in 0..budget {
            let Some(oldest) = self.table.oldest() else { break };
            if self.table.get(oldest).is_some_and(|group| now.since(group.seen) <= rules.interval) {
                break;
            }
            self.table.remove(oldest);
        }
    }

    /// Forgets all of them: aggregation was switched off.
    pub(super) fn clear(&mut self) {
        self.table = Table::default();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::GroupBy;
    use super::super::testing::at;
    use super::*;

    fn rules(max_events: u32) -> AggregationRules {
        AggregationRules { max_events, interval: Duration::from_secs(600), group_by: GroupBy::Object }
    }

    #[test]
    fn the_tenth_distinct_message_is_the_first_too_many_and_is_not_remembered() {
        let mut groups = Groups::default();
        let told: Vec<bool> = (0..12)
            .map(|message| groups.too_many(1, message, 7, &rules(10), false, at(1)).is_some())
            .collect();
        assert_eq!(told.iter().filter(|one| **one).count(), 3);
        assert!(told[9] && !told[8]);
        assert!(groups.too_many(1, 3, 7, &rules(10), false, at(2)).is_none(), "a remembered one goes on");
        assert!(groups.too_many(1, 11, 7, &rules(10), false, at(3)).is_some());
    }

    #[test]
    fn with_one_event_at_most_every_write_is_too_many() {
        assert!(Groups::default().too_many(1, 1, 7, &rules(1), false, at(1)).is_some());
    }

    #[test]
    fn only_strictly_more_than_the_interval_starts_anew() {
        let mut groups = Groups::default();
        assert!(groups.too_many(1, 1, 7, &rules(2), false, at(0)).is_none());
        assert!(groups.too_many(1, 2, 7, &rules(2), false, at(600_000)).is_some(), "exactly the interval");
        assert!(groups.too_many(1, 2, 7, &rules(2), false, at(1_200_001)).is_none());
    }

    #[test]
    fn the_oldest_makes_room_and_old_ones_are_forgotten() {
        let mut groups = Groups::default();
        for key in 0..3 {
            groups.too_many(key, 1, 7, &rules(2), false, at(key as u64));
        }
        groups.too_many(9, 1, 7, &rules(2), true, at(5));
        assert_eq!((groups.len(), groups.evicted()), (3, 1));
        assert!(groups.too_many(0, 2, 7, &rules(2), true, at(6)).is_none(), "it started anew");
        groups.forget(&rules(2), 10, at(600_005));
        assert_eq!(groups.len(), 2);
    }
}
