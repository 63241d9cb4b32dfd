//! `squelch run`: every part made, tied to the others, and ended in order.

mod cluster;
pub mod doctor;
pub mod drain;
mod keys;
mod leading;
mod parts;
mod shutdown;

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::{Context, Result};
use tokio::signal::unix::{SignalKind, signal};
use tracing::info;

use crate::admin::Need;
use crate::arming::Reach;
use crate::clock;
use crate::config::RunOptions;
use crate::engine::{Engine, Standing};
use crate::metrics::{Metrics, PolicyCondition, PolicyKind};
use crate::policy::{Effect, Policy, Set};

use cluster::Cluster;
use parts::Parts;

/// Runs the operator until SIGTERM or SIGINT, or until another replica has taken its place. Then it pays what is owed,
/// and takes the webhook's rules away unless another replica is ready.
///
/// # Errors
/// What keeps it from starting: a wrong flag, an address in use, an API server that cannot be reached or is too
/// old. Each says what to do.
pub async fn run(options: RunOptions) -> Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let cluster = Cluster::reach(&options).await?;
    let Cluster { version: kubernetes, own_user: user, namespace, .. } = &cluster;
    info!(kubernetes, user, namespace, version = env!("CARGO_PKG_VERSION"), "squelch starts");

    let parts = Parts::start(&options, &cluster).await?;
    tokio::select! {
        () = parts.follow_policies() => {}
        _ = terminate.recv() => info!("SIGTERM: shutting down"),
        _ = interrupt.recv() => info!("SIGINT: shutting down"),
        () = parts.deposed.cancelled() => {
            info!("another replica decides: this process pays what it owes and ends, to come back as a standby");
        }
    }
    parts.shut_down(&options).await;
    Ok(())
}

impl Parts {
    /// Tells every part of each change of the policies and of what they are for, and arms the webhook once the first
    /// lists are complete. Ends only if the watch does.
    async fn follow_policies(&self) {
        let mut revision = self.policies.subscribe();
        let mut told = None;
        loop {
            if revision.borrow_and_update().listed {
                let set = Arc::clone(&self.policies.load());
                revise(&self.engine, &set);
                count(&self.metrics, &set);
                self.readiness.meet(Need::PoliciesListed);
                let reach = reach(&set);
                // Where nothing has changed for the webhook, its configuration need not be written.
                if told.as_ref() != Some(&reach) {
                    self.desired.send_modify(|desired| desired.reach = reach.clone());
                    told = Some(reach);
                }
            }
            if revision.changed().await.is_err() {
                return;
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
    let standing = |policy: &Arc<Policy>| Standing {
        policy: policy.id.clone(),
        namespace: policy.namespace.clone(),
        rules: policy.outcome.as_ref().as_ref().ok().map(|compiled| Arc::new(compiled.rules.clone())),
    };
    let standing: Vec<_> = set.policies().iter().map(standing).collect();
    engine.revise_within(&standing, |namespace, policy| set.footing(namespace, policy), clock::now());
}

fn count(metrics: &Metrics, set: &Set) {
    for kind in [PolicyKind::EventPolicy, PolicyKind::ClusterEventPolicy] {
        let of_kind = |policy: &&Arc<Policy>| {
            let cluster_scoped = policy.namespace.is_none();
            cluster_scoped == (kind == PolicyKind::ClusterEventPolicy)
        };
        let policies: Vec<_> = set.policies().iter().filter(of_kind).collect();
        let accepted = policies.iter().filter(|policy| policy.outcome.is_ok()).count();
        let effective = policies.iter().filter(|policy| set.effect(policy) == Some(&Effect::Governs)).count();
        metrics.policies(kind, PolicyCondition::Accepted, accepted);
        metrics.policies(kind, PolicyCondition::Effective, effective);
    }
}
