//! The timers of series: a heap with at most one timer for each series.
//!
//! A heap without removal would need an entry for each time that a series became due earlier. Here each series
//! knows the position of its timer, which the heap reports through a callback.

use crate::Moment;
use crate::store::segments::Segments;
use crate::store::stamp::Stamp;
use crate::store::table::At;

/// Callback for the new position of a series' timer.
pub(crate) trait OnMove: FnMut(At, u32) {}

impl<F: FnMut(At, u32)> OnMove for F {}

/// The timers, earliest first.
#[derive(Default)]
pub(crate) struct Timers {
    heap: Segments<Timer, 32, 1>,
}

#[derive(Clone, Copy, Default)]
struct Timer {
    due: Stamp,
    at: At,
}

impl Timers {
    /// Returns the earliest timer and its series.
    pub(crate) fn first(&self) -> Option<(Moment, At)> {
        self.heap.get(0).map(|entry| (entry.due.moment(), entry.at))
    }

    /// Returns the due time of the timer at this position.
    pub(crate) fn due(&self, position: u32) -> Option<Moment> {
        self.heap.get(position).map(|entry| entry.due.moment())
    }

    /// Adds a timer for a series without one.
    pub(crate) fn add(&mut self, at: At, due: Moment, note: impl OnMove) {
        let position = self.heap.push(Timer { due: Stamp::at(due), at });
        self.rise(position, note);
    }

    /// Moves the timer at this position to an earlier time.
    pub(crate) fn advance(&mut self, position: u32, due: Moment, note: impl OnMove) {
        self.heap[position].due = Stamp::at(due);
        self.rise(position, note);
    }

    /// Removes the timer at this position.
    pub(crate) fn remove(&mut self, position: u32, mut note: impl OnMove) {
        self.heap.swap_remove(position);
        if position < self.heap.len() {
            let position = self.rise(position, &mut note);
            self.sink(position, note);
        }
    }

    /// Updates the position of a series in its table.
    pub(crate) fn moved(&mut self, position: u32, at: At) {
        self.heap[position].at = at;
    }

    /// Moves a timer up until its parent is not later. Returns its new position.
    fn rise(&mut self, mut position: u32, mut note: impl OnMove) -> u32 {
        let entry = self.heap[position];
        while let Some(above) = position.checked_sub(1).map(|before| before / 2)
            && entry.due < self.heap[above].due
        {
            self.place(position, self.heap[above], &mut note);
            position = above;
        }
        self.place(position, entry, &mut note);
        position
    }

    /// Moves a timer down until no child is earlier.
    fn sink(&mut self, mut position: u32, mut note: impl OnMove) {
        let entry = self.heap[position];
        loop {
            let below = [2 * position + 1, 2 * position + 2].into_iter().filter(|at| *at < self.heap.len());
            let Some(below) = below.min_by_key(|at| self.heap[*at].due) else { break };
            if entry.due <= self.heap[below].due {
                break;
            }
            self.place(position, self.heap[below], &mut note);
            position = below;
        }
        self.place(position, entry, &mut note);
    }

    fn place(&mut self, position: u32, entry: Timer, note: &mut impl OnMove) {
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
        fn timers_behave_like_a_map_with_a_known_minimum(
            steps in prop::collection::vec((0u8..4, 0u32..24, 0u64..1000), 0..300)
        ) {
            let mut timers = Timers::default();
            let mut positions: BTreeMap<At, u32> = BTreeMap::new();
            let mut model: BTreeMap<At, Moment> = BTreeMap::new();
            for (step, at, due) in steps {
                let due = Moment::from_epoch(Duration::from_millis(due));
                let position = positions.get(&at).copied().filter(|_| model.contains_key(&at));
                match (step, position) {
                    (0..=2, None) => {
                        timers.add(at, due, |at, position| { positions.insert(at, position); });
                        model.insert(at, due);
                    }
                    (0, Some(position)) if due < model[&at] => {
                        timers.advance(position, due, |at, position| { positions.insert(at, position); });
                        model.insert(at, due);
                    }
                    (3, Some(position)) => {
                        timers.remove(position, |at, position| { positions.insert(at, position); });
                        model.remove(&at);
                    }
                    _ => {}
                }
                prop_assert_eq!(timers.first().map(|(due, _)| due), model.values().min().copied());
                for (at, due) in &model {
                    prop_assert_eq!(timers.due(positions[at]), Some(*due));
                    prop_assert_eq!(timers.heap[positions[at]].at, *at);
                }
                prop_assert_eq!(timers.heap.len() as usize, model.len());
            }
        }
    }
}
