//! `normalize`: messages that differ only in masked parts are repeats, and the stored Event shows the newest one.

use anyhow::{Context, Result, ensure};
use e2e::policy::series_alone;
use e2e::{Emission, STORM, Test, conservation};
use serde_json::json;

#[tokio::test]
async fn messages_that_differ_in_a_number_are_one_event_with_the_newest_message() -> Result<()> {
    let test = Test::begin("normalize").await?;
    let squelch = test.squelch().await?;
    let policy = test.policy(&series_alone(&json!({ "normalize": ["Numbers", "Durations"] }))).await?;
    let writes = test.writes().await?;
    let clients = [
        ("legacy", Emission::legacy()),
        ("new", Emission::creates_new_style().in_turn()),
        ("kube", Emission::kube()),
        ("core", Emission::creates_core().in_turn()),
    ];
    let mut sent = 0;
    for (object, emission) in clients.clone() {
        let message = "Reconciliation finished in 1.24s, next run in 10m0s";
        let storm =
            emission.about(object, 1).message(message).with("--messages", "distinct").count(30).rate(20);
        let report = test.emit(&storm)?.finish(STORM).await?;
        ensure!(report.error_lines().is_empty(), "{object} logged {:?}", report.error_lines());
        sent += report.sent();
    }
    conservation::holds(&test, squelch, &policy, sent).await?;
    for (object, _) in clients {
        let stored = test.one_event(&format!("{object}-0"), 30).await?;
        let message = stored.message.context("a message")?;
        // kube-rs PATCHes the count of one Event for all messages, and never its message.
        let newest = if object == "kube" { 0 } else { 29 };
        ensure!(message.ends_with(&format!("next run in 10m0s ({newest})")), "{object}: {message}");
    }
    // The first write of each client, and at most log2(30) + 1 flushes.
    let written = writes.so_far().await?.len();
    ensure!(written <= 4 * (1 + 6), "{written} writes");
    test.passed()
}
