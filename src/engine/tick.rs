//! What is due: series that are over are closed, and debts that have to be paid become orders.
//!
//! While a namespace is seen to, its writes wait, and while a tick runs, the thread that it runs on does nothing
//! else. So both are counted in entries that are looked at: [`SLICE`] and [`STEPS`].

use std::sync::Arc;

use super::debts::{Order, Plan, plan};
use super::held::Sizes;
use super::live::Handle;
use super::scope::Scope;
use super::series::Series;
use super::{Engine, Mode, Moment, Namespace};

/// The engine folds and pays.
pub(super) const DECIDING: u8 = 0;
/// It folds nothing more, and pays each debt once.
pub(super) const DRAINING: u8 = 1;
/// The webhook's rules are away: it pays what is left.
pub(super) const CLOSING: u8 = 2;

/// So many orders of one scope before it is the next one's turn.
const SHARE: usize = 8;

/// So many entries of each table of a scope are seen to before its namespace is unlocked. To close one costs about
/// one or two microseconds where nothing is in a cache, so this is about a tenth of a millisecond.
pub(super) const SLICE: usize = 64;

/// So many entries are seen to in one tick, and a namespace that is looked at counts as one: about half a
/// millisecond. Ten times a second that is enough to look at ten thousand namespaces in two seconds, and to close a
/// million series in four minutes. (One that is over is not waited for: a write of it opens another.)
const STEPS: usize = 400;

/// While draining the series are walked one after the other, which costs about a hundredth of closing one.
const WALK: usize = 64 * SLICE;

impl Engine {
    /// The orders that are due, at most about `budget` of them, each series' at most once until it is answered.
    /// Series that are over are closed here. Namespaces take turns, from one call to the next too, so that a busy
    /// one leaves room for all; the lock of one is held at a time, and a call sees to a bounded number of entries.
    /// What it leaves the next one goes on with.
    pub fn tick(&self, now: Moment, budget: usize) -> Vec<Order> {
        let mut orders = Vec::new();
        let (mut steps, mut at_rest) = (0, 0);
        while steps < STEPS
            && orders.len() < budget
            && at_rest < self.roster.len()
            && let Some(name) = self.roster.turn()
        {
            let seen_to = self.tick_namespace(&name, now, budget, &mut orders);
            steps += 1 + seen_to;
            at_rest = if seen_to == 0 { at_rest + 1 } else { 0 };
        }
        orders
    }

    /// One turn of a namespace; returns how many entries were seen to.
    pub(super) fn tick_namespace(
        &self,
        name: &Arc<str>,
        now: Moment,
        budget: usize,
        orders: &mut Vec<Order>,
    ) -> usize {
        let phase = self.phase();
        let key = self.hasher.namespace(name);
        let Some(mut entry) = self.namespaces.get_mut(&key) else { return 0 };
        let namespace = &mut **entry;
        let mut seen_to = 0;
        for scope in &mut namespace.scopes {
            scope.retired |= scope.is_left_behind(now);
            let before = scope.sizes();
            let share = budget.min(orders.len() + SHARE);
            let mut ticking = Ticking { namespace: &namespace.name, scope, now, orders, share, seen_to: 0 };
            ticking.run(phase);
            seen_to += ticking.seen_to;
            self.held.change(&before, &scope.sizes());
        }
        self.share_what_is_dropped(namespace);
        self.bound_the_ended(namespace);
        self.forget_scopes(namespace, now);
        seen_to += self.forget_names(namespace, SLICE, now);
        drop(entry);
        let gone = self.namespaces.remove_if(&key, |_, namespace| namespace.is_empty());
        if let Some((_, namespace)) = gone {
            self.held.namespace_closed();
            self.roster.leave(&namespace.name);
        }
        seen_to
    }

    /// Forgets the scopes that are over; what one counted is kept: as long as its policy stands, or for a while.
    fn forget_scopes(&self, namespace: &mut Namespace, now: Moment) {
        let Namespace { scopes, predecessors, name, .. } = namespace;
        scopes.retain(|scope| {
            let over = scope.is_over(now);
            if over {
                if scope.deleted {
                    predecessors.keep(scope, name);
                } else {
                    self.departed.keep(scope);
                }
                self.forget_dropped(scope);
            }
            !over
        });
        predecessors.retain(scopes, now);
    }

    /// A scope is forgotten: so is what it dropped most.
    pub(super) fn forget_dropped(&self, scope: &Scope) {
        let dropped = scope.sizes().dropped;
        self.held.change(&Sizes { dropped, ..Sizes::default() }, &Sizes::default());
    }

    /// Series that this tick has closed may have left more records than there may be.
    fn bound_the_ended(&self, namespace: &mut Namespace) {
        for _ in 0..SLICE {
            let before = namespace.sizes();
            if !self.held.full(&before, &self.settings).ended {
                return;
            }
            let evicted = namespace.scopes.iter_mut().any(Scope::evict_ended);
            self.held.change(&before, &namespace.sizes());
            if !evicted {
                return;
            }
        }
    }

    /// Where too many entries of the top dropped are held in all, a namespace comes down to its fair share.
    fn share_what_is_dropped(&self, namespace: &mut Namespace) {
        for _ in 0..SLICE {
            let before = namespace.sizes();
            if !self.held.full(&before, &self.settings).dropped {
                return;
            }
            namespace.scopes.iter_mut().for_each(Scope::come_down);
            let after = namespace.sizes();
            if after == before {
                return;
            }
            self.held.change(&before, &after);
        }
    }
}

/// Whether a series is to be paid in this phase of draining.
fn to_be_drained(series: &Series, phase: u8) -> bool {
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
    /// How many entries were seen to.
    seen_to: usize,
}

impl Ticking<'_> {
    fn run(&mut self, phase: u8) {
        self.seen_to += self.scope.revise_series(SLICE, self.now);
        if phase == DECIDING {
            self.seen_to += self.scope.forget_the_old(SLICE, self.now);
            self.close_the_idle();
            self.what_is_due();
        } else {
            self.all_that_needs_payment(phase);
        }
    }

    fn what_is_due(&mut self) {
        let mut looked_at = 0;
        while self.orders.len() < self.share
            && looked_at < SLICE
            && let Some((wake, handle)) = self.scope.series.first_to_wake()
            && wake <= self.now
        {
            looked_at += 1;
            self.scope.series.forget_wake(handle);
            let Some(series) = self.scope.series.get(handle) else { continue };
            let pace = self.scope.rules.pace(series.summary);
            if series.next_payment(&pace, self.now).is_some_and(|payment| payment <= self.now) {
                self.order(handle, false);
                self.scope.wake(handle, self.now);
            } else if series.closing && !series.needs_payment() && !series.ordered {
                // A client has paid it meanwhile.
                self.scope.close(handle);
            } else {
                self.scope.wake(handle, self.now);
            }
        }
        self.seen_to += looked_at;
    }

    /// Series not seen for the idle timeout, or of a scope that is retired: forgotten if they owe nothing, else
    /// on the agenda from here on. Looks at the oldest first; those that are only waiting keep their place, or a
    /// summary would be looked at again only after all that came since, but leave it to others if they are many.
    fn close_the_idle(&mut self) {
        let ordinary = self.scope.rules.pace(false).idle_timeout;
        let ordered_by = self.scope.ordered_by();
        let mut waiting = Vec::new();
        let mut cursor = self.scope.series.oldest();
        for _ in 0..SLICE {
            let Some(handle) = cursor else { return };
            cursor = self.scope.series.next_newer(handle);
            let Some(series) = self.scope.series.get(handle) else { return };
            let idle = self.now.since(series.seen);
            if !self.scope.retired && idle <= ordinary {
                if idle + ordered_by <= ordinary {
                    return;
                }
                // One behind it may not have been seen for a little longer.
                continue;
            }
            let over = self.scope.retired || series.over(&self.scope.rules.pace(series.summary), self.now);
            if !over {
                waiting.push(handle);
                continue;
            }
            self.seen_to += 1;
            if series.ordered || series.needs_payment() {
                self.scope.begin_closing(handle, self.now);
            } else {
                self.scope.close(handle);
            }
        }
        for handle in waiting {
            self.scope.series.put_last(handle);
        }
    }

    /// Walks the series from the last to the first, some at a time.
    fn all_that_needs_payment(&mut self, phase: u8) {
        let all = u32::try_from(self.scope.series.len()).unwrap_or(u32::MAX);
        let mut walked = 0;
        while self.orders.len() < self.share && walked < WALK.min(self.scope.series.len()) {
            walked += 1;
            let below = if self.scope.undrained_below == 0 { all } else { self.scope.undrained_below };
            self.scope.undrained_below = below - 1;
            let Some((handle, series)) = self.scope.series.nth(below - 1) else { continue };
            let waits = series.put_off && self.now < series.not_before;
            if to_be_drained(&series, phase) && !series.ordered && !waits {
                self.order(handle, true);
                self.seen_to += 1;
            }
        }
        self.seen_to += walked / SLICE;
    }

    /// Under Observe an order is acknowledged at once and never written. While draining it is paid whether it is
    /// due or not.
    fn order(&mut self, handle: Handle, draining: bool) {
        if self.scope.rules.mode == Mode::Observe {
            self.acknowledge(handle, draining);
            return;
        }
        let ordered = self.scope.change(handle, self.now, |series| series.ordered = true);
        let name = self.scope.series.name(handle);
        if let (Some(()), Some(name)) = (ordered, name) {
            self.orders.push(Order {
                namespace: self.namespace.clone(),
                name: name.into(),
                policy: self.scope.policy().clone(),
                scope: self.scope.id,
                series: handle,
            });
        }
    }

    fn acknowledge(&mut self, handle: Handle, draining: bool) {
        let now = self.now;
        let Some(series) = self.scope.series.get(handle) else { return };
        let pace = self.scope.rules.pace(series.summary);
        let content = self.scope.series.content(handle).cloned();
        self.scope.change(handle, now, |series| {
            let stored = Some(series.stored);
            let plan = plan(series, content.as_ref(), &pace, stored, draining, now);
            series.drained = draining;
            if plan != Plan::Nothing {
                series.settle(series.total);
                series.paid_at = now;
            }
        });
        if series.closing {
            self.scope.close(handle);
        }
    }
}
