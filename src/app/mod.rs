//! `squelch run`: starts every part, connects them, and shuts them down in order.

mod cluster;
pub mod doctor;
mod exporting;
mod keys;
mod leading;
mod parts;
mod policy_metrics;
mod serving;
mod shutdown;
mod tasks;
#[cfg(feature = "test-hooks")]
mod test_hooks;
pub mod uninstall;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use futures::FutureExt as _;
use squelch_engine::{Engine, KnownPolicy};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;
use tracing::{error, info};

use crate::admin::Need;
use crate::clock;
use crate::config::RunOptions;
use crate::descriptors::Descriptors;
use crate::metrics::BackgroundTask;
use crate::policy::{Policy, Set};

use cluster::Cluster;
use parts::Parts;
use tasks::TaskFailure;

/// The time of a shutdown beyond `--shutdown-timeout`, for the statuses and the handover.
const GRACE: Duration = Duration::from_secs(45);

/// Runs the operator until SIGTERM or SIGINT, or until another replica is active in its place. Then it flushes what
/// is pending, and removes the webhook's rules unless another replica is ready.
///
/// # Errors
/// At the start: an invalid flag, an address in use, an API server that is unavailable or too old. Later: a failed
/// task, after the pending occurrences were flushed.
pub async fn run(options: RunOptions) -> Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let descriptors = Descriptors::raise();
    let cluster = Cluster::reach(&options).await?;
    let Cluster { version: kubernetes, own_user: user, namespace, .. } = &cluster;
    info!(kubernetes, user, namespace, version = env!("CARGO_PKG_VERSION"), "starting");

    let (parts, mut failures) = Parts::start(&options, &cluster, descriptors).await?;
    let following = AssertUnwindSafe(parts.follow_policies()).catch_unwind();
    let failure = tokio::select! {
        biased;
        _ = terminate.recv() => {
            info!(signal = "SIGTERM", "shutting down");
            None
        }
        _ = interrupt.recv() => {
            info!(signal = "SIGINT", "shutting down");
            None
        }
        // Its task ends too then, which is no failure.
        () = parts.deposed.cancelled() => {
            info!("another replica is active, flushing pending occurrences and exiting");
            None
        }
        failure = failures.cause() => Some(failure),
        _ = following => Some(TaskFailure::panicked(BackgroundTask::Policies)),
    };
    if let Some(failure) = failure {
        return Box::pin(fail(parts, failure, &options)).await;
    }
    parts.shut_down(&options).await;
    Ok(())
}

/// Shuts down after a failure. The time is bounded, because a task that waits for the failed one may never end.
async fn fail(parts: Parts, failure: TaskFailure, options: &RunOptions) -> Result<()> {
    error!(%failure, "a background task failed, flushing pending occurrences and exiting");
    parts.metrics.task_failed(failure.task);
    if timeout(options.shutdown_timeout + GRACE, parts.shut_down(options)).await.is_err() {
        error!("shutdown timed out, exiting");
    }
    bail!("{failure}; see the log for its error")
}

impl Parts {
    /// Applies each change of the policies and of the armed state to the other parts. The webhook may be armed once
    /// the first lists are complete.
    async fn follow_policies(&self) {
        let mut revision = self.policies.subscribe();
        let mut armed = self.armed.subscribe();
        let mut applied = None;
        loop {
            if revision.borrow_and_update().listed {
                let set = Arc::clone(&self.policies.load());
                revise(&self.engine, &set);
                policy_metrics::begin(&self.metrics, &set);
                policy_metrics::count(&self.metrics, &set, &armed.borrow_and_update());
                self.readiness.meet(Need::PoliciesListed);
                let scope = set.scope();
                // The configuration is written only if its scope has changed.
                if applied.as_ref() != Some(&scope) {
                    self.desired.send_modify(|desired| desired.scope = scope.clone());
                    applied = Some(scope);
                }
            }
            loop {
                tokio::select! {
                    changed = revision.changed() => if changed.is_err() { return } else { break },
                    // `self` owns the sender.
                    Ok(()) = armed.changed() => {
                        policy_metrics::count(&self.metrics, &self.policies.load(), &armed.borrow_and_update());
                    }
                }
            }
        }
    }
}

fn revise(engine: &Engine, set: &Set) {
    let known = |policy: &Arc<Policy>| KnownPolicy {
        policy: policy.id.clone(),
        namespace: policy.namespace.clone(),
        rules: policy.outcome.as_ref().as_ref().ok().map(|compiled| Arc::new(compiled.rules.clone())),
    };
    let policies: Vec<_> = set.policies().iter().map(known).collect();
    engine.identify_namespaces(set.namespace_uids());
    engine.revise_within(&policies, |namespace, policy| set.applicability(namespace, policy), clock::now());
}
