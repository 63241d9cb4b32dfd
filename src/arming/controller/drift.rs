//! Changes of the configuration by other writers: people, other replicas, other controllers.

use serde_json::Value;
use squelch_engine::sanitise;
use tracing::{debug, info, warn};

use super::{Applied, ArmingController, Desired, uid, version};
use crate::arming::additions::Additions;
use crate::arming::configuration::{EVENTS_ENTRY, PROBE_ENTRY, differences, foreign_entries, has_rules};
use crate::arming::configuration_api::Change;
use crate::arming::state::{BreakGlass, DISARM_ANNOTATION};
use crate::clock;
use crate::metrics::RestoredField;
use crate::policy::Restrictions;

/// Maximum number of foreign entries in a log line.
const MAX_NAMES: usize = 5;
/// Maximum characters of a foreign text in a log line.
const MAX_CHARS: usize = 200;

impl ArmingController {
    /// Records what the watch shows. squelch's own writes are known.
    pub(super) fn record_change(&mut self, change: &Change) {
        let is_known = match (change, &self.known.live) {
            (Change::Version(shown), Some(live)) => version(live) == Some(shown),
            (Change::Missing, None) => true,
            _ => false,
        };
        self.known.outdated |= !is_known;
    }

    /// Reads the configuration and records changes by other writers. Returns false if the read failed.
    pub(super) async fn read(&mut self) -> bool {
        if self.known.owner.is_none() {
            self.read_owner().await;
        }
        match self.api.read().await {
            Ok(Some(live)) => {
                let annotation = live["metadata"]["annotations"][DISARM_ANNOTATION].as_str();
                self.known.break_glass = BreakGlass::of_annotation(annotation);
                if let Some(applied) = &mut self.known.applied {
                    uid(&live).clone_into(&mut applied.uid);
                }
                self.record_live(live);
            }
            Ok(None) => {
                (self.known.unanswered, self.known.additions) = (None, Additions::default());
                self.report_foreign(Vec::new());
                self.api.restrict(Restrictions::default());
                let existed = self.known.live.take().is_some();
                if existed || self.known.applied.is_some() {
                    self.record_deletion().await;
                }
            }
            Err(error) => {
                debug!(%error, "cannot read the webhook configuration");
                return false;
            }
        }
        self.known.outdated = false;
        true
    }

    /// Records the stored configuration: what other writers have changed, and what they have added.
    pub(super) fn record_live(&mut self, live: Value) {
        if let Some((desired, own)) = self.known.unanswered.take()
            && differences(&own, &live).is_empty()
        {
            self.record_write(desired, own, &live);
        }
        self.report_foreign(foreign_entries(&live));
        self.record_additions(&live);
        let differing = self.known.applied.as_ref().map(|applied| differences(&applied.stored, &live));
        let (differing, known) = (differing.unwrap_or_default(), &mut self.known);
        if known.drift != differing && !differing.is_empty() {
            let fields = differing.join(", ");
            let own = known.applied.as_ref().map(|applied| &applied.own);
            if has_rules(own, EVENTS_ENTRY) && !has_rules(Some(&live), EVENTS_ENTRY) {
                warn!(fields, "webhook rules removed by another writer, arming again after new probes");
                self.probes.reset();
            } else {
                warn!(fields, "webhook configuration changed by another writer, reapplying");
            }
        }
        (known.drift, known.live) = (differing, Some(live));
    }

    /// Records that a write is `stored`.
    pub(super) fn record_write(&mut self, desired: Desired, own: Value, stored: &Value) {
        self.known.applied = Some(Applied::new(desired.scope, own, stored));
        self.metrics.configuration_write();
        self.api.acknowledge(desired.client);
        self.probe_entry_exists.send_replace(true);
    }

    /// Counts a write that restores `own` after a change by another writer. `removes_rules`: that one has put rules back.
    pub(super) fn record_restore(&mut self, own: &Value, removes_rules: bool) {
        let known = &mut self.known;
        let is_restore = known.applied.as_ref().is_some_and(|applied| applied.own == *own);
        if is_restore && !known.drift.is_empty() {
            known.restores.record(removes_rules, clock::now());
            known.drift.iter().for_each(|field| self.metrics.configuration_restore(RestoredField::of(field)));
        }
    }

    fn record_additions(&mut self, live: &Value) {
        let wanted = self.desired.borrow().object(None);
        let own = self.known.applied.as_ref().map(|applied| &applied.own);
        let mut additions = Additions::found(live, own, &wanted);
        if own.is_some() && !has_rules(own, EVENTS_ENTRY) {
            additions = additions.without_new_lists(&self.known.additions);
        }
        self.api.restrict(additions.restrictions());
        if self.known.additions == additions {
            return;
        }
        for entry in [EVENTS_ENTRY, PROBE_ENTRY] {
            let (before, now) = (self.known.additions.described(entry), additions.described(entry));
            if before != now {
                let additions = now.as_deref().map_or_else(|| "none".to_owned(), cleaned);
                info!(entry, additions, "additions of other writers to the webhook configuration changed");
            }
        }
        self.known.additions = additions;
    }

    /// Adds to the reason of failed probes what other writers have added to the probe entry.
    pub(super) fn with_probe_additions(&self, reason: String) -> String {
        let Some(additions) = self.known.additions.described(PROBE_ENTRY) else { return reason };
        let namespace = &self.desired.borrow().namespace;
        format!(
            "{reason} (another writer has restricted the entry {PROBE_ENTRY} by {}: if that excludes namespace \
             {namespace}, no probe can succeed)",
            cleaned(&additions)
        )
    }

    /// Reports each change of the entries that squelch has not written. squelch does not remove them: another
    /// controller would write them again, evidence would be lost, and an attacker with the same right would not be
    /// stopped.
    fn report_foreign(&mut self, foreign: Vec<String>) {
        self.metrics.foreign_entries(foreign.len());
        if self.known.foreign_entries == foreign {
            return;
        }
        if foreign.is_empty() {
            info!("foreign entries of the webhook configuration are gone");
        } else {
            let names =
                foreign.iter().take(MAX_NAMES).map(|name| cleaned(name)).collect::<Vec<_>>().join(", ");
            let number = foreign.len();
            warn!(number, names, "webhook configuration has foreign entries, check who has written them");
        }
        self.known.foreign_entries = foreign;
    }

    /// Records a deletion by a person. A configuration that was deleted with its ClusterRole is created again as soon as
    /// that role is installed again.
    async fn record_deletion(&mut self) {
        let before = self.known.owner.as_ref().map(|owner| owner.uid.clone());
        let former = self.known.applied.as_ref().map_or(before, |applied| owner_uid(&applied.own));
        let is_read = self.read_owner().await;
        let owner = self.known.owner.as_ref().map(|owner| &owner.uid);
        if is_read && owner.is_some() && owner != former.as_ref() {
            info!("webhook configuration was deleted with its former ClusterRole, creating it again");
            (self.known.applied, self.known.break_glass) = (None, BreakGlass::Off);
            return;
        }
        self.known.break_glass = self.known.break_glass.deleted(clock::now());
    }

    /// Reads the ClusterRole that owns the configuration. Returns false if the read failed.
    pub(super) async fn read_owner(&mut self) -> bool {
        match self.api.read_owner().await {
            Ok(owner) => self.known.owner = owner,
            Err(error) => {
                if self.known.failure.as_ref() != Some(&error) {
                    warn!(%error, "cannot read the ClusterRole that owns the webhook configuration");
                    self.known.failure = Some(error);
                }
                return false;
            }
        }
        true
    }
}

fn owner_uid(configuration: &Value) -> Option<String> {
    configuration["metadata"]["ownerReferences"][0]["uid"].as_str().map(str::to_owned)
}

/// Sanitises and truncates foreign text for a log line.
fn cleaned(text: &str) -> String {
    text.chars().take(MAX_CHARS).map(sanitise).collect()
}
