//! The table of what may happen to a release.

use anyhow::Result;
use e2e::rows::{Row, run};

use crate::{allowed, doctor, documents, gitops, keys, lifecycle, strangers};

/// In this order: the last looks at what all others have had squelch do.
const ROWS: [Row; 11] = [
    ("helm install, upgrade, rollback, install again", || Box::pin(lifecycle::upgraded())),
    ("helm uninstall during the storm", || Box::pin(lifecycle::removed())),
    ("rollout restart", || Box::pin(lifecycle::restarted())),
    ("certificate and token rotated, Secret damaged, deleted", || Box::pin(keys::rotated())),
    ("keys and token rotated at once, as the documents say", || Box::pin(documents::rotated_at_once())),
    ("squelch's clock 400 days ahead, behind, and right", || Box::pin(keys::clock_off())),
    ("server-side apply of the chart by a second tool", || Box::pin(gitops::applied_by_another_tool())),
    ("every scenario installed", || Box::pin(gitops::scenarios())),
    ("forged reviews from another pod", || Box::pin(strangers::forged_reviews())),
    ("helm test: squelch doctor looks at it", || Box::pin(doctor::looks())),
    ("rights given and used", || Box::pin(allowed::rights())),
];

/// The rows that every change goes through.
const SHORT: [usize; 4] = [1, 2, 8, 9];

#[tokio::test]
async fn a_release_comes_and_goes_under_a_storm() -> Result<()> {
    run(SHORT.map(|row| ROWS[row])).await
}

#[tokio::test]
#[ignore = "takes ten minutes: just test-node"]
async fn whatever_happens_to_a_release() -> Result<()> {
    run(ROWS).await
}
