//! What is owed and how it is paid: orders to the writer, and what the writer reports back.
//!
//! An order names a series whose stored Event is to be looked at. The writer reads it and asks [`Engine::plan`];
//! if there is something to write it writes that under the `resourceVersion` it has read, and tells
//! [`Engine::settle`]. Whatever happens, each order is answered by exactly one of `plan` (nothing to write),
//! [`Engine::settle`], [`Engine::postpone`], [`Engine::give_back`] and [`Engine::abandon`].

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use jiff::Timestamp;

use super::content::Content;
use super::live::Handle;
use super::scope::{Scope, ScopeId};
use super::series::Series;
use super::tick::{CLOSING, DECIDING, DRAINING};
use super::{Engine, Mode, Moment, PolicyId, SeriesRules};

/// The first attempt after one that failed comes within this time; each next one may take twice as long.
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// But never longer: what kept a debt from being paid may be gone any time.
const LONGEST_RETRY: Duration = Duration::from_secs(5 * 60);
/// While draining there is no time to wait for long.
const RETRY_AT_THE_END: Duration = Duration::from_secs(1);

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
    /// The stored Event is gone: it is to be created with `value`.
    Create {
        /// The count it is to show.
        value: i64,
        /// When the last folded occurrence happened.
        occurred_at: Timestamp,
        /// What it is to say.
        content: Box<Content>,
    },
}

impl Engine {
    /// What to write, given the count that was `found` in etcd (`None`: no such Event).
    pub fn plan(&self, order: &Order, found: Option<i64>, now: Moment) -> Plan {
        let deciding = self.phase() == DECIDING;
        let planned = self.with_series(order, |scope, handle| {
            let rules = scope.rules.pace(scope.series.get(handle)?.summary);
            let content = scope.series.content(handle).cloned();
            let plan = scope.change(handle, now, |series| {
                // A client's write was admitted since the order was given: it is due again when that has settled.
                let unsettled = deciding && now < series.not_before;
                let plan = if unsettled {
                    Plan::Nothing
                } else {
                    plan(series, content.as_ref(), &rules, found, !deciding, now)
                };
                series.ordered = plan != Plan::Nothing;
                if plan == Plan::Nothing {
                    series.failures = 0;
                }
                series.drained = !deciding && !series.ordered;
                plan
            });
            if plan == Some(Plan::Nothing) {
                scope.finish(handle);
            }
            plan
        });
        planned.unwrap_or(Plan::Nothing)
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
                series.paid_at = now;
            })?;
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
        let lost = self.with_series(order, |scope, handle| {
            let lost = scope.close(handle)?.owed().unsigned_abs();
            scope.counters.lost += lost;
            Some(lost)
        });
        lost.unwrap_or(0)
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

impl Scope {
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
    if series.base_unknown {
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
                return Plan::Create { value: series.total, occurred_at, content: Box::new(content.clone()) };
            }
            // Nothing was folded: whether its client's write was committed is the client's affair.
            None => series.settle(series.total),
        },
    }
    Plan::Nothing
}
