//! What clients know of their occurrences, and what was reported.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::Request;

/// What clients know of the occurrences under one name, and what was reported.
#[derive(Clone, Copy, Default)]
pub(in super::super) struct Known {
    /// Occurrences so far.
    pub(super) occurred: i64,
    /// Occurrences reported to some engine.
    pub(in super::super) reported: i64,
    /// The last replica to which the name was reported.
    pub(in super::super) reported_to: Option<usize>,
    /// The highest count that it was sent.
    pub(in super::super) highest: i64,
    /// The latest second that it was sent.
    pub(in super::super) latest: u64,
    /// Whether a write of this name passed without a review.
    pub(in super::super) passed_unseen: bool,
    /// The replica that has seen its client read a count, add one and write that back.
    pub(in super::super) known_to_read: Option<usize>,
    /// Whether the namespace was created again since.
    pub(in super::super) renewed: bool,
    pub(super) first_seen: Timestamp,
}

/// Occurrences and reports by name.
#[derive(Default)]
pub(in super::super) struct Knowledge {
    names: BTreeMap<String, Known>,
}

impl Knowledge {
    pub(super) fn known(&mut self, name: &str) -> &mut Known {
        self.names.entry(name.to_owned()).or_default()
    }

    /// Adds one occurrence, first observed at `now` if it is the first.
    pub(super) fn occurs(&mut self, name: &str, now: Timestamp) {
        let known = self.known(name);
        if known.occurred == 0 {
            known.first_seen = now;
        }
        known.occurred += 1;
    }

    /// Returns the occurrences of a request that no engine has received, and what is known of its name.
    pub(in super::super) fn news(&mut self, request: &Request) -> (i64, Known) {
        let known = request.name.as_deref().map_or_else(Known::default, |name| *self.known(name));
        ((request.knows - known.reported).max(0), known)
    }

    /// Records that the engine of this replica received a request.
    pub(in super::super) fn report(&mut self, request: &Request, replica: usize) {
        if let Some(name) = request.name.as_deref() {
            let known = self.known(name);
            known.reported = known.reported.max(request.knows);
            let is_known = known.reported_to == Some(replica);
            let (highest, latest) = if is_known { (known.highest, known.latest) } else { (0, 0) };
            (known.highest, known.latest) = (highest.max(request.value), latest.max(request.second));
            known.reported_to = Some(replica);
        }
    }

    /// The client of `name` forgets what it has not reported.
    pub(super) fn starts_anew(&mut self, name: &str) {
        let known = self.known(name);
        known.reported = known.occurred;
    }

    /// No UPDATE follows this CREATE: "Until the new count exceeds it, only writes that add one to the stored count are
    /// counted."
    pub(super) fn ends_with(&mut self, create: &Request) {
        let known = self.known(create.stored_name());
        if !create.unseen || create.value <= known.highest {
            known.reported = known.reported.max(known.occurred);
        }
    }

    /// This replica has seen that the client of a request reads, adds one and writes back.
    pub(in super::super) fn reads(&mut self, request: &Request, replica: usize) {
        if let Some(name) = request.name.as_deref() {
            self.known(name).known_to_read = Some(replica);
        }
    }

    /// The namespace was created again: what was reported is unknown there.
    pub(in super::super) fn forget_reports(&mut self) {
        for known in self.names.values_mut() {
            (known.reported_to, known.passed_unseen, known.renewed) = (None, true, true);
            known.known_to_read = None;
        }
    }

    /// A write of `name` passes without a review.
    pub(in super::super) fn pass_unseen(&mut self, name: &str) {
        self.known(name).passed_unseen = true;
    }
}
