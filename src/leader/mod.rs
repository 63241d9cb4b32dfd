//! Which replica decides: a Lease in the API server names it, a [`Term`] ends its time by its own clock, and a label
//! leads the API server to its pod.

mod election;
mod lease;
mod peers;
mod role;
mod term;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use k8s_openapi::api::core::v1::ObjectReference;
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

pub use election::{EVERY, Election, Found, Identity, LEASE, Record, Step, TERM, Unanswered};
pub use lease::{Lease, NAME as LEASE_NAME, Owner};
pub use peers::Peers;
pub use role::Role;
pub use term::Term;

use squelch_engine::Moment;

use crate::announcer::{Announcement, Announcer};
use crate::clock;
use crate::metrics::Metrics;
use lease::{DEADLINE, Written};

/// A call that failed is made again after this long.
const RETRY: Duration = Duration::from_millis(100);

/// [`RETRY`], doubled with each write in a row that the API server refuses while it serves reads: up to [`EVERY`].
fn pause_after(refused: u32) -> Duration {
    RETRY.saturating_mul(2_u32.saturating_pow(refused.saturating_sub(1))).min(EVERY)
}

/// How often it is tried to give the Lease back.
const LAST_ATTEMPTS: usize = 3;

/// The exit code of a process that stalled past its Lease (`EX_TEMPFAIL`).
pub const STALLED: i32 = 75;

/// Stands for election until it has won, then renews.
pub struct Leader {
    lease: Lease,
    role: Option<Role>,
    election: Election,
    term: Arc<Term>,
    /// Whether this replica decides, for those who write.
    active: watch::Sender<bool>,
    /// This replica has decided on something, and may owe.
    begun: CancellationToken,
    /// Somebody else holds what this replica held.
    deposed: CancellationToken,
    /// What has to be done before the first decision.
    begin: Option<Begin>,
    announcer: Announcer,
    metrics: Arc<Metrics>,
    /// The Lease as this replica wrote it last.
    mine: Option<Record>,
    /// When it sent the write that made it so.
    sent: Moment,
    /// The writes that have no answer yet.
    unanswered: Unanswered,
    /// The same, as calls: an answer that is late counts from the sending of its write.
    under_way: FuturesUnordered<BoxFuture<'static, Answer>>,
    /// When it was awake last.
    awake: Moment,
    /// How many writes in a row the API server has refused while it served reads.
    refused: u32,
    /// What reads fail with.
    read_failure: Option<String>,
    /// What writes fail with.
    write_failure: Option<String>,
}

/// What became of a write.
struct Answer {
    sent: Moment,
    written: Result<Written, String>,
}

/// What a read of the Lease brought.
enum Read {
    Found(Found),
    /// It is this replica's, by the late answer of a write; renew it after this long.
    Held(Duration),
    Failed,
}

/// What an attempt to write the Lease brought.
enum Taken {
    /// It is this replica's; renew it after this long.
    Held(Duration),
    /// The API server has refused the write, or could not be reached.
    Refused,
    /// Something else stands there, or there is no answer yet.
    Unknown,
}

/// What has to be done before the first decision.
pub type Begin = Box<dyn FnOnce() + Send>;

impl Leader {
    /// One who stands for `lease`, and for the label `role` of its pod, if it is in one. `begin` is called once, before
    /// the first decision.
    pub fn new(
        lease: Lease,
        role: Option<Role>,
        term: Arc<Term>,
        begin: Begin,
        announcer: Announcer,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            election: Election::new(lease.me().clone()),
            lease,
            role,
            term,
            active: watch::Sender::new(false),
            begun: CancellationToken::new(),
            deposed: CancellationToken::new(),
            begin: Some(begin),
            announcer,
            metrics,
            mine: None,
            sent: Moment::default(),
            unanswered: Unanswered::default(),
            under_way: FuturesUnordered::new(),
            awake: clock::now(),
            refused: 0,
            read_failure: None,
            write_failure: None,
        }
    }

    /// Whether this replica is the active one. What only the active one may write waits for it.
    pub fn active(&self) -> watch::Receiver<bool> {
        self.active.subscribe()
    }

    /// Cancelled when this replica becomes the active one for the first time.
    pub fn begun(&self) -> CancellationToken {
        self.begun.clone()
    }

    /// Cancelled when this replica was the active one and another is.
    pub fn deposed(&self) -> CancellationToken {
        self.deposed.clone()
    }

    /// Stands for election once `ready` has ended and its pod has an address, until `stop` or until it is deposed. Then
    /// it renews nothing any more, and hands itself back for [`Self::release`].
    pub async fn run(mut self, ready: impl Future<Output = ()>, stop: CancellationToken) -> Self {
        let role = self.role.take();
        let addressed = role.as_ref().map(Role::addressed);
        // While a pod ends, the one in its place is just being made. It must not win before another that can be reached.
        let ready = async {
            ready.await;
            if let Some(addressed) = addressed {
                addressed.await;
            }
        };
        let (lease, active, stopping) = (self.lease.clone(), self.active(), stop.clone());
        let labelling = async move {
            if let Some(role) = role {
                role.keep(lease, active, stopping).await;
            }
        };
        let leading = async {
            if stop.run_until_cancelled(ready).await.is_some() {
                self.lead(&stop).await;
            }
            // The label goes on until it is somebody else's, but not what keeps it.
            stop.cancel();
        };
        tokio::join!(leading, labelling);
        self
    }

    /// A call under way is never given up: it may be carried out all the same.
    async fn lead(&mut self, stop: &CancellationToken) {
        self.awake = clock::now();
        while !stop.is_cancelled() && !self.deposed.is_cancelled() {
            self.wake();
            let pause = self.step().await;
            tokio::select! {
                () = stop.cancelled() => {}
                () = sleep(pause) => {}
            }
        }
    }

    /// Nothing here takes as long as a Lease. Who held one and slept so long was frozen; another may decide by now, and
    /// the API server's connections must not come back to this one.
    fn wake(&mut self) {
        let now = clock::now();
        let slept = now.since(self.awake);
        self.awake = now;
        if self.mine.is_some() && slept > LEASE {
            error!(
                ?slept,
                "stalled past the Lease: another replica may decide by now; this process ends at once"
            );
            std::process::exit(STALLED);
        }
    }

    /// Renews the Lease, and reads it where that has failed. After a write that is refused no other follows at once.
    async fn step(&mut self) -> Duration {
        let mut refused = false;
        if let Some(mine) = self.mine.clone() {
            let renewed = self.take(Found::Lease(mine)).await;
            self.check_term();
            match renewed {
                Taken::Held(pause) => return pause,
                Taken::Refused => refused = true,
                Taken::Unknown => {}
            }
        }
        let found = match self.read().await {
            Read::Found(found) => found,
            Read::Held(pause) => return pause,
            Read::Failed => {
                // Nothing is served: what comes back is not to be missed.
                self.refused = 0;
                return RETRY;
            }
        };
        if let Found::Lease(record) = &found
            && let Some(sent) = self.unanswered.proven_by(record, self.lease.me())
        {
            return self.hold(record.clone(), sent).max(pause_after(self.refused));
        }
        match self.election.hear(&found, clock::now()) {
            Step::Wait(pause) => {
                // Never held, but for a moment that had passed when its answer came.
                self.mine = None;
                pause
            }
            Step::Take if refused => pause_after(self.refused),
            Step::Take => match self.take(found).await {
                Taken::Held(pause) => pause,
                Taken::Refused => pause_after(self.refused),
                Taken::Unknown => RETRY,
            },
            Step::Yield(holder) => {
                self.yield_to(&holder);
                Duration::ZERO
            }
        }
    }

    /// Writes the Lease over what was found. Unless it is held by that, it has to be read: what was refused may be
    /// committed all the same.
    async fn take(&mut self, found: Found) -> Taken {
        let sent = clock::now();
        let renewed = self.unanswered.send(clock::wall().as_microsecond(), sent);
        let call = self.lease.clone().take(found, renewed);
        self.under_way.push(call.map(move |written| Answer { sent, written }).boxed());
        let mut patience = pin!(sleep(DEADLINE));
        loop {
            let answer = tokio::select! {
                biased;
                Some(answer) = self.under_way.next() => answer,
                () = &mut patience => return Taken::Unknown,
            };
            let is_newest = answer.sent == sent;
            match self.written(answer.written) {
                Some(Written::Done(mine)) => return Taken::Held(self.hold(mine, answer.sent)),
                Some(Written::Conflict) if is_newest => return Taken::Unknown,
                None if is_newest => {
                    self.refused = self.refused.saturating_add(1);
                    return Taken::Refused;
                }
                _ => {}
            }
        }
    }

    /// Reads the Lease, unless the answer of an earlier write comes first that says that it is this replica's.
    async fn read(&mut self) -> Read {
        let lease = self.lease.clone();
        let mut reading = pin!(lease.read());
        loop {
            let answer = tokio::select! {
                biased;
                Some(answer) = self.under_way.next() => answer,
                found = &mut reading => return self.was_read(found).map_or(Read::Failed, Read::Found),
            };
            if let Some(Written::Done(mine)) = self.written(answer.written) {
                return Read::Held(self.hold(mine, answer.sent));
            }
        }
    }

    /// The Lease is this replica's, by what it sent then; when to renew it.
    fn hold(&mut self, mine: Record, sent: Moment) -> Duration {
        let pause = EVERY.saturating_sub(clock::now().since(sent));
        if self.mine.is_some() && sent < self.sent {
            // The answer of a later write came before.
            return pause;
        }
        if sent > self.sent {
            self.refused = 0;
        }
        self.unanswered.commit(sent);
        (self.mine, self.sent) = (Some(mine), sent);
        let until = sent.plus(TERM);
        if until <= clock::now() {
            return pause;
        }
        self.election.won(sent);
        if let Some(begin) = self.begin.take() {
            begin();
            self.begun.cancel();
            info!(identity = self.lease.me().name(), "this replica is the active one: it decides");
            self.announce();
        } else if !*self.active.borrow() {
            info!("the Lease is this replica's again: it goes on deciding");
        }
        self.term.extend(until);
        self.metrics.active(true);
        self.active.send_if_modified(|active| !std::mem::replace(active, true));
        pause
    }

    /// Past its term it decides no more: each review sees that by itself, this is for all else.
    fn check_term(&mut self) {
        if *self.active.borrow() && !self.term.holds(clock::now()) {
            warn!("the Lease could not be renewed for {} s: Event writes pass until it is", TERM.as_secs());
            self.term.lapse();
            self.suspend();
        }
    }

    fn yield_to(&mut self, holder: &str) {
        warn!(holder, "another replica holds the Lease: this one decides no more");
        self.mine = None;
        self.retire();
        self.deposed.cancel();
    }

    /// Decides no more; the Lease stays as it is.
    pub fn retire(&self) {
        self.term.end();
        self.suspend();
    }

    fn suspend(&self) {
        self.metrics.active(false);
        self.active.send_replace(false);
    }

    /// Decides no more, and lets another take over at once.
    pub async fn release(mut self) {
        self.retire();
        for attempt in 1..=LAST_ATTEMPTS {
            let Some(mine) = self.mine.take() else { return };
            match self.lease.release(&mine).await {
                Ok(Written::Done(_)) => return info!("the Lease is given back"),
                Ok(Written::Conflict) => match self.lease.read().await {
                    Ok(Found::Lease(found)) if found.holder == self.lease.me().name() => {
                        self.mine = Some(found);
                    }
                    _ => return,
                },
                Err(error) => {
                    warn!(error, attempt, "the Lease could not be given back");
                    self.mine = Some(mine);
                }
            }
        }
        warn!("another replica takes over once {} s have passed", LEASE.as_secs());
    }

    /// What a read says, and logs that it failed only where that is new.
    fn was_read(&mut self, answer: Result<Found, String>) -> Option<Found> {
        match answer {
            Ok(found) => {
                if self.read_failure.take().is_some() {
                    info!("the Lease can be read again");
                }
                Some(found)
            }
            Err(error) => {
                if self.read_failure.as_ref() != Some(&error) {
                    warn!(error, "the Lease could not be read; trying again");
                    self.read_failure = Some(error);
                }
                None
            }
        }
    }

    /// The same of a write. A conflict does not show that the Lease can be written.
    fn written(&mut self, answer: Result<Written, String>) -> Option<Written> {
        match answer {
            Ok(written) => {
                if matches!(written, Written::Done(_)) && self.write_failure.take().is_some() {
                    info!("the Lease can be written again");
                }
                Some(written)
            }
            Err(error) => {
                if self.write_failure.as_ref() != Some(&error) {
                    warn!(error, "the Lease could not be written; trying again");
                    self.write_failure = Some(error);
                }
                None
            }
        }
    }

    fn announce(&self) {
        let regarding = ObjectReference {
            api_version: Some("coordination.k8s.io/v1".to_owned()),
            kind: Some("Lease".to_owned()),
            namespace: Some(self.lease.namespace().to_owned()),
            name: Some(LEASE_NAME.to_owned()),
            ..ObjectReference::default()
        };
        let note = format!("{} decides from now on.", self.lease.me().name());
        self.announcer.tell(Announcement {
            regarding,
            warning: false,
            reason: "Active",
            action: "Lead",
            note,
        });
    }
}

/// Also where the task panics: the others must not go on writing as the active replica.
impl Drop for Leader {
    fn drop(&mut self) {
        self.retire();
    }
}

#[cfg(test)]
mod tests;
