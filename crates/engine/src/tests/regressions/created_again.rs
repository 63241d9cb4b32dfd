//! A PATCH of client-go's recorder of the new API overtakes its CREATE: 404, and the recorder creates the Event again with
//! count 2. The API server refuses that CREATE (409), because the first one is stored by now. The next PATCH has the
//! absolute count.

use super::*;

fn idle_after_2s() -> Rules {
    let series =
        rules().series.map(|series| crate::SeriesRules { idle_timeout: Duration::from_secs(2), ..series });
    Rules { series, ..rules() }
}

fn of_new_api(write: Observation<'static>) -> Observation<'static> {
    Observation { api: Api::Events, ..write }
}

#[test]
fn a_refused_create_is_in_the_next_absolute_count() {
    let engine = engine();
    let rules = idle_after_2s();
    engine.decide(by(&rules), &of_new_api(write()), at(0));
    let again = Observation { value: 2, has_series: true, ..of_new_api(write()) };
    engine.decide(by(&rules), &again, at(60));
    let patch = Observation { has_series: true, ..of_new_api(update(180, 1)) };
    let verdict = engine.decide(by(&rules), &patch, at(6000));
    // Its count is the total of the series, so it may pass.
    assert_eq!((verdict.disposition, verdict.occurrences), (Some(Disposition::Admitted), 178));
}

/// Its retry comes after a later absolute count has passed.
#[test]
fn a_late_retry_of_a_refused_create_hides_no_occurrence() {
    let engine = engine();
    let rules = idle_after_2s();
    let patch = |value, old| Observation { has_series: true, ..of_new_api(update(value, old)) };
    engine.decide(by(&rules), &of_new_api(write()), at(0));
    engine.decide(by(&rules), &Observation { value: 2, has_series: true, ..of_new_api(write()) }, at(60));
    assert_eq!(engine.decide(by(&rules), &patch(181, 1), at(6000)).answer, Answer::Allow);
    assert_eq!(engine.decide(by(&rules), &patch(2, 181), at(10_600)).occurrences, 0);
    assert_eq!(engine.decide(by(&rules), &patch(361, 181), at(12_000)).occurrences, 180);
    let task = engine.tick(at(16_000), 10).remove(0);
    let plan = planned(&engine, &task, Some(181), at(16_000));
    assert!(matches!(plan, FlushPlan::Write { value: 361, .. }), "{plan:?}");
}
