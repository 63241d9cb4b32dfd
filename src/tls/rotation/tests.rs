//! Two replicas, the kept ring, and an API server that hears of the configuration late, through random histories.

use proptest::prelude::*;

use super::*;

const LEAF: Duration = Duration::from_secs(90);

fn lifetimes() -> Lifetimes {
    Lifetimes::of(LEAF)
}

impl Generation for Term {
    fn term(&self) -> Term {
        *self
    }
}

fn begin() -> Timestamp {
    "2026-11-21T08:00:00Z".parse().unwrap()
}

fn generation(id: u64, wall: Timestamp) -> Term {
    let (begins, ends) = (later(wall, -BACKDATED), later(wall, signed(lifetimes().authority)));
    Term { id: Id(id), since: wall, begins, ends }
}

/// What the API server is told: whom to trust and with whose token to ask.
#[derive(Clone, PartialEq, Debug)]
struct Configuration {
    trusted: Vec<Id>,
    asked: Id,
}

/// What the driver does around a rotation, without its calls.
struct Replica {
    rotation: Rotation<Term>,
    serving: Term,
}

impl Replica {
    fn start(ring: &Ring<Term>) -> Self {
        Self { rotation: Rotation::new(ring.clone(), lifetimes()), serving: ring.current }
    }

    fn configuration(&self) -> Configuration {
        let trusted = self.rotation.all().map(|generation| generation.id).collect();
        Configuration { trusted, asked: self.rotation.ring().current.id }
    }

    fn accepts(&self, token: Id) -> bool {
        self.rotation.all().any(|generation| generation.id == token)
    }

    fn serve(&mut self, world: &World) {
        let candidate = self.rotation.ring().current;
        let good = self.serving.is_good(world.wall());
        if self.rotation.may_serve(candidate.id, good, world.now) {
            self.serving = candidate;
        }
        self.rotation.settle(self.serving.id, world.now);
    }
}

/// Everything outside of the replicas.
struct World {
    now: Duration,
    /// The API server's clock runs so much ahead of the start of all.
    jumped: SignedDuration,
    kept: Ring<Term>,
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
        generation(self.made, self.wall())
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
        let first = generation(1, begin());
        let kept = Ring::of(first);
        let in_force = Configuration { trusted: vec![first.id], asked: first.id };
        let world = World {
            now: Duration::ZERO,
            jumped: SignedDuration::ZERO,
            kept: kept.clone(),
            in_force,
            under_way: None,
            made: 1,
        };
        let (active, standby) = (Replica::start(&kept), Replica::start(&kept));
        Self { world, active, standby, looked: [Duration::ZERO; 2], took_over: Duration::ZERO }
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Time(tenths) => {
                self.world.now += lifetimes().look / 10 * u32::from(tenths);
                // One look may fail, a second does not; nor does a write for long.
                let late = |last: Duration| self.world.now - last > lifetimes().look;
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
                self.active = Replica::start(&self.world.kept);
            }
            Happening::Swap => {
                self.end_unanswered();
                std::mem::swap(&mut self.active, &mut self.standby);
            }
            Happening::Replace => self.world.kept = Ring::of(self.world.fresh()),
            Happening::Jump(days) => self.world.jumped += SignedDuration::from_hours(24 * i64::from(days)),
        }
    }

    fn look(&mut self) {
        let (world, active) = (&mut self.world, &mut self.active);
        active.rotation.adopt(world.kept.clone(), world.now);
        // An answered write is in force; what a former process wrote nobody here has an answer to.
        for _ in 0..3 {
            let step = active.rotation.step(active.serving.id, world.wall(), world.now);
            let fresh = (step == Step::Introduce).then(|| world.fresh());
            let Some(ring) = active.rotation.after(step, || fresh) else { break };
            world.kept = ring.clone();
            active.rotation.adopt(ring, world.now);
        }
        active.serve(world);
        world.under_way = Some(active.configuration());
        self.looked[0] = self.world.now;
    }

    fn look_standby(&mut self) {
        self.standby.rotation.adopt(self.world.kept.clone(), self.world.now);
        self.standby.serve(&self.world);
        self.looked[1] = self.world.now;
    }

    fn take_over(&mut self) {
        self.took_over = self.world.now;
        if let Some(configuration) = self.world.under_way.take() {
            self.active.rotation.hear(&configuration.trusted, configuration.asked, self.world.now);
            self.world.in_force = configuration;
        }
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
            in_force.trusted.contains(&replica.serving.id),
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
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whoever is asked: what it serves is trusted, and the token of the path is accepted. (Only processes that end
    /// again and again never come to a rotation, until what they serve is good no more.)
    #[test]
    fn nothing_fails_in_a_quiet_life(history in prop::collection::vec(quiet(), 0..600)) {
        let mut life = Life::new();
        for happening in history {
            life.happen(happening);
            for replica in [&life.active, &life.standby] {
                if replica.serving.is_good(life.world.wall()) {
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
        if made > SignedDuration::from_secs(60) && made < signed(lifetimes().authority) / 3 {
            prop_assert_eq!(&life.world.kept, &Ring::of(current));
            prop_assert_eq!(&life.world.in_force, &Configuration { trusted: vec![current.id], asked: current.id });
        }
    }
}

#[test]
fn a_rotation_takes_its_steps_in_order() {
    let mut life = Life::new();
    let mut rings = vec![life.world.kept.clone()];
    let (mut switched, mut known) = (None, None);
    for _ in 0..80 {
        life.happen(Happening::Time(10));
        life.look();
        life.take_over();
        if rings.last() != Some(&life.world.kept) {
            rings.push(life.world.kept.clone());
        }
        if known.is_none() && life.world.in_force.trusted.contains(&Id(2)) {
            known = Some(life.world.now);
        }
        if switched.is_none() && life.active.serving.id == Id(2) {
            switched = Some(life.world.now);
        }
    }
    let shape = |ring: &Ring<Term>| {
        let id = |generation: &Option<Term>| generation.map(|generation| generation.id.0);
        (ring.current.id.0, id(&ring.next), id(&ring.previous))
    };
    let shapes: Vec<_> = rings.iter().map(shape).collect();
    assert_eq!(
        shapes[..5],
        [(1, None, None), (1, Some(2), None), (2, None, Some(1)), (2, None, None), (2, Some(3), None)]
    );
    assert!(switched.unwrap() >= known.unwrap() + lifetimes().settle);
}

#[test]
fn what_has_ended_while_nobody_looked_is_replaced_at_once() {
    let old = generation(1, begin());
    let mut rotation = Rotation::new(Ring::of(old), lifetimes());
    let (wall, now) = (later(begin(), SignedDuration::from_hours(24 * 400)), Duration::ZERO);
    assert_eq!(rotation.step(old.id, wall, now), Step::Introduce);
    let ring = rotation.after(Step::Introduce, || Some(generation(2, wall))).unwrap();
    rotation.adopt(ring, now);
    assert_eq!(rotation.step(old.id, wall, now), Step::Promote);
    rotation.adopt(rotation.after(Step::Promote, || None).unwrap(), now);
    assert!(rotation.may_serve(Id(2), false, now));
}

#[test]
fn looks_are_frequent_where_lives_are_short_and_rare_where_they_are_long() {
    let usual = Lifetimes::of(Duration::from_secs(90 * 24 * 3600));
    assert_eq!((usual.look, usual.settle), (Duration::from_secs(5), Duration::from_secs(15)));
    assert_eq!(usual.authority, Duration::from_secs(270 * 24 * 3600));
    assert_eq!(Lifetimes::of(Duration::from_secs(5)).look, Duration::from_millis(500));
}
