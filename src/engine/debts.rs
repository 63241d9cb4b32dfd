//! What is owed and how it is paid: orders to the writer, and what the writer reports back.
//!
//! An order names a series whose stored Event is to be looked at. The writer reads it and asks [`Engine::plan`];
//! if there is something to write it writes that under the `resourceVersion` it has read, and tells
//! [`Engine::settle`]. Whatever happens, each order is answered by exactly one of `plan` (nothing to write),
//! [`Engine::settle`], [`Engine::postpone`], [`Engine::give_back`] and [`Engine::abandon`].
//!
//! squelch never writes an Event for a client to which the API server has refused it. A review comes before validation,
//! quota and the API server's own checks, so an admitted write proves nothing: only what squelch has read does.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use jiff::Timestamp;

use super::content::Content;
use super::live::Handle;
use super::scope::{Scope, ScopeId};
use super::series::{COMMITTED, Series};
use super::tick::{CLOSING, DECIDING, DRAINING};
use super::{Engine, Mode, Moment, PolicyId, SeriesRules};

/// The first attempt after one that failed comes within this time; each next one may take twice as long.
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// But never longer: what kept a debt from being paid may be gone any time.
const LONGEST_RETRY: Duration = Duration::from_secs(5 * 60);
/// While draining there is no time to wait for long.
const RETRY_AT_THE_END: Duration = Duration::from_secs(1);

/// How much older than its admission a new Event may look. The API server that admitted the CREATE wrote the time of
/// creation, and another one may answer the read: their clocks may differ by several seconds, or one of them is set in
/// between. Both times are whole seconds besides. A smaller tolerance takes a client's own Event for another one, and
/// its pending occurrences are lost. Within the tolerance the contents alone tell Events apart.
const CLOCK_SKEW: Duration = Duration::from_secs(60);

/// An order to look at a stored Event, and to pay what it lacks.
#[derive(Clone, Debug)]
pub struct Order {
    /// The Event's namespace.
    pub namespace: Arc<str>,
    /// The Event's name.
    pub name: Box<str>,
    /// The policy under which it was folded.
    pub policy: PolicyId,
    pub(super) scope: ScopeId,
    pub(super) series: Handle,
}

/// A stored Event, as it was read.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// The count that it shows.
    pub count: i64,
    /// How long ago it was created, if that is known. The clock that it is read by may differ from the one that wrote the
    /// time of creation by up to a minute.
    pub age: Option<Duration>,
    /// What it says; `None` where it is certain to be the Event that was meant.
    pub content: Option<Box<Content>>,
}

/// What is to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    /// Nothing; the order is answered.
    Nothing,
    /// The stored Event is to show `value`, last observed at `occurred_at` if that is later than it shows.
    Write {
        /// The count it is to show.
        value: i64,
        /// When the last folded occurrence happened.
        occurred_at: Timestamp,
        /// Of a summary: what it is to say from now on.
        content: Option<Box<Content>>,
    },
    /// There is no such Event: it is to be created with `value`.
    Create {
        /// The count it is to show.
        value: i64,
        /// When the last folded occurrence happened.
        occurred_at: Timestamp,
        /// What it is to say.
        content: Box<Content>,
        /// Of a summary that was never stored: the name of an admitted Event of its group. That Event has to be read first,
        /// and [`Engine::testify`] says whether it allows to create the summary.
        witness: Option<Box<str>>,
    },
    /// There is no such Event yet, but its client's write may still be stored; the order is answered, and given again.
    Wait,
    /// There is no such Event and never was, as far as squelch knows, or another one has its name: it is never written.
    /// The pending occurrences are lost and counted as that; the order is answered.
    Lost {
        /// How many occurrences are lost.
        occurrences: u64,
    },
}

impl Engine {
    /// What to write, given the Event that was `found` in etcd (`None`: no such Event).
    pub fn plan(&self, order: &Order, found: Option<Found>, now: Moment) -> Plan {
        let deciding = self.phase() == DECIDING;
        let was_found = found.is_some();
        let planned = self.with_series(order, |scope, handle| {
            // A client's write was admitted since the order was given: it is due again when that has settled.
            if deciding && now < scope.series.get(handle)?.not_before {
                return scope.answer(handle, Plan::Nothing, deciding, now);
            }
            let plan = scope.plan(handle, found, deciding, now)?;
            scope.answer(handle, plan, deciding, now)
        });
        let planned = planned.unwrap_or(Plan::Nothing);
        if was_found
            && !matches!(planned, Plan::Lost { .. })
            && let Some(mut namespace) = self.locked(&order.namespace)
        {
            namespace.names.prove(self.hasher.name(&order.name), order.series);
        }
        planned
    }

    /// Whether a summary may be created, given the Event of its group that was `found` under the witness's name: then
    /// [`Plan::Nothing`] says so. Else the order is answered, as [`Plan::Wait`] or [`Plan::Lost`] says.
    pub fn testify(&self, order: &Order, found: Option<Found>, now: Moment) -> Plan {
        let deciding = self.phase() == DECIDING;
        let testified = self.with_series(order, |scope, handle| {
            let (group, witness) = scope.series.witness(handle)?.clone();
            let since = now.since(witness.admitted_at);
            let is_it = |content: &Content| self.hasher.witness(&content.view()) == witness.says;
            let verdict = match found {
                Some(found) if found.content.as_deref().is_none_or(is_it) && !found.is_older_than(since) => {
                    return Some(Plan::Nothing);
                }
                None if since < COMMITTED => Plan::Wait,
                _ => {
                    scope.refute_witness(group, &witness);
                    Plan::Lost { occurrences: scope.discard(handle)? }
                }
            };
            scope.answer(handle, verdict, deciding, now)
        });
        testified.unwrap_or(Plan::Lost { occurrences: 0 })
    }

    /// The stored Event shows `value` now: the API server has acknowledged it.
    pub fn settle(&self, order: &Order, value: i64, now: Moment) {
        let deciding = self.phase() == DECIDING;
        self.with_series(order, |scope, handle| {
            scope.change(handle, now, |series| {
                series.ordered = false;
                series.failures = 0;
                series.drained = !deciding;
                series.settle(value);
                series.read = true;
                series.paid_at = now;
            })?;
            scope.series.forget_witness(handle);
            scope.finish(handle)
        });
    }

    /// It was tried and could not be written now: it stays owed, and is ordered again after a pause, the longer the
    /// more often it failed in a row, and no shorter than `at_least`. While draining the pause is a second. Returns the
    /// pause, if the series lives.
    pub fn postpone(&self, order: &Order, at_least: Duration, now: Moment) -> Option<Duration> {
        let draining = self.is_draining();
        self.with_series(order, |scope, handle| {
            scope.change(handle, now, |series| {
                series.failures = series.failures.saturating_add(1);
                let jitter = self.hasher.jitter(&order.name, series.failures);
                let pause =
                    if draining { RETRY_AT_THE_END } else { retry(series.failures, jitter).max(at_least) };
                series.retry(now.plus(pause), draining);
                pause
            })
        })
    }

    /// It was not tried: it is due again at once.
    pub fn give_back(&self, order: &Order, now: Moment) {
        self.with_series(order, |scope, handle| scope.change(handle, now, |series| series.ordered = false));
    }

    /// It can never be written: what is owed is lost, and counted as that. The series is forgotten, so that its
    /// client hears from the API server itself what is wrong with the next such Event. Returns how many occurrences.
    pub fn abandon(&self, order: &Order) -> u64 {
        let abandoned = self.with_series(order, |scope, handle| {
            if let Some((group, witness)) = scope.series.witness(handle).cloned() {
                scope.refute_witness(group, &witness);
            }
            scope.discard(handle)
        });
        abandoned.unwrap_or(0)
    }

    /// From now on nothing new is folded, and [`Self::tick`] orders each payment that is open once, due or not, and
    /// whatever failed before.
    pub fn drain(&self) {
        self.phase.store(DRAINING, Ordering::Release);
    }

    /// No write is reviewed any more: [`Self::tick`] orders whatever is left to be paid.
    pub fn drain_the_rest(&self) {
        self.phase.store(CLOSING, Ordering::Release);
    }

    pub(super) fn is_draining(&self) -> bool {
        self.phase() != DECIDING
    }

    pub(super) fn phase(&self) -> u8 {
        self.phase.load(Ordering::Acquire)
    }

    /// How many series have something to be paid in this phase, or are being paid.
    pub fn unpaid(&self) -> usize {
        let sizes = self.held.sizes();
        if self.phase() == DRAINING { sizes.undrained } else { sizes.unpaid }
    }

    /// Nothing more can be paid: what is still owed is lost, and counted as that. Returns how many occurrences, by
    /// namespace and in the order of their names. Walks through everything: no write is reviewed any more.
    pub fn write_off(&self) -> Vec<(Arc<str>, u64)> {
        let mut lost = Vec::new();
        for name in self.roster.all() {
            let Some(mut namespace) = self.locked(&name) else { continue };
            let before = namespace.sizes();
            // Under Observe nothing is owed to anybody.
            let scopes = namespace.scopes.iter_mut().filter(|scope| scope.rules.mode == Mode::Enforce);
            let of_namespace: u64 = scopes.map(Scope::write_off).sum();
            if of_namespace > 0 {
                lost.push((name, of_namespace));
            }
            self.held.change(&before, &namespace.sizes());
        }
        lost.sort();
        lost
    }

    /// Does something to the series of an order, if it lives, under the lock of its namespace.
    fn with_series<T>(&self, order: &Order, act: impl FnOnce(&mut Scope, Handle) -> Option<T>) -> Option<T> {
        let mut namespace = self.locked(&order.namespace)?;
        let scope = namespace.scopes.iter_mut().find(|scope| scope.id == order.scope)?;
        let before = scope.sizes();
        let done = act(scope, order.series);
        self.held.change(&before, &scope.sizes());
        done
    }
}

impl Found {
    /// An Event that is certain to be the one that was meant.
    pub fn counting(count: i64) -> Self {
        Self { count, age: None, content: None }
    }

    /// Whether it was certainly there before an Event whose CREATE was admitted this long ago.
    fn is_older_than(&self, admitted: Duration) -> bool {
        self.age.is_some_and(|age| age > admitted + CLOCK_SKEW)
    }
}

impl Scope {
    /// What the stored Event of a series lacks, given what was found under its name.
    fn plan(&mut self, handle: Handle, found: Option<Found>, deciding: bool, now: Moment) -> Option<Plan> {
        let series = self.series.get(handle)?;
        if found.as_ref().is_some_and(|found| self.is_another(handle, &series, found, now)) {
            return Some(Plan::Lost { occurrences: self.discard(handle)? });
        }
        if found.is_none() && !series.read && !series.summary {
            let plan = if series.may_still_be_stored(now) {
                Plan::Wait
            } else {
                Plan::Lost { occurrences: self.discard(handle)? }
            };
            return Some(plan);
        }
        let count = found.as_ref().map(|found| found.count);
        if let Some(read) = found {
            self.confirm(handle, &series, read, now);
        }
        let rules = self.rules.pace(series.summary);
        let content = self.series.content(handle).cloned();
        let planned =
            self.change(handle, now, |series| plan(series, content.as_ref(), &rules, count, !deciding, now));
        let witness = self.series.witness(handle).map(|(_, witness)| witness.name.clone());
        match planned? {
            Plan::Create { value, occurred_at, content, .. } => {
                Some(Plan::Create { value, occurred_at, content, witness })
            }
            planned => Some(planned),
        }
    }

    /// Whether what was found is not the Event of this series: it says something else, or is older than the CREATE that
    /// the series was opened by, which the API server has refused then.
    fn is_another(&self, handle: Handle, series: &Series, found: &Found, now: Moment) -> bool {
        // A summary's name is random: squelch has made what stands there, or somebody who knows what becomes of it.
        if series.summary {
            return false;
        }
        let claimed_only = series.is_claimed_only();
        let too_old = claimed_only && found.is_older_than(now.since(series.paid_at));
        let Some(content) = &found.content else { return too_old };
        let Some(kept) = self.series.content(handle) else { return too_old };
        too_old || !kept.is_event_like(content, claimed_only)
    }

    /// squelch has read the stored Event: from now on it may create it again, as it was read.
    fn confirm(&mut self, handle: Handle, series: &Series, read: Found, now: Moment) {
        self.change(handle, now, |series| series.read = true);
        self.series.forget_witness(handle);
        if let Some(content) = read.content.filter(|_| series.folded && !series.summary) {
            self.remember(handle, *content);
        }
    }

    /// Takes the order as answered, where the plan says so.
    fn answer(&mut self, handle: Handle, plan: Plan, deciding: bool, now: Moment) -> Option<Plan> {
        self.change(handle, now, |series| match plan {
            Plan::Write { .. } | Plan::Create { .. } => (series.ordered, series.drained) = (true, false),
            Plan::Nothing => {
                (series.ordered, series.drained, series.failures) = (false, !deciding, 0);
            }
            Plan::Wait => {
                series.retry(now.plus(FIRST_RETRY), !deciding);
                series.drained = false;
            }
            Plan::Lost { .. } => {}
        });
        if plan == Plan::Nothing {
            self.finish(handle);
        }
        Some(plan)
    }

    /// Forgets the series of an order that was answered, if it was closing and owes nothing any more.
    fn finish(&mut self, handle: Handle) -> Option<()> {
        let series = self.series.get(handle)?;
        if series.closing && !series.ordered && !series.needs_payment() {
            self.close(handle);
        }
        Some(())
    }

    fn write_off(&mut self) -> u64 {
        let mut lost = 0;
        for position in 0..u32::try_from(self.series.len()).unwrap_or(u32::MAX) {
            let Some((handle, series)) = self.series.nth(position) else { break };
            lost += series.owed().unsigned_abs();
            self.change(handle, series.seen, |series| series.settle(series.total));
        }
        self.counters.lost += lost;
        lost
    }
}

/// How long a debt waits that could not be paid so many times in a row: twice as long each time, and up to half less
/// by chance, so that those that failed together do not come back together.
fn retry(failures: u8, jitter: u16) -> Duration {
    let doublings = u32::from(failures.saturating_sub(1));
    let longest = FIRST_RETRY.saturating_mul(2u32.saturating_pow(doublings)).min(LONGEST_RETRY);
    longest / 2 + longest / 2 * u32::from(jitter) / u32::from(u16::MAX)
}

/// What one series' stored Event lacks, given what was found there.
pub(super) fn plan(
    series: &mut Series,
    content: Option<&Content>,
    rules: &SeriesRules,
    found: Option<i64>,
    draining: bool,
    now: Moment,
) -> Plan {
    let occurred_at = series.occurred_at;
    // Only squelch adds to a summary: what shows more is not what it wrote.
    let raised = series.summary && found.is_some_and(|found| found > series.total);
    if series.base_unknown || raised {
        series.rebase(found.unwrap_or(0));
    }
    match found {
        Some(found) if found >= series.total => series.settle(found),
        Some(found) if found >= series.stored && !series.closing && !draining && !series.due(rules, now) => {
            // Only the doubt brought us here, and what the client was believed to have paid is there.
            series.stored = found;
            series.confirmed = found;
            series.unverified = false;
        }
        Some(_) => {
            let content = content.filter(|_| series.summary).map(|content| Box::new(content.clone()));
            return Plan::Write { value: series.total, occurred_at, content };
        }
        None => match content {
            // Someone deleted what had been seen, and nothing is owed: it stays deleted.
            Some(_) if series.owed() == 0 && series.confirmed > 0 => series.settle(series.total),
            Some(content) => {
                let content = Box::new(content.clone());
                return Plan::Create { value: series.total, occurred_at, content, witness: None };
            }
            // Nothing was folded: whether its client's write was committed is the client's affair.
            None => series.settle(series.total),
        },
    }
    Plan::Nothing
}
