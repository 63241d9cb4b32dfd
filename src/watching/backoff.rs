//! The backoff of the watches.
//!
//! kube resets its backoff after every success. If each watch fails at once, for example with 410, the list before it
//! succeeds each time, and squelch would list every object about once a second. As in client-go, only time resets this
//! backoff (client-go tools/cache, `NewReflectorWithOptions`).

use std::time::Duration;

use kube::runtime::utils::{Backoff, ResetTimerBackoff};
use kube::runtime::watcher::DefaultBackoff;

/// Maximum pause. Shorter than that of client-go (30 s): meanwhile squelch applies old policies.
const MAX_PAUSE: Duration = Duration::from_secs(10);

/// The time after a failure that resets the backoff. Longer than `MAX_PAUSE` and a list together, and shorter than a
/// watch without events ([`super::deadlines`]).
const STABLE: Duration = Duration::from_secs(60);

/// Pauses after failures of a watch: 0.8 s, then doubled each time, with jitter.
pub(crate) struct WatchBackoff(ResetTimerBackoff<DefaultBackoff>);

impl Default for WatchBackoff {
    fn default() -> Self {
        Self(ResetTimerBackoff::new(DefaultBackoff::default(), STABLE))
    }
}

impl Iterator for WatchBackoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        self.0.next().map(|pause| pause.min(MAX_PAUSE))
    }
}

impl Backoff for WatchBackoff {
    /// Does nothing: a successful list does not show that the watch works.
    fn reset(&mut self) {}
}
