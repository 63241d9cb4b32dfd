//! Histories that failed once, and the steps of a rotation.

use std::collections::BTreeMap;

use super::*;

/// The standby reads the ring before the promotion, then no Secret, then the ring after the next introduction.
#[test]
fn the_previous_generation_stays_until_a_standby_that_found_no_secret_has_read_the_promotion() {
    use Event::{Apply, Delete, Poll, Time};
    let mut simulation = Simulation::new();
    let history = [
        &[Delete, Time(4), Time(7), Time(6), Apply, Time(6), Time(1), Time(5), Time(1), Poll, Time(9)][..],
        &[Time(2), Delete, Time(10), Poll, Time(10), Time(10), Apply],
    ];
    for event in history.concat() {
        simulation.handle(event);
        simulation.check_accepted(&simulation.standby).unwrap();
    }
}

#[test]
fn a_rotation_takes_its_steps_in_order() {
    // Tokens live as long as authorities: each generation has a new authority.
    let mut simulation = Simulation::with(Lifetimes::of(LEAF, LEAF * 3));
    let mut rings = vec![simulation.world.secret.clone()];
    let (mut switched, mut known) = (None, None);
    for _ in 0..80 {
        simulation.handle(Event::Time(10));
        simulation.poll();
        simulation.apply();
        if rings.last() != Some(&simulation.world.secret) {
            rings.push(simulation.world.secret.clone());
        }
        if known.is_none() && simulation.world.in_force.trusted.contains(&2) {
            known = Some(simulation.world.now);
        }
        if switched.is_none() && simulation.active.serving.id == Id(2) {
            switched = Some(simulation.world.now);
        }
    }
    let shapes: Vec<_> = rings.iter().map(shape).collect();
    assert_eq!(
        shapes[..5],
        [(1, None, None), (1, Some(2), None), (2, None, Some(1)), (2, None, None), (2, Some(3), None)]
    );
    assert!(switched.unwrap() >= known.unwrap() + lifetimes().propagation);
}

fn shape(ring: &Ring<GenerationInfo>) -> (u64, Option<u64>, Option<u64>) {
    let id = |generation: &Option<GenerationInfo>| generation.map(|generation| generation.id.0);
    (ring.current.id.0, id(&ring.next), id(&ring.previous))
}

#[test]
fn a_token_is_accepted_for_less_than_its_lifetime_and_the_authority_stays() {
    let mut simulation = Simulation::with(default_lifetimes());
    let (begin, day) = (simulation.world.now, Duration::from_secs(24 * 3600));
    let mut accepted: BTreeMap<u64, (Duration, Duration)> = BTreeMap::new();
    while simulation.world.now < begin + day {
        simulation.pass(default_lifetimes().poll_interval);
        let now = simulation.world.now;
        for token in 1..=simulation.world.made {
            if simulation.accepts(token) {
                accepted.entry(token).or_insert((now, now)).1 = now;
            }
        }
    }
    // A day has 36 times two thirds of an hour; each rotation takes some seconds more.
    assert!((34..=37).contains(&accepted.len()), "{}", accepted.len());
    for (token, (first, last)) in accepted {
        assert!(last - first < Duration::from_secs(3600), "token {token}: {:?}", last - first);
    }
    assert_eq!(simulation.world.in_force.trusted, [1].into());
    assert_eq!(authority(&simulation.active.serving), 1);
}

#[test]
fn an_authority_is_replaced_before_it_expires_although_tokens_rotate() {
    let mut simulation = Simulation::new();
    simulation.pass(lifetimes().authority * 5);
    let ends = simulation.active.serving.authority.unwrap().ends;
    assert!(simulation.world.made > 20 && ends > simulation.world.wall(), "{} {ends}", simulation.world.made);
    let authorities = authority(&simulation.active.serving);
    assert!(authorities > 1);
}

#[test]
fn an_exposed_token_is_replaced_at_most_every_five_minutes() {
    let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
    let mut simulation = Simulation::with(default_lifetimes());
    simulation.pass(minutes(10));
    assert_eq!(simulation.world.made, 1, "no call has failed");
    simulation.handle(Event::Fail);
    simulation.pass(minutes(1));
    assert!(!simulation.accepts(1) && simulation.accepts(2));
    simulation.pass(minutes(20));
    assert_eq!(simulation.world.made, 2, "one failure is one new token");
    // Every call fails.
    let made = simulation.world.made;
    for _ in 0..3600 / 5 {
        simulation.handle(Event::Fail);
        simulation.pass(default_lifetimes().poll_interval);
    }
    let renewed = simulation.world.made - made;
    assert!((10..=12).contains(&renewed), "{renewed} in an hour");
    assert_eq!(simulation.world.in_force.trusted, [1].into(), "the authority stays");
}

#[test]
fn a_deleted_secret_is_written_with_keys_that_replace_those_in_use() {
    let mut simulation = Simulation::with(default_lifetimes());
    simulation.pass(Duration::from_secs(60));
    simulation.handle(Event::Delete);
    simulation.poll();
    assert_eq!(shape(&simulation.world.secret), (1, Some(2), None));
    // Deletions delay the promotion while replicas may not have read the next generation.
    for _ in 0..4 {
        simulation.handle(Event::Delete);
        simulation.pass(default_lifetimes().poll_interval * 2);
        assert_eq!(shape(&simulation.world.secret), (1, Some(2), None));
    }
    for _ in 0..4 {
        simulation.handle(Event::Delete);
        simulation.pass(default_lifetimes().propagation * 2);
    }
    assert!(simulation.world.secret.current.id != Id(1), "{:?}", simulation.world.secret);
    simulation.pass(Duration::from_secs(60));
    assert!(!simulation.accepts(1) && simulation.accepts(simulation.world.in_force.token.0));
    simulation.pass(Duration::from_secs(120));
    let current = simulation.world.secret.current;
    assert_eq!(simulation.world.secret, Ring::of(current));
    assert!(authority(&current) > 1 && simulation.active.serving == current);
    assert_eq!(simulation.world.in_force.trusted, [authority(&current)].into());
}

#[test]
fn deleting_the_secret_during_a_rotation_replaces_the_next_generation_too() {
    let mut simulation = Simulation::with(default_lifetimes());
    simulation.pass(Duration::from_secs(2405));
    assert_eq!(shape(&simulation.world.secret), (1, Some(2), None));
    simulation.handle(Event::Delete);
    simulation.pass(Duration::from_secs(120));
    assert_eq!(shape(&simulation.world.secret), (3, None, None));
    assert_eq!(authority(&simulation.world.secret.current), 3);
    assert!(!simulation.accepts(1) && !simulation.accepts(2));
}

#[test]
fn the_authority_that_a_standby_serves_stays_trusted_while_the_secret_is_deleted_repeatedly() {
    use Event::{Apply, Delete, Poll, PollStandby, Time};
    let promoted = [Delete, Poll, Apply, Time(1), Time(10), Time(6), Time(4), PollStandby, Time(9)];
    // The standby polls only while the Secret is deleted.
    let deleted = [Delete, Time(7), Time(10), Delete, Time(4), Time(9)];
    let mut simulation = Simulation::new();
    promoted.into_iter().for_each(|event| simulation.handle(event));
    assert_eq!(shape(&simulation.world.secret), (2, None, Some(1)));
    deleted.into_iter().for_each(|event| simulation.handle(event));
    assert_eq!((authority(&simulation.active.serving), authority(&simulation.standby.serving)), (2, 1));
    simulation.check_accepted(&simulation.active).unwrap();
    simulation.check_accepted(&simulation.standby).unwrap();
    // No more deletions.
    simulation.pass(lifetimes().propagation * 4);
    assert!(!simulation.accepts(1) && !simulation.accepts(2));
    assert_eq!(authority(&simulation.standby.serving), authority(&simulation.active.serving));
}
