//! Hooks of the end-to-end tests in the process. They exist only with the feature `test-hooks`, which no release has.

use std::env;

use tokio::signal::unix::{SignalKind, signal};

use crate::metrics::BackgroundTask;

/// The environment variable that names the task to panic at SIGUSR1.
const PANIC: &str = "SQUELCH_TEST_PANIC";

/// Runs `running`. If the environment names `task`, it panics at SIGUSR1.
pub(super) async fn panic_on_signal<T>(task: BackgroundTask, running: impl Future<Output = T>) -> T {
    if env::var(PANIC).as_deref() != Ok(task.as_str()) {
        return running.await;
    }
    let mut received = signal(SignalKind::user_defined1()).expect("the process may handle its signals");
    tokio::select! {
        output = running => output,
        _ = received.recv() => {
            #[expect(clippy::panic, reason = "this is the hook")]
            {
                panic!("{PANIC}")
            }
        }
    }
}
