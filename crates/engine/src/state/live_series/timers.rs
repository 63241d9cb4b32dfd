//! Timers of series.

use super::{Handle, LiveSeries};
use crate::Moment;
use crate::store::packed_series::Packed;
use crate::store::table::{At, NONE, Table};

impl LiveSeries {
    /// Returns the series with the earliest timer.
    pub(crate) fn first_timer(&self) -> Option<(Moment, Handle)> {
        let (due, at) = self.timers.first()?;
        Some((due, self.handle(at)?))
    }

    /// Sets the timer of the series to `due` unless it is earlier.
    pub(crate) fn set_timer(&mut self, handle: Handle, due: Moment) {
        let Some(at) = self.place(handle) else { return };
        let Some(position) = self.table.get(at).map(|packed| packed.timer) else { return };
        let Self { table, timers, .. } = self;
        let note = |at, position| note(table, at, position);
        match timers.due(position) {
            None => timers.add(at, due, note),
            Some(set) if due < set => timers.advance(position, due, note),
            Some(_) => {}
        }
    }

    /// Cancels the timer of the series.
    pub(crate) fn cancel_timer(&mut self, handle: Handle) {
        let Some(packed) = self.place(handle).and_then(|at| self.table.get_mut(at)) else { return };
        let position = std::mem::replace(&mut packed.timer, NONE);
        if position != NONE {
            let Self { table, timers, .. } = self;
            timers.remove(position, |at, position| note(table, at, position));
        }
    }
}

fn note(table: &mut Table<Packed, 13>, at: At, position: u32) {
    if let Some(packed) = table.get_mut(at) {
        packed.timer = position;
    }
}
