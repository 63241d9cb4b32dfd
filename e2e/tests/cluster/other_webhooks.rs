//! Other mutating webhooks on Events: one that is slow, one that has everybody asked again.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::bystander::{Bystander, Habits};
use e2e::policy::idle_after;
use e2e::{Emission, GENEROUS, Test, law};

const OCCURRENCES: i64 = 30;

#[tokio::test]
async fn counts_stay_right_beside_webhooks_that_are_slow_or_change_what_they_see() -> Result<()> {
    let test = Test::begin("bystanders").await?;
    let slow = Habits { slow: Duration::from_millis(100), marks: false, refuses: None };
    let marking = Habits { slow: Duration::ZERO, marks: true, refuses: None };
    // Asked before squelch and after it.
    let bystanders = [
        Bystander::begin(&test, "a-slow", slow).await?,
        Bystander::begin(&test, "b-marking", marking).await?,
        Bystander::begin(&test, "y-marking", marking).await?,
        Bystander::begin(&test, "z-slow", slow).await?,
    ];
    let squelch = test.squelch().await?;
    let policy = test.policy(&idle_after("60s")).await?;

    let clients = [
        ("legacy", Emission::legacy()),
        ("new", Emission::new_style_fast()),
        ("kube", Emission::kube()),
        ("creates", Emission::creates_core()),
    ];
    let mut emitting = Vec::new();
    for (name, client) in clients {
        emitting.push(test.emit(&client.about(name, 3).count(OCCURRENCES).rate(30))?);
    }
    let mut sent = 0;
    for emitting in emitting {
        let told = emitting.finish(GENEROUS * 4).await?;
        ensure!(told.error_lines().is_empty(), "a client's log: {:?}", told.error_lines());
        sent += told.sent();
    }
    for bystander in &bystanders {
        ensure!(bystander.asked() > 100, "a bystander was asked {} times", bystander.asked());
    }
    let counters = law::holds(&test, squelch, &policy, sent).await?;
    ensure!(counters.compacted > counters.admitted, "held back too little: {counters:?}");
    let unmarked = test.events(None).await?;
    let unmarked = unmarked.iter().filter(|event| {
        event.metadata.annotations.as_ref().is_none_or(|all| !all.contains_key("example.com/seen"))
    });
    ensure!(unmarked.count() == 0, "what another webhook has added is gone");
    test.passed()
}
