//! `squelch run`: every part made, tied to the others, and ended in order.

mod cluster;
pub mod doctor;
pub mod drain;
mod keys;
mod leading;
mod parts;
mod policy_metrics;
mod shutdown;
mod tasks;
#[cfg(feature = "test-hooks")]
mod test_hooks;

use std::collections::BTreeSet;
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
use crate::arming::Reach;
use crate::clock;
use crate::config::RunOptions;
use crate::descriptors::Descriptors;
use crate::metrics::BackgroundTask;
use crate::policy::{Policy, Set};

use cluster::Cluster;
use parts::Parts;
use tasks::Failure;

/// The time that a shutdown takes beyond `--shutdown-timeout`, for the statuses and the handover.
const GRACE: Duration = Duration::from_secs(45);

/// Runs the operator until SIGTERM or SIGINT, or until another replica has taken its place. Then it pays what is owed,
/// and takes the webhook's rules away unless another replica is ready.
///
/// # Errors
/// What keeps it from starting: a wrong flag, an address in use, an API server that cannot be reached or is too
/// old. Each says what to do. Later, that one of its tasks failed: what is pending was flushed then.
pub async fn run(options: RunOptions) -> Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let descriptors = Descriptors::raise();
    let cluster = Cluster::reach(&options).await?;
    let Cluster { version: kubernetes, own_user: user, namespace, .. } = &cluster;
    info!(kubernetes, user, namespace, version = env!("CARGO_PKG_VERSION"), "squelch starts");

    let (parts, mut failures) = Parts::start(&options, &cluster, descriptors).await?;
    let following = AssertUnwindSafe(parts.follow_policies()).catch_unwind();
    let failure = tokio::select! {
        biased;
        _ = terminate.recv() => {
            info!("SIGTERM: shutting down");
            None
        }
        _ = interrupt.recv() => {
            info!("SIGINT: shutting down");
            None
        }
        // Its task ends too then, which is no failure.
        () = parts.deposed.cancelled() => {
            info!("another replica decides: this process pays what it owes and ends, to come back as a standby");
            None
        }
        failure = failures.cause() => Some(failure),
        _ = following => Some(Failure::panicked(BackgroundTask::Policies)),
    };
    if let Some(failure) = failure {
        return fail(parts, failure, &options).await;
    }
    parts.shut_down(&options).await;
    Ok(())
}

/// Shuts down after a failure, in bounded time: a task that waits for the one that failed may never end.
async fn fail(parts: Parts, failure: Failure, options: &RunOptions) -> Result<()> {
    error!(%failure, "a background task failed, flushing pending occurrences and exiting");
    parts.metrics.task_failed(failure.task);
    if timeout(options.shutdown_timeout + GRACE, parts.shut_down(options)).await.is_err() {
        error!("the shutdown did not end in time, exiting");
    }
    bail!("{failure}; the log has its message")
}

impl Parts {
    /// Tells every part of each change of the policies and of what they are for, and arms the webhook once the first
    /// lists are complete.
    async fn follow_policies(&self) {
        let mut revision = self.policies.subscribe();
        let mut unarmed = self.unarmed.subscribe();
        let mut told = None;
        loop {
            if revision.borrow_and_update().listed {
                let set = Arc::clone(&self.policies.load());
                revise(&self.engine, &set);
                policy_metrics::begin(&self.metrics, &set);
                policy_metrics::count(&self.metrics, &set, unarmed.borrow_and_update().is_none());
                self.readiness.meet(Need::PoliciesListed);
                let reach = reach(&set);
                // Where nothing has changed for the webhook, its configuration need not be written.
                if told.as_ref() != Some(&reach) {
                    self.desired.send_modify(|desired| desired.reach = reach.clone());
                    told = Some(reach);
                }
            }
            loop {
                tokio::select! {
                    changed = revision.changed() => if changed.is_err() { return } else { break },
                    // Its sender is a part of this.
                    Ok(()) = unarmed.changed() => {
                        let armed = unarmed.borrow_and_update().is_none();
                        policy_metrics::count(&self.metrics, &self.policies.load(), armed);
                    }
                }
            }
        }
    }
}

fn reach(set: &Set) -> Reach {
    if set.governs_everywhere() {
        return Reach::Everything;
    }
    Reach::of(set.namespaces().iter().map(ToString::to_string).collect::<BTreeSet<_>>())
}

fn revise(engine: &Engine, set: &Set) {
    let standing = |policy: &Arc<Policy>| KnownPolicy {
        policy: policy.id.clone(),
        namespace: policy.namespace.clone(),
        rules: policy.outcome.as_ref().as_ref().ok().map(|compiled| Arc::new(compiled.rules.clone())),
    };
    let standing: Vec<_> = set.policies().iter().map(standing).collect();
    engine.identify_namespaces(set.namespace_uids());
    engine.revise_within(&standing, |namespace, policy| set.applicability(namespace, policy), clock::now());
}
