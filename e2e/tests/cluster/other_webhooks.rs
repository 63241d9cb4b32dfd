//! Other mutating webhooks on Events: a slow one, and one that causes reinvocation.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::other_webhook::{OtherWebhook, WebhookBehavior};
use e2e::policy::idle_after;
use e2e::{Emission, GENEROUS, Test, conservation};

const OCCURRENCES: i64 = 30;

#[tokio::test]
async fn counts_stay_right_with_slow_and_with_mutating_webhooks() -> Result<()> {
    let test = Test::begin("other-webhooks").await?;
    let slow = WebhookBehavior { delay: Duration::from_millis(100), annotates: false, refuses_user: None };
    let annotating = WebhookBehavior { delay: Duration::ZERO, annotates: true, refuses_user: None };
    // Called before and after squelch.
    let other_webhooks = [
        OtherWebhook::begin(&test, "a-slow", slow).await?,
        OtherWebhook::begin(&test, "b-annotating", annotating).await?,
        OtherWebhook::begin(&test, "y-annotating", annotating).await?,
        OtherWebhook::begin(&test, "z-slow", slow).await?,
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
        let report = emitting.finish(GENEROUS * 4).await?;
        ensure!(report.error_lines().is_empty(), "a client's log: {:?}", report.error_lines());
        sent += report.sent();
    }
    for other_webhook in &other_webhooks {
        ensure!(other_webhook.asked() > 100, "another webhook was called {} times", other_webhook.asked());
    }
    let counters = conservation::holds(&test, squelch, &policy, sent).await?;
    ensure!(counters.compacted > counters.admitted, "suppressed too little: {counters:?}");
    let unmarked = test.events(None).await?;
    let unmarked = unmarked.iter().filter(|event| {
        event.metadata.annotations.as_ref().is_none_or(|all| !all.contains_key("example.com/seen"))
    });
    ensure!(unmarked.count() == 0, "the annotation of the other webhook is missing");
    test.passed()
}
