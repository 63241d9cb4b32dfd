//! File descriptors: the limit of the process, and the resulting limits on the connections to each port.

use std::error::Error;
use std::io;

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::{info, warn};

/// A lower limit is logged as a warning. From 4,416 descriptors on, every share is at its maximum.
const RECOMMENDED: u64 = 5_000;

/// Descriptors reserved for everything except accepted connections: the runtime, both listeners, files, the connections to
/// the API server for watches, the Lease, probes and status, and up to 32 concurrent flushes during a shutdown.
const RESERVE: u64 = 160;

/// Maximum number of connections to the webhook.
const MAX_WEBHOOK: u64 = 4_000;

/// Maximum number of connections to the plain HTTP port.
const MAX_ADMIN: u64 = 256;

/// Minimum number of connections to each port, regardless of the limit.
const MIN: u64 = 16;

/// The limit of the process on open descriptors (RLIMIT_NOFILE).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptors {
    limit: u64,
}

impl Descriptors {
    /// Raises the soft limit to the hard limit, and logs the result. Container runtimes start processes with a soft
    /// limit of 1,024, which is less than the maximum number of connections.
    pub fn raise() -> Self {
        let before = getrlimit(Resource::Nofile);
        let raised = Rlimit { current: before.maximum, maximum: before.maximum };
        if let Err(error) = setrlimit(Resource::Nofile, raised) {
            warn!(%error, "raising the soft limit on open files to the hard limit failed");
        }
        let Rlimit { current, .. } = getrlimit(Resource::Nofile);
        let descriptors = Self::of(current.unwrap_or(u64::MAX));
        let (limit, connections) = (descriptors.limit, descriptors.webhook_connections());
        if limit < RECOMMENDED {
            warn!(
                limit,
                recommended = RECOMMENDED,
                connections,
                "limit on open files is low, accepting fewer connections to the webhook; raise the hard limit of the container"
            );
        } else {
            info!(limit, connections, "limit on open files");
        }
        descriptors
    }

    /// Creates the limits for another number of descriptors.
    pub fn of(limit: u64) -> Self {
        Self { limit }
    }

    /// Maximum number of connections to the webhook.
    pub fn webhook_connections(self) -> usize {
        clamp(self.for_connections().saturating_sub(self.admin_share()), MAX_WEBHOOK)
    }

    /// Maximum number of connections to the plain HTTP port.
    pub fn admin_connections(self) -> usize {
        clamp(self.admin_share(), MAX_ADMIN)
    }

    fn for_connections(self) -> u64 {
        self.limit.saturating_sub(RESERVE)
    }

    fn admin_share(self) -> u64 {
        (self.for_connections() / 8).clamp(MIN, MAX_ADMIN)
    }
}

fn clamp(share: u64, max: u64) -> usize {
    usize::try_from(share.clamp(MIN, max)).unwrap_or(usize::MAX)
}

/// Whether a call failed because the process (EMFILE) or the machine (ENFILE) has no descriptor left. Libraries wrap the
/// error of the operating system, so the sources of the error are checked too.
pub fn are_exhausted(error: &(dyn Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        let Some(io_error) = error.downcast_ref::<io::Error>() else {
            next = error.source();
            continue;
        };
        if [Errno::MFILE, Errno::NFILE]
            .map(|errno| Some(errno.raw_os_error()))
            .contains(&io_error.raw_os_error())
        {
            return true;
        }
        // `io::Error::source` skips the inner error and returns its source.
        next = match io_error.get_ref() {
            Some(inner) => Some(inner),
            None => error.source(),
        };
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_and_the_reserve_are_within_the_limit() {
        for limit in [192, 256, 512, 1_024, 4_096, 4_415, 4_416, 5_000, 65_536, 1_048_576, u64::MAX] {
            let descriptors = Descriptors::of(limit);
            let shares = descriptors.webhook_connections() as u64 + descriptors.admin_connections() as u64;
            assert!(shares + RESERVE <= limit, "{limit}: {shares}");
        }
    }

    #[test]
    fn the_recommended_limit_allows_the_maximum_number_of_connections() {
        let shares = |limit| {
            let descriptors = Descriptors::of(limit);
            (descriptors.webhook_connections(), descriptors.admin_connections())
        };
        assert_eq!(shares(u64::MAX), (4_000, 256));
        assert_eq!(shares(RECOMMENDED), (4_000, 256));
        assert_eq!(shares(1_024), (756, 108));
        assert_eq!(shares(0), (16, 16));
    }

    #[test]
    fn exhaustion_is_found_in_wrapped_errors() {
        #[derive(Debug, thiserror::Error)]
        #[error("wrapped")]
        struct Wrapped(#[source] Box<dyn Error + Send + Sync>);

        let os_error = |errno: Errno| io::Error::from_raw_os_error(errno.raw_os_error());
        assert!(are_exhausted(&os_error(Errno::MFILE)));
        assert!(are_exhausted(&os_error(Errno::NFILE)));
        assert!(!are_exhausted(&os_error(Errno::CONNREFUSED)));
        let deep = Wrapped(io::Error::other(Wrapped(os_error(Errno::MFILE).into())).into());
        assert!(are_exhausted(&deep));
        let other = Wrapped(io::Error::other(Wrapped(os_error(Errno::PIPE).into())).into());
        assert!(!are_exhausted(&other));
    }
}
