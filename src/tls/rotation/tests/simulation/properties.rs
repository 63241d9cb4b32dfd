//! Properties of random histories.

use squelch_engine::testing::cases;

use super::*;

fn quiet() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (1..=10u8).prop_map(Event::Time),
        4 => Just(Event::Poll),
        2 => Just(Event::PollStandby),
        3 => Just(Event::Apply),
        1 => Just(Event::Restart),
        1 => Just(Event::Delete),
        1 => Just(Event::Fail),
    ]
}

fn wild() -> impl Strategy<Value = Event> {
    prop_oneof![
        20 => quiet(),
        1 => Just(Event::Replace),
        1 => (-800..=800i16).prop_map(Event::Jump),
    ]
}

proptest! {
    #![proptest_config(cases(256))]

    /// Without replaced Secrets and clock jumps, every replica serves a trusted certificate and accepts the token.
    /// (Processes that restart again and again never rotate, until their certificate has expired.)
    #[test]
    fn no_call_fails_in_a_quiet_history(history in prop::collection::vec(quiet(), 0..600)) {
        let mut simulation = Simulation::new();
        for event in history {
            simulation.handle(event);
            for replica in [&simulation.active, &simulation.standby] {
                if replica.serving.is_valid(simulation.world.wall()) && !replica.served_untrusted {
                    simulation.check_accepted(replica)?;
                }
            }
        }
    }

    /// In any history the active replica serves a trusted certificate as long as it is valid.
    #[test]
    fn the_active_replica_is_trusted_in_any_history(history in prop::collection::vec(wild(), 0..400)) {
        let mut simulation = Simulation::new();
        simulation.poll();
        simulation.apply();
        // A new process does not have the replaced keys.
        for event in history.into_iter().filter(|event| !matches!(event, Event::Restart)) {
            simulation.handle(event);
            if simulation.active.serving.is_valid(simulation.world.wall()) {
                simulation.check_accepted(&simulation.active)?;
            }
        }
    }

    /// After any history, one valid generation is served, trusted and used, and no other is kept.
    #[test]
    fn every_history_converges(history in prop::collection::vec(wild(), 0..200), swapped: bool) {
        let mut simulation = Simulation::new();
        history.into_iter().for_each(|event| simulation.handle(event));
        if swapped {
            simulation.handle(Event::Swap);
        }
        for _ in 0..20 {
            simulation.handle(Event::Time(10));
            simulation.poll();
            simulation.apply();
        }
        let wall = simulation.world.wall();
        let current = simulation.world.secret.current;
        prop_assert!(current.is_valid(wall));
        prop_assert_eq!(simulation.active.serving, current);
        // A rotation may be under way.
        let made = wall.duration_since(current.since);
        if made > SignedDuration::from_secs(35) && made < signed(TOKEN) / 3 * 2 {
            prop_assert_eq!(&simulation.world.secret, &Ring::of(current));
            let trusted = [authority(&current)].into();
            prop_assert_eq!(&simulation.world.in_force, &Configuration { trusted, token: current.id });
        }
    }
}
