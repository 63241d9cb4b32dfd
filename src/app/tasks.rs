//! The background tasks and their supervision. A process that has lost a task looks healthy, but is not.

use std::fmt;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::metrics::BackgroundTask;

/// The time that the end of a task is held until a panic of another one is noticed. A task that panics closes
/// channels, so that others may end before the panic is noticed.
const CAUSE: Duration = Duration::from_millis(100);

/// The end of a task that nothing asked to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TaskFailure {
    pub(super) task: BackgroundTask,
    panicked: bool,
}

impl fmt::Display for TaskFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = if self.panicked { "panicked" } else { "ended unexpectedly" };
        write!(f, "the task {} {how}", self.task.as_str())
    }
}

impl TaskFailure {
    /// A task panicked.
    pub(super) fn panicked(task: BackgroundTask) -> Self {
        Self { task, panicked: true }
    }
}

/// Receives the failures of all tasks of one [`Supervisor`].
pub(super) struct Failures(mpsc::UnboundedReceiver<TaskFailure>);

impl Failures {
    /// Waits for a failure, and returns the one that caused the others.
    pub(super) async fn cause(&mut self) -> TaskFailure {
        let Some(first) = self.0.recv().await else { return std::future::pending().await };
        if first.panicked {
            return first;
        }
        let panicked = async {
            loop {
                match self.0.recv().await {
                    Some(failure) if failure.panicked => return failure,
                    Some(_) => {}
                    None => std::future::pending().await,
                }
            }
        };
        timeout(CAUSE, panicked).await.unwrap_or(first)
    }
}

/// Starts tasks, and detects their end.
#[derive(Clone)]
pub(super) struct Supervisor(mpsc::UnboundedSender<TaskFailure>);

impl Supervisor {
    pub(super) fn new() -> (Self, Failures) {
        let (failures, received) = mpsc::unbounded_channel();
        (Self(failures), Failures(received))
    }

    /// Starts a task that ends when its token is cancelled.
    pub(super) fn start<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
        &self,
        task: BackgroundTask,
        make: impl FnOnce(CancellationToken) -> F,
    ) -> Task<T> {
        self.start_with(task, CancellationToken::new(), make)
    }

    /// Starts a task with a shared token.
    pub(super) fn start_with<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
        &self,
        task: BackgroundTask,
        stop: CancellationToken,
        make: impl FnOnce(CancellationToken) -> F,
    ) -> Task<T> {
        let running = make(stop.clone());
        #[cfg(feature = "test-hooks")]
        let running = super::test_hooks::panic_on_signal(task, running);
        let end = EndReporter { task, stop: stop.clone(), failures: self.0.clone() };
        let handle = tokio::spawn(async move {
            // Dropped after the task, also by a panic.
            let _end = end;
            running.await
        });
        Task { stop, handle }
    }
}

/// Reports the end of a task, unless it was asked to end.
struct EndReporter {
    task: BackgroundTask,
    stop: CancellationToken,
    failures: mpsc::UnboundedSender<TaskFailure>,
}

impl Drop for EndReporter {
    fn drop(&mut self) {
        let panicked = std::thread::panicking();
        if panicked || !self.stop.is_cancelled() {
            // There is no receiver during the shutdown, which detects panics itself.
            let _ = self.failures.send(TaskFailure { task: self.task, panicked });
        }
    }
}

/// A task that ends on request.
pub(super) struct Task<T> {
    stop: CancellationToken,
    handle: JoinHandle<T>,
}

impl<T> Task<T> {
    /// Asks the task to end, and waits for that. Returns `None` if it panicked.
    pub(super) async fn end(self) -> Option<T> {
        self.stop.cancel();
        self.handle.await.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_the_cause_even_if_another_task_ends_first_because_of_it() {
        let (supervisor, mut failures) = Supervisor::new();
        let (closes, mut closed) = tokio::sync::watch::channel(());
        let flush = supervisor.start(BackgroundTask::Flush, |_stop| async move {
            let _ = closed.changed().await;
        });
        let leader = supervisor.start(BackgroundTask::Leader, |_stop| async move {
            drop(closes);
            // The other one ends meanwhile.
            tokio::task::yield_now().await;
            if true {
                panic!("on purpose");
            }
        });
        let cause = failures.cause().await;
        assert_eq!(cause, TaskFailure::panicked(BackgroundTask::Leader));
        assert_eq!(cause.to_string(), "the task leader panicked");
        assert_eq!((leader.end().await, flush.end().await), (None, Some(())));
    }

    #[tokio::test]
    async fn a_task_that_returns_unasked_is_a_failure() {
        let (supervisor, mut failures) = Supervisor::new();
        let asked = supervisor.start(BackgroundTask::Keys, |stop| async move { stop.cancelled().await });
        asked.end().await;
        let _returned = supervisor.start(BackgroundTask::Status, |_stop| async {});
        assert_eq!(failures.cause().await.to_string(), "the task status ended unexpectedly");
    }

    #[tokio::test]
    async fn a_shared_token_ends_a_task() {
        let (supervisor, mut failures) = Supervisor::new();
        let stop = CancellationToken::new();
        let task = supervisor.start_with(BackgroundTask::Webhook, stop.clone(), |stop| async move {
            stop.cancelled().await;
        });
        stop.cancel();
        assert_eq!(task.end().await, Some(()));
        assert!(futures::poll!(std::pin::pin!(failures.cause())).is_pending());
    }
}
