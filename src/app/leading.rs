//! Leader election of this replica, and its view of the others.

use std::sync::Arc;

use anyhow::Result;
use squelch_engine::Engine;

use crate::announcer::Announcer;
use crate::clock;
use crate::config::RunOptions;
use crate::leader::{Identity, Leader, Lease, LeaseDeadline, LeaseOwner, Peers, PodLabel};
use crate::metrics::{BackgroundTask, Metrics};
use crate::policy::Store;
use crate::tls;

use super::cluster::Cluster;
use super::tasks::{Supervisor, Task};

/// Returns a candidate for the Lease. It has a client of its own, so that no other call delays a renewal.
pub(super) fn leader(
    options: &RunOptions,
    cluster: &Cluster,
    engine: &Arc<Engine>,
    deadline: &Arc<LeaseDeadline>,
    announcer: Announcer,
    metrics: &Arc<Metrics>,
) -> Result<Leader> {
    let [random, _] = tls::random_seed()?;
    let identity = Identity::new(options.pod_name.as_deref(), random);
    let owner =
        cluster.own_account().map(|(name, uid)| LeaseOwner { name: name.to_owned(), uid: uid.to_owned() });
    let lease = Lease::new(cluster.client()?, &cluster.namespace, identity, owner);
    let pod_label = match &options.pod_name {
        Some(pod) => Some(PodLabel::new(cluster.client()?, &cluster.namespace, pod.clone())),
        None => None,
    };
    let engine = engine.clone();
    let on_first_active = Box::new(move || engine.begin(clock::wall()));
    Ok(Leader::new(lease, pod_label, deadline.clone(), on_first_active, announcer, metrics.clone()))
}

/// Starts the campaign. It waits for the first complete list of policies: without them, this replica would allow every
/// write.
pub(super) fn campaign(supervisor: &Supervisor, leader: Leader, policies: &Store) -> Task<Leader> {
    let mut revision = policies.subscribe();
    let listed = async move {
        let _ = revision.wait_for(|revision| revision.listed).await;
    };
    supervisor.start(BackgroundTask::Leader, |stop| leader.run(listed, stop))
}

/// Returns the other replicas, if the API server reaches the active replica through a Service.
pub(super) fn peers(options: &RunOptions, cluster: &Cluster) -> Result<Option<Peers>> {
    let (Some(pod), Some(service)) = (&options.pod_name, &options.webhook_service) else { return Ok(None) };
    let client = cluster.client()?;
    Ok(Some(Peers::new(&client, &cluster.namespace, pod.clone(), service.name.clone())))
}
