//! Revision of a scope when policies change, at once and in slices.

use std::collections::HashMap;
use std::sync::Arc;

use super::Scope;
use crate::state::retained_counters::GONE_AFTER;
use crate::{Applicability, Counters, KnownPolicy, Moment};

impl Scope {
    /// Adopts the current rules; see [`crate::Engine::revise`]. [`Self::revise_series`] revises the series.
    pub(crate) fn revise(
        &mut self,
        policies: &HashMap<&Arc<str>, &KnownPolicy>,
        applicability: Applicability,
        now: Moment,
    ) {
        let known_policy = policies.get(&self.rules.policy.uid);
        self.deleted = known_policy.is_none();
        let may_be_gone =
            applicability == Applicability::Unknown && known_policy.is_some_and(|it| it.namespace.is_none());
        self.unknown_since = if may_be_gone { self.unknown_since.or(Some(now)) } else { None };
        let known_policy = known_policy.filter(|_| applicability != Applicability::NotApplicable);
        let rules = known_policy.and_then(|known_policy| known_policy.rules.as_ref());
        let Some(current) = rules.filter(|rules| self.belongs_to(rules)) else {
            self.retired = true;
            return;
        };
        self.retired = false;
        if self.rules == *current {
            return;
        }
        self.rules = current.clone();
        if self.rules.aggregation.is_none() {
            self.groups.clear();
        }
        if self.rules.spam_filter.is_none() {
            self.spam_filter.clear();
        }
        self.unrevised = u32::try_from(self.series.len()).unwrap_or(u32::MAX);
        self.recount();
    }

    /// Revises at most `at_most` series after a change of the rules. Returns how many. Goes from the last to
    /// the first, because a series that moves into the place of a removed one has been revised or is newer.
    pub(crate) fn revise_series(&mut self, at_most: usize, now: Moment) -> usize {
        let mut processed = 0;
        while processed < at_most
            && let Some(position) = self.unrevised.checked_sub(1)
        {
            (self.unrevised, processed) = (position, processed + 1);
            let Some((handle, series)) = self.series.nth(position) else { continue };
            let off =
                if series.summary { self.rules.aggregation.is_none() } else { self.rules.series.is_none() };
            if !off {
                // A shorter heartbeat interval makes flushes due earlier.
                self.schedule(handle, now);
            } else if series.needs_flush() || series.in_flight {
                self.begin_closing(handle, now);
            } else {
                self.end(handle, now);
            }
        }
        processed
    }

    /// Whether the namespace counts as deleted.
    pub(crate) fn is_namespace_gone(&self, now: Moment) -> bool {
        self.unknown_since.is_some_and(|since| now.since(since) > GONE_AFTER)
    }

    /// Removes expired groups and full buckets, at most `at_most` of each. Returns how many.
    pub(crate) fn forget_expired(&mut self, at_most: usize, now: Moment) -> usize {
        if self.is_unneeded(now) {
            self.groups.clear();
            self.spam_filter.clear();
        }
        let groups = self.groups.forget(self.rules.aggregation.as_ref(), at_most, now);
        let buckets = self.spam_filter.forget(at_most, now);
        self.recount();
        groups + buckets
    }

    /// Whether the scope can be removed: it is not needed, and freeing it is fast.
    pub(crate) fn is_over(&self, now: Moment) -> bool {
        self.is_unneeded(now) && self.groups.is_empty_and_freed() && self.spam_filter.is_empty_and_freed()
    }

    /// Whether the policy or the namespace is gone, or the policy no longer applies and has counted nothing; and no series is
    /// left.
    fn is_unneeded(&self, now: Moment) -> bool {
        let is_unused = || self.retired && self.counters == Counters::default();
        (self.deleted || self.is_namespace_gone(now) || is_unused()) && self.series.is_empty()
    }
}
