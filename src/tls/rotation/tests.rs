//! Random histories of two replicas, the Secret, and an API server that gets the configuration late.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use squelch_engine::testing::cases;

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

/// The webhook configuration: the authorities to trust, and the generation of the token in the path.
#[derive(Clone, PartialEq, Debug)]
struct Configuration {
    trusted: BTreeSet<u64>,
    token: Id,
}

/// The controller around a rotation, without its calls.
struct Replica {
    rotation: Rotation<GenerationInfo>,
    serving: GenerationInfo,
    /// The configuration that the API server has acknowledged to this replica.
    acknowledged: Option<Configuration>,
    /// The certificate served before had expired, so that one that is not trusted yet is served.
    served_untrusted: bool,
}

fn authority(generation: &GenerationInfo) -> u64 {
    generation.authority.unwrap().id.0
}

impl Replica {
    fn start(ring: &Ring<GenerationInfo>, lifetimes: Lifetimes) -> Self {
        let rotation = Rotation::new(ring.clone(), lifetimes);
        Self { rotation, serving: ring.current, acknowledged: None, served_untrusted: false }
    }

    fn configuration(&self) -> Configuration {
        let trusted = self.rotation.all().map(authority).collect();
        Configuration { trusted, token: self.rotation.ring().current.id }
    }

    fn accepts(&self, token: Id) -> bool {
        self.rotation.all().any(|generation| generation.id == token)
    }

    /// Records the acknowledged configuration, if it is the desired one.
    fn record_acknowledged(&mut self, now: Duration) {
        if self.acknowledged.as_ref() == Some(&self.configuration()) {
            let ids = self.rotation.all().map(|generation| generation.id);
            let trusted: Vec<Id> = ids.chain([self.serving.id]).collect();
            self.rotation.record_in_force(&trusted, self.rotation.ring().current.id, now);
        }
    }

    fn serve(&mut self, world: &World) {
        let candidate = self.rotation.ring().current;
        let is_valid = self.serving.is_valid(world.wall());
        if candidate.shares_authority(&self.serving)
            || self.rotation.may_serve(candidate.id, is_valid, world.now)
        {
            self.served_untrusted |= !is_valid;
            self.serving = candidate;
        }
        self.served_untrusted &= !world.in_force.trusted.contains(&authority(&self.serving));
        self.rotation.drop_lingering(self.serving.id, world.now);
    }
}

/// The Secret, the API server and the clocks.
struct World {
    now: Duration,
    /// Jumps of the API server's clock so far.
    jumped: SignedDuration,
    secret: Ring<GenerationInfo>,
    /// The Secret is deleted and not written again yet.
    deleted: bool,
    lifetimes: Lifetimes,
    in_force: Configuration,
    /// Written, but not yet in force.
    written: Option<Configuration>,
    made: u64,
}

impl World {
    fn wall(&self) -> Timestamp {
        later(later(begin(), signed(self.now)), self.jumped)
    }

    fn fresh(&mut self) -> GenerationInfo {
        self.made += 1;
        generation(self.made, self.wall(), self.lifetimes)
    }

    /// A new token with the authority of the current generation.
    fn fresh_token(&mut self) -> GenerationInfo {
        GenerationInfo { authority: self.secret.current.authority, ..self.fresh() }
    }
}

#[derive(Clone, Copy, Debug)]
enum Event {
    /// Tenths of a poll interval pass.
    Time(u8),
    /// The active replica polls and reconciles.
    Poll,
    /// The standby polls.
    PollStandby,
    /// The API server applies the last written configuration.
    Apply,
    /// The active replica is replaced by a new process.
    Restart,
    /// The active replica and the standby change roles.
    Swap,
    /// Another writer replaces the Secret by a valid one.
    Replace,
    /// A person deletes the Secret.
    Delete,
    /// A call of the webhook fails.
    Fail,
    /// The API server's clock jumps by days.
    Jump(i16),
}

/// A simulation: the replicas poll often enough, everything else is random.
struct Simulation {
    world: World,
    active: Replica,
    standby: Replica,
    /// The last polls of the active replica and the standby, and the last application by the API server.
    polled: [Duration; 2],
    applied: Duration,
}

impl Simulation {
    fn new() -> Self {
        Self::with(lifetimes())
    }

    fn with(lifetimes: Lifetimes) -> Self {
        let first = generation(1, begin(), lifetimes);
        let secret = Ring::of(first);
        let in_force = Configuration { trusted: [1].into(), token: first.id };
        let world = World {
            now: Duration::ZERO,
            jumped: SignedDuration::ZERO,
            secret: secret.clone(),
            deleted: false,
            lifetimes,
            in_force,
            written: None,
            made: 1,
        };
        let (active, standby) = (Replica::start(&secret, lifetimes), Replica::start(&secret, lifetimes));
        Self { world, active, standby, polled: [Duration::ZERO; 2], applied: Duration::ZERO }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Time(tenths) => {
                self.world.now += self.world.lifetimes.poll_interval / 10 * u32::from(tenths);
                // One poll may fail, a second does not, and writes do not fail for long.
                let late = |last: Duration| self.world.now - last > self.world.lifetimes.poll_interval;
                let [active, standby] = self.polled.map(late);
                let stuck = late(self.applied);
                if active {
                    self.poll();
                }
                if stuck {
                    self.apply();
                }
                if standby {
                    self.poll_standby();
                }
            }
            Event::Poll => self.poll(),
            Event::PollStandby => self.poll_standby(),
            Event::Apply => self.apply(),
            Event::Restart => {
                self.apply_unacknowledged();
                // A new process creates a deleted Secret with its own keys, and calls fail until it has written the
                // configuration. Here the old process creates it first.
                if self.world.deleted {
                    self.poll();
                    self.apply_unacknowledged();
                }
                self.active = Replica::start(&self.world.secret, self.world.lifetimes);
            }
            Event::Swap => {
                self.apply_unacknowledged();
                std::mem::swap(&mut self.active, &mut self.standby);
            }
            Event::Replace => {
                self.world.deleted = false;
                self.world.secret = Ring::of(self.world.fresh());
            }
            Event::Delete => self.world.deleted = true,
            Event::Fail => {
                let wall = self.world.wall();
                for replica in [&mut self.active, &mut self.standby] {
                    replica.rotation.expose(wall);
                }
            }
            Event::Jump(days) => self.world.jumped += SignedDuration::from_hours(24 * i64::from(days)),
        }
    }

    fn poll(&mut self) {
        let (world, active) = (&mut self.world, &mut self.active);
        if std::mem::take(&mut world.deleted) {
            active.rotation.mark_compromised(world.now);
            world.secret = active.rotation.ring().clone();
        }
        active.rotation.adopt(world.secret.clone(), world.now);
        active.record_acknowledged(world.now);
        // Acknowledged writes are in force. Writes of an earlier process are not acknowledged to this one.
        for _ in 0..3 {
            let step = active.rotation.step(active.serving.id, world.wall(), world.now);
            let fresh = match step {
                Step::Introduce => Some(world.fresh()),
                Step::IntroduceToken => Some(world.fresh_token()),
                _ => None,
            };
            let Some(ring) = active.rotation.after(step, || fresh) else { break };
            world.secret = ring.clone();
            active.rotation.adopt(ring, world.now);
        }
        active.serve(world);
        world.written = Some(active.configuration());
        self.polled[0] = self.world.now;
    }

    fn poll_standby(&mut self) {
        if !self.world.deleted {
            self.standby.rotation.adopt(self.world.secret.clone(), self.world.now);
        }
        self.standby.serve(&self.world);
        self.polled[1] = self.world.now;
    }

    fn apply(&mut self) {
        self.applied = self.world.now;
        if let Some(configuration) = self.world.written.take() {
            self.active.acknowledged = Some(configuration.clone());
            self.active.record_acknowledged(self.world.now);
            self.world.in_force = configuration;
        }
    }

    /// Time passes, and all components run.
    fn pass(&mut self, time: Duration) {
        let until = self.world.now + time;
        while self.world.now < until {
            self.handle(Event::Time(10));
            self.poll();
            self.apply();
            self.poll_standby();
        }
    }

    /// Whether a replica accepts the token of this generation.
    fn accepts(&self, token: u64) -> bool {
        [&self.active, &self.standby].into_iter().any(|replica| replica.accepts(Id(token)))
    }

    /// The written configuration comes into force without an acknowledgement.
    fn apply_unacknowledged(&mut self) {
        if let Some(configuration) = self.world.written.take() {
            self.world.in_force = configuration;
        }
    }

    fn check_accepted(&self, replica: &Replica) -> Result<(), TestCaseError> {
        let in_force = &self.world.in_force;
        prop_assert!(
            in_force.trusted.contains(&authority(&replica.serving)),
            "{:?} is served, {in_force:?}",
            replica.serving
        );
        prop_assert!(replica.accepts(in_force.token), "the token of {:?} is refused", in_force.token);
        Ok(())
    }
}

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
