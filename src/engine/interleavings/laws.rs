//! What must hold, and the lives in which it must.

use proptest::prelude::*;

use super::super::testing::{counters, rules};
use super::steps::{harsh_step, step};
use super::*;

/// What must hold.
impl World {
    /// Each occurrence told of is received once.
    fn received_once(&self, after: &Step) -> Result<(), TestCaseError> {
        prop_assert_eq!(counters(&self.engine).received() as i64, self.truth, "after {:?}", after);
        Ok(())
    }

    /// Each occurrence received is stored once, unless that cannot be told.
    fn stored_once(&self) -> Result<(), TestCaseError> {
        let counters = counters(&self.engine);
        let stored = counters.of(Disposition::Admitted) + counters.of(Disposition::Compacted);
        if !self.disturbed {
            prop_assert_eq!(self.increments, (stored + counters.recovered) as i64, "{:?}", counters);
        }
        Ok(())
    }

    fn nothing_is_owed(&self) -> Result<(), TestCaseError> {
        prop_assert_eq!(self.engine.unpaid(), 0);
        prop_assert_eq!(self.engine.gauges().owed, 0);
        Ok(())
    }

    fn no_series_is_left(&self) -> Result<(), TestCaseError> {
        prop_assert_eq!(self.engine.gauges().series, 0);
        Ok(())
    }
}

/// Lives through `steps`, and comes to rest.
fn live(mut world: World, steps: &[Step]) -> Result<(), TestCaseError> {
    for step in steps {
        world.run(step);
        world.received_once(step)?;
    }
    world.come_to_rest();
    world.stored_once()?;
    world.nothing_is_owed()?;
    world.no_series_is_left()
}

/// The same with room for two series: occurrences are counted once as long as no name had to be forgotten.
fn live_in_a_full_table(steps: &[Step]) -> Result<(), TestCaseError> {
    let engine = Engine::new(Settings {
        seed: [3, 4],
        max_series: 2,
        max_owing: 100_000,
        began: Timestamp::UNIX_EPOCH,
    });
    let mut world = World { still: true, ..World::new(engine, rules()) };
    for step in steps {
        world.run(step);
        if world.engine.gauges().names_evicted == 0 {
            world.received_once(step)?;
        }
    }
    let all_names_known = world.engine.gauges().names_evicted == 0;
    world.come_to_rest();
    if all_names_known {
        world.stored_once()?;
    }
    world.nothing_is_owed()?;
    world.no_series_is_left()
}

/// Begins to drain before the step `cut`, or after the last; then drains for good.
fn live_and_drain(steps: &[Step], cut: usize) -> Result<(), TestCaseError> {
    let mut world = World { still: true, ..World::governed(rules()) };
    for (number, step) in steps.iter().enumerate() {
        if number == cut {
            world.engine.drain();
        }
        world.run(step);
        world.received_once(step)?;
    }
    world.engine.drain();
    world.commit_all();
    world.engine.drain_the_rest();
    world.pay_all(Duration::from_secs(2));
    world.nothing_is_owed()?;
    world.stored_once()
}

/// The default rules with other times, in seconds.
fn rules_with(idle_timeout: u64, heartbeat_interval: u64) -> Rules {
    let series = SeriesRules {
        idle_timeout: Duration::from_secs(idle_timeout),
        heartbeat_interval: Duration::from_secs(heartbeat_interval),
    };
    Rules { series: Some(series), ..rules() }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(
        std::env::var("SQUELCH_PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(1000)) })]

    #[test]
    fn clients_of_every_kind_keep_the_law(steps in prop::collection::vec(step(), 1..120)) {
        live(World { with_tools: true, ..World::governed(rules()) }, &steps)?;
    }

    #[test]
    fn refusals_and_deletes_lower_nothing(steps in prop::collection::vec(harsh_step(), 1..120)) {
        live(World::governed(rules()), &steps)?;
    }

    #[test]
    fn the_shortest_times_keep_the_law(steps in prop::collection::vec(step(), 1..120)) {
        live(World::governed(rules_with(1, 1)), &steps)?;
    }

    #[test]
    fn the_shortest_idle_timeout_keeps_the_law(steps in prop::collection::vec(harsh_step(), 1..120)) {
        live(World::governed(rules_with(1, 1800)), &steps)?;
    }

    #[test]
    fn a_full_table_keeps_the_law(steps in prop::collection::vec(step(), 1..120)) {
        live_in_a_full_table(&steps)?;
    }

    #[test]
    fn draining_keeps_the_law(steps in prop::collection::vec(step(), 1..60), cut in 0usize..60) {
        live_and_drain(&steps, cut)?;
    }
}
