//! Without squelch every occurrence is a write: verifies the measurements of the other tests.

use anyhow::Result;
use e2e::writes::{every_change_raised, never_lowered};
use e2e::{Emission, GENEROUS, Test};

#[tokio::test]
async fn without_squelch_each_occurrence_is_a_write() -> Result<()> {
    let test = Test::begin("baseline").await?;
    let writes = test.writes().await?;
    for (prefix, emission) in [("legacy", Emission::legacy()), ("kube", Emission::kube())] {
        let report = test.emit(&emission.about(prefix, 2).count(50).rate(200))?.finish(GENEROUS).await?;
        assert_eq!(report.sent(), 100);
        assert!(report.refused().is_empty() && report.error_lines().is_empty(), "{:?}", report.refused());
        for object in [format!("{prefix}-0"), format!("{prefix}-1")] {
            test.one_event(&object, 50).await?;
            let writes = writes.about(&object).await?;
            assert_eq!(writes.len(), 50);
            never_lowered(&writes)?;
            every_change_raised(&writes)?;
        }
    }
    test.passed()
}
