//! Without squelch every occurrence is a write: so much for the instruments of the other tests.

use anyhow::Result;
use e2e::writes::{every_change_raised, never_lowered};
use e2e::{Emission, GENEROUS, Test};

#[tokio::test]
async fn without_squelch_each_occurrence_is_a_write() -> Result<()> {
    let test = Test::begin("baseline").await?;
    let writes = test.writes().await?;
    for (prefix, emission) in [("legacy", Emission::legacy()), ("kube", Emission::kube())] {
        let told = test.emit(&emission.about(prefix, 2).count(50).rate(200))?.finish(GENEROUS).await?;
        assert_eq!(told.sent(), 100);
        assert!(told.refused().is_empty() && told.error_lines().is_empty(), "{:?}", told.refused());
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
