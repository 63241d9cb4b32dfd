//! `squelch record` compared with the API server's audit log.

use anyhow::{Result, ensure};
use e2e::oracle::{AuditLog, Write};
use e2e::recorder::{RecordedWrite, Recorder};
use e2e::wait::not_yet;
use e2e::{Emission, GENEROUS, STORM, Test, wait_for};
use std::collections::BTreeMap;

/// The writes of the log that changed what is stored, by version. A write without a change has the version before it.
fn stored(log: &[Write]) -> Result<Vec<RecordedWrite>> {
    let mut writes: BTreeMap<u64, RecordedWrite> = BTreeMap::new();
    for write in log.iter().filter(|write| write.succeeded() && write.verb != "delete") {
        let is_create = write.verb == "create" || write.code == 201;
        let write = RecordedWrite {
            version: write.version.parse()?,
            operation: if is_create { "CREATE" } else { "UPDATE" }.to_owned(),
            api: write.api.clone(),
            name: write.name.clone(),
            count: write.returned_count.unwrap_or(1).max(1),
        };
        writes.entry(write.version).or_insert(write);
    }
    Ok(writes.into_values().collect())
}

#[tokio::test]
async fn a_recording_equals_the_audit_log() -> Result<()> {
    let test = Test::begin("record-audit").await?;
    let kubeconfig = Recorder::kubeconfig(&test).await?;
    let mut recorder = Recorder::start(&test, &kubeconfig).await?;
    let log = AuditLog::from_now(&test.cluster.folder.join("logs/audit.log"))?;
    let storms = [
        Emission::legacy().about("legacy", 4).count(40).rate(100),
        Emission::new_style_fast().about("new", 3).count(20).rate(20),
        Emission::kube().about("kube", 3).count(30).rate(50),
        Emission::creates_core().about("core", 2).with("--messages", "distinct").count(20).rate(100),
        Emission::creates_new_style().about("generated", 2).count(20).rate(50).generate_name(),
    ];
    for storm in storms {
        test.emit(&storm)?.finish(STORM).await?;
    }
    let expected = stored(&log.writes(&test.client(), &test.namespace).await?)?;
    ensure!(expected.len() > 200, "{} writes", expected.len());
    let recorded = wait_for("each write to be recorded", GENEROUS, async || {
        let recorded = recorder.writes().map_err(not_yet)?;
        if recorded.len() >= expected.len() { Ok(recorded) } else { Err(format!("{}", recorded.len())) }
    })
    .await?;
    let different = recorded.iter().zip(&expected).find(|(recorded, expected)| recorded != expected);
    ensure!(different.is_none() && recorded.len() == expected.len(), "{different:?}");
    let summary = recorder.stop().await?;
    ensure!(summary.contains("Gaps: none."), "{summary}");
    test.passed()
}
