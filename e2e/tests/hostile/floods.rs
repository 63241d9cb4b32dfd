//! As many Events as the API server takes, each of which makes work of another kind.

use std::cell::Cell;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use e2e::bystander::{Bystander, Habits};
use e2e::figures::median;
use e2e::wait::told;
use e2e::writer::{Timed, percentile};
use e2e::{GENEROUS, Test, wait_for};
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use serde_json::{Value, json};
use tokio::time::interval;

use crate::script::pods;
use crate::tenancy::{Ending, Tenancy};
use crate::tenant::{Said, event};

/// Writes under way at a time.
pub(crate) const HANDS: usize = 8;

/// The same of writes so long that each takes the API server a fifth of a second of a processor: with eight on two
/// processors it gives up its own calls of webhooks, whoever answers them.
const FEW_HANDS: usize = 2;

/// No more than these, however fast the API server is.
const MOST: u64 = 100_000;

/// So long the flood goes to the governed namespace, in all.
pub(crate) const MINUTE: Duration = Duration::from_secs(60);

/// So long it goes to each of two namespaces without a policy before each part of that.
const CONTROL: Duration = Duration::from_secs(6);

/// In so many parts.
const PARTS: u32 = 5;

/// A neighbour's p99 may rise by a fifth, or by so many milliseconds where that is more.
const NOISE: f64 = 1.0;

/// The neighbour's writes a second.
const RATE: u32 = 50;

/// Each makes a series, and a group.
pub(crate) async fn reasons() -> Result<String> {
    let tenancy = Tenancy::begin("reasons").await?;
    let about = |number: u64| pods((number % 4) as usize)[2].clone();
    flooded(tenancy, HANDS, MINUTE, u64::MAX, |namespace, number| {
        event(
            namespace,
            &format!("m.{number}"),
            &about(number),
            &format!("Failed{number}"),
            "told by somebody else",
        )
    })
    .await
}

/// Each makes a series, a group, a bucket and a name. Nothing but a budget holds those back, and a budget is shared by
/// whom a policy governs: so the policy's author gives this user one of his own.
pub(crate) async fn names() -> Result<String> {
    let budget = json!({ "burst": 500, "refillInterval": "100ms" });
    let apart = json!({ "priority": 1, "match": { "users": ["mallory"] }, "budget": budget });
    let tenancy = Tenancy::with("names", Some(&apart)).await?;
    flooded(tenancy, HANDS, MINUTE, u64::MAX, |namespace, number| {
        event(namespace, &format!("m.{number}"), &format!("pod-{number}"), "BackOff", "told by somebody else")
    })
    .await
}

/// Each is one more of a group.
pub(crate) async fn messages() -> Result<String> {
    let tenancy = Tenancy::begin("messages").await?;
    let about = |number: u64| pods((number % 4) as usize)[1].clone();
    flooded(tenancy, HANDS, MINUTE, u64::MAX, |namespace, number| {
        event(
            namespace,
            &format!("m.{number}"),
            &about(number),
            "BackOff",
            &format!("told by somebody else {number}"),
        )
    })
    .await
}

/// As long as etcd takes them.
pub(crate) async fn long() -> Result<String> {
    let message = "x".repeat(1_500_000);
    long_messages("long", &message).await
}

/// The API server writes each as six characters where it asks squelch, and Go's encoder wants room for more.
pub(crate) async fn escaped() -> Result<String> {
    let message = "<".repeat(1_400_000);
    long_messages("escaped", &message).await
}

async fn long_messages(label: &str, message: &str) -> Result<String> {
    let tenancy = Tenancy::begin(label).await?;
    // What no policy holds back is stored but once, or it would fill etcd.
    flooded(tenancy, FEW_HANDS, MINUTE / 2, 1, |namespace, number| {
        let message = format!("{number} {message}");
        event(namespace, &format!("m.{number}"), &pods((number % 2) as usize)[1], "BackOff", &message)
    })
    .await
}

/// Where a flood goes that squelch has nothing to do with: its namespace has no policy.
struct Control {
    plain: Test,
    asked_about: Test,
    bystander: Bystander,
}

impl Control {
    /// One namespace is nobody's concern, the other that of a webhook which lets everything through.
    async fn begin(tenancy: &Tenancy, make: impl Fn(&str, u64) -> Value) -> Result<Self> {
        let (plain, asked_about) = (tenancy.elsewhere().await?, tenancy.elsewhere().await?);
        let habits = Habits { slow: Duration::ZERO, marks: false, refuses: None };
        let bystander = Bystander::begin(&asked_about, "m-allowing", habits).await?;
        let first = make(&asked_about.namespace, 0);
        wait_for("the API server to ask the other webhook", GENEROUS, async || {
            tenancy.hostile.create(&asked_about.namespace, &first).await.map_err(told)?;
            if bystander.asked() > 0 { Ok(()) } else { Err("not asked yet".to_owned()) }
        })
        .await?;
        Ok(Self { plain, asked_about, bystander })
    }
}

/// Since the writer began: when the flood was let go without a webhook, under one that only allows, under squelch, and
/// when that was over.
struct Part([Duration; 4]);

/// Floods the namespace for so long in all, by turns with two that squelch has nothing to do with: one as nobody's concern
/// and one that the API server asks another webhook about, which allows everything. Those are flooded with so many hands,
/// as fast as they are answered; then squelch gets as many writes a second as that other webhook allowed. (Who is denied
/// waits for no disk, and would get on faster: what that does to others is the API server's.) Meanwhile a neighbour
/// writes, no slower beside squelch than without a webhook, or than beside the other, since to be asked at all takes the
/// API server time. There are `names` names at most.
pub(crate) async fn flooded(
    tenancy: Tenancy,
    hands: usize,
    within: Duration,
    names: u64,
    make: impl Fn(&str, u64) -> Value,
) -> Result<String> {
    let control = Control::begin(&tenancy, &make).await?;
    let writer = tenancy.beside.writer(RATE).await?;
    writer.goes_on(RATE as usize).await?;
    let next = Cell::new(0);
    // Numbers of their own, or what the one takes the other would miss.
    let controls = [&control.plain, &control.asked_about].map(|test| (&*test.namespace, Cell::new(0)));
    let (mut parts, mut played) = (Vec::new(), Ok(()));
    for part in 0..PARTS {
        let mut began = [Duration::ZERO; 2];
        let before = controls[1].1.get();
        for (began, (namespace, unseen)) in began.iter_mut().zip(&controls) {
            *began = writer.has_written_for();
            flood(hands, unseen, CONTROL, None, async |number| {
                tenancy.hostile.create(namespace, &make(namespace, number % names)).await
            })
            .await?;
        }
        let under_squelch = writer.has_written_for();
        let allowed = controls[1].1.get() - before;
        let each = CONTROL.div_f64(allowed.max(1) as f64);
        let governed = flood(hands, &next, within / PARTS, Some(each), async |number| {
            tenancy.creates(&make(tenancy.namespace(), number)).await
        });
        // Not while the first is measured: these writes are the neighbour's own.
        let playing = async { if part == 0 { tenancy.play().await } else { Ok(()) } };
        // Wrong answers are reported with the figures.
        let (governed, playing) = tokio::join!(governed, playing);
        governed?;
        played = played.and(playing);
        parts.push(Part([began[0], began[1], under_squelch, writer.has_written_for()]));
    }
    let times = writer.times();
    let answers = writer.stop().await;
    tenancy.was_told_beside(answers.occurrences());
    let rate = |numbers: &Cell<u64>, within: Duration| numbers.get() as f64 / within.as_secs_f64();
    let [without, asked] = [0, 1].map(|control: usize| rate(&controls[control].1, CONTROL * PARTS));
    let (compared, kept) = compared(&times, &parts);
    let said = format!(
        "{} writes, {:.0} a second ({without:.0} without a webhook, {asked:.0} with one that only allows); {compared}",
        next.get(),
        rate(&next, within)
    );
    played.with_context(|| said.clone())?;
    ensure!(answers.failed.is_empty(), "the neighbour: {answers}; {said}");
    ensure!(kept, "{said}");
    let asked = control.bystander.asked();
    ensure!(asked > PARTS as usize, "the other webhook was asked {asked} times");
    drop(control);
    Ok(format!("{said}; {}", tenancy.ends(Ending::AddsUp).await?))
}

/// The neighbour's p99 in each kind of flood, and whether it is what it may be.
fn compared(times: &[Timed], parts: &[Part]) -> (String, bool) {
    let p99 = |part: &Part, flood: usize| {
        percentile(times, 99, part.0[flood], part.0[flood + 1]).as_secs_f64() * 1000.0
    };
    let medians = |of: &dyn Fn(&Part) -> f64| median(&parts.iter().map(of).collect::<Vec<_>>());
    let [without, asked] = [0, 1].map(|flood| medians(&|part| p99(part, flood)));
    let slower = usize::from(asked > without);
    let rise = medians(&|part| p99(part, 2) - p99(part, slower));
    let said =
        format!("neighbour's p99 {without:.1} and {asked:.1} ms, with squelch {rise:+.1} beside the greater");
    (said, rise <= (without.max(asked) / 5.0).max(NOISE))
}

/// Writes with the numbers that `next` goes on with, one `each` time, or else as fast as they are answered.
async fn flood(
    hands: usize,
    next: &Cell<u64>,
    within: Duration,
    each: Option<Duration>,
    write: impl AsyncFn(u64) -> Result<Said>,
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
            ensure!(!matches!(said, Said::Other(status) if status != 409), "{said:?}");
            Ok(())
        })
        .await
}
