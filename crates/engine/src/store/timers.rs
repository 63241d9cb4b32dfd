//! When to look at which series next: a heap in which each series stands once.
//!
//! A heap that forgets nothing needs an entry for every time that a series came forward; this one has as many as
//! there are series to look at. So each series has to know its position here, which `note` tells it.

use crate::Moment;
use crate::store::segments::Segments;
use crate::store::stamp::Stamp;
use crate::store::table::At;

/// What is told where a series stands here now.
pub(crate) trait Note: FnMut(At, u32) {}

impl<F: FnMut(At, u32)> Note for F {}

/// The earliest first.
#[derive(Default)]
pub(crate) struct Agenda {
    heap: Segments<Entry, 32, 1>,
}

#[derive(Clone, Copy, Default)]
struct Entry {
    wake: Stamp,
    at: At,
}

impl Agenda {
    /// The earliest, and which series it is.
    pub(crate) fn first(&self) -> Option<(Moment, At)> {
        self.heap.get(0).map(|entry| (entry.wake.moment(), entry.at))
    }

    /// When the entry of this position is looked at.
    pub(crate) fn wake(&self, position: u32) -> Option<Moment> {
        self.heap.get(position).map(|entry| entry.wake.moment())
    }

    /// Adds a series that does not stand here.
    pub(crate) fn add(&mut self, at: At, wake: Moment, note: impl Note) {
        let position = self.heap.push(Entry { wake: Stamp::at(wake), at });
        self.rise(position, note);
    }

    /// Looks at the entry of this position earlier than it says.
    pub(crate) fn advance(&mut self, position: u32, wake: Moment, note: impl Note) {
        self.heap[position].wake = Stamp::at(wake);
        self.rise(position, note);
    }

    /// Takes the entry of this position away.
    pub(crate) fn remove(&mut self, position: u32, mut note: impl Note) {
        self.heap.swap_remove(position);
        if position < self.heap.len() {
            let settled = self.rise(position, &mut note);
            self.sink(settled, note);
        }
    }

    /// The series of the entry of this position stands elsewhere in its table now.
    pub(crate) fn moved(&mut self, position: u32, at: At) {
        self.heap[position].at = at;
    }

    /// Moves an entry up until none above it is later; returns where it stands then.
    fn rise(&mut self, mut position: u32, mut note: impl Note) -> u32 {
        let entry = self.heap[position];
        while let Some(above) = position.checked_sub(1).map(|before| before / 2)
            && entry.wake < self.heap[above].wake
        {
            self.place(position, self.heap[above], &mut note);
            position = above;
        }
        self.place(position, entry, &mut note);
        position
    }

    /// Moves an entry down until none below it is earlier.
    fn sink(&mut self, mut position: u32, mut note: impl Note) {
        let entry = self.heap[position];
        loop {
            let below = [2 * position + 1, 2 * position + 2].into_iter().filter(|at| *at < self.heap.len());
            let Some(below) = below.min_by_key(|at| self.heap[*at].wake) else { break };
            if entry.wake <= self.heap[below].wake {
                break;
            }
            self.place(position, self.heap[below], &mut note);
            position = below;
        }
        self.place(position, entry, &mut note);
    }

    fn place(&mut self, position: u32, entry: Entry, note: &mut impl Note) {
        self.heap[position] = entry;
        note(entry.at, position);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn is_a_map_from_series_to_wake_of_which_the_earliest_is_known(
            steps in prop::collection::vec((0u8..4, 0u32..24, 0u64..1000), 0..300)
        ) {
            let mut agenda = Agenda::default();
            let mut positions: BTreeMap<At, u32> = BTreeMap::new();
            let mut model: BTreeMap<At, Moment> = BTreeMap::new();
            for (step, at, wake) in steps {
                let wake = Moment::from_epoch(Duration::from_millis(wake));
                let position = positions.get(&at).copied().filter(|_| model.contains_key(&at));
                match (step, position) {
                    (0..=2, None) => {
                        agenda.add(at, wake, |at, position| { positions.insert(at, position); });
                        model.insert(at, wake);
                    }
                    (0, Some(position)) if wake < model[&at] => {
                        agenda.advance(position, wake, |at, position| { positions.insert(at, position); });
                        model.insert(at, wake);
                    }
                    (3, Some(position)) => {
                        agenda.remove(position, |at, position| { positions.insert(at, position); });
                        model.remove(&at);
                    }
                    _ => {}
                }
                prop_assert_eq!(agenda.first().map(|(wake, _)| wake), model.values().min().copied());
                for (at, wake) in &model {
                    prop_assert_eq!(agenda.wake(positions[at]), Some(*wake));
                    prop_assert_eq!(agenda.heap[positions[at]].at, *at);
                }
                prop_assert_eq!(agenda.heap.len() as usize, model.len());
            }
        }
    }
}
