//! How clients count: what one of their writes says about the number of occurrences.

use std::collections::{BTreeMap, BTreeSet};

use super::Write;

/// A client's way of counting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counting {
    /// It keeps a count of its own for each Event and writes that: 1, 2, 3.
    Own,
    /// It writes one Event for each occurrence, and changes none.
    EventEach,
    /// It reads the stored Event, adds one, and writes it back with the time of the occurrence. After a conflict it
    /// reads again, and keeps that time.
    Increments,
}

impl Counting {
    /// The occurrences that the writes of one user ask the API server to record. Only writes that came as far as
    /// admission are counted.
    pub fn occurrences(self, writes: &[Write]) -> i64 {
        let reached = writes.iter().filter(|write| write.verb != "delete" && write.reached_admission());
        match self {
            Self::Own => {
                let mut highest: BTreeMap<_, i64> = BTreeMap::new();
                for write in reached {
                    let known = highest.entry((&write.namespace, &write.name)).or_default();
                    *known = (*known).max(write.sent_count.unwrap_or(1));
                }
                highest.values().sum()
            }
            Self::EventEach => reached.map(|write| write.sent_count.unwrap_or(1)).sum(),
            Self::Increments => {
                let times: BTreeSet<_> =
                    reached.map(|write| (&write.namespace, &write.name, &write.sent_time)).collect();
                i64::try_from(times.len()).unwrap_or(i64::MAX)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(name: &str, count: i64, time: &str, code: u16) -> Write {
        Write {
            user: "u".into(),
            verb: if count == 1 { "create" } else { "patch" }.into(),
            api: "v1".into(),
            namespace: "shop".into(),
            name: name.into(),
            sent_count: Some(count),
            sent_time: Some(time.into()),
            code,
            is_reviewed: true,
            ..Write::default()
        }
    }

    #[test]
    fn an_own_count_is_its_highest_value_under_each_name() {
        let writes = [
            write("a", 1, "1", 201),
            write("a", 3, "2", 409),
            write("a", 3, "2", 409),
            write("b", 1, "3", 201),
        ];
        assert_eq!(Counting::Own.occurrences(&writes), 4);
    }

    #[test]
    fn an_event_each_is_counted_even_if_refused() {
        assert_eq!(Counting::EventEach.occurrences(&[write("", 1, "1", 201), write("", 1, "2", 409)]), 2);
    }

    #[test]
    fn increments_are_distinguished_by_their_times() {
        // The second is refused with a conflict, and tried again from another stored count.
        let writes = [
            write("a", 1, "1", 201),
            write("a", 2, "2", 409),
            write("a", 5, "2", 200),
            write("a", 2, "3", 200),
        ];
        assert_eq!(Counting::Increments.occurrences(&writes), 3);
    }

    #[test]
    fn a_write_that_did_not_reach_admission_carries_nothing() {
        let patch = Write { is_reviewed: false, ..write("a", 2, "2", 404) };
        assert_eq!(Counting::Own.occurrences(std::slice::from_ref(&patch)), 0);
        assert_eq!(Counting::Increments.occurrences(&[patch]), 0);
    }
}
