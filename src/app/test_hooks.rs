//! What end-to-end tests need from within the process. Compiled with the feature `test-hooks` only, which no release has.

use std::env;

use tokio::signal::unix::{SignalKind, signal};

use crate::metrics::BackgroundTask;

/// Names the task that panics at SIGUSR1.
const PANIC: &str = "SQUELCH_TEST_PANIC";

/// Runs `running`; at SIGUSR1 it panics, if the environment names `task`.
pub(super) async fn unless_told_to_panic<T>(task: BackgroundTask, running: impl Future<Output = T>) -> T {
    if env::var(PANIC).as_deref() != Ok(task.as_str()) {
        return running.await;
    }
    let mut told = signal(SignalKind::user_defined1()).expect("the process may handle its signals");
    tokio::select! {
        output = running => output,
        _ = told.recv() => {
            #[expect(clippy::panic, reason = "this is the hook")]
            {
                panic!("{PANIC}")
            }
        }
    }
}
