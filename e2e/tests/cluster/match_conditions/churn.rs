//! Policies that change all the time: the API server must send squelch each write that a policy in force matches.

use std::cell::RefCell;
use std::env;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::kubectl::Kubectl;
use e2e::{Policy, Test};
use fastrand::Rng;
use futures::future::{try_join, try_join_all};
use kube::Client;
use serde_json::{Value, json};
use tokio::time::{Instant, interval};

use super::{create, evaluation_errors, event, new_style};

/// Policies of the test. Each governs its own Events at any time.
const POLICIES: usize = 6;
/// The number of the one that is a ClusterEventPolicy.
const OF_CLUSTER: usize = 0;

/// Concurrent writers. Together they write 100 times a second.
const WRITERS: usize = 10;
const INTERVAL: Duration = Duration::from_millis(100);

/// A policy stays as it is for a tenth of this time at least, and for all of it at most.
const HELD: Duration = Duration::from_secs(3);

/// The reason that each policy matches now. None while the policy changes.
type Governed = RefCell<Vec<Option<String>>>;

/// What became of the writes that a policy in force matched.
#[derive(Debug, Default)]
struct Figures {
    /// Squelch refused them, as the policy says.
    refused: usize,
    /// Stored although the policy matched them: squelch was not asked, or could not decide.
    stored: Vec<String>,
    /// Answered after the policy had begun to change.
    unjudged: usize,
    /// Changes of policies that became effective.
    changes: usize,
}

/// An entry of `match` for Events with this reason, as [`written`] writes them.
fn clauses(rng: &mut Rng, reason: &str) -> Value {
    let (first, rest) = reason.split_at(2);
    match rng.u8(..6) {
        0 => json!({ "reasons": [reason] }),
        1 => json!({ "reasons": ["Other", format!("{first}*{rest}")] }),
        2 => json!({ "messages": [format!("of {reason},*")], "types": ["Normal"] }),
        3 => json!({ "messages": [format!("*{reason},*written")], "reportingComponents": ["kube*"] }),
        4 => {
            json!({ "reasons": [format!("?{}", &reason[1..])], "regarding": [{ "kind": "Pod", "name": "p*" }] })
        }
        // Longer than the condition can be: it covers more writes than those of the policy.
        _ => {
            let others = (0..30).map(|number| format!("{number}{}", "x".repeat(100)));
            json!({ "reasons": others.chain([reason.to_owned()]).collect::<Vec<_>>() })
        }
    }
}

fn written(rng: &mut Rng, namespace: &str, reason: &str) -> Value {
    let message = format!("of {reason}, written");
    if rng.bool() { event(namespace, reason, &message) } else { new_style(namespace, reason, &message) }
}

/// A policy that refuses what it matches. A ClusterEventPolicy selects the namespace of the test by its name.
fn refusing(clauses: &Value, namespace: Option<&str>) -> Value {
    let mut spec = json!({ "match": [clauses], "mute": [{ "types": ["Normal"] }] });
    if let Some(namespace) = namespace {
        spec["namespaceSelector"] = json!({ "matchLabels": { "kubernetes.io/metadata.name": namespace } });
    }
    spec
}

/// Changes policy `number` until `end`: its clauses each time, and now and then it is deleted and created again.
async fn change(
    policy: Policy,
    kubectl: Kubectl,
    number: usize,
    end: Instant,
    governed: &Governed,
    figures: &RefCell<Figures>,
) -> Result<()> {
    let mut rng = Rng::new();
    let selected = (number == OF_CLUSTER).then_some(&*policy.namespace);
    let mut held = interval(HELD.mul_f64(rng.f64().max(0.1)));
    let mut round = 0;
    while Instant::now() < end {
        round += 1;
        let reason = format!("P{number}r{round}");
        policy.change(&kubectl, &refusing(&clauses(&mut rng, &reason), selected)).await?;
        governed.borrow_mut()[number] = Some(reason);
        figures.borrow_mut().changes += 1;
        held.reset();
        held.tick().await;
        governed.borrow_mut()[number] = None;
        if rng.u8(..5) == 0 {
            policy.delete().await?;
        }
    }
    Ok(())
}

/// Writes Events that a policy in force matches until `end`.
async fn write(
    client: &Client,
    namespace: &str,
    end: Instant,
    governed: &Governed,
    figures: &RefCell<Figures>,
) -> Result<()> {
    let mut rng = Rng::new();
    let mut ticks = interval(INTERVAL);
    while Instant::now() < end {
        ticks.tick().await;
        let number = rng.usize(..POLICIES);
        let Some(reason) = governed.borrow()[number].clone() else { continue };
        let event = written(&mut rng, namespace, &reason);
        let answer = create(client, &event, "").await;
        let mut figures = figures.borrow_mut();
        if governed.borrow()[number].as_ref() != Some(&reason) {
            figures.unjudged += 1;
            continue;
        }
        match answer {
            Ok(name) => figures.stored.push(format!("{name}: {event}")),
            Err(error) => {
                let text = format!("{error:#}");
                ensure!(text.contains("denied the request: squelch"), "{text}: {event}");
                figures.refused += 1;
            }
        }
    }
    Ok(())
}

async fn under_churn(time: Duration) -> Result<()> {
    let test = Test::begin("churn").await?;
    let squelch = test.squelch().await?;
    let client = test.emitter_client().await?;
    let errors = evaluation_errors(&test.cluster).await?;
    let unanswered = test.failed_webhook_calls().await?;
    let governed: Governed = RefCell::new(vec![None; POLICIES]);
    let figures = RefCell::new(Figures::default());
    let end = Instant::now() + time;
    let change = |number: usize| {
        let policy = if number == OF_CLUSTER {
            test.cluster_policy()
        } else {
            Policy::named(test.client(), &test.namespace, &format!("p{number}"))
        };
        change(policy, test.kubectl(), number, end, &governed, &figures)
    };
    let write = |_| write(&client, &test.namespace, end, &governed, &figures);
    try_join(try_join_all((0..POLICIES).map(change)), try_join_all((0..WRITERS).map(write))).await?;

    let Figures { refused, stored, unjudged, changes } = figures.into_inner();
    // On a busy machine the API server does not wait for every answer, and squelch cannot decide every write in time. Such
    // a write is stored.
    let unanswered = test.failed_webhook_calls().await? - unanswered;
    let metrics = squelch.metrics().await?;
    let of_namespace = ("event_namespace", &*test.namespace);
    let failed_open = metrics.occurrences(&[of_namespace, ("disposition", "failed_open")]) as i64;
    let undecided = usize::try_from(unanswered + failed_open + metrics.reviews("standby") as i64)?;
    eprintln!(
        "{changes} changes: {refused} writes refused, {} stored ({undecided} undecided), {unjudged} during a change",
        stored.len()
    );
    ensure!(stored.len() <= undecided, "stored although a policy matched them: {stored:#?}");
    ensure!(
        undecided <= refused / 10,
        "most writes passed undecided: the machine was too slow for this test"
    );
    ensure!(changes > 2 * POLICIES && refused > 100, "too few writes or changes to show anything");
    assert_eq!(evaluation_errors(&test.cluster).await?, errors, "a failed evaluation skips squelch silently");
    squelch.stop().await?;
    test.passed()
}

#[tokio::test]
async fn policies_that_change_all_the_time_miss_no_write() -> Result<()> {
    under_churn(Duration::from_secs(30)).await
}

/// The number of minutes is `SQUELCH_CHURN_MINUTES`, if that is set.
#[tokio::test]
#[ignore = "long: just test-match-conditions"]
async fn policies_that_change_for_minutes_miss_no_write() -> Result<()> {
    let minutes = env::var("SQUELCH_CHURN_MINUTES").map_or(Ok(10), |text| text.parse::<u32>());
    under_churn(Duration::from_secs(60) * minutes.context("SQUELCH_CHURN_MINUTES")?).await
}
