//! The stored counts of series that ended shortly after squelch had written their Events.

use std::collections::VecDeque;
use std::time::Duration;

use super::{Handle, LiveSeries};
use crate::Moment;
use crate::state::series::Series;

/// Time after a flush in which a review may show the Event before it, because the API server had read it earlier. Usually
/// that was milliseconds before the decision; seconds, if other webhooks are asked first or the API server stands still.
const EARLIER_READS: Duration = Duration::from_secs(10);

/// The records, oldest first. The rate of flushes bounds their number.
#[derive(Default)]
pub(super) struct JustWritten(VecDeque<Record>);

struct Record {
    birth: u32,
    stored: i64,
    written_at: Moment,
}

impl LiveSeries {
    /// Returns the stored count of an ended series, if squelch wrote it so recently that a review may show an older one.
    pub(crate) fn just_written(&self, handle: Handle, now: Moment) -> Option<i64> {
        let found = self.just_written.0.iter().rev().find(|record| record.birth == handle.birth)?;
        is_recent(found.written_at, now).then_some(found.stored)
    }

    /// Records that a series ends at `now`.
    pub(crate) fn remember_written(&mut self, handle: Handle, series: &Series, now: Moment) {
        let JustWritten(records) = &mut self.just_written;
        while records.pop_front_if(|oldest| !is_recent(oldest.written_at, now)).is_some() {}
        let Series { stored, written_at, .. } = *series;
        if is_recent(written_at, now) && series.read && !series.summary && !series.unverified {
            records.push_back(Record { birth: handle.birth, stored, written_at });
        }
    }
}

fn is_recent(written_at: Moment, now: Moment) -> bool {
    now.since(written_at) < EARLIER_READS
}
