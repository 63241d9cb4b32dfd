//! The shortest runs that broke a promise under earlier rules, and runs that show the limit of a promise.

use super::laws::rules_with;
use super::steps::Fate;
use super::*;
use crate::testing::rules;
use Step::{
    Applier, ApplierRestarts, Begin, CatchUp, CreateOnly, Delete, Depart, Generate, Kill, Kube, Legacy,
    LoseLease, Overlook, Pass, Read, Retry, Take, TakeName, Terminate, Tools, ToolsFinish, ToolsRefresh,
    ToolsRestart,
};

const COMMIT: Step = Step::Commit(0, Commit::Tried);
const SECOND: u64 = 1000;
const IDLE: Step = Pass(361 * SECOND);

/// Returns the world after these steps, with all laws kept.
fn after(mut world: World, steps: &[Step]) -> World {
    for step in steps {
        world.run(*step);
    }
    world.judge().unwrap();
    world
}

/// Like [`after`], and then comes to rest.
fn in_the_end(mut world: World, steps: &[Step]) -> World {
    world.run_to_end(steps).unwrap();
    world
}

fn plain() -> World {
    World::new(rules())
}

fn received(world: &World) -> u64 {
    world.counters().received()
}

#[test]
fn a_name_is_remembered_when_its_series_is_closed() {
    let steps = [Legacy(0), COMMIT, IDLE, CatchUp, Pass(3472 * SECOND), Legacy(0), COMMIT];
    let world = after(plain().expiring(Duration::from_secs(3600)), &steps);
    assert_eq!(received(&world), 2);
}

#[test]
fn the_last_patch_of_a_client_may_come_after_its_series_is_closed() {
    let second_name = [Tools, ToolsRestart, COMMIT, Tools, Pass(3 * SECOND), CatchUp, Tools];
    let world =
        after(plain(), &[&second_name[..], &[IDLE, CatchUp, Pass(120 * SECOND), ToolsFinish]].concat());
    assert_eq!(received(&world), 3);
}

#[test]
fn an_update_of_another_name_flushes_nothing() {
    let steps = [Legacy(0), COMMIT, IDLE, CatchUp, Pass(1420 * SECOND), Legacy(1), COMMIT, Legacy(0), COMMIT];
    let world = in_the_end(plain(), &steps);
    assert_eq!((received(&world), world.etcd.gained), (3, 3));
}

#[test]
fn an_update_of_another_name_lowers_nothing() {
    let merged = [Legacy(1), COMMIT, Legacy(0), Pass(3 * SECOND), CatchUp, Legacy(0), IDLE, CatchUp];
    let world = after(plain(), &merged);
    assert_eq!(world.etcd.get("l.2").unwrap().count, 3);
    let world = in_the_end(world, &[Pass(1200 * SECOND), Legacy(2), COMMIT, Legacy(1), COMMIT]);
    assert_eq!((received(&world), world.etcd.gained), (5, 5));
}

#[test]
fn an_update_in_the_same_second_is_no_edit() {
    let merged = [Legacy(1), COMMIT, Legacy(0), Legacy(1), Pass(2 * SECOND), CatchUp];
    let world = after(plain(), &merged);
    assert_eq!(world.etcd.get("l.2").unwrap().count, 3);
    assert_eq!(received(&after(world, &[Legacy(1)])), 4);
}

#[test]
fn a_summary_goes_on_counting_while_its_group_lives() {
    let aggregation =
        AggregationRules { max_events: 3, idle_timeout: Duration::from_secs(600), group_by: GroupBy::Object };
    let rules = Rules { aggregation: Some(aggregation), ..rules() };
    let first_merge = [
        CreateOnly(0, Api::Core),
        COMMIT,
        CreateOnly(1, Api::Core),
        COMMIT,
        CreateOnly(2, Api::Core),
        Pass(2 * SECOND),
        CatchUp,
    ];
    let again = [Pass(390 * SECOND), CatchUp, CreateOnly(3, Api::Core)];
    let world = in_the_end(World::new(rules), &[&first_merge[..], &again].concat());
    assert_eq!((world.counters().of(Disposition::Aggregated), world.etcd.gained), (2, 4));
}

#[test]
fn a_generated_name_is_flushed() {
    let world = in_the_end(plain(), &[Generate, Generate, COMMIT]);
    assert_eq!((received(&world), world.etcd.gained), (2, 2));
}

/// client-go's events recorder sends its first two writes at once. Both are CREATEs, and the second one finds
/// the first.
const BOTH_AT_ONCE: [Step; 4] = [Tools, Tools, COMMIT, COMMIT];

#[test]
fn a_refresh_is_never_answered_with_a_lower_count() {
    let refreshed = [Pass(9 * SECOND), Retry(0), Pass(2 * SECOND), ToolsRefresh, COMMIT, COMMIT, Tools];
    let steps =
        [&[Pass(1700 * SECOND)], &BOTH_AT_ONCE[..], &refreshed, &[IDLE, ToolsFinish, COMMIT]].concat();
    assert_eq!(received(&after(plain(), &steps)), 3);
}

#[test]
fn a_client_write_refused_after_admission_is_flushed_before_half_is_missing() {
    let refused = Step::Commit(0, Commit::Refused);
    let steps = [Kube(0), COMMIT, Pass(223 * SECOND), Kube(0), refused, Kube(0), Kube(0), Pass(3 * SECOND)];
    let world = after(plain(), &[&steps[..], &[CatchUp]].concat());
    assert!(world.etcd.get("k.11").unwrap().count >= 2, "of 3");
}

#[test]
fn occurrences_compacted_elsewhere_and_reported_again_are_recovered() {
    let merged = [Legacy(1), Legacy(0), COMMIT, Pass(3 * SECOND), CatchUp, IDLE, CatchUp];
    let world = in_the_end(plain(), &[&merged[..], &[Pass(400 * SECOND), Legacy(0), COMMIT]].concat());
    assert_eq!((received(&world), world.counters().recovered, world.etcd.gained), (3, 1, 4));
}

#[test]
fn a_series_closing_at_capacity_continues_after_a_write() {
    let mut world = World { max_series: 2, with_model: false, replicas: Vec::new(), ..plain() };
    world.start_replica(Timestamp::UNIX_EPOCH);
    let pending_series = [Legacy(0), COMMIT, Legacy(1), CreateOnly(1, Api::Core), COMMIT, Pass(3 * SECOND)];
    let closing = [
        CreateOnly(2, Api::Core),
        COMMIT,
        Take,
        Read(0),
        Legacy(0),
        Step::Write(0, Fate::Answered),
        Legacy(1),
    ];
    let world = in_the_end(world, &[&pending_series[..], &closing].concat());
    assert_eq!((received(&world), world.etcd.gained), (6, 6));
}

#[test]
fn an_older_value_lowers_nothing() {
    let steps = [Tools, ToolsRefresh, COMMIT, Retry(0), IDLE, ToolsFinish, COMMIT];
    let world = after(plain(), &[&[Pass(1700 * SECOND)], &BOTH_AT_ONCE[..], &steps].concat());
    assert_eq!(received(&world), 3);
}

#[test]
fn occurrences_found_in_etcd_are_not_counted_again_when_reported() {
    let merged = [Legacy(0), COMMIT, Legacy(0), COMMIT, Legacy(1)];
    let unseen = [Overlook, Legacy(0), COMMIT].repeat(3);
    let read = [Pass(3 * SECOND), CatchUp];
    let world = after(plain(), &[&merged[..], &unseen, &read].concat());
    assert_eq!(world.etcd.get("l.1").unwrap().count, 5);
    let world = in_the_end(world, &[Legacy(0), COMMIT]);
    assert_eq!((received(&world), world.etcd.gained), (7, 7));
}

#[test]
fn undecided_writes_after_a_series_closed_are_not_counted_again() {
    let unseen = [Overlook, Legacy(0), COMMIT].repeat(3);
    for (third, stored) in [(Legacy(0), 6), (Legacy(1), 5)] {
        let closed = [Legacy(0), COMMIT, Legacy(0), COMMIT, third, Pass(3 * SECOND), CatchUp, IDLE, CatchUp];
        let world = after(plain(), &[&closed[..], &unseen].concat());
        assert_eq!(world.etcd.get("l.1").unwrap().count, stored);
        let world = in_the_end(world, &[Legacy(0), COMMIT]);
        assert_eq!((received(&world), world.etcd.gained), (7, 7));
    }
}

#[test]
fn a_lost_answer_and_a_restart_count_one_occurrence_twice() {
    let lost = Step::Commit(0, Commit::AnswerLost);
    let world = in_the_end(plain(), &[Tools, lost, Kill, Begin, Pass(6 * SECOND), Retry(0), COMMIT]);
    assert_eq!((received(&world), world.balance.reported_again, world.etcd.gained), (2, 1, 1));
}

#[test]
fn a_client_reports_to_the_next_replica_what_the_former_did_not_flush() {
    let steps =
        [Legacy(0), COMMIT, Legacy(0), COMMIT, Legacy(0), Pass(50 * SECOND), LoseLease, Legacy(0), COMMIT];
    let world = in_the_end(plain(), &steps);
    assert_eq!((received(&world), world.balance.reported_again, world.etcd.gained), (5, 1, 4));
}

#[test]
fn a_count_is_lowered_only_while_no_replica_answers() {
    let merged = [Legacy(0), COMMIT, Legacy(0), COMMIT, Legacy(1), Legacy(1), Pass(3 * SECOND), CatchUp];
    for (standby, count) in [(false, 3), (true, 4)] {
        let world = after(plain(), &merged);
        assert_eq!(world.etcd.get("l.1").unwrap().count, 4);
        let world = after(world, &[Terminate, Depart { standby }, Legacy(0), COMMIT]);
        assert_eq!(world.etcd.get("l.1").unwrap().count, count);
        in_the_end(world, &[Begin, Legacy(0), COMMIT]);
    }
}

/// A client's write passed undecided, so that its next one carries two occurrences and adds one to the stored count.
#[test]
fn a_write_that_adds_less_than_it_carries_is_merged_at_shutdown() {
    let unseen = [Legacy(1), Generate, Pass(360_001), CatchUp, Overlook, Legacy(1), COMMIT];
    let world = in_the_end(plain(), &[&unseen[..], &[Terminate, Legacy(1)]].concat());
    assert_eq!((received(&world), world.etcd.gained), (4, 4));
}

/// As above, but the undecided write raised the stored count, so that its occurrence is stored twice.
#[test]
fn a_write_merged_at_shutdown_repeats_what_an_undecided_one_stored() {
    let stored = Step::Commit(1, Commit::Tried);
    let passed = [Generate, Terminate, Legacy(1), stored, Overlook, Legacy(1), stored, Legacy(1)];
    let world = in_the_end(plain(), &passed);
    assert_eq!((received(&world), world.etcd.gained), (4, 5));
}

/// "Until the new count exceeds it, only writes that add one to the stored count are counted." After the restart, 1 and 2
/// are not counted, 3 adds one to the stored 2, and the others exceed 3.
#[test]
fn a_client_that_counts_anew_is_not_counted_below_the_stored_count() {
    let applied = [Applier, COMMIT, Pass(SECOND)];
    let mut world = after(plain(), &applied.repeat(3));
    assert_eq!((received(&world), world.etcd.get("s.0").unwrap().count), (3, 2));
    world.run(ApplierRestarts);
    for counted in [3, 3, 4, 5, 6, 7] {
        world = after(world, &applied);
        assert_eq!(received(&world), counted);
    }
    in_the_end(world, &[]);
}

/// A retry of the drain replaces the grace time of a client's write. The idle series is then over, and the next
/// write opens one that the drain flushes as well.
#[test]
fn a_series_whose_flush_was_deferred_is_over_at_its_idle_timeout() {
    let deferred = [Legacy(1), Legacy(0), Terminate, CatchUp];
    let idle = [Pass(360_001), Legacy(1), CatchUp, Pass(995), Legacy(1), Take];
    let world = in_the_end(plain(), &[&deferred[..], &idle].concat());
    assert_eq!((received(&world), world.etcd.gained), (4, 4));
}

/// The API server refuses the second CREATE. Its retry comes after the series has ended.
#[test]
fn a_refused_create_is_in_the_next_absolute_count() {
    let steps = [Pass(4 * SECOND), CatchUp, Retry(0), COMMIT, Pass(361 * SECOND), ToolsFinish, COMMIT];
    let world = in_the_end(World::new(rules_with(2, 1800)), &[&BOTH_AT_ONCE[..], &steps].concat());
    assert_eq!((received(&world), world.etcd.gained), (2, 2));
}

/// Other clients' occurrences stay in an Event whose client has reported to another series in between.
#[test]
fn an_event_stays_shared_while_its_client_reports_to_another_series() {
    let shared = [Legacy(0), Generate, Legacy(1), COMMIT, Pass(2 * SECOND), CatchUp, IDLE, Legacy(1), COMMIT];
    let elsewhere = [Legacy(1), Legacy(0), Pass(3 * SECOND), CatchUp, IDLE, Legacy(0), Overlook, Legacy(0)];
    let world = in_the_end(plain(), &[&shared[..], &elsewhere, &[COMMIT, Legacy(0)]].concat());
    assert_eq!(world.etcd.get("l.1").unwrap().count, 6);
}

/// "squelch never writes another Event under the same name": a tenant takes the name of the deleted Event. Another client's
/// CREATE is merged into the series. The UPDATE meets a conflict with the tenant's Event and is merged as well. Both pending
/// occurrences are lost and counted.
#[test]
fn an_update_merged_after_another_user_took_its_name_is_lost_and_counted() {
    let deleted = [Legacy(0), COMMIT, Legacy(0), TakeName(0), Delete(0)];
    let merged = [CreateOnly(0, Api::Events), Step::Commit(1, Commit::Tried), COMMIT];
    let world = in_the_end(plain(), &[deleted.as_slice(), &merged].concat());
    let counters = world.counters();
    assert_eq!((counters.received(), counters.lost, world.etcd.gained), (4, 2, 2));
}
