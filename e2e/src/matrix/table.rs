//! What is printed of each cell.

use crate::Detour;

use super::evidence::Evidence;

/// The heads of the columns of [`line`].
pub(super) fn header() -> String {
    "  trouble    client  policy        sent received admitted compacted aggregated filtered throttled recovered \
     stored |    n    m held late"
        .to_owned()
}

/// A cell in numbers: n reviews were cut before squelch, m after it had decided, so many of them held back.
pub(super) fn line(it: &Evidence, holds: bool) -> String {
    let mark = if holds { "ok" } else { "BROKEN" };
    let status = &it.status;
    format!(
        "  {:10} {:7} {:10} {:7} {:8} {:8} {:9} {:10} {:8} {:9} {:9} {:6} | {:4} {:4} {:4} {:4} {mark}",
        it.column,
        it.cell.client,
        it.cell.row,
        it.sent.total(),
        status.received,
        status.admitted,
        status.compacted,
        status.aggregated,
        status.filtered,
        status.throttled,
        status.recovered,
        it.stored.total(),
        it.reviews.cut_before,
        it.reviews.cut_after,
        it.reviews.held_back_in_vain,
        it.late,
    )
}

/// What went wrong, and how often.
pub(super) fn faults(detour: &Detour) -> String {
    let directions = [("to the API server", &detour.to_api_server), ("to squelch", &detour.to_squelch)];
    let of = |(direction, faults): (&str, &std::sync::Arc<crate::proxy::Faults>)| {
        let dealt = faults.dealt();
        let ways: Vec<_> = dealt.iter().map(|(way, times)| format!("{way} {times}")).collect();
        format!("{} calls {direction}, of which: {}", faults.asked(), ways.join(", "))
    };
    directions.map(of).join("\n")
}
