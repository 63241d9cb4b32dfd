//! File descriptors: the limit of the process, and the number of connections that it leaves to each port.

use std::error::Error;
use std::io;

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::{info, warn};

/// A lower limit is logged as a warning. Above it every share is at its maximum: 4,416 descriptors, and some to spare.
const RECOMMENDED: u64 = 5_000;

/// Descriptors for everything but accepted connections: the runtime, both listeners, files, the connections to the API
/// server for watches, the Lease, probes and status, and up to 32 flushes at a time during a shutdown.
const RESERVE: u64 = 160;

/// Maximum number of connections to the webhook.
const MAX_WEBHOOK: u64 = 4_000;

/// Maximum number of connections to the plain HTTP port.
const MAX_ADMIN: u64 = 256;

/// Minimum for either port, however low the limit is.
const MIN: u64 = 16;

/// The limit of the process on open descriptors (RLIMIT_NOFILE).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptors {
    limit: u64,
}

impl Descriptors {
    /// Raises the soft limit to the hard limit, and logs the result. Container runtimes start processes with a soft
    /// limit of 1,024, which is below the number of connections that the webhook has to bear.
    pub fn raise() -> Self {
        let before = getrlimit(Resource::Nofile);
        let raised = Rlimit { current: before.maximum, maximum: before.maximum };
        if let Err(error) = setrlimit(Resource::Nofile, raised) {
            warn!(%error, "the soft limit on open files could not be raised to the hard limit");
        }
        let Rlimit { current, .. } = getrlimit(Resource::Nofile);
        let descriptors = Self::of(current.unwrap_or(u64::MAX));
        let (limit, connections) = (descriptors.limit, descriptors.webhook_connections());
        if limit < RECOMMENDED {
            warn!(
                limit,
                recommended = RECOMMENDED,
                connections,
                "the limit on open files is low, the webhook keeps fewer connections; raise the hard limit of the container"
            );
        } else {
            info!(limit, connections, "limit on open files");
        }
        descriptors
    }

    /// The shares under another limit.
    pub fn of(limit: u64) -> Self {
        Self { limit }
    }

    /// Maximum number of connections to the webhook.
    pub fn webhook_connections(self) -> usize {
        let left = self.for_connections();
        clamp(left.saturating_sub(self.admin_share()), MAX_WEBHOOK)
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

fn clamp(share: u64, most: u64) -> usize {
    usize::try_from(share.clamp(MIN, most)).unwrap_or(usize::MAX)
}

/// Whether a call failed because this process (EMFILE) or this machine (ENFILE) has no descriptor left. Libraries wrap
/// the error of the operating system: its causes are searched too.
pub fn are_exhausted(error: &(dyn Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        let Some(error_of_io) = error.downcast_ref::<io::Error>() else {
            next = error.source();
            continue;
        };
        if [Errno::MFILE, Errno::NFILE]
            .map(|errno| Some(errno.raw_os_error()))
            .contains(&error_of_io.raw_os_error())
        {
            return true;
        }
        // The source of an `io::Error` is that of the error inside, not the error inside.
        next = match error_of_io.get_ref() {
            Some(inside) => Some(inside),
            None => error.source(),
        };
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_and_the_reserve_fit_into_every_limit_that_has_room_for_them() {
        for limit in [192, 256, 512, 1_024, 4_096, 4_415, 4_416, 5_000, 65_536, 1_048_576, u64::MAX] {
            let descriptors = Descriptors::of(limit);
            let shares = descriptors.webhook_connections() as u64 + descriptors.admin_connections() as u64;
            assert!(shares + RESERVE <= limit, "{limit}: {shares}");
        }
    }

    #[test]
    fn a_limit_that_is_recommended_gives_every_connection() {
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
    fn exhaustion_is_found_below_whatever_wraps_it() {
        #[derive(Debug, thiserror::Error)]
        #[error("wrapped")]
        struct Wrapped(#[source] Box<dyn Error + Send + Sync>);

        let of_the_system = |errno: Errno| io::Error::from_raw_os_error(errno.raw_os_error());
        assert!(are_exhausted(&of_the_system(Errno::MFILE)));
        assert!(are_exhausted(&of_the_system(Errno::NFILE)));
        assert!(!are_exhausted(&of_the_system(Errno::CONNREFUSED)));
        let deep = Wrapped(io::Error::other(Wrapped(of_the_system(Errno::MFILE).into())).into());
        assert!(are_exhausted(&deep));
        let other = Wrapped(io::Error::other(Wrapped(of_the_system(Errno::PIPE).into())).into());
        assert!(!are_exhausted(&other));
    }
}
