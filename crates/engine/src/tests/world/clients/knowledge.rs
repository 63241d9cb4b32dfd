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
    /// Whether a write of this name passed without a review.
    pub(in super::super) passed_unseen: bool,
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
            let before = if known.reported_to == Some(replica) { known.highest } else { 0 };
            known.highest = before.max(request.value);
            known.reported_to = Some(replica);
        }
    }

    /// The namespace was created again: what was reported is unknown there.
    pub(in super::super) fn forget_reports(&mut self) {
        for known in self.names.values_mut() {
            (known.reported_to, known.passed_unseen, known.renewed) = (None, true, true);
        }
    }

    /// A write of `name` passes without a review.
    pub(in super::super) fn pass_unseen(&mut self, name: &str) {
        self.known(name).passed_unseen = true;
    }
}
