//! Steps 10 and 11: the spam filter and the budget.

use super::*;

#[test]
fn an_empty_bucket_filters_and_the_budget_throttles_and_neither_costs_the_other() {
    let (engine, engine_of_budget) = (engine(), engine());
    let spam = Rules { aggregation: None, ..all_stages() };
    let messages = ["a", "b", "c", "d", "e", "f"];
    let reported: Vec<Verdict> =
        messages.iter().map(|message| engine.decide(by(&spam), &saying(message, message), at(0))).collect();
    assert_eq!(reported[3], admitted(Stage::Admit, 1));
    assert_eq!(reported[4], denied(Disposition::Filtered, Stage::SpamFilter));
    let both = Rules { budget: Some(bucket(2, 10)), ..spam };
    for message in &messages[..4] {
        engine_of_budget.decide(by(&both), &saying(message, message), at(0));
    }
    // Two were throttled. They cost the spam filter nothing, so two of four tokens are left.
    assert_eq!(counters(&engine_of_budget).of(Disposition::Throttled), 2);
    let later: Vec<_> = ["g", "h", "i"]
        .map(|message| engine_of_budget.decide(by(&both), &saying(message, message), at(20_000)))
        .into_iter()
        .map(|verdict| verdict.stage)
        .collect();
    assert_eq!(later, [Stage::Admit, Stage::Admit, Stage::SpamFilter]);
}

#[test]
fn merging_costs_no_token() {
    let (engine, rules) = (engine(), all_stages());
    engine.decide(by(&rules), &write(), at(0));
    for value in 2..100 {
        engine.decide(by(&rules), &update(value, 1), at(value as u64));
    }
    let left = ["b"].map(|message| engine.decide(by(&rules), &saying(message, message), at(200)).stage);
    assert_eq!(left, [Stage::Admit]);
    assert_eq!(counters(&engine).of(Disposition::Filtered), 0);
}

#[test]
fn an_update_without_series_meets_the_buckets_and_no_aggregation() {
    let rules = Rules { series: None, ..all_stages() };
    let engine = engine();
    assert_eq!(engine.decide(by(&rules), &write(), at(0)), admitted(Stage::Admit, 1));
    for value in 2..=4 {
        assert_eq!(engine.decide(by(&rules), &update(value, value - 1), at(0)), admitted(Stage::Admit, 1));
    }
    assert_eq!(
        engine.decide(by(&rules), &update(5, 4), at(0)),
        denied(Disposition::Filtered, Stage::SpamFilter)
    );
    let refused = through_events(update(6, 4));
    assert_eq!(engine.decide(by(&rules), &refused, at(0)).answer, Answer::Restore);
    // The client's later absolute count includes what was filtered.
    assert_eq!(engine.decide(by(&rules), &update(7, 4), at(300_000)), admitted(Stage::Admit, 1));
    assert_eq!(counters(&engine).recovered, 2);
}
