//! The printed table.

use crate::FaultProxy;

use super::evidence::Evidence;

/// The column heads of [`line`].
pub(super) fn header() -> String {
    "  faults     client  policy        sent received admitted compacted aggregated filtered throttled recovered \
     stored |    n    m suppr undecided"
        .to_owned()
}

/// The numbers of a cell: n reviews cut before squelch, m after its decision, of which `suppr` were suppressed.
pub(super) fn line(it: &Evidence, holds: bool) -> String {
    let mark = if holds { "ok" } else { "BROKEN" };
    let status = &it.status;
    format!(
        "  {:10} {:7} {:10} {:7} {:8} {:8} {:9} {:10} {:8} {:9} {:9} {:6} | {:4} {:4} {:5} {:9} {mark}",
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
        it.reviews.suppressed_in_vain,
        it.undecided,
    )
}

/// The injected faults and their numbers.
pub(super) fn faults(proxy: &FaultProxy) -> String {
    let directions = [("to the API server", &proxy.to_api_server), ("to squelch", &proxy.to_squelch)];
    let of = |(direction, faults): (&str, &std::sync::Arc<crate::proxy::Faults>)| {
        let injected = faults.injected();
        let ways: Vec<_> = injected.iter().map(|(way, times)| format!("{way} {times}")).collect();
        format!("{} calls {direction}, faults: {}", faults.asked(), ways.join(", "))
    };
    directions.map(of).join("\n")
}
