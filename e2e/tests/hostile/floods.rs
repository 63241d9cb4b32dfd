//! As many Events as the API server accepts, with different kinds of work for squelch.

use std::cell::Cell;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use e2e::figures::median;
use e2e::other_webhook::{OtherWebhook, WebhookBehavior};
use e2e::wait::not_yet;
use e2e::writer::{Timed, percentile};
use e2e::{GENEROUS, Test, wait_for};
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use serde_json::{Value, json};
use tokio::time::interval;

use crate::script::pods;
use crate::tenancy::{Ending, Tenancy};
use crate::tenant::{WriteResult, event};

/// Concurrent writes.
pub(crate) const HANDS: usize = 8;

/// Concurrent writes of long Events, each of which takes the API server a fifth of a second: with eight of them on
/// two processors its webhook calls time out, whatever the webhook.
const FEW_HANDS: usize = 2;

/// Maximum number of writes.
const MOST: u64 = 100_000;

/// Total duration of the flood in the governed namespace.
pub(crate) const MINUTE: Duration = Duration::from_secs(60);

/// Duration in each of two namespaces without a policy, before each part.
const CONTROL: Duration = Duration::from_secs(6);

/// Number of parts.
const PARTS: u32 = 5;

/// Allowed increase of a neighbour's p99: a fifth, or these milliseconds if larger.
const NOISE: f64 = 1.0;

/// The neighbour's writes per second.
const RATE: u32 = 50;

/// Each opens a series and a group.
pub(crate) async fn reasons() -> Result<String> {
    let tenancy = Tenancy::begin("reasons").await?;
    let about = |number: u64| pods((number % 4) as usize)[2].clone();
    flooded(tenancy, Ending::AddsUp, HANDS, MINUTE, u64::MAX, |namespace, number| {
        event(
            namespace,
            &format!("m.{number}"),
            &about(number),
            &format!("Failed{number}"),
            "reported by another user",
        )
    })
    .await
}

/// Each opens a series, a group, a bucket and a name. Only a budget limits those, and a budget is shared by all users
/// of a policy: so this user has a policy of their own.
pub(crate) async fn names() -> Result<String> {
    let budget = json!({ "burst": 500, "refillInterval": "100ms" });
    let apart = json!({ "priority": 1, "match": [{ "users": ["mallory"] }], "budget": budget,
        "warningPolicy": "Limit" });
    let tenancy = Tenancy::with("names", Some(&apart)).await?;
    flooded(tenancy, Ending::AddsUp, HANDS, MINUTE, u64::MAX, |namespace, number| {
        event(
            namespace,
            &format!("m.{number}"),
            &format!("pod-{number}"),
            "BackOff",
            "reported by another user",
        )
    })
    .await
}

/// Each adds to a group.
pub(crate) async fn messages() -> Result<String> {
    let tenancy = Tenancy::begin("messages").await?;
    let about = |number: u64| pods((number % 4) as usize)[1].clone();
    flooded(tenancy, Ending::AddsUp, HANDS, MINUTE, u64::MAX, |namespace, number| {
        event(
            namespace,
            &format!("m.{number}"),
            &about(number),
            "BackOff",
            &format!("reported by another user {number}"),
        )
    })
    .await
}

/// The longest messages that etcd accepts.
pub(crate) async fn long() -> Result<String> {
    let message = "x".repeat(1_500_000);
    long_messages("long", &message).await
}

/// The API server escapes each character with six in the review, and Go's encoder needs more buffer.
pub(crate) async fn escaped() -> Result<String> {
    let message = "<".repeat(1_400_000);
    long_messages("escaped", &message).await
}

async fn long_messages(label: &str, message: &str) -> Result<String> {
    let tenancy = Tenancy::begin(label).await?;
    // Events without a policy are stored only once, so that they do not fill etcd. squelch does not read an Event above 2 MiB
    // in JSON, so that it cannot raise its count.
    flooded(tenancy, Ending::Unstorable, FEW_HANDS, MINUTE / 2, 1, |namespace, number| {
        let message = format!("{number} {message}");
        event(namespace, &format!("m.{number}"), &pods((number % 2) as usize)[1], "BackOff", &message)
    })
    .await
}

/// Target of a flood that squelch does not see: a namespace without a policy.
struct Control {
    plain: Test,
    asked_about: Test,
    other_webhook: OtherWebhook,
}

impl Control {
    /// Creates two namespaces: one without a webhook, the other with a webhook that allows everything.
    async fn begin(tenancy: &Tenancy, make: impl Fn(&str, u64) -> Value) -> Result<Self> {
        let (plain, asked_about) = (tenancy.elsewhere().await?, tenancy.elsewhere().await?);
        let behavior = WebhookBehavior { delay: Duration::ZERO, annotates: false, refuses_user: None };
        let other_webhook = OtherWebhook::begin(&asked_about, "m-allowing", behavior).await?;
        let first = make(&asked_about.namespace, 0);
        wait_for("the API server to call the other webhook", GENEROUS, async || {
            tenancy.hostile.create(&asked_about.namespace, &first).await.map_err(not_yet)?;
            if other_webhook.asked() > 0 { Ok(()) } else { Err("not asked yet".to_owned()) }
        })
        .await?;
        Ok(Self { plain, asked_about, other_webhook })
    }

    fn end(self) -> Result<()> {
        drop(self.other_webhook);
        self.plain.passed()?;
        self.asked_about.passed()
    }
}

/// Times since the start of the writer: start of the flood without a webhook, with a webhook that allows everything,
/// with squelch, and its end.
struct Part([Duration; 4]);

/// Floods the namespace, alternating with two other namespaces: one without a webhook, and one with a webhook that
/// allows everything. Those are flooded with concurrent workers as fast as possible; then squelch gets the rate that
/// the other webhook allowed. (A denied write does not wait for the disk and would be faster; the effect on others
/// would be the API server's.) The latency of a neighbour's writes with squelch must not exceed that without a
/// webhook or with the other webhook, because a webhook call itself costs the API server time. At most `names` names
/// are used.
pub(crate) async fn flooded(
    tenancy: Tenancy,
    ending: Ending,
    hands: usize,
    within: Duration,
    names: u64,
    make: impl Fn(&str, u64) -> Value,
) -> Result<String> {
    let control = Control::begin(&tenancy, &make).await?;
    let writer = tenancy.beside.writer(RATE).await?;
    writer.wait_for_answers(RATE as usize).await?;
    let next = Cell::new(0);
    // Separate numbers, so that names do not collide.
    let controls = [&control.plain, &control.asked_about].map(|test| (&*test.namespace, Cell::new(0)));
    let (mut parts, mut played) = (Vec::new(), Ok(()));
    for part in 0..PARTS {
        let mut began = [Duration::ZERO; 2];
        let before = controls[1].1.get();
        for (began, (namespace, unseen)) in began.iter_mut().zip(&controls) {
            *began = writer.elapsed();
            flood(hands, unseen, CONTROL, None, async |number| {
                tenancy.hostile.create(namespace, &make(namespace, number % names)).await
            })
            .await?;
        }
        let under_squelch = writer.elapsed();
        let allowed = controls[1].1.get() - before;
        let each = CONTROL.div_f64(allowed.max(1) as f64);
        let governed = flood(hands, &next, within / PARTS, Some(each), async |number| {
            tenancy.creates(&make(tenancy.namespace(), number)).await
        });
        // Not during the first part: these writes are the neighbour's own.
        let playing = async { if part == 0 { tenancy.play().await } else { Ok(()) } };
        // Unexpected answers are reported with the measurements.
        let (governed, playing) = tokio::join!(governed, playing);
        governed?;
        played = played.and(playing);
        parts.push(Part([began[0], began[1], under_squelch, writer.elapsed()]));
    }
    let times = writer.times();
    let answers = writer.stop().await;
    tenancy.add_received_by_neighbour(answers.occurrences());
    let rate = |numbers: &Cell<u64>, within: Duration| numbers.get() as f64 / within.as_secs_f64();
    let [without, asked] = [0, 1].map(|control: usize| rate(&controls[control].1, CONTROL * PARTS));
    let (compared, kept) = compared(&times, &parts);
    let said = format!(
        "{} writes, {:.0}/s ({without:.0}/s without a webhook, {asked:.0}/s with an allowing webhook); {compared}",
        next.get(),
        rate(&next, within)
    );
    played.with_context(|| said.clone())?;
    ensure!(answers.failed.is_empty(), "the neighbour: {answers}; {said}");
    ensure!(kept, "{said}");
    let asked = control.other_webhook.asked();
    ensure!(asked > PARTS as usize, "the other webhook was called {asked} times");
    control.end()?;
    Ok(format!("{said}; {}", tenancy.ends(ending).await?))
}

/// The neighbour's p99 in each kind of flood, and whether the increase is allowed.
fn compared(times: &[Timed], parts: &[Part]) -> (String, bool) {
    let p99 = |part: &Part, flood: usize| {
        percentile(times, 99, part.0[flood], part.0[flood + 1]).as_secs_f64() * 1000.0
    };
    let medians = |of: &dyn Fn(&Part) -> f64| median(&parts.iter().map(of).collect::<Vec<_>>());
    let [without, asked] = [0, 1].map(|flood| medians(&|part| p99(part, flood)));
    let slower = usize::from(asked > without);
    let rise = medians(&|part| p99(part, 2) - p99(part, slower));
    let said = format!(
        "neighbour's p99 {without:.1} and {asked:.1} ms, with squelch {rise:+.1} ms above the larger"
    );
    (said, rise <= (without.max(asked) / 5.0).max(NOISE))
}

/// Writes with increasing numbers from `next` at an interval of `each`, or as fast as they are answered.
async fn flood(
    hands: usize,
    next: &Cell<u64>,
    within: Duration,
    each: Option<Duration>,
    write: impl AsyncFn(u64) -> Result<WriteResult>,
) -> Result<()> {
    let began = Instant::now();
    let numbers = stream::unfold(each.map(interval), |mut ticks| async {
        if let Some(ticks) = &mut ticks {
            ticks.tick().await;
        }
        let number = next.get();
        (number < MOST && began.elapsed() < within).then(|| {
            next.set(number + 1);
            (number, ticks)
        })
    });
    let writing = numbers.map(|number| write(number)).buffer_unordered(hands);
    writing
        .try_for_each(async |said| {
            ensure!(!matches!(said, WriteResult::Other(status) if status != 409), "{said:?}");
            Ok(())
        })
        .await
}
