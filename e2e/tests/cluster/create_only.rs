//! Clients without a recorder, which create a new Event for every occurrence.

use anyhow::{Result, ensure};
use e2e::policy::idle_after;
use e2e::{Emission, GENEROUS, STORM, Test};

const OCCURRENCES: i64 = 200;

/// One Event is stored with the full count; the other CREATEs are answered with AlreadyExists.
async fn one_is_stored(label: &str, emission: Emission) -> Result<()> {
    let test = Test::begin(label).await?;
    let squelch = test.squelch().await?;
    // A client that gets no processor for seconds must not end the series.
    let policy = test.policy(&idle_after("6s")).await?;
    let writes = test.writes().await?;

    let storm = emission.about("pod", 1).count(OCCURRENCES).rate(100);
    let report = test.emit(&storm)?.finish(STORM).await?;
    test.one_event("pod-0", OCCURRENCES).await?;
    squelch.wait_until_idle(GENEROUS).await?;

    let taken = report.calls.iter().filter(|call| call.succeeded()).count();
    assert_eq!(taken, 1, "{:?}", report.summary);
    for refused in report.refused() {
        ensure!(refused.status == 409 && refused.reason == "AlreadyExists", "{refused:?}");
    }
    let written = writes.so_far().await?.len();
    // log2(200) + 1, and one at the close.
    ensure!(written <= 10, "{written} writes");
    let counters = policy.received(OCCURRENCES).await?;
    assert_eq!((counters.admitted, counters.compacted), (1, OCCURRENCES - 1));
    squelch.stop().await?;
    test.passed()
}

#[tokio::test]
async fn creates_through_core_become_one_event() -> Result<()> {
    one_is_stored("create-core", Emission::creates_core()).await
}

#[tokio::test]
async fn creates_through_events_k8s_io_become_one_event() -> Result<()> {
    one_is_stored("create-new", Emission::creates_new_style()).await
}

#[tokio::test]
async fn creates_by_generate_name_through_core_become_one_event() -> Result<()> {
    one_is_stored("generate-core", Emission::creates_core().generate_name()).await
}

#[tokio::test]
async fn creates_by_generate_name_through_events_k8s_io_become_one_event() -> Result<()> {
    one_is_stored("generate-new", Emission::creates_new_style().generate_name()).await
}
