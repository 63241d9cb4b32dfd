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
use super::scope::{Scope, ScopeId};
use super::series::Series;
use super::table::Handle;
use super::tick::{CLOSING, DECIDING, DRAINING, to_be_drained};
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
        let planned = self.with_series(order, now, |series, rules| {
            // A client's write was admitted since the order was given: it is due again when that has settled.
            let unsettled = deciding && now < series.not_before;
            let plan = if unsettled { Plan::Nothing } else { plan(series, rules, found, !deciding, now) };
            series.ordered = plan != Plan::Nothing;
            if plan == Plan::Nothing {
                series.failures = 0;
            }
            series.drained = !deciding && !series.ordered;
            plan
        });
        let plan = planned.unwrap_or(Plan::Nothing);
        if plan == Plan::Nothing {
            self.finish(order, now);
        }
        plan
    }

    /// The stored Event shows `value` now: the API server has acknowledged it.
    pub fn settle(&self, order: &Order, value: i64, now: Moment) {
        let deciding = self.phase() == DECIDING;
        self.with_series(order, now, |series, _| {
            series.ordered = false;
            series.failures = 0;
            series.drained = !deciding;
            series.settle(value);
            series.paid_at = now;
        });
        self.finish(order, now);
    }

    /// It was tried and could not be written now: it stays owed, and is ordered again after a pause, the longer the
    /// more often it failed in a row, and no shorter than `at_least`. While draining the pause is a second. Returns the
    /// pause, if the series lives.
    pub fn postpone(&self, order: &Order, at_least: Duration, now: Moment) -> Option<Duration> {
        let draining = self.is_draining();
        self.with_series(order, now, |series, _| {
            series.ordered = false;
            series.failures = series.failures.saturating_add(1);
            let jitter = self.hasher.jitter(&order.name, series.failures);
            let pause =
                if draining { RETRY_AT_THE_END } else { retry(series.failures, jitter).max(at_least) };
            series.retry_at = now.plus(pause);
            pause
        })
    }

    /// It was not tried: it is due again at once.
    pub fn give_back(&self, order: &Order, now: Moment) {
        self.with_series(order, now, |series, _| series.ordered = false);
    }

    /// It can never be written: what is owed is lost, and counted as that. The series is forgotten, so that its
    /// client hears from the API server itself what is wrong with the next such Event. Returns how many occurrences.
    pub fn abandon(&self, order: &Order) -> u64 {
        let Some(mut namespace) = self.namespaces.get_mut(&*order.namespace) else { return 0 };
        let before = namespace.sizes();
        let Some(scope) = namespace.scopes.iter_mut().find(|scope| scope.id == order.scope) else { return 0 };
        let lost = scope.close(order.series).map_or(0, |series| series.owed().unsigned_abs());
        scope.counters.lost += lost;
        self.held.change(before, namespace.sizes());
        lost
    }

    /// From now on nothing new is folded, and [`Self::tick`] orders each payment that is open once, due or not.
    pub fn drain(&self) {
        self.phase.store(DRAINING, Ordering::Release);
        // What failed before is tried once more now.
        for mut namespace in self.namespaces.iter_mut() {
            for series in namespace.scopes.iter_mut().flat_map(|scope| scope.series.values_mut()) {
                series.retry_at = Moment::default();
            }
        }
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
        let phase = self.phase();
        let unpaid = |series: &Series| series.ordered || to_be_drained(series, phase);
        let of_scope = |scope: &Scope| scope.series.values().filter(|series| unpaid(series)).count();
        self.namespaces.iter().map(|entry| entry.scopes.iter().map(of_scope).sum::<usize>()).sum()
    }

    /// Nothing more can be paid: what is still owed is lost, and counted as that. Returns how many occurrences, by
    /// namespace and in the order of their names.
    pub fn write_off(&self) -> Vec<(Arc<str>, u64)> {
        let mut lost = Vec::new();
        for mut namespace in self.namespaces.iter_mut() {
            let before = namespace.sizes();
            let mut of_namespace = 0;
            // Under Observe nothing is owed to anybody.
            for scope in namespace.scopes.iter_mut().filter(|scope| scope.rules.mode == Mode::Enforce) {
                scope.counters.lost += scope.owed;
                of_namespace += std::mem::take(&mut scope.owed);
                scope.owing = 0;
                for series in scope.series.values_mut() {
                    series.settle(series.total);
                }
            }
            if of_namespace > 0 {
                lost.push((namespace.name.clone(), of_namespace));
            }
            self.held.change(before, namespace.sizes());
        }
        lost.sort();
        lost
    }

    fn with_series<T>(
        &self,
        order: &Order,
        now: Moment,
        act: impl FnOnce(&mut Series, &SeriesRules) -> T,
    ) -> Option<T> {
        let mut namespace = self.namespaces.get_mut(&*order.namespace)?;
        let before = namespace.sizes();
        let scope = namespace.scopes.iter_mut().find(|scope| scope.id == order.scope)?;
        let summary = scope.series.get(order.series)?.summary;
        let pace = scope.rules.pace(summary);
        let answer = scope.change(order.series, now, |series| act(series, &pace));
        self.held.change(before, namespace.sizes());
        answer
    }

    /// Forgets the series if it was closing and owes nothing any more.
    fn finish(&self, order: &Order, now: Moment) {
        let Some(mut namespace) = self.namespaces.get_mut(&*order.namespace) else { return };
        let before = namespace.sizes();
        let Some(scope) = namespace.scopes.iter_mut().find(|scope| scope.id == order.scope) else { return };
        let Some(series) = scope.series.get(order.series) else { return };
        if series.closing && !series.ordered && !series.needs_payment() {
            scope.close(order.series);
        } else {
            scope.change(order.series, now, |_| ());
        }
        self.held.change(before, namespace.sizes());
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
            let content = series.content.clone().filter(|_| series.summary);
            return Plan::Write { value: series.total, occurred_at, content };
        }
        None => match &series.content {
            // Someone deleted what had been seen, and nothing is owed: it stays deleted.
            Some(_) if series.owed() == 0 && series.confirmed > 0 => series.settle(series.total),
            Some(content) => {
                return Plan::Create { value: series.total, occurred_at, content: content.clone() };
            }
            // Nothing was folded: whether its client's write was committed is the client's affair.
            None => series.settle(series.total),
        },
    }
    Plan::Nothing
}
