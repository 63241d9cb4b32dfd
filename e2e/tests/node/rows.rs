//! The table of release operations.

use anyhow::Result;
use e2e::rows::{Row, run};

use crate::{doctor, documents, gitops, key_rotation, lifecycle, permissions, unauthenticated_callers};

/// The last row inspects the requests of all others.
const ROWS: [Row; 16] = [
    ("helm install, upgrade, rollback, install again", || Box::pin(lifecycle::upgraded())),
    ("helm upgrade to another version and back", || Box::pin(lifecycle::another_version())),
    ("helm uninstall during the storm", || Box::pin(lifecycle::removed())),
    ("rollout restart", || Box::pin(lifecycle::restarted())),
    ("certificate and token rotated, Secret damaged, deleted", || Box::pin(key_rotation::rotated(false))),
    ("the same, routed by endpoint", || Box::pin(key_rotation::rotated(true))),
    ("keys and token rotated by the documented commands", || Box::pin(documents::rotated_at_once())),
    ("squelch's clock 400 days ahead, behind, and right", || Box::pin(key_rotation::clock_off())),
    ("server-side apply of the chart by a second tool", || Box::pin(gitops::applied_by_another_tool())),
    ("every scenario installed", || Box::pin(gitops::scenarios())),
    ("forged reviews from another pod", || Box::pin(unauthenticated_callers::forged_reviews())),
    ("helm test: squelch doctor", || Box::pin(doctor::helm_test())),
    ("helm test at once after the first installation", || Box::pin(doctor::first_installation())),
    ("scaled to zero by kubectl, and helm upgrade", || Box::pin(lifecycle::scaled_to_zero())),
    ("helm uninstall, and install in another namespace", || Box::pin(lifecycle::moved())),
    ("permissions granted and used", || Box::pin(permissions::rights())),
];

/// The rows of every run.
const SHORT: [usize; 5] = [2, 3, 10, 11, 12];

#[tokio::test]
async fn the_short_table() -> Result<()> {
    run(SHORT.map(|row| ROWS[row])).await
}

#[tokio::test]
#[ignore = "takes ten minutes: just test-node"]
async fn the_whole_table() -> Result<()> {
    run(ROWS).await
}
