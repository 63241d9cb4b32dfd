//! Properties of the world under random faults, edits and latencies.

use proptest::prelude::*;
use squelch_engine::testing::cases;

use super::*;

/// Random edits, with at most one deletion.
fn edits() -> impl Strategy<Value = BTreeMap<u64, Edit>> {
    let edit =
        prop_oneof![Just(Edit::Empties), (0..3_usize).prop_map(Edit::GivesTo), Just(Edit::GivesToNobody),];
    let when = || (200..5_000_u64).prop_map(|ten| ten * 10);
    let edits = prop::collection::btree_map(when(), edit, 0..6);
    (edits, prop::option::of(when())).prop_map(|(mut edits, deleted)| {
        edits.extend(deleted.map(|at| (at, Edit::Deletes)));
        edits
    })
}

fn faults(replicas: usize) -> impl Strategy<Value = Vec<Fault>> {
    let fault = (2_000..40_000_u64, 100..15_000_u64, prop::option::of(0..replicas), any::<bool>());
    let fault = fault.prop_map(|(from, length, replica, frozen)| Fault {
        from,
        length,
        replica,
        frozen: frozen && replica.is_some(),
    });
    prop::collection::vec(fault, 0..6)
}

fn latencies() -> impl Strategy<Value = Vec<(u64, u64)>> {
    // Most calls take milliseconds, some time out, and some answers are lost.
    let one = || prop_oneof![8 => 1..30_u64, 2 => 30..5_000_u64];
    prop::collection::vec((one(), one()), 1..40)
}

fn quick() -> impl Strategy<Value = Vec<(u64, u64)>> {
    prop::collection::vec((1..30_u64, 1..30_u64), 1..40)
}

proptest! {
    #![proptest_config(cases(400))]

    /// Under any faults there is at most one active replica, and one again soon after the faults end.
    #[test]
    fn at_most_one_replica_is_active_and_one_is_again_after_the_faults(
        (replicas, faults) in (2..4_usize).prop_flat_map(|n| (Just(n), faults(n))),
        latencies in latencies(),
        annotations in prop::collection::vec(0..6_000_u64, 0..40),
    ) {
        let mut world = World::new(replicas, faults, latencies);
        world.annotations = annotations.into_iter().map(|ten| ten * 10).collect();
        world.run_until(60_000);
        world.latencies = vec![(10, 10)];
        world.run_until_active(12_000);
    }

    /// The same while a person edits or deletes the Lease.
    #[test]
    fn at_most_one_replica_is_active_while_a_person_edits_the_lease(
        (replicas, faults) in (2..4_usize).prop_flat_map(|n| (Just(n), faults(n))),
        latencies in prop_oneof![quick().boxed(), latencies().boxed()],
        edits in edits(),
    ) {
        let mut world = World::new(replicas, faults, latencies);
        world.edits = edits;
        world.run_until(60_000);
        world.latencies = vec![(10, 10)];
        world.run_until_active(12_000);
    }

    /// Late commits and lost answers do not end the deadline, as long as one round trip takes at most half of it.
    #[test]
    fn late_commits_and_late_answers_do_not_end_a_deadline(
        commits in 10..1_300_u64,
        answers in prop_oneof![1..100_u64, Just(LOST)],
        writes_only in any::<bool>(),
    ) {
        let mut world = World::new(2, Vec::new(), vec![(10, 10)]);
        world.run_until(6_000);
        let active = world.active_replica();
        prop_assert!(active.is_some());
        let lost = answers == LOST;
        world.writes = Some((if lost { commits / 4 } else { commits }, answers));
        if !writes_only && !lost {
            world.latencies = vec![(commits, answers)];
        }
        while world.now < 60_000 {
            world.step();
            prop_assert_eq!(world.active_replica(), active, "at {} ms", world.now);
        }
    }

    /// After a crash at any moment.
    #[test]
    fn a_replica_is_active_within_six_seconds_of_a_crash(crash in 8_000..15_000_u64, latencies in quick()) {
        let mut world = World::new(2, Vec::new(), latencies);
        world.run_until(crash);
        let active = world.active_replica().unwrap();
        world.replicas[active].alive = false;
        let gap = world.run_until_active(6_000);
        prop_assert!(gap < 6_000, "{gap}");
    }

    /// After a release at any moment.
    #[test]
    fn a_replica_is_active_within_two_seconds_of_a_release(end in 8_000..15_000_u64, latencies in quick()) {
        let mut world = World::new(3, Vec::new(), latencies);
        world.run_until(end);
        let active = world.active_replica().unwrap();
        world.replicas[active].alive = false;
        world.revision += 1;
        world.lease = LeaseState::Present(LeaseRecord { resource_version: world.revision.to_string(), released: true, ..LeaseRecord::default() });
        prop_assert!(world.run_until_active(2_000) < 2_000);
    }

    /// After outages of any number and length.
    #[test]
    fn the_same_replica_is_active_after_outages_of_the_api_server(
        outages in prop::collection::vec((6_000..60_000_u64, 100..30_000_u64), 1..5),
        latencies in quick(),
    ) {
        let fault = |(from, length)| Fault { from, length, replica: None, frozen: false };
        let mut world = World::new(3, outages.into_iter().map(fault).collect(), latencies);
        world.run_until(6_000);
        let active = world.active_replica();
        world.run_until(95_000);
        prop_assert_eq!(world.active_replica(), active);
        prop_assert!(world.replicas.iter().enumerate().all(|(n, replica)| replica.own.is_some() == (Some(n) == active)));
    }
}
