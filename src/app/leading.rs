//! Which of the replicas decides: what this one needs to stand for it, and to know the others.

use std::sync::Arc;

use anyhow::{Context, Result};
use squelch_engine::Engine;

use crate::announcer::Announcer;
use crate::clock;
use crate::config::RunOptions;
use crate::leader::{Identity, Leader, Lease, Owner, Peers, Role, Term};
use crate::metrics::{BackgroundTask, Metrics};
use crate::policy::Store;
use crate::tls;

use super::cluster::Cluster;
use super::tasks::{Supervisor, Task};

/// One who stands for the Lease with connections of its own: nothing else may delay a renewal.
pub(super) fn leader(
    options: &RunOptions,
    cluster: &Cluster,
    engine: &Arc<Engine>,
    term: &Arc<Term>,
    announcer: Announcer,
    metrics: &Arc<Metrics>,
) -> Result<Leader> {
    let [random, _] = tls::random_seed().context("no random numbers")?;
    let me = Identity::new(options.pod_name.as_deref(), random);
    let owner = cluster.own_account().map(|(name, uid)| Owner { name: name.to_owned(), uid: uid.to_owned() });
    let lease = Lease::new(cluster.client()?, &cluster.namespace, me, owner);
    let role = match &options.pod_name {
        Some(pod) => Some(Role::new(cluster.client()?, &cluster.namespace, pod.clone())),
        None => None,
    };
    let engine = engine.clone();
    let begin = Box::new(move || engine.begin(clock::wall()));
    Ok(Leader::new(lease, role, term.clone(), begin, announcer, metrics.clone()))
}

/// It stands once it knows all policies: before that it would let everything through.
pub(super) fn lead(supervisor: &Supervisor, leader: Leader, policies: &Store) -> Task<Leader> {
    let mut revision = policies.subscribe();
    let listed = async move {
        let _ = revision.wait_for(|revision| revision.listed).await;
    };
    supervisor.start(BackgroundTask::Leader, |stop| leader.run(listed, stop))
}

/// The other pods, where the API server finds the active one by a Service.
pub(super) fn peers(options: &RunOptions, cluster: &Cluster) -> Result<Option<Peers>> {
    let (Some(pod), Some(service)) = (&options.pod_name, &options.webhook_service) else { return Ok(None) };
    let client = cluster.client()?;
    Ok(Some(Peers::new(&client, &cluster.namespace, pod.clone(), service.name.clone())))
}
