//! Two replicas, the kept ring, and an API server that hears of the configuration late, through random histories.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use squelch_engine::testing::cases;

use super::*;

const LEAF: Duration = Duration::from_secs(90);

const TOKEN: Duration = Duration::from_secs(60);

fn lifetimes() -> Lifetimes {
    Lifetimes::of(LEAF, TOKEN)
}

/// What squelch runs with by default.
fn usual() -> Lifetimes {
    Lifetimes::of(Duration::from_secs(90 * 24 * 3600), Duration::from_secs(3600))
}

impl Generation for Term {
    fn term(&self) -> Term {
        *self
    }
}

fn begin() -> Timestamp {
    "2026-11-21T08:00:00Z".parse().unwrap()
}

fn generation(id: u64, wall: Timestamp, lifetimes: Lifetimes) -> Term {
    let (begins, ends) = (later(wall, -BACKDATED), later(wall, signed(lifetimes.authority)));
    Term { id: Id(id), since: wall, authority: Some(AuthorityTerm { id: Id(id), begins, ends }) }
}

/// The webhook configuration: the authorities to trust, and the generation of the token in the path.
#[derive(Clone, PartialEq, Debug)]
struct Configuration {
    trusted: BTreeSet<u64>,
    asked: Id,
}

/// What the driver does around a rotation, without its calls.
struct Replica {
    rotation: Rotation<Term>,
    serving: Term,
    /// The configuration that the API server has acknowledged to this replica.
    acknowledged: Option<Configuration>,
    /// What it served before had ended: better another that is not trusted yet.
    in_need: bool,
}

fn authority(generation: &Term) -> u64 {
    generation.authority.unwrap().id.0
}

impl Replica {
    fn start(ring: &Ring<Term>, lifetimes: Lifetimes) -> Self {
        let rotation = Rotation::new(ring.clone(), lifetimes);
        Self { rotation, serving: ring.current, acknowledged: None, in_need: false }
    }

    fn configuration(&self) -> Configuration {
        let trusted = self.rotation.all().map(authority).collect();
        Configuration { trusted, asked: self.rotation.ring().current.id }
    }

    fn accepts(&self, token: Id) -> bool {
        self.rotation.all().any(|generation| generation.id == token)
    }

    /// What is acknowledged is in force, if it is what this replica wants.
    fn hear(&mut self, now: Duration) {
        if self.acknowledged.as_ref() == Some(&self.configuration()) {
            let ids = self.rotation.all().map(|generation| generation.id);
            let trusted: Vec<Id> = ids.chain([self.serving.id]).collect();
            self.rotation.hear(&trusted, self.rotation.ring().current.id, now);
        }
    }

    fn serve(&mut self, world: &World) {
        let candidate = self.rotation.ring().current;
        let good = self.serving.is_good(world.wall());
        if candidate.shares_authority(&self.serving) || self.rotation.may_serve(candidate.id, good, world.now)
        {
            self.in_need |= !good;
            self.serving = candidate;
        }
        self.in_need &= !world.in_force.trusted.contains(&authority(&self.serving));
        self.rotation.settle(self.serving.id, world.now);
    }
}

/// Everything outside of the replicas.
struct World {
    now: Duration,
    /// The API server's clock runs so much ahead of the start of all.
    jumped: SignedDuration,
    kept: Ring<Term>,
    /// Nobody has written the Secret again since it was deleted.
    deleted: bool,
    lifetimes: Lifetimes,
    in_force: Configuration,
    /// Written, but not yet in force.
    under_way: Option<Configuration>,
    made: u64,
}

impl World {
    fn wall(&self) -> Timestamp {
        later(later(begin(), signed(self.now)), self.jumped)
    }

    fn fresh(&mut self) -> Term {
        self.made += 1;
        generation(self.made, self.wall(), self.lifetimes)
    }

    /// A new token with the authority of the current generation.
    fn fresh_token(&mut self) -> Term {
        Term { authority: self.kept.current.authority, ..self.fresh() }
    }
}

#[derive(Clone, Copy, Debug)]
enum Happening {
    /// So many tenths of a look pass.
    Time(u8),
    /// The active replica looks, and does its work.
    Look,
    /// The standby looks: it reads and serves.
    LookStandby,
    /// The API server takes the configuration over that was written last.
    TakeOver,
    /// The active replica is replaced by a new process.
    Restart,
    /// The standby takes the active one's place and the other way round.
    Swap,
    /// Somebody writes another sound Secret.
    Replace,
    /// Somebody deletes the Secret.
    Delete,
    /// A call of the webhook fails.
    Fail,
    /// The API server's clock jumps by so many days.
    Jump(i16),
}

/// A life: the replicas look often enough, everything else is random.
struct Life {
    world: World,
    active: Replica,
    standby: Replica,
    /// When the active one and the standby looked last, and when the API server last took something over.
    looked: [Duration; 2],
    took_over: Duration,
}

impl Life {
    fn new() -> Self {
        Self::with(lifetimes())
    }

    fn with(lifetimes: Lifetimes) -> Self {
        let first = generation(1, begin(), lifetimes);
        let kept = Ring::of(first);
        let in_force = Configuration { trusted: [1].into(), asked: first.id };
        let world = World {
            now: Duration::ZERO,
            jumped: SignedDuration::ZERO,
            kept: kept.clone(),
            deleted: false,
            lifetimes,
            in_force,
            under_way: None,
            made: 1,
        };
        let (active, standby) = (Replica::start(&kept, lifetimes), Replica::start(&kept, lifetimes));
        Self { world, active, standby, looked: [Duration::ZERO; 2], took_over: Duration::ZERO }
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Time(tenths) => {
                self.world.now += self.world.lifetimes.look / 10 * u32::from(tenths);
                // One look may fail, a second does not; nor does a write for long.
                let late = |last: Duration| self.world.now - last > self.world.lifetimes.look;
                let [active, standby] = self.looked.map(late);
                let stuck = late(self.took_over);
                if active {
                    self.look();
                }
                if stuck {
                    self.take_over();
                }
                if standby {
                    self.look_standby();
                }
            }
            Happening::Look => self.look(),
            Happening::LookStandby => self.look_standby(),
            Happening::TakeOver => self.take_over(),
            Happening::Restart => {
                self.end_unanswered();
                // A Secret that was deleted is made again by the process that comes: with keys of its own, and calls
                // fail until it has written the configuration. Here the process before it was faster.
                if self.world.deleted {
                    self.look();
                    self.end_unanswered();
                }
                self.active = Replica::start(&self.world.kept, self.world.lifetimes);
            }
            Happening::Swap => {
                self.end_unanswered();
                std::mem::swap(&mut self.active, &mut self.standby);
            }
            Happening::Replace => {
                self.world.deleted = false;
                self.world.kept = Ring::of(self.world.fresh());
            }
            Happening::Delete => self.world.deleted = true,
            Happening::Fail => {
                let wall = self.world.wall();
                for replica in [&mut self.active, &mut self.standby] {
                    replica.rotation.expose(wall);
                }
            }
            Happening::Jump(days) => self.world.jumped += SignedDuration::from_hours(24 * i64::from(days)),
        }
    }

    fn look(&mut self) {
        let (world, active) = (&mut self.world, &mut self.active);
        if std::mem::take(&mut world.deleted) {
            active.rotation.spoil(world.now);
            world.kept = active.rotation.ring().clone();
        }
        active.rotation.adopt(world.kept.clone(), world.now);
        active.hear(world.now);
        // An answered write is in force; what a former process wrote nobody here has an answer to.
        for _ in 0..3 {
            let step = active.rotation.step(active.serving.id, world.wall(), world.now);
            let fresh = match step {
                Step::Introduce => Some(world.fresh()),
                Step::IntroduceToken => Some(world.fresh_token()),
                _ => None,
            };
            let Some(ring) = active.rotation.after(step, || fresh) else { break };
            world.kept = ring.clone();
            active.rotation.adopt(ring, world.now);
        }
        active.serve(world);
        world.under_way = Some(active.configuration());
        self.looked[0] = self.world.now;
    }

    fn look_standby(&mut self) {
        if !self.world.deleted {
            self.standby.rotation.adopt(self.world.kept.clone(), self.world.now);
        }
        self.standby.serve(&self.world);
        self.looked[1] = self.world.now;
    }

    fn take_over(&mut self) {
        self.took_over = self.world.now;
        if let Some(configuration) = self.world.under_way.take() {
            self.active.acknowledged = Some(configuration.clone());
            self.active.hear(self.world.now);
            self.world.in_force = configuration;
        }
    }

    /// Time passes, and everybody does their work.
    fn pass(&mut self, time: Duration) {
        let until = self.world.now + time;
        while self.world.now < until {
            self.happen(Happening::Time(10));
            self.look();
            self.take_over();
            self.look_standby();
        }
    }

    /// Whether a replica accepts the token of this generation.
    fn accepts(&self, token: u64) -> bool {
        [&self.active, &self.standby].into_iter().any(|replica| replica.accepts(Id(token)))
    }

    /// What was written comes into force, and whoever wrote it does not hear of that.
    fn end_unanswered(&mut self) {
        if let Some(configuration) = self.world.under_way.take() {
            self.world.in_force = configuration;
        }
    }

    fn rings_true(&self, replica: &Replica) -> Result<(), TestCaseError> {
        let in_force = &self.world.in_force;
        prop_assert!(
            in_force.trusted.contains(&authority(&replica.serving)),
            "{:?} is served, {in_force:?}",
            replica.serving
        );
        prop_assert!(replica.accepts(in_force.asked), "the token of {:?} is refused", in_force.asked);
        Ok(())
    }
}

fn quiet() -> impl Strategy<Value = Happening> {
    prop_oneof![
        4 => (1..=10u8).prop_map(Happening::Time),
        4 => Just(Happening::Look),
        2 => Just(Happening::LookStandby),
        3 => Just(Happening::TakeOver),
        1 => Just(Happening::Restart),
        1 => Just(Happening::Delete),
        1 => Just(Happening::Fail),
    ]
}

fn wild() -> impl Strategy<Value = Happening> {
    prop_oneof![
        20 => quiet(),
        1 => Just(Happening::Replace),
        1 => (-800..=800i16).prop_map(Happening::Jump),
    ]
}

proptest! {
    #![proptest_config(cases(256))]

    /// Whoever is asked: what it serves is trusted, and the token of the path is accepted. (Only processes that end
    /// again and again never come to a rotation, until what they serve is good no more.)
    #[test]
    fn nothing_fails_in_a_quiet_life(history in prop::collection::vec(quiet(), 0..600)) {
        let mut life = Life::new();
        for happening in history {
            life.happen(happening);
            for replica in [&life.active, &life.standby] {
                if replica.serving.is_good(life.world.wall()) && !replica.in_need {
                    life.rings_true(replica)?;
                }
            }
        }
    }

    /// However often the Secret is replaced and the clock jumps: while what is served is good, it is trusted.
    #[test]
    fn the_one_that_is_asked_is_trusted_in_any_life(history in prop::collection::vec(wild(), 0..400)) {
        let mut life = Life::new();
        life.look();
        life.take_over();
        // A new process has nothing of what it finds replaced.
        for happening in history.into_iter().filter(|happening| !matches!(happening, Happening::Restart)) {
            life.happen(happening);
            if life.active.serving.is_good(life.world.wall()) {
                life.rings_true(&life.active)?;
            }
        }
    }

    /// Whatever has happened: left alone, one good generation is served, trusted and asked for, and no other is kept.
    #[test]
    fn every_life_settles(history in prop::collection::vec(wild(), 0..200), swapped: bool) {
        let mut life = Life::new();
        history.into_iter().for_each(|happening| life.happen(happening));
        if swapped {
            life.happen(Happening::Swap);
        }
        for _ in 0..20 {
            life.happen(Happening::Time(10));
            life.look();
            life.take_over();
        }
        let wall = life.world.wall();
        let current = life.world.kept.current;
        prop_assert!(current.is_good(wall));
        prop_assert_eq!(life.active.serving, current);
        // A rotation that was due just now may be under way.
        let made = wall.duration_since(current.since);
        if made > SignedDuration::from_secs(35) && made < signed(TOKEN) / 3 * 2 {
            prop_assert_eq!(&life.world.kept, &Ring::of(current));
            let trusted = [authority(&current)].into();
            prop_assert_eq!(&life.world.in_force, &Configuration { trusted, asked: current.id });
        }
    }
}

/// The standby reads the ring of before the promotion, then nothing, and then the one after the next introduction.
#[test]
fn the_previous_generation_stays_until_a_standby_that_found_no_secret_has_read_the_promotion() {
    use Happening::{Delete, Look, TakeOver, Time};
    let mut life = Life::new();
    let history = [
        &[Delete, Time(4), Time(7), Time(6), TakeOver, Time(6), Time(1), Time(5), Time(1), Look, Time(9)][..],
        &[Time(2), Delete, Time(10), Look, Time(10), Time(10), TakeOver],
    ];
    for happening in history.concat() {
        life.happen(happening);
        life.rings_true(&life.standby).unwrap();
    }
}

#[test]
fn a_rotation_takes_its_steps_in_order() {
    // No token of its own time: each generation has an authority of its own.
    let mut life = Life::with(Lifetimes::of(LEAF, LEAF * 3));
    let mut rings = vec![life.world.kept.clone()];
    let (mut switched, mut known) = (None, None);
    for _ in 0..80 {
        life.happen(Happening::Time(10));
        life.look();
        life.take_over();
        if rings.last() != Some(&life.world.kept) {
            rings.push(life.world.kept.clone());
        }
        if known.is_none() && life.world.in_force.trusted.contains(&2) {
            known = Some(life.world.now);
        }
        if switched.is_none() && life.active.serving.id == Id(2) {
            switched = Some(life.world.now);
        }
    }
    let shapes: Vec<_> = rings.iter().map(shape).collect();
    assert_eq!(
        shapes[..5],
        [(1, None, None), (1, Some(2), None), (2, None, Some(1)), (2, None, None), (2, Some(3), None)]
    );
    assert!(switched.unwrap() >= known.unwrap() + lifetimes().settle);
}

fn shape(ring: &Ring<Term>) -> (u64, Option<u64>, Option<u64>) {
    let id = |generation: &Option<Term>| generation.map(|generation| generation.id.0);
    (ring.current.id.0, id(&ring.next), id(&ring.previous))
}

#[test]
fn a_token_is_accepted_for_less_than_its_life_and_the_authority_stays() {
    let mut life = Life::with(usual());
    let (begin, day) = (life.world.now, Duration::from_secs(24 * 3600));
    let mut accepted: BTreeMap<u64, (Duration, Duration)> = BTreeMap::new();
    while life.world.now < begin + day {
        life.pass(usual().look);
        let now = life.world.now;
        for token in 1..=life.world.made {
            if life.accepts(token) {
                accepted.entry(token).or_insert((now, now)).1 = now;
            }
        }
    }
    // A day has 36 times two thirds of an hour; each rotation takes some seconds more.
    assert!((34..=37).contains(&accepted.len()), "{}", accepted.len());
    for (token, (first, last)) in accepted {
        assert!(last - first < Duration::from_secs(3600), "token {token}: {:?}", last - first);
    }
    assert_eq!(life.world.in_force.trusted, [1].into());
    assert_eq!(authority(&life.active.serving), 1);
}

#[test]
fn an_authority_ends_in_time_although_tokens_come_and_go() {
    let mut life = Life::new();
    life.pass(lifetimes().authority * 5);
    let ends = life.active.serving.authority.unwrap().ends;
    assert!(life.world.made > 20 && ends > life.world.wall(), "{} {ends}", life.world.made);
    let authorities = authority(&life.active.serving);
    assert!(authorities > 1);
}

#[test]
fn a_token_whose_call_failed_is_replaced_and_no_more_often_than_every_five_minutes() {
    let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
    let mut life = Life::with(usual());
    life.pass(minutes(10));
    assert_eq!(life.world.made, 1, "nothing has failed");
    life.happen(Happening::Fail);
    life.pass(minutes(1));
    assert!(!life.accepts(1) && life.accepts(2));
    life.pass(minutes(20));
    assert_eq!(life.world.made, 2, "one failure is one new token");
    // Calls fail all the time.
    let made = life.world.made;
    for _ in 0..3600 / 5 {
        life.happen(Happening::Fail);
        life.pass(usual().look);
    }
    let renewed = life.world.made - made;
    assert!((10..=12).contains(&renewed), "{renewed} in an hour");
    assert_eq!(life.world.in_force.trusted, [1].into(), "the authority stays");
}

#[test]
fn a_failure_before_a_token_was_made_is_not_its_own() {
    let mut rotation = Rotation::new(Ring::of(generation(1, begin(), usual())), usual());
    let wall = later(begin(), SignedDuration::from_mins(10));
    rotation.expose(later(begin(), SignedDuration::from_secs(-1)));
    assert_eq!(rotation.step(Id(1), wall, Duration::ZERO), Step::Keep);
    rotation.expose(begin());
    assert_eq!(rotation.step(Id(1), wall, Duration::ZERO), Step::IntroduceToken);
    let young = later(begin(), SignedDuration::from_secs(299));
    assert_eq!(rotation.step(Id(1), young, Duration::ZERO), Step::Keep);
}

#[test]
fn a_deleted_secret_is_written_again_with_keys_that_replace_those_in_use() {
    let mut life = Life::with(usual());
    life.pass(Duration::from_secs(60));
    life.happen(Happening::Delete);
    life.look();
    assert_eq!(shape(&life.world.kept), (1, Some(2), None));
    // Deletions put the promotion off while replicas may not have read what is next.
    for _ in 0..4 {
        life.happen(Happening::Delete);
        life.pass(usual().look * 2);
        assert_eq!(shape(&life.world.kept), (1, Some(2), None));
    }
    for _ in 0..4 {
        life.happen(Happening::Delete);
        life.pass(usual().settle * 2);
    }
    assert!(life.world.kept.current.id != Id(1), "{:?}", life.world.kept);
    life.pass(Duration::from_secs(60));
    assert!(!life.accepts(1) && life.accepts(life.world.in_force.asked.0));
    life.pass(Duration::from_secs(120));
    let current = life.world.kept.current;
    assert_eq!(life.world.kept, Ring::of(current));
    assert!(authority(&current) > 1 && life.active.serving == current);
    assert_eq!(life.world.in_force.trusted, [authority(&current)].into());
}

#[test]
fn a_secret_that_is_deleted_during_a_rotation_loses_what_was_next_too() {
    let mut life = Life::with(usual());
    life.pass(Duration::from_secs(2405));
    assert_eq!(shape(&life.world.kept), (1, Some(2), None));
    life.happen(Happening::Delete);
    life.pass(Duration::from_secs(120));
    assert_eq!(shape(&life.world.kept), (3, None, None));
    assert_eq!(authority(&life.world.kept.current), 3);
    assert!(!life.accepts(1) && !life.accepts(2));
}

#[test]
fn a_secret_that_is_deleted_again_and_again_after_a_promotion_keeps_the_authority_that_a_standby_serves() {
    use Happening::{Delete, Look, LookStandby, TakeOver, Time};
    let promoted = [Delete, Look, TakeOver, Time(1), Time(10), Time(6), Time(4), LookStandby, Time(9)];
    // The standby reads the Secret only while it is deleted.
    let deleted = [Delete, Time(7), Time(10), Delete, Time(4), Time(9)];
    let mut life = Life::new();
    promoted.into_iter().for_each(|happening| life.happen(happening));
    assert_eq!(shape(&life.world.kept), (2, None, Some(1)));
    deleted.into_iter().for_each(|happening| life.happen(happening));
    assert_eq!((authority(&life.active.serving), authority(&life.standby.serving)), (2, 1));
    life.rings_true(&life.active).unwrap();
    life.rings_true(&life.standby).unwrap();
    // Nobody deletes it any longer.
    life.pass(lifetimes().settle * 4);
    assert!(!life.accepts(1) && !life.accepts(2));
    assert_eq!(authority(&life.standby.serving), authority(&life.active.serving));
}

#[test]
fn what_has_ended_while_nobody_looked_is_replaced_at_once() {
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
fn looks_are_frequent_where_lives_are_short_and_rare_where_they_are_long() {
    let (seconds, hour) = (Duration::from_secs, Duration::from_secs(3600));
    let usual = usual();
    assert_eq!((usual.look, usual.settle), (seconds(5), seconds(15)));
    assert_eq!((usual.authority, usual.token), (hour * 24 * 270, hour));
    assert_eq!(usual.exposed, seconds(300));
    let short = Lifetimes::of(seconds(5), hour);
    assert_eq!(
        (short.look, short.token, short.exposed),
        (Duration::from_millis(500), seconds(15), seconds(5))
    );
    assert_eq!(Lifetimes::of(hour, seconds(60)).look, seconds(5));
}

/// The API server's clock is a day ahead when a probe fails, and right again a moment later.
#[test]
fn a_clock_that_was_wrong_once_renews_one_token() {
    let lifetimes = usual();
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
    // 12 hours, one in 40 minutes, and one for the failed call.
    assert!(renewals <= 19, "{renewals} tokens in 12 hours in which one call failed");
}
