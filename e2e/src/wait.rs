//! The one place that waits for something to become true.

use std::cell::RefCell;
use std::time::Duration;

use anyhow::{Result, anyhow};

/// A deadline for what takes a second or two on a machine that does nothing else.
pub const GENEROUS: Duration = Duration::from_secs(60);

/// The pause between two looks.
const POLL: Duration = Duration::from_millis(50);

/// Looks until `look` finds what it is looking for, at most until `deadline`.
///
/// # Errors
/// That `what` did not come about, and what `look` saw last in its place.
pub async fn wait_for<T>(
    what: &str,
    deadline: Duration,
    mut look: impl AsyncFnMut() -> Result<T, String>,
) -> Result<T> {
    let seen = RefCell::new("nothing yet".to_owned());
    let looking = async {
        loop {
            match look().await {
                Ok(found) => return found,
                Err(instead) => *seen.borrow_mut() = instead,
            }
            tokio::time::sleep(POLL).await;
        }
    };
    let found = tokio::time::timeout(deadline, looking).await;
    found.map_err(|_| anyhow!("waited {deadline:?} for {what}; last seen: {}", seen.take()))
}

/// For looks that can fail themselves: the failure is what was seen.
pub fn told(error: impl Into<anyhow::Error>) -> String {
    format!("{:#}", error.into())
}
