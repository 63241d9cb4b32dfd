//! Changes of the configuration by other writers: people, other replicas, other controllers.

use squelch_engine::sanitise;
use tracing::{debug, info, warn};

use super::{Keeper, uid};
use crate::arming::configuration::{EVENTS, differences, foreign_entries, has_rules};
use crate::arming::standing::{BreakGlass, DISARM_ANNOTATION};
use crate::clock;

/// At most this many foreign entries are named in a log line.
const NAMED: usize = 5;
/// A name of somebody else's is cut to this.
const LONGEST_NAME: usize = 100;

impl Keeper {
    /// Looks what somebody else has made of it. False if it could not be read.
    pub(super) async fn look(&mut self) -> bool {
        if self.state.owner.is_none() {
            self.find_owner().await;
        }
        match self.arming.look().await {
            Ok(Some(live)) => {
                self.note_foreign(foreign_entries(&live));
                self.state.live = Some(live.clone());
                let annotation = live["metadata"]["annotations"][DISARM_ANNOTATION].as_str();
                self.state.glass = BreakGlass::found(annotation);
                let Some(written) = &mut self.state.written else { return true };
                uid(&live).clone_into(&mut written.uid);
                let differing = differences(&written.stored, &live);
                if differing.is_empty() {
                    return true;
                }
                let fields = differing.join(", ");
                if has_rules(Some(&written.object), EVENTS) && !has_rules(Some(&live), EVENTS) {
                    warn!(fields, "the webhook's rules were taken away; they come back after new probes");
                    self.proofs.renew();
                } else {
                    warn!(fields, "somebody changed the webhook configuration; it is put back");
                }
                self.state.edited = true;
            }
            Ok(None) => {
                self.note_foreign(Vec::new());
                let was_there = self.state.live.take().is_some();
                if was_there || self.state.written.is_some() {
                    self.miss().await;
                }
            }
            Err(error) => {
                debug!(%error, "the webhook configuration could not be read");
                return false;
            }
        }
        true
    }

    /// Reports entries that squelch has not written, each change once. squelch does not remove them: that would fight a
    /// controller that writes them again, would destroy evidence, and would not stop an attacker with the same right.
    fn note_foreign(&mut self, foreign: Vec<String>) {
        self.metrics.foreign_entries(foreign.len());
        if self.state.foreign == foreign {
            return;
        }
        if foreign.is_empty() {
            info!("the foreign entries of the webhook configuration are gone");
        } else {
            let cut = |name: &String| name.chars().take(LONGEST_NAME).map(sanitise).collect::<String>();
            let names = foreign.iter().take(NAMED).map(cut).collect::<Vec<_>>().join(", ");
            let number = foreign.len();
            warn!(number, names, "the webhook configuration holds entries that squelch has not written");
        }
        self.state.foreign = foreign;
    }

    /// The configuration is gone: with its owner, or by a person.
    async fn miss(&mut self) {
        let had = self.state.owner.clone();
        if self.find_owner().await && self.state.owner.is_some() && self.state.owner != had {
            info!(
                "the webhook configuration went with the ClusterRole that it belonged to; there is a new one"
            );
            self.state.written = None;
            return;
        }
        self.state.glass = self.state.glass.missing(clock::now());
    }

    /// False if it could not be asked.
    pub(super) async fn find_owner(&mut self) -> bool {
        match self.arming.owner().await {
            Ok(owner) => self.state.owner = owner,
            Err(error) => {
                if self.state.failure.as_ref() != Some(&error) {
                    warn!(%error, "the ClusterRole that owns the webhook configuration could not be read");
                    self.state.failure = Some(error);
                }
                return false;
            }
        }
        true
    }
}
