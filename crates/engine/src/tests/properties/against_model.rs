//! The engine decides like the naive model.

use super::*;
use crate::tests::model::NaiveModel;

proptest! {
    #![proptest_config(cases(CASES))]

    #[test]
    fn the_engine_decides_every_write_like_the_model(
        rules in any_rules(),
        writes in prop::collection::vec((gap(), any_write(), any_treatment()), 1..100),
        drains_at in prop_oneof![3 => Just(100usize), 1 => 0usize..100],
    ) {
        let (engine, mut naive) = (governed(&rules, 100_000), NaiveModel::new(rules.clone(), Timestamp::UNIX_EPOCH));
        let mut now = 0;
        for (number, (gap, write, treatment)) in writes.iter().enumerate() {
            now += gap;
            if number == drains_at {
                engine.drain();
                naive.draining = true;
            }
            let governing = Governing { rules: &rules, treatment: *treatment };
            let decided = engine.decide(Some(governing), write, at(now));
            let minted = match &decided.answer {
                Answer::AllowNamed(name) => Some(&**name),
                _ => None,
            };
            let expected = naive.decide(write, *treatment, minted, at(now));
            prop_assert_eq!(&decided, &expected, "write {} at {}: {:?}", number, now, write);
            prop_assert_eq!(counters(&engine).recovered, naive.recovered as u64, "write {} at {}", number, now);
            prop_assert_eq!(engine.gauges().pending_occurrences, naive.pending() as u64, "write {} at {}", number, now);
        }
    }
}
