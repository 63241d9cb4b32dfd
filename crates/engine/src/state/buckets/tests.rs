use crate::testing::{at, cases};
use std::num::NonZeroU32;

use super::*;
use proptest::prelude::*;

fn rules(burst: u32, refill: Duration) -> BucketRules {
    BucketRules { burst: NonZeroU32::new(burst).unwrap(), refill_interval: refill }
}

fn taken(buckets: &mut Buckets, key: Key, rules: &BucketRules, now: Moment) -> bool {
    let at_capacity = buckets.len() >= 100;
    buckets.ask(key, rules, at_capacity, now).inspect(|charge| buckets.charge(*charge)).is_some()
}

fn drained(buckets: &mut Buckets, key: Key, rules: &BucketRules, now: Moment) -> u32 {
    (0..).take_while(|_| taken(buckets, key, rules, now)).count() as u32
}

const HOUR: u64 = 3_600_000;

#[test]
fn changed_rules_keep_the_state_of_buckets() {
    let (small, large) = (rules(25, Duration::from_secs(300)), rules(30, Duration::from_secs(300)));
    let mut buckets = Buckets::default();
    assert_eq!(drained(&mut buckets, 1, &small, at(HOUR)), 25);
    assert_eq!(drained(&mut buckets, 1, &large, at(HOUR)), 5, "in the middle of use: exactly five more");
    assert_eq!(drained(&mut buckets, 2, &small, at(HOUR)), 25);
    let idle = at(HOUR + 25 * 300_000);
    assert_eq!(drained(&mut buckets, 2, &large, idle), 30, "after it was full again: the larger burst");
}

#[test]
fn a_rate_of_one_a_day_works() {
    let daily = rules(1, Duration::from_secs(86_400));
    let mut buckets = Buckets::default();
    assert_eq!(drained(&mut buckets, 1, &daily, at(0)), 1);
    assert_eq!(drained(&mut buckets, 1, &daily, at(86_399_999)), 0);
    assert_eq!(drained(&mut buckets, 1, &daily, at(86_400_000)), 1);
}

#[test]
fn asking_takes_nothing() {
    let one = rules(1, Duration::from_secs(1));
    let mut buckets = Buckets::default();
    assert!(buckets.ask(1, &one, false, at(0)).is_some() && buckets.ask(1, &one, false, at(0)).is_some());
    assert!(taken(&mut buckets, 1, &one, at(0)) && !taken(&mut buckets, 1, &one, at(999)));
    assert!(taken(&mut buckets, 1, &one, at(1000)));
}

#[test]
fn invented_keys_gain_at_most_the_tokens_of_the_overflow_bucket() {
    let rules = rules(3, Duration::from_secs(300));
    let mut buckets = Buckets::default();
    let admitted = (0..1_000_000).filter(|key| taken(&mut buckets, *key, &rules, at(0))).count();
    assert_eq!((admitted, buckets.len(), buckets.evicted()), (100 + 3, 100, 0));
    // The first buckets are full again and can be evicted.
    assert!(taken(&mut buckets, 2_000_000, &rules, at(300_000)));
    assert_eq!((buckets.len(), buckets.evicted()), (100, 1));
}

proptest! {
    #![proptest_config(cases(1000))]

    #[test]
    fn gives_as_many_tokens_as_a_naive_bucket(
        burst in 1u32..8, refill in 1u64..2000, gaps in prop::collection::vec(0u64..3000, 1..80)
    ) {
        let rules = rules(burst, Duration::from_millis(refill));
        let mut buckets = Buckets::default();
        // The naive model counts in units of 1/refill tokens; one unit returns per millisecond.
        let (mut now, mut units) = (0, u64::from(burst) * refill);
        for gap in gaps {
            now += gap;
            units = (units + gap).min(u64::from(burst) * refill);
            let expected = units >= refill;
            prop_assert_eq!(taken(&mut buckets, 7, &rules, at(now)), expected, "at {}", now);
            if expected {
                units -= refill;
            }
        }
    }
}
