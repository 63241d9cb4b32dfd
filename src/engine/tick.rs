//! What is due: series that are over are closed, and debts that have to be paid become orders.

use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::debts::{Order, Plan, plan};
use super::scope::Scope;
use super::series::Series;
use super::table::Handle;
use super::{Engine, Mode, Moment};

/// The engine folds and pays.
pub(super) const DECIDING: u8 = 0;
/// It folds nothing more, and pays each debt once.
pub(super) const DRAINING: u8 = 1;
/// The webhook's rules are away: it pays what is left.
pub(super) const CLOSING: u8 = 2;

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

    /// Adds to `orders` what is due in one namespace, at most [`SHARE`] of each of its scopes.
    pub(super) fn tick_namespace(
        &self,
        name: &Arc<str>,
        now: Moment,
        budget: usize,
        orders: &mut Vec<Order>,
    ) {
        let phase = self.phase();
        let Some(mut entry) = self.namespaces.get_mut(&**name) else { return };
        let namespace = entry.value_mut();
        let before = namespace.sizes();
        for scope in &mut namespace.scopes {
            scope.retired |= scope.is_left_behind(now);
            let share = budget.min(orders.len() + SHARE);
            let mut ticking = Ticking { namespace: &namespace.name, scope, now, orders, share };
            if phase == DECIDING {
                ticking.run(budget);
            } else {
                ticking.all_that_needs_payment(phase);
            }
        }
        if self.held.full(before, &self.settings).dropped {
            namespace.scopes.iter_mut().for_each(|scope| scope.dropped.come_down());
        }
        namespace.scopes.retain(|scope| {
            let over = scope.series.is_empty() && (scope.deleted || scope.is_left_behind(now));
            if over && !scope.deleted {
                self.departed.keep(scope);
            }
            !over
        });
        self.held.change(before, namespace.sizes());
        self.forget_names(namespace, budget, now);
        drop(entry);
        if self.namespaces.remove_if(&**name, |_, namespace| namespace.is_empty()).is_some() {
            self.held.namespace_closed();
        }
    }
}

/// Whether a series is to be paid in this phase of draining.
pub(super) fn to_be_drained(series: &Series, phase: u8) -> bool {
    series.needs_payment() && !(series.drained && phase == DRAINING)
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
                self.order(handle, false);
            } else {
                self.scope.change(handle, self.now, |_| ());
            }
        }
    }

    /// Series not seen for the idle timeout, or of a scope that is retired: forgotten if they owe nothing, else
    /// on the agenda from here on. Looks at the oldest first; those that are only waiting keep their place, or a
    /// summary would be looked at again only after all that came since, but leave it to others if they are many.
    fn close_the_idle(&mut self, budget: usize) {
        let ordinary = self.scope.rules.pace(false).idle_timeout;
        let mut waiting = Vec::new();
        let mut cursor = self.scope.series.oldest();
        for _ in 0..budget {
            let Some(handle) = cursor else { return };
            cursor = self.scope.series.next_newer(handle);
            let Some(series) = self.scope.series.get(handle) else { return };
            let idle = self.now.since(series.seen);
            if !self.scope.retired && idle <= ordinary {
                return;
            }
            let over = self.scope.retired || series.over(&self.scope.rules.pace(series.summary), self.now);
            if over && !series.ordered && !series.needs_payment() {
                self.scope.close(handle);
            } else if over && !series.closing {
                self.scope.begin_closing(handle, self.now);
            } else {
                waiting.push(handle);
            }
        }
        for handle in waiting {
            self.scope.series.touch(handle);
        }
    }

    /// What a walk over the table found is ordered before the next walk: where a million series live, one for each
    /// few orders would take longer than there is time.
    fn all_that_needs_payment(&mut self, phase: u8) {
        let now = self.now;
        let due = |series: &Series| to_be_drained(series, phase) && !series.ordered && series.retry_at <= now;
        if self.scope.to_drain.is_empty() {
            let handles = self.scope.series.handles();
            let found = handles.filter(|handle| self.scope.series.get(*handle).is_some_and(due));
            self.scope.to_drain = found.collect();
        }
        while self.orders.len() < self.share
            && let Some(handle) = self.scope.to_drain.pop()
        {
            if self.scope.series.get(handle).is_some_and(due) {
                self.order(handle, true);
            }
        }
    }

    /// Under Observe an order is acknowledged at once and never written. While draining it is paid whether it is
    /// due or not.
    fn order(&mut self, handle: Handle, draining: bool) {
        let now = self.now;
        if self.scope.rules.mode == Mode::Observe {
            let pace = self.scope.series.get(handle).map(|series| self.scope.rules.pace(series.summary));
            self.scope.change(handle, now, |series| {
                let plan = pace.map(|pace| plan(series, &pace, Some(series.stored), draining, now));
                let paid = plan != Some(Plan::Nothing);
                series.drained = draining;
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
