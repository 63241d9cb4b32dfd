//! What is owed and how it is paid: orders to the writer, and what the writer reports back.
//!
//! An order names a series whose stored Event is to be looked at. The writer reads it and asks [`Engine::plan`];
//! if there is something to write it writes that under the `resourceVersion` it has read, and tells
//! [`Engine::settle`]. Whatever happens, each order is answered by exactly one of `plan` (nothing to write),
//! [`Engine::settle`], [`Engine::postpone`] and [`Engine::abandon`].

use std::cmp::Reverse;
use std::sync::Arc;
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
    /// The orders that are due, at most about `budget` of them, each series' at most once until it is answered.
    /// Series that are over are closed here. The lock of one namespace is held at a time.
    pub fn tick(&self, now: Moment, budget: usize) -> Vec<Order> {
        let everything = self.is_draining();
        let mut orders = Vec::new();
        let mut empty = Vec::new();
        for mut entry in self.namespaces.iter_mut() {
            let namespace = entry.value_mut();
            let series_before = namespace.series();
            for scope in &mut namespace.scopes {
                let mut ticking =
                    Ticking { namespace: &namespace.name, scope, now, orders: &mut orders, budget };
                if everything {
                    ticking.all_that_needs_payment();
                } else {
                    ticking.run();
                }
            }
            namespace.scopes.retain(|scope| !(scope.deleted && scope.series.is_empty()));
            self.recount(series_before, namespace.series());
            self.forget_names(namespace, budget, now);
            if namespace.scopes.is_empty() && namespace.names.len() == 0 {
                empty.push(namespace.name.clone());
            }
            if orders.len() >= budget {
                break;
            }
        }
        for namespace in empty {
            self.namespaces.remove_if(&*namespace, |_, it| it.scopes.is_empty() && it.names.len() == 0);
        }
        orders
    }

    /// What to write, given the count that was `found` in etcd (`None`: no such Event).
    pub fn plan(&self, order: &Order, found: Option<i64>, now: Moment) -> Plan {
        let draining = self.is_draining();
        let planned = self.with_series(order, now, |series, rules| {
            let plan = plan(series, rules, found, draining, now);
            series.ordered = plan != Plan::Nothing;
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
        self.with_series(order, now, |series, _| {
            series.ordered = false;
            series.settle(value);
            series.paid_at = now;
        });
        self.finish(order, now);
    }

    /// It could not be written now: it stays owed, and is ordered again after `pause`.
    pub fn postpone(&self, order: &Order, pause: Duration, now: Moment) {
        self.with_series(order, now, |series, _| {
            series.ordered = false;
            series.not_before = series.not_before.max(now.plus(pause));
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

    /// From now on nothing new is folded, and [`Self::tick`] orders every payment at once.
    pub fn drain(&self) {
        self.draining.store(true, std::sync::atomic::Ordering::Release);
    }

    /// How many series have something to be paid, or are being paid.
    pub fn unpaid(&self) -> usize {
        let in_scope = |scope: &Scope| {
            let mut count = 0;
            let mut cursor = scope.series.oldest();
            while let Some(handle) = cursor {
                count +=
                    usize::from(scope.series.get(handle).is_some_and(|s| s.ordered || s.needs_payment()));
                cursor = scope.series.next_newer(handle);
            }
            count
        };
        self.namespaces.iter().map(|entry| entry.scopes.iter().map(in_scope).sum::<usize>()).sum()
    }

    fn with_series<T>(
        &self,
        order: &Order,
        now: Moment,
        act: impl FnOnce(&mut Series, &SeriesRules) -> T,
    ) -> Option<T> {
        let mut namespace = self.namespaces.get_mut(&*order.namespace)?;
        let scope = namespace.scopes.iter_mut().find(|scope| scope.id == order.scope)?;
        let rules = scope.rules.series?;
        scope.change(order.series, &rules, now, |series| act(series, &rules))
    }

    /// Forgets the series if it was closing and owes nothing any more.
    fn finish(&self, order: &Order, now: Moment) {
        let Some(mut namespace) = self.namespaces.get_mut(&*order.namespace) else { return };
        let before = namespace.series();
        let Some(scope) = namespace.scopes.iter_mut().find(|scope| scope.id == order.scope) else { return };
        let Some(series) = scope.series.get(order.series) else { return };
        if series.closing && !series.ordered && !series.needs_payment() {
            scope.close(order.series);
        } else if let Some(rules) = scope.rules.series {
            scope.change(order.series, &rules, now, |_| ());
        }
        self.recount(before, namespace.series());
    }
}

/// DESIGN 3.2, for one series.
fn plan(series: &mut Series, rules: &SeriesRules, found: Option<i64>, draining: bool, now: Moment) -> Plan {
    let occurred_at = series.occurred_at;
    match found {
        Some(found) if found >= series.total => series.settle(found),
        Some(found) if found >= series.stored && !series.closing && !draining && !series.due(rules, now) => {
            // Only the doubt brought us here, and what the client was believed to have paid is there.
            series.stored = found;
            series.confirmed = found;
            series.unverified = false;
        }
        Some(_) => return Plan::Write { value: series.total, occurred_at },
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
    budget: usize,
}

impl Ticking<'_> {
    fn run(&mut self) {
        let Some(rules) = self.scope.rules.series else { return };
        self.close_the_idle(&rules);
        while self.orders.len() < self.budget
            && let Some(&Reverse((wake, handle))) = self.scope.agenda.peek()
            && wake <= self.now
        {
            self.scope.agenda.pop();
            let Some(series) = self.scope.series.get_mut(handle) else { continue };
            if series.wake != Some(wake) {
                continue;
            }
            series.wake = None;
            if series.next_payment(&rules, self.now).is_some_and(|payment| payment <= self.now) {
                self.order(handle, &rules);
            } else {
                self.scope.change(handle, &rules, self.now, |_| ());
            }
        }
    }

    /// Series not seen for the idle timeout, or of a scope that is retired: forgotten if they owe nothing, else
    /// on the agenda from here on.
    fn close_the_idle(&mut self, rules: &SeriesRules) {
        for _ in 0..self.budget {
            let Some(handle) = self.scope.series.oldest() else { break };
            let Some(series) = self.scope.series.get(handle) else { break };
            let over = self.scope.retired || self.now.since(series.seen) > rules.idle_timeout;
            if !over || (series.closing && self.scope.retired) {
                break;
            }
            if series.needs_payment() || series.ordered {
                self.scope.begin_closing(handle, rules, self.now);
            } else {
                self.scope.close(handle);
            }
        }
    }

    fn all_that_needs_payment(&mut self) {
        let Some(rules) = self.scope.rules.series else { return };
        let mut cursor = self.scope.series.oldest();
        while self.orders.len() < self.budget
            && let Some(handle) = cursor
        {
            cursor = self.scope.series.next_newer(handle);
            if self.scope.series.get(handle).is_some_and(|series| series.needs_payment() && !series.ordered) {
                self.order(handle, &rules);
            }
        }
    }

    /// Under Observe an order is acknowledged at once and never written.
    fn order(&mut self, handle: Handle, rules: &SeriesRules) {
        let now = self.now;
        if self.scope.rules.mode == Mode::Observe {
            self.scope.change(handle, rules, now, |series| {
                series.settle(series.total);
                series.paid_at = now;
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
