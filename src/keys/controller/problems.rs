//! The logged problems of the keys. Each is logged once.

use tracing::{info, warn};

use super::KeysController;

/// What a logged problem is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::keys) enum Subject {
    /// The Secret with the keys.
    Secret,
    /// The files of `--cert-dir`.
    Files,
    /// The served certificate.
    Certificate,
}

impl Subject {
    fn as_str(self) -> &'static str {
        match self {
            Self::Secret => "keys Secret",
            Self::Files => "files of --cert-dir",
            Self::Certificate => "served certificate",
        }
    }
}

impl KeysController {
    /// Logs a problem that differs from the last one. Returns whether it does.
    pub(super) fn report(&mut self, subject: Subject, problem: String) -> bool {
        let is_new = self.problems.get(&subject) != Some(&problem);
        if is_new {
            warn!(subject = subject.as_str(), problem, "webhook keys have a problem");
            self.problems.insert(subject, problem);
        }
        is_new
    }

    /// Logs that a problem is solved.
    pub(super) fn resolve(&mut self, subject: Subject) {
        if self.problems.remove(&subject).is_some() {
            info!(subject = subject.as_str(), "problem of the webhook keys is solved");
        }
    }
}
