//! The one place that reads clocks. The monotonic one is tokio's, so that a test which moves its time moves this too.

use std::sync::LazyLock;

use jiff::Timestamp;
use tokio::time::Instant;

use crate::engine::Moment;

static EPOCH: LazyLock<Instant> = LazyLock::new(|| {
    #[expect(clippy::disallowed_methods, reason = "this is where time is read")]
    Instant::now()
});

/// The monotonic time since the process's epoch (the first call).
pub fn now() -> Moment {
    #[expect(clippy::disallowed_methods, reason = "this is where time is read")]
    Moment::from_epoch(Instant::now().saturating_duration_since(*EPOCH))
}

/// The wall clock: data for timestamps, never for decisions.
pub fn wall() -> Timestamp {
    #[expect(clippy::disallowed_methods, reason = "this is where time is read")]
    Timestamp::now()
}
