mod simulation;

use jiff::SignedDuration;

use super::*;

const LEAF: Duration = Duration::from_secs(90);

const TOKEN: Duration = Duration::from_secs(60);

fn lifetimes() -> Lifetimes {
    Lifetimes::of(LEAF, TOKEN)
}

/// The lifetimes by default.
fn default_lifetimes() -> Lifetimes {
    Lifetimes::of(Duration::from_secs(90 * 24 * 3600), Duration::from_secs(3600))
}

impl Generation for GenerationInfo {
    fn info(&self) -> GenerationInfo {
        *self
    }
}

fn begin() -> Timestamp {
    "2026-11-21T08:00:00Z".parse().unwrap()
}

fn generation(id: u64, wall: Timestamp, lifetimes: Lifetimes) -> GenerationInfo {
    let (begins, ends) = (later(wall, -BACKDATED), later(wall, signed(lifetimes.authority)));
    GenerationInfo { id: Id(id), since: wall, authority: Some(AuthorityInfo { id: Id(id), begins, ends }) }
}

#[test]
fn a_failure_before_a_token_was_made_does_not_expose_it() {
    let mut rotation =
        Rotation::new(Ring::of(generation(1, begin(), default_lifetimes())), default_lifetimes());
    let wall = later(begin(), SignedDuration::from_mins(10));
    rotation.expose(later(begin(), SignedDuration::from_secs(-1)));
    assert_eq!(rotation.step(Id(1), wall, Duration::ZERO), Step::Keep);
    rotation.expose(begin());
    assert_eq!(rotation.step(Id(1), wall, Duration::ZERO), Step::IntroduceToken);
    let young = later(begin(), SignedDuration::from_secs(299));
    assert_eq!(rotation.step(Id(1), young, Duration::ZERO), Step::Keep);
}

#[test]
fn keys_that_expired_while_no_replica_ran_are_replaced_at_once() {
    let old = generation(1, begin(), lifetimes());
    let mut rotation = Rotation::new(Ring::of(old), lifetimes());
    let (wall, now) = (later(begin(), SignedDuration::from_hours(24 * 400)), Duration::ZERO);
    assert_eq!(rotation.step(old.id, wall, now), Step::Introduce);
    let ring = rotation.after(Step::Introduce, || Some(generation(2, wall, lifetimes()))).unwrap();
    rotation.adopt(ring, now);
    assert_eq!(rotation.step(old.id, wall, now), Step::Promote);
    rotation.adopt(rotation.after(Step::Promote, || None).unwrap(), now);
    assert!(rotation.may_serve(Id(2), false, now));
}

#[test]
fn short_lifetimes_have_short_poll_intervals() {
    let (seconds, hour) = (Duration::from_secs, Duration::from_secs(3600));
    let usual = default_lifetimes();
    assert_eq!((usual.poll_interval, usual.propagation), (seconds(5), seconds(15)));
    assert_eq!((usual.authority, usual.token), (hour * 24 * 270, hour));
    assert_eq!(usual.min_exposed_age, seconds(300));
    let short = Lifetimes::of(seconds(5), hour);
    assert_eq!(
        (short.poll_interval, short.token, short.min_exposed_age),
        (Duration::from_millis(500), seconds(15), seconds(5))
    );
    assert_eq!(Lifetimes::of(hour, seconds(60)).poll_interval, seconds(5));
}

/// The API server's clock is a day ahead when a probe fails, and right again a moment later.
#[test]
fn a_clock_that_was_wrong_once_renews_one_token() {
    let lifetimes = default_lifetimes();
    let mut rotation = Rotation::new(Ring::of(generation(0, begin(), lifetimes)), lifetimes);
    rotation.expose(later(begin(), SignedDuration::from_hours(24)));
    let mut renewals = 0;
    for second in 0..12 * 3600_i32 {
        let wall = later(begin(), SignedDuration::from_secs(i64::from(second)));
        let now = Duration::from_secs(u64::from(second.unsigned_abs()));
        if rotation.step(Id(99), wall, now) == Step::IntroduceToken {
            renewals += 1;
            rotation.adopt(Ring::of(generation(renewals, wall, lifetimes)), now);
        }
    }
    // One in 40 minutes for 12 hours, and one for the failed call.
    assert!(renewals <= 19, "{renewals} tokens in 12 hours in which one call failed");
}
