//! Random histories of two replicas, the Secret, and an API server that gets the configuration late.

mod histories;
mod properties;

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

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
