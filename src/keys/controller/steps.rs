//! The steps of the rotation, and the writes of the Secret.

use tracing::info;

use super::problems::Subject;
use super::{KeysController, MAX_STEPS, now};
use crate::keys::secret::SecretWrite;
use crate::tls::encoding::Keys;
use crate::tls::rotation::{Ring, Step};

impl KeysController {
    /// Takes the due steps of the rotation.
    pub(super) async fn rotate(&mut self) {
        for _ in 0..MAX_STEPS {
            let step = self.rotation.step(self.serving.id, self.clock.wall(), now());
            let fresh = || match step {
                Step::IntroduceToken => self.rotation.ring().current.with_new_token(self.clock.wall()).ok(),
                _ => self.fresh(),
            };
            let Some(ring) = self.rotation.after(step, fresh) else { return };
            if !self.write(ring).await {
                return;
            }
            match step {
                Step::Keep => {}
                Step::IntroduceToken => info!("new webhook token introduced"),
                Step::Introduce => info!("new webhook keys introduced"),
                Step::Promote => info!("new webhook keys promoted"),
                Step::Drop => info!("previous webhook keys dropped"),
            }
        }
    }

    /// Writes a deleted or damaged Secret, and starts the replacement of all keys that it held.
    pub(super) async fn replace_all(&mut self) {
        self.rotation.mark_compromised(now());
        let step = self.rotation.step(self.serving.id, self.clock.wall(), now());
        // One write, so that another deletion cannot come in between.
        let introduced =
            (step == Step::Introduce).then(|| self.rotation.after(step, || self.fresh())).flatten();
        let ring = introduced.unwrap_or_else(|| self.rotation.ring().clone());
        self.write(ring).await;
    }

    fn fresh(&self) -> Option<Keys> {
        Keys::generate(self.mounted.is_none(), self.lifetimes, self.clock.wall()).ok()
    }

    /// Writes `ring` to the Secret and adopts it. Returns whether it did. After a conflict the next poll reads the
    /// Secret.
    pub(super) async fn write(&mut self, ring: Ring<Keys>) -> bool {
        if !self.may_write() {
            return false;
        }
        match self.store.write(&ring, self.resource_version.as_deref()).await {
            Ok(SecretWrite::Stored(resource_version)) => {
                self.resource_version = resource_version;
                self.rotation.adopt(ring, now());
                return true;
            }
            Ok(SecretWrite::Conflict) => info!("keys Secret written by another writer, reading it again"),
            Err(error) => {
                self.report(Subject::Secret, format!("cannot write it: {error}"));
            }
        }
        false
    }

    /// Whether this replica may change the keys: it is active, or does not share them.
    pub(super) fn may_write(&self) -> bool {
        !self.store.is_shared() || *self.active.borrow()
    }
}
