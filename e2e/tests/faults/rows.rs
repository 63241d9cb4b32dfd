//! The table of faults.

use anyhow::Result;
use e2e::rows::{Row, run};

use crate::moved_label::Route;
use crate::{break_glass, control_plane, killed, moved_label, no_replicas, policies, restarts, unresponsive};

const ROWS: [Row; 30] = [
    ("rolling restart, routed by ClusterIP", || Box::pin(restarts::rolled(false))),
    ("rolling restart, routed by endpoint", || Box::pin(restarts::rolled(true))),
    ("rolling restart with 500 pending series", || Box::pin(restarts::with_500_pending_series())),
    ("rolling restart with 10,000 pending series", || Box::pin(restarts::with_10_000_pending_series())),
    ("drain of the active pod, routed by ClusterIP", || Box::pin(restarts::drained(false))),
    ("drain of the active pod, routed by endpoint", || Box::pin(restarts::drained(true))),
    ("SIGKILL of the active pod, routed by ClusterIP", || Box::pin(killed::pod(false))),
    ("SIGKILL of the active pod, routed by endpoint", || Box::pin(killed::pod(true))),
    ("SIGKILL of its container, restarted in place", || Box::pin(killed::container())),
    ("scaled to zero", || Box::pin(no_replicas::scaled())),
    ("repeated SIGKILL of all replicas", || Box::pin(no_replicas::killed())),
    ("image removed", || Box::pin(no_replicas::without_image())),
    ("namespace deleted", || Box::pin(no_replicas::without_namespace())),
    ("SIGSTOP of the active pod, 100 writes/s", || Box::pin(unresponsive::frozen())),
    ("SIGSTOP of the active pod, 500 writes/s", || Box::pin(unresponsive::frozen_under_a_storm())),
    ("black hole around the active pod, 100 writes/s", || Box::pin(unresponsive::unreachable())),
    ("API server restarted", || Box::pin(control_plane::api_server(false))),
    ("API server killed", || Box::pin(control_plane::api_server(true))),
    ("etcd stopped for 20 s", || Box::pin(control_plane::etcd())),
    ("Lease stolen, routed by ClusterIP", || Box::pin(control_plane::lease_stolen(false))),
    ("Lease stolen, routed by endpoint", || Box::pin(control_plane::lease_stolen(true))),
    ("label moved to the standby, routed by ClusterIP", || {
        Box::pin(moved_label::to_the_standby(Route::ClusterIp))
    }),
    ("label moved to the standby, routed by endpoint", || {
        Box::pin(moved_label::to_the_standby(Route::Endpoint))
    }),
    ("label moved to the standby, routed by the endpoint of a connection", || {
        Box::pin(moved_label::to_the_standby(Route::EndpointOfConnection))
    }),
    ("Lease deleted", || Box::pin(control_plane::lease_deleted())),
    ("replicas of two images", || Box::pin(restarts::two_versions())),
    ("CRDs of the previous version", || Box::pin(policies::of_the_previous_version())),
    ("500 policies in a minute", || Box::pin(policies::five_hundred())),
    ("break-glass annotation set and removed", || Box::pin(break_glass::annotated())),
    ("webhook configuration deleted and restored", || Box::pin(break_glass::deleted())),
];

/// The rows of every run. (A rolling restart is among those of the node.)
const SHORT: [usize; 4] = [8, 13, 22, 28];

#[tokio::test]
async fn the_short_table() -> Result<()> {
    run(SHORT.map(|row| ROWS[row])).await
}

#[tokio::test]
#[ignore = "takes half an hour: just test-faults"]
async fn the_whole_table() -> Result<()> {
    run(ROWS).await
}
