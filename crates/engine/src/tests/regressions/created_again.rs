//! A PATCH of client-go's recorder of the new API overtakes its CREATE: 404, and the recorder creates the Event again with
//! count 2. The API server refuses that CREATE (409), because the first one is stored by now. The next PATCH has the
//! absolute count.

use super::*;

#[test]
fn a_refused_create_is_in_the_next_absolute_count() {
    let engine = engine();
    let series =
        rules().series.map(|series| crate::SeriesRules { idle_timeout: Duration::from_secs(2), ..series });
    let rules = Rules { series, ..rules() };
    let new = |write: Observation<'static>| Observation { api: Api::Events, ..write };
    engine.decide(by(&rules), &new(write()), at(0));
    let again = Observation { value: 2, has_series: true, ..new(write()) };
    engine.decide(by(&rules), &again, at(60));
    let patch = Observation { has_series: true, ..new(update(180, 1)) };
    let verdict = engine.decide(by(&rules), &patch, at(6000));
    // Its count is the total of the series, so it may pass.
    assert_eq!((verdict.disposition, verdict.occurrences), (Some(Disposition::Admitted), 178));
}
