mod world;

use super::*;

fn at(milliseconds: u64) -> Moment {
    Moment::from_epoch(Duration::from_millis(milliseconds))
}

/// The Lease after the nth renewal by `holder`.
fn lease(holder: &str, nth: u32) -> LeaseState {
    let (holder, resource_version) = (holder.to_owned(), nth.to_string());
    LeaseState::Present(LeaseRecord {
        holder,
        resource_version,
        renew_time: Some(nth.into()),
        ..LeaseRecord::default()
    })
}

fn released() -> LeaseState {
    LeaseState::Present(LeaseRecord { released: true, ..LeaseRecord::default() })
}

fn election(pod: Option<&str>) -> Election {
    Election::new(Identity::new(pod, 1))
}

/// The actions for a Lease that does not change, read once a second.
fn actions_for(election: &mut Election, found: &LeaseState, seconds: std::ops::Range<u64>) -> Vec<Action> {
    seconds.map(|second| election.observe(found, at(second * 1_000))).collect()
}

/// Asserts that a standby takes this Lease only after it was unchanged for the lease duration.
fn assert_waits_for_lease_duration(found: &LeaseState) {
    let mut standby = election(Some("squelch-b"));
    standby.observe(&lease("squelch-a_1", 7), at(0));
    let steps = actions_for(&mut standby, found, 1..6);
    assert!(steps[..4].iter().all(|step| matches!(step, Action::Wait(_))), "{found:?}: {steps:?}");
    assert_eq!(steps[4], Action::Acquire, "{found:?}");
}

#[test]
fn a_former_holder_steps_down_if_another_replica_may_have_held_the_lease_since() {
    let former = || {
        let mut former = election(Some("squelch-a"));
        former.observe(&LeaseState::Absent, at(0));
        former.record_renewal(at(0));
        former
    };
    assert_eq!(former().observe(&released(), at(3_000)), Action::Acquire);
    let step = former().observe(&released(), at(3_001));
    assert!(matches!(step, Action::StepDown(_)), "{step:?}");
    let mut former = former();
    let steps = actions_for(&mut former, &LeaseState::Absent, 4..9);
    assert!(matches!(steps.last(), Some(Action::StepDown(_))), "{steps:?}");
}

#[test]
fn a_released_lease_is_acquired_at_once() {
    assert_eq!(election(None).observe(&released(), at(0)), Action::Acquire);
    let mut standby = election(None);
    standby.observe(&lease("other", 7), at(0));
    assert_eq!(standby.observe(&released(), at(250)), Action::Acquire);
}

#[test]
fn no_standby_acquires_an_edited_or_deleted_lease_before_its_duration_has_passed() {
    let own = election(Some("squelch-b")).me.name;
    for holder in ["", own.as_str(), "squelch-b_edited", "a person"] {
        assert_waits_for_lease_duration(&lease(holder, 7));
    }
    assert_waits_for_lease_duration(&LeaseState::Absent);
}

#[test]
fn the_holder_reacquires_an_edited_or_deleted_lease_until_its_deadline() {
    let own = election(None).me.name;
    for found in [lease("", 7), lease(&own, 8), LeaseState::Absent] {
        let mut one = election(None);
        one.observe(&lease(&own, 7), at(0));
        one.record_renewal(at(0));
        assert_eq!(one.observe(&found, at(3_000)), Action::Acquire, "{found:?}");
        one.record_renewal(at(3_000));
        // Another replica may have acquired it since.
        assert!(matches!(one.observe(&found, at(6_001)), Action::Wait(_)), "{found:?}");
    }
}

#[test]
fn an_absent_lease_is_created_after_the_lease_duration() {
    let steps = actions_for(&mut election(None), &LeaseState::Absent, 0..5);
    let wait = Action::Wait(POLL_INTERVAL);
    assert_eq!(steps, [wait.clone(), wait.clone(), wait.clone(), wait, Action::Acquire]);
}

#[test]
fn an_annotation_by_another_writer_is_no_renewal() {
    let mut one = election(None);
    let annotated = |revision: u64| match lease("other", 7) {
        LeaseState::Present(record) => {
            LeaseState::Present(LeaseRecord { resource_version: revision.to_string(), ..record })
        }
        LeaseState::Absent => unreachable!(),
    };
    let steps: Vec<_> = (0..5).map(|second| one.observe(&annotated(second), at(second * 1_000))).collect();
    assert!(steps[..4].iter().all(|step| *step == Action::Wait(POLL_INTERVAL)), "{steps:?}");
    assert_eq!(steps[4], Action::Acquire);
}

#[test]
fn a_lease_that_is_not_renewed_is_acquired_after_its_duration() {
    let wait = Action::Wait(POLL_INTERVAL);
    let mut one = election(Some("squelch-b"));
    let steps = actions_for(&mut one, &lease("squelch-a_1", 7), 0..5);
    assert_eq!(steps, [wait.clone(), wait.clone(), wait.clone(), wait.clone(), Action::Acquire]);
    let mut renewed = election(Some("squelch-b"));
    let steps: Vec<_> = (0..10)
        .flat_map(|n| actions_for(&mut renewed, &lease("squelch-a_1", n), n.into()..u64::from(n) + 1))
        .collect();
    assert_eq!(steps, vec![wait; 10]);
}

#[test]
fn the_last_wait_ends_when_the_lease_duration_has_passed() {
    let mut one = election(None);
    for milliseconds in [0, 1_010, 2_020, 3_030] {
        assert_ne!(one.observe(&lease("other", 7), at(milliseconds)), Action::Acquire);
    }
    assert_eq!(one.observe(&lease("other", 7), at(3_990)), Action::Wait(Duration::from_millis(10)));
}

#[test]
fn an_outage_restarts_the_lease_duration() {
    let mut one = election(None);
    actions_for(&mut one, &lease("other", 7), 0..4);
    // The API server was away for a minute.
    let steps = actions_for(&mut one, &lease("other", 7), 64..69);
    assert!(steps[..4].iter().all(|step| *step != Action::Acquire), "{steps:?}");
    assert_eq!(steps[4], Action::Acquire);
}

#[test]
fn a_deleted_lease_is_left_to_its_holder_for_the_lease_duration() {
    let mut one = election(None);
    one.observe(&lease("other", 7), at(0));
    let steps = actions_for(&mut one, &LeaseState::Absent, 1..6);
    assert!(steps[..4].iter().all(|step| *step != Action::Acquire), "{steps:?}");
    assert_eq!(steps[4], Action::Acquire);
}

#[test]
fn a_restarted_container_acquires_the_lease_of_its_earlier_process_at_once() {
    let mut one = election(Some("squelch-a"));
    assert_eq!(one.observe(&lease("squelch-a_00000000000000ff", 7), at(0)), Action::Acquire);
    for other in ["squelch-b_1", "squelch-a2_1", "squelch-a"] {
        assert_eq!(
            election(Some("squelch-a")).observe(&lease(other, 7), at(0)),
            Action::Wait(POLL_INTERVAL),
            "{other}"
        );
    }
    // Only if nobody has renewed it since this process started.
    let mut later = election(Some("squelch-a"));
    later.observe(&lease("squelch-b_1", 7), at(0));
    assert_eq!(later.observe(&lease("squelch-a_2", 7), at(250)), Action::Wait(POLL_INTERVAL));
    // Outside of pods, an earlier process may still run.
    let before = Identity::new(None, 2);
    assert_eq!(election(None).observe(&lease(before.name(), 7), at(0)), Action::Wait(POLL_INTERVAL));
}

#[test]
fn the_holder_steps_down_for_any_other_holder() {
    for other in ["squelch-b_1", "squelch-a_2", "a person"] {
        let mut one = election(Some("squelch-a"));
        one.observe(&LeaseState::Absent, at(0));
        one.record_renewal(at(0));
        let own = one.me.name().to_owned();
        assert_eq!(one.observe(&lease(&own, 7), at(1_000)), Action::Acquire);
        assert_eq!(one.observe(&lease(other, 8), at(1_100)), Action::StepDown(other.to_owned()));
    }
}

#[test]
fn a_read_confirms_the_write_whose_renew_time_it_shows_and_no_other() {
    let mut in_flight = InFlightWrites::default();
    let me = Identity::new(None, 1);
    let shows =
        |renew_time| LeaseRecord { renew_time, holder: me.name().to_owned(), ..LeaseRecord::default() };
    // The wall clock does not advance, or steps back.
    let times = [0, 500, 1_000].map(|sent| in_flight.record_sent(7, at(sent)));
    assert_eq!(times, [7, 8, 9]);
    assert_eq!(in_flight.sent_time_of(&shows(Some(8)), &me), Some(at(500)));
    assert_eq!(in_flight.sent_time_of(&shows(Some(10)), &me), None);
    assert_eq!(in_flight.sent_time_of(&shows(None), &me), None, "a new resourceVersion alone");
    let edited = LeaseRecord { holder: "a person".to_owned(), ..shows(Some(8)) };
    assert_eq!(in_flight.sent_time_of(&edited, &me), None, "another holder with the same renewTime");
    in_flight.record_committed(at(500));
    assert_eq!(
        [7, 8, 9].map(|time| in_flight.sent_time_of(&shows(Some(time)), &me)),
        [None, Some(at(500)), Some(at(1_000))],
        "the last committed write stays stored until the next"
    );
    assert_eq!(in_flight.record_sent(8, at(1_500)), 10, "8 and 9 are used");
    assert_eq!(in_flight.record_sent(9, at(5_000)), 11, "9 may still be committed");
    assert_eq!(in_flight.sent_time_of(&shows(Some(9)), &me), Some(at(1_000)), "however late");
    in_flight.record_sent(9, at(62_000));
    assert_eq!(in_flight.sent_time_of(&shows(Some(9)), &me), None, "longer than any API server takes");
    assert_eq!(in_flight.sent_time_of(&shows(Some(8)), &me), Some(at(500)), "committed");
}
