//! What the [`Leader`] logs and announces.

use k8s_openapi::api::core::v1::ObjectReference;
use tracing::{info, warn};

use super::lease::LeaseWrite;
use super::{LEASE_NAME, Leader, LeaseState};
use crate::announcer::Announcement;

impl Leader {
    /// Logs a read result that differs from the last one. Returns what was read.
    pub(super) fn log_read(&mut self, answer: Result<LeaseState, String>) -> Option<LeaseState> {
        match answer {
            Ok(found) => {
                if self.read_failure.take().is_some() {
                    info!("Lease can be read again");
                }
                Some(found)
            }
            Err(error) => {
                if self.read_failure.as_ref() != Some(&error) {
                    warn!(error, "cannot read the Lease, retrying");
                    self.read_failure = Some(error);
                }
                None
            }
        }
    }

    /// Logs a write result that differs from the last one. A conflict does not show that the Lease can be written.
    pub(super) fn log_write(&mut self, answer: Result<LeaseWrite, String>) -> Option<LeaseWrite> {
        match answer {
            Ok(written) => {
                if matches!(written, LeaseWrite::Stored(_)) && self.write_failure.take().is_some() {
                    info!("Lease can be written again");
                }
                Some(written)
            }
            Err(error) => {
                if self.write_failure.as_ref() != Some(&error) {
                    warn!(error, "cannot write the Lease, retrying");
                    self.write_failure = Some(error);
                }
                None
            }
        }
    }

    pub(super) fn announce(&self) {
        let regarding = ObjectReference {
            api_version: Some("coordination.k8s.io/v1".to_owned()),
            kind: Some("Lease".to_owned()),
            namespace: Some(self.lease.namespace().to_owned()),
            name: Some(LEASE_NAME.to_owned()),
            ..ObjectReference::default()
        };
        let note = format!("{} acquired the Lease and is the active replica.", self.lease.identity().name());
        self.announcer.announce(Announcement {
            regarding,
            warning: false,
            reason: "Active",
            action: "AcquireLease",
            note,
        });
    }
}
