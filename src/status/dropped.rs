//! What a status lists under `topDropped`. Pure.

use std::cmp::Reverse;
use std::sync::Arc;

use squelch_engine::{Disposition, Dropped};

use crate::api::{DroppedBy, DroppedOccurrences};

/// At most so many are listed.
const MOST_LISTED: usize = 10;

/// What was dropped in a namespace, as the engine has counted it since the process began. A combination of
/// namespace and what was dropped stands in a list of them once.
pub type DroppedIn = (Arc<str>, Dropped);

/// The most dropped, the most first: what the status listed when the process first saw the policy, and what was
/// counted since. (What it did not list then begins anew.)
pub fn top_dropped(base: &[DroppedOccurrences], counted: &[DroppedIn]) -> Vec<DroppedOccurrences> {
    let mut lines: Vec<Line<'_>> = base.iter().map(Line::of_base).collect();
    for counted in counted {
        let line = Line::of_counted(counted);
        // The base is short, so that looking through it is cheaper than any index.
        match lines[..base.len()].iter_mut().find(|listed| listed.identity() == line.identity()) {
            Some(listed) => listed.count = listed.count.saturating_add(line.count),
            None => lines.push(line),
        }
    }
    if lines.len() > MOST_LISTED {
        lines.select_nth_unstable_by_key(MOST_LISTED - 1, Line::order);
        lines.truncate(MOST_LISTED);
    }
    lines.sort_unstable_by_key(Line::order);
    lines.iter().map(Line::listed).collect()
}

/// One entry, not yet copied.
#[derive(Clone, Copy)]
struct Line<'a> {
    namespace: &'a str,
    reason: &'a str,
    kind: &'a str,
    component: &'a str,
    disposition: DroppedBy,
    count: i64,
}

impl<'a> Line<'a> {
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
            // Nothing else is dropped.
            disposition: match dropped.disposition {
                Disposition::Throttled => DroppedBy::Throttled,
                _ => DroppedBy::Filtered,
            },
            count: i64::try_from(dropped.count).unwrap_or(i64::MAX),
        }
    }

    fn identity(&self) -> (&'a str, &'a str, &'a str, &'a str, DroppedBy) {
        (self.namespace, self.reason, self.kind, self.component, self.disposition)
    }

    /// Total, so that the same counts give the same list.
    fn order(&self) -> (Reverse<i64>, (&'a str, &'a str, &'a str, &'a str, DroppedBy)) {
        (Reverse(self.count), self.identity())
    }

    fn listed(&self) -> DroppedOccurrences {
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

    fn said(listed: &[DroppedOccurrences]) -> Vec<(&str, &str, i64)> {
        listed.iter().map(|line| (&*line.namespace, &*line.reason, line.count)).collect()
    }

    #[test]
    fn the_most_dropped_come_first_and_ten_are_listed() {
        let all: Vec<_> = (1..=30).map(|count| counted("ci", &format!("R{count:02}"), count)).collect();
        let listed = top_dropped(&[], &all);
        assert_eq!(said(&listed)[..2], [("ci", "R30", 30), ("ci", "R29", 29)]);
        assert_eq!((listed.len(), listed[9].count), (10, 21));
    }

    #[test]
    fn equal_counts_have_an_order_of_their_own() {
        let one = [counted("b", "X", 5), counted("a", "Z", 5), counted("a", "Y", 5)];
        let mut other = one.clone();
        other.reverse();
        assert_eq!(said(&top_dropped(&[], &one)), [("a", "Y", 5), ("a", "Z", 5), ("b", "X", 5)]);
        assert_eq!(top_dropped(&[], &one), top_dropped(&[], &other));
    }

    #[test]
    fn what_was_listed_counts_on_however_little_came_since() {
        let base = top_dropped(&[], &[counted("ci", "Old", 100), counted("ci", "Small", 1)]);
        let mut now: Vec<_> = (0..20).map(|at| counted("ci", &format!("New{at:02}"), 50)).collect();
        now.push(counted("ci", "Old", 3));
        now.push(counted("other", "Old", 7));
        let listed = top_dropped(&base, &now);
        assert_eq!(said(&listed)[..2], [("ci", "Old", 103), ("ci", "New00", 50)]);
        assert!(!said(&listed).contains(&("ci", "Small", 1)));
        assert_eq!(top_dropped(&listed, &[]), listed);
    }

    #[test]
    fn both_ways_of_dropping_are_told_apart() {
        let throttled = Dropped::new(["R", "Pod", "kubelet"], Disposition::Throttled, u64::MAX);
        let listed = top_dropped(&[], &[counted("ci", "R", 1), ("ci".into(), throttled)]);
        let ways: Vec<_> = listed.iter().map(|line| (line.disposition, line.count)).collect();
        assert_eq!(ways, [(DroppedBy::Throttled, i64::MAX), (DroppedBy::Filtered, 1)]);
    }
}
