//! `status.topDropped`. Pure.

use std::cmp::Reverse;
use std::sync::Arc;

use squelch_engine::{Disposition, Dropped};

use crate::api::{DroppedBy, DroppedOccurrences};

/// Maximum number of entries.
const MAX_LISTED: usize = 10;

/// Dropped occurrences in a namespace, counted by the engine since the start of the process. A list has one for each
/// combination of namespace, reason, kind, component and disposition.
pub type DroppedIn = (Arc<str>, Dropped);

/// Returns the entries with the highest counts, in descending order. `base` is the list in the status when the process
/// first read the policy. The engine's counts since then are added to it.
pub fn top_dropped(base: &[DroppedOccurrences], counted: &[DroppedIn]) -> Vec<DroppedOccurrences> {
    let mut entries: Vec<DroppedEntry<'_>> = base.iter().map(DroppedEntry::of_base).collect();
    for counted in counted {
        let entry = DroppedEntry::of_counted(counted);
        // A linear search: the base has at most MAX_LISTED entries.
        match entries[..base.len()].iter_mut().find(|listed| listed.identity() == entry.identity()) {
            Some(listed) => listed.count = listed.count.saturating_add(entry.count),
            None => entries.push(entry),
        }
    }
    if entries.len() > MAX_LISTED {
        entries.select_nth_unstable_by_key(MAX_LISTED - 1, DroppedEntry::order);
        entries.truncate(MAX_LISTED);
    }
    entries.sort_unstable_by_key(DroppedEntry::order);
    entries.into_iter().map(DroppedEntry::into_api).collect()
}

/// Returns how occurrences with this disposition were dropped. The engine lists only dropped ones.
pub(crate) fn dropped_by(disposition: Disposition) -> DroppedBy {
    match disposition {
        Disposition::Throttled => DroppedBy::Throttled,
        Disposition::Muted => DroppedBy::Muted,
        _ => DroppedBy::Filtered,
    }
}

/// An entry with borrowed texts.
#[derive(Clone, Copy)]
struct DroppedEntry<'a> {
    namespace: &'a str,
    reason: &'a str,
    kind: &'a str,
    component: &'a str,
    disposition: DroppedBy,
    count: i64,
}

impl<'a> DroppedEntry<'a> {
    fn of_base(base: &'a DroppedOccurrences) -> Self {
        let DroppedOccurrences { namespace, reason, kind, component, disposition, count } = base;
        Self { namespace, reason, kind, component, disposition: *disposition, count: *count }
    }

    fn of_counted((namespace, dropped): &'a DroppedIn) -> Self {
        Self {
            namespace,
            reason: dropped.reason(),
            kind: dropped.kind(),
            component: dropped.component(),
            disposition: dropped_by(dropped.disposition),
            count: i64::try_from(dropped.count).unwrap_or(i64::MAX),
        }
    }

    fn identity(&self) -> (&'a str, &'a str, &'a str, &'a str, DroppedBy) {
        (self.namespace, self.reason, self.kind, self.component, self.disposition)
    }

    /// A total order, so that equal counts give the same list.
    fn order(&self) -> (Reverse<i64>, (&'a str, &'a str, &'a str, &'a str, DroppedBy)) {
        (Reverse(self.count), self.identity())
    }

    fn into_api(self) -> DroppedOccurrences {
        DroppedOccurrences {
            namespace: self.namespace.to_owned(),
            reason: self.reason.to_owned(),
            kind: self.kind.to_owned(),
            component: self.component.to_owned(),
            disposition: self.disposition,
            count: self.count,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(namespace: &str, reason: &str, count: u64) -> DroppedIn {
        (namespace.into(), Dropped::new([reason, "Pod", "kubelet"], Disposition::Filtered, count))
    }

    fn counts(listed: &[DroppedOccurrences]) -> Vec<(&str, &str, i64)> {
        listed.iter().map(|entry| (&*entry.namespace, &*entry.reason, entry.count)).collect()
    }

    #[test]
    fn ten_entries_are_listed_in_descending_order() {
        let all: Vec<_> = (1..=30).map(|count| counted("ci", &format!("R{count:02}"), count)).collect();
        let listed = top_dropped(&[], &all);
        assert_eq!(counts(&listed)[..2], [("ci", "R30", 30), ("ci", "R29", 29)]);
        assert_eq!((listed.len(), listed[9].count), (10, 21));
    }

    #[test]
    fn entries_with_equal_counts_are_ordered() {
        let one = [counted("b", "X", 5), counted("a", "Z", 5), counted("a", "Y", 5)];
        let mut other = one.clone();
        other.reverse();
        assert_eq!(counts(&top_dropped(&[], &one)), [("a", "Y", 5), ("a", "Z", 5), ("b", "X", 5)]);
        assert_eq!(top_dropped(&[], &one), top_dropped(&[], &other));
    }

    #[test]
    fn listed_entries_continue_from_their_counts() {
        let base = top_dropped(&[], &[counted("ci", "Old", 100), counted("ci", "Small", 1)]);
        let mut now: Vec<_> = (0..20).map(|at| counted("ci", &format!("New{at:02}"), 50)).collect();
        now.push(counted("ci", "Old", 3));
        now.push(counted("other", "Old", 7));
        let listed = top_dropped(&base, &now);
        assert_eq!(counts(&listed)[..2], [("ci", "Old", 103), ("ci", "New00", 50)]);
        assert!(!counts(&listed).contains(&("ci", "Small", 1)));
        assert_eq!(top_dropped(&listed, &[]), listed);
    }

    #[test]
    fn filtered_and_throttled_occurrences_have_separate_entries() {
        let throttled = Dropped::new(["R", "Pod", "kubelet"], Disposition::Throttled, u64::MAX);
        let listed = top_dropped(&[], &[counted("ci", "R", 1), ("ci".into(), throttled)]);
        let by_disposition: Vec<_> = listed.iter().map(|entry| (entry.disposition, entry.count)).collect();
        assert_eq!(by_disposition, [(DroppedBy::Throttled, i64::MAX), (DroppedBy::Filtered, 1)]);
    }
}
