//! What is owed and how it is paid: orders to the writer, and what the writer reports back.
//!
//! An order names a series whose stored Event is to be looked at. The writer reads it and asks [`Engine::plan`];
//! if there is something to write it writes that under the `resourceVersion` it has read, and tells
//! [`Engine::settle`]. Whatever happens, each order is answered by exactly one of `plan` (nothing to write),
//! [`Engine::settle`], [`Engine::postpone`] and [`Engine::abandon`].

use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use jiff::Timestamp;

use super::content::Content;
use super::scope::{Scope, ScopeId};
use super::series::Series;
use super::table::Handle;
use super::{Engine, Mode, Moment, PolicyId, SeriesRules};

/// An order to look at a stored Event, and to pay what it lacks.
#[derive(Clone, Debug)]
pub struct Order {
    /// The Event's namespace.
    pub namespace: Arc<str>,
    /// The Event's name.
    pub name: Box<str>,
    /// The policy under which it was folded.
    pub policy: PolicyId,
    scope: ScopeId,
    series: Handle,
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

/// The engine folds and pays.
pub(super) const DECIDING: u8 = 0;
/// It folds nothing more, and pays each debt once.
const DRAINING: u8 = 1;
/// The webhook's rules are away: it pays what is left.
const CLOSING: u8 = 2;

/// So many orders of one scope before it is the next one's turn.
const SHARE: usize = 8;

impl Engine {
    /// The orders that are due, at most about `budget` of them, each series' at most once until it is answered.
    /// Series that are over are closed here. Namespaces take turns, from one call to the next too, so that a busy
    /// one leaves room for all; the lock of one is held at a time.
    pub fn tick(&self, now: Moment, budget: usize) -> Vec<Order> {
        let names: Vec<Arc<str>> = self.namespaces.iter().map(|entry| entry.name.clone()).collect();
        let first = self.turn.load(Ordering::Relaxed);
        let mut orders = Vec::new();
        loop {
            let before = orders.len();
            for at in 0..names.len() {
                let at = (first + at) % names.len();
                if orders.len() >= budget {
                    self.turn.store(at, Ordering::Relaxed);
                    return orders;
                }
                self.tick_namespace(&names[at], now, budget, &mut orders);
            }
            if orders.len() == before {
                return orders;
            }
        }
    }

    fn tick_namespace(&self, name: &Arc<str>, now: Moment, budget: usize, orders: &mut Vec<Order>) {
        let phase = self.phase();
        let Some(mut entry) = self.namespaces.get_mut(&**name) else { return };
        let namespace = entry.value_mut();
        let before = namespace.sizes();
        for scope in &mut namespace.scopes {
            let share = budget.min(orders.len() + SHARE);
            let mut ticking = Ticking { namespace: &namespace.name, scope, now, orders, share };
            if phase == DECIDING {
                ticking.run(budget);
            } else {
                ticking.all_that_needs_payment(phase);
            }
        }
        namespace.scopes.retain(|scope| !(scope.deleted && scope.series.is_empty()));
        self.held.change(before, namespace.sizes());
        self.forget_names(namespace, budget, now);
        drop(entry);
        if self.namespaces.remove_if(&**name, |_, namespace| namespace.is_empty()).is_some() {
            self.held.namespace_closed();
        }
    }

    /// What to write, given the count that was `found` in etcd (`None`: no such Event).
    pub fn plan(&self, order: &Order, found: Option<i64>, now: Moment) -> Plan {
        let deciding = self.phase() == DECIDING;
        let planned = self.with_series(order, now, |series, rules| {
            // A client's write was admitted since the order was given: it is due again when that has settled.
            let unsettled = deciding && now < series.not_before;
            let plan = if unsettled { Plan::Nothing } else { plan(series, rules, found, !deciding, now) };
            series.ordered = plan != Plan::Nothing;
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
            series.drained = !deciding;
            series.settle(value);
            series.paid_at = now;
        });
        self.finish(order, now);
    }

    /// It could not be written now: it stays owed, and is ordered again after `pause`.
    pub fn postpone(&self, order: &Order, pause: Duration, now: Moment) {
        self.with_series(order, now, |series, _| {
            series.ordered = false;
            series.retry_at = now.plus(pause);
        });
    }

    /// It can never be written: what is owed is lost, and counted as that. Returns how many occurrences.
    pub fn abandon(&self, order: &Order, now: Moment) -> u64 {
        let mut lost = 0;
        self.with_series(order, now, |series, _| {
            series.ordered = false;
            lost = series.owed().unsigned_abs();
            series.settle(series.total);
        });
        if let Some(mut namespace) = self.namespaces.get_mut(&*order.namespace)
            && let Some(scope) = namespace.scopes.iter_mut().find(|scope| scope.id == order.scope)
        {
            scope.counters.lost += lost;
        }
        self.finish(order, now);
        lost
    }

    /// From now on nothing new is folded, and [`Self::tick`] orders each payment that is open once, due or not.
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

    fn phase(&self) -> u8 {
        self.phase.load(Ordering::Acquire)
    }

    /// How many series have something to be paid in this phase, or are being paid.
    pub fn unpaid(&self) -> usize {
        let phase = self.phase();
        let unpaid = |series: &Series| series.ordered || to_be_drained(series, phase);
        let of_scope = |scope: &Scope| scope.series.values().filter(|series| unpaid(series)).count();
        self.namespaces.iter().map(|entry| entry.scopes.iter().map(of_scope).sum::<usize>()).sum()
    }

    /// Nothing more can be paid: what is still owed is lost, and counted as that. Returns how many occurrences.
    pub fn write_off(&self) -> u64 {
        let mut lost = 0;
        for mut namespace in self.namespaces.iter_mut() {
            for scope in &mut namespace.scopes {
                scope.counters.lost += scope.owed;
                lost += std::mem::take(&mut scope.owed);
                for series in scope.series.values_mut() {
                    series.settle(series.total);
                }
            }
        }
        lost
    }

    fn with_series<T>(
        &self,
        order: &Order,
        now: Moment,
        act: impl FnOnce(&mut Series, &SeriesRules) -> T,
    ) -> Option<T> {
        let mut namespace = self.namespaces.get_mut(&*order.namespace)?;
        let scope = namespace.scopes.iter_mut().find(|scope| scope.id == order.scope)?;
        let summary = scope.series.get(order.series)?.summary;
        let pace = scope.rules.pace(summary);
        scope.change(order.series, now, |series| act(series, &pace))
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

/// Whether a series is to be paid in this phase of draining.
fn to_be_drained(series: &Series, phase: u8) -> bool {
    series.needs_payment() && !(series.drained && phase == DRAINING)
}

/// What one series' stored Event lacks, given what was found there.
fn plan(series: &mut Series, rules: &SeriesRules, found: Option<i64>, draining: bool, now: Moment) -> Plan {
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

/// One scope's part of a tick.
struct Ticking<'a> {
    namespace: &'a Arc<str>,
    scope: &'a mut Scope,
    now: Moment,
    orders: &'a mut Vec<Order>,
    /// So many orders there may be before it is another scope's turn.
    share: usize,
}

impl Ticking<'_> {
    /// `budget` entries of each table are looked at.
    fn run(&mut self, budget: usize) {
        self.scope.forget_the_old(budget, self.now);
        self.close_the_idle(budget);
        let mut looked_at = 0;
        while self.orders.len() < self.share
            && looked_at < budget
            && let Some(&Reverse((wake, handle))) = self.scope.agenda.peek()
            && wake <= self.now
        {
            self.scope.agenda.pop();
            looked_at += 1;
            let Some(series) = self.scope.series.get_mut(handle) else { continue };
            if series.wake != Some(wake) {
                continue;
            }
            series.wake = None;
            let pace = self.scope.rules.pace(series.summary);
            if series.next_payment(&pace, self.now).is_some_and(|payment| payment <= self.now) {
                self.order(handle);
            } else {
                self.scope.change(handle, self.now, |_| ());
            }
        }
    }

    /// Series not seen for the idle timeout, or of a scope that is retired: forgotten if they owe nothing, else
    /// on the agenda from here on. Looks at the oldest first; one that is only waiting goes to the end.
    fn close_the_idle(&mut self, budget: usize) {
        let ordinary = self.scope.rules.pace(false).idle_timeout;
        for _ in 0..budget.min(self.scope.series.len()) {
            let Some(handle) = self.scope.series.oldest() else { break };
            let Some(series) = self.scope.series.get(handle) else { break };
            let idle = self.now.since(series.seen);
            if !self.scope.retired && idle <= ordinary {
                break;
            }
            let over = self.scope.retired || series.over(&self.scope.rules.pace(series.summary), self.now);
            if over && !series.ordered && !series.needs_payment() {
                self.scope.close(handle);
            } else if over && !series.closing {
                self.scope.begin_closing(handle, self.now);
            } else {
                self.scope.series.touch(handle);
            }
        }
    }

    fn all_that_needs_payment(&mut self, phase: u8) {
        let mut cursor = self.scope.series.oldest();
        while self.orders.len() < self.share
            && let Some(handle) = cursor
        {
            cursor = self.scope.series.next_newer(handle);
            let due = |series: &Series| {
                to_be_drained(series, phase) && !series.ordered && series.retry_at <= self.now
            };
            if self.scope.series.get(handle).is_some_and(due) {
                self.order(handle);
            }
        }
    }

    /// Under Observe an order is acknowledged at once and never written.
    fn order(&mut self, handle: Handle) {
        let now = self.now;
        if self.scope.rules.mode == Mode::Observe {
            let pace = self.scope.series.get(handle).map(|series| self.scope.rules.pace(series.summary));
            self.scope.change(handle, now, |series| {
                let paid = pace
                    .is_none_or(|pace| plan(series, &pace, Some(series.stored), false, now) != Plan::Nothing);
                if paid {
                    series.settle(series.total);
                    series.paid_at = now;
                }
            });
            if self.scope.series.get(handle).is_some_and(|series| series.closing) {
                self.scope.close(handle);
            }
            return;
        }
        let policy = self.scope.policy().clone();
        let scope = self.scope.id;
        let Some(series) = self.scope.series.get_mut(handle) else { return };
        series.ordered = true;
        let name = series.name.clone();
        self.orders.push(Order { namespace: self.namespace.clone(), name, policy, scope, series: handle });
    }
}
