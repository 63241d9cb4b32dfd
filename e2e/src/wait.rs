//! Waiting for conditions.

use std::cell::RefCell;
use std::time::Duration;

use anyhow::{Result, anyhow};

/// Deadline of an operation that takes a second or two on an idle machine.
pub const GENEROUS: Duration = Duration::from_secs(60);

/// Deadline of emitters: they take up to a minute on an idle machine, and many times that on a busy one.
pub const STORM: Duration = Duration::from_secs(900);

/// Interval between two polls.
const POLL: Duration = Duration::from_millis(50);

/// Polls until the condition is met and returns its value, at most until `deadline`. `what` completes "waited for".
///
/// # Errors
/// If the deadline passes, with the last text that `poll` returned instead.
pub async fn wait_for<T>(
    what: &str,
    deadline: Duration,
    mut poll: impl AsyncFnMut() -> Result<T, String>,
) -> Result<T> {
    let seen = RefCell::new("nothing yet".to_owned());
    let polling = async {
        loop {
            match poll().await {
                Ok(found) => return found,
                Err(instead) => *seen.borrow_mut() = instead,
            }
            tokio::time::sleep(POLL).await;
        }
    };
    let found = tokio::time::timeout(deadline, polling).await;
    found.map_err(|_| anyhow!("waited {deadline:?} for {what}; last seen: {}", seen.take()))
}

/// Lets this time pass under a load.
pub async fn pass(time: Duration) {
    let mut ticks = tokio::time::interval(time);
    ticks.tick().await;
    ticks.tick().await;
}

/// Converts an error into the text of a condition that is not met yet.
pub fn not_yet(error: impl Into<anyhow::Error>) -> String {
    format!("{:#}", error.into())
}
