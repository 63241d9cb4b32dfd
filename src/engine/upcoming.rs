//! For whoever moves time by hand: what is due next in a namespace, so that time can leap there.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use super::debts::Order;
use super::scope::Scope;
use super::series::Series;
use super::{Engine, Moment};

/// "Longer than" a timeout begins this much after it.
const JUST: Duration = Duration::from_nanos(1);

impl Engine {
    /// [`Self::tick`] in one namespace: all that is due there.
    pub fn tick_in(&self, namespace: &str, now: Moment, budget: usize) -> Vec<Order> {
        let name: Arc<str> = namespace.into();
        let mut orders = Vec::new();
        loop {
            let before = orders.len();
            self.tick_namespace(&name, now, budget, &mut orders);
            if orders.len() == before || orders.len() >= budget {
                return orders;
            }
        }
    }

    /// When [`Self::tick_in`] will find something to pay or to close in this namespace, if no write comes before
    /// and `now` was ticked already. `None`: nothing is left there that time alone would end.
    pub fn next_due(&self, namespace: &str, now: Moment) -> Option<Moment> {
        let entry = self.namespaces.get(namespace)?;
        entry.scopes.iter().filter_map(|scope| scope.next_due(now)).min()
    }
}

impl Scope {
    fn next_due(&self, now: Moment) -> Option<Moment> {
        let payment = self.agenda.peek().map(|Reverse((wake, _))| *wake);
        let closing = if self.retired { None } else { self.next_closing(now) };
        payment.into_iter().chain(closing).min()
    }

    /// A tick looks at the oldest first and stops at one that is not idle.
    fn next_closing(&self, now: Moment) -> Option<Moment> {
        let oldest = self.series.get(self.series.oldest()?)?;
        let idle = oldest.seen.plus(self.rules.pace(false).idle_timeout).plus(JUST);
        if idle > now {
            return Some(idle);
        }
        // All are idle and only wait: summaries for the end of their group's interval, others for the agenda.
        let over = |series: &Series| {
            let idle = series.seen.plus(self.rules.pace(series.summary).idle_timeout).plus(JUST);
            idle.max(series.not_before)
        };
        self.series.values().map(over).filter(|over| *over > now).min()
    }
}
