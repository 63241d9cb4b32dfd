//! Changes of the configuration by other writers: people, other replicas, other controllers.

use squelch_engine::sanitise;
use tracing::{debug, info, warn};

use super::{ArmingController, uid};
use crate::arming::configuration::{EVENTS_ENTRY, differences, foreign_entries, has_rules};
use crate::arming::state::{BreakGlass, DISARM_ANNOTATION};
use crate::clock;

/// Maximum number of foreign entries in a log line.
const MAX_NAMES: usize = 5;
/// Maximum characters of a foreign entry's name in a log line.
const MAX_NAME_CHARS: usize = 100;

impl ArmingController {
    /// Reads the configuration and records changes by other writers. Returns false if the read failed.
    pub(super) async fn read(&mut self) -> bool {
        if self.known.owner.is_none() {
            self.read_owner().await;
        }
        match self.api.read().await {
            Ok(Some(live)) => {
                self.report_foreign(foreign_entries(&live));
                self.known.live = Some(live.clone());
                let annotation = live["metadata"]["annotations"][DISARM_ANNOTATION].as_str();
                self.known.break_glass = BreakGlass::of_annotation(annotation);
                let Some(applied) = &mut self.known.applied else { return true };
                uid(&live).clone_into(&mut applied.uid);
                let differing = differences(&applied.stored, &live);
                if differing.is_empty() {
                    return true;
                }
                let fields = differing.join(", ");
                if has_rules(Some(&applied.object), EVENTS_ENTRY) && !has_rules(Some(&live), EVENTS_ENTRY) {
                    warn!(fields, "webhook rules removed by another writer, arming again after new probes");
                    self.probes.reset();
                } else {
                    warn!(fields, "webhook configuration changed by another writer, reapplying");
                }
                self.known.drifted = true;
            }
            Ok(None) => {
                self.report_foreign(Vec::new());
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
        true
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
            let cleaned = |name: &String| name.chars().take(MAX_NAME_CHARS).map(sanitise).collect::<String>();
            let names = foreign.iter().take(MAX_NAMES).map(cleaned).collect::<Vec<_>>().join(", ");
            let number = foreign.len();
            warn!(number, names, "webhook configuration has foreign entries, check who has written them");
        }
        self.known.foreign_entries = foreign;
    }

    /// Records a deletion by a person. A configuration that was deleted with its ClusterRole is created again at once.
    async fn record_deletion(&mut self) {
        let former = self.known.owner.clone();
        if self.read_owner().await && self.known.owner.is_some() && self.known.owner != former {
            info!("webhook configuration was deleted with its former ClusterRole, creating it again");
            self.known.applied = None;
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
