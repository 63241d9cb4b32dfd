//! The last part of the demo: a policy with every stage, and a source of Events for each of them.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use e2e::cluster::{checkout, given};
use e2e::policy::Counters;
use e2e::process::run_with_input;
use e2e::wait::not_yet;
use e2e::{Emission, GENEROUS, Policy, events, wait_for};
use futures::future::try_join_all;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::checks::{Check, equal};
use crate::report::{number, say};
use crate::stage::Stage;

/// The namespace.
pub(crate) const EVERY_STAGE: &str = "every-stage";
/// The file of the policy, which has the name of the namespace.
const POLICY_FILE: &str = "examples/every-stage.yaml";

/// Time for one source, on a busy machine.
const DEADLINE: Duration = Duration::from_secs(120);

/// Columns of the table.
const LABEL: usize = 12;
const NUMBER: usize = 8;

/// A source of 100 Events, each written with one CREATE.
struct StageSource {
    component: &'static str,
    event_type: &'static str,
    reason: &'static str,
    objects: usize,
    messages: &'static str,
    /// Occurrences per second.
    rate: u32,
}

/// One source for each stage. The importer is fast enough to empty its bucket of the spam filter before the exporter empties
/// the budget of both.
const SOURCES: [StageSource; 6] = [
    StageSource {
        component: "kubelet",
        event_type: "Warning",
        reason: "BackOff",
        objects: 1,
        messages: "identical",
        rate: 50,
    },
    StageSource {
        component: "deployer",
        event_type: "Warning",
        reason: "Failed",
        objects: 1,
        messages: "distinct",
        rate: 50,
    },
    StageSource {
        component: "importer",
        event_type: "Normal",
        reason: "Imported",
        objects: 100,
        messages: "identical",
        rate: 200,
    },
    StageSource {
        component: "exporter",
        event_type: "Normal",
        reason: "Exported",
        objects: 100,
        messages: "identical",
        rate: 20,
    },
    StageSource {
        component: "kubelet",
        event_type: "Normal",
        reason: "Pulled",
        objects: 100,
        messages: "identical",
        rate: 50,
    },
    StageSource {
        component: "importer",
        event_type: "Warning",
        reason: "Refused",
        objects: 100,
        messages: "identical",
        rate: 200,
    },
];

/// What the part has shown.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EveryStage {
    /// Reported occurrences.
    reported: i64,
    /// Those of Warnings.
    warnings: i64,
    /// The sum of the counts of the stored Events, and of those of Warnings.
    stored: i64,
    stored_warnings: i64,
    /// The policy's `status.counters`.
    status: Counters,
    /// Its counters in the `EventDropReport`.
    report: Counters,
    /// The count of the Event `EventsDropped`.
    receipt: i64,
    /// Output of kubectl.
    #[serde(skip)]
    shown: String,
}

impl StageSource {
    fn emission(&self) -> Emission {
        Emission::creates_core()
            .about(&self.reason.to_lowercase(), self.objects)
            .count(100 / self.objects as i64)
            .rate(self.rate)
            .reason(self.reason)
            .with("--type", self.event_type)
            .with("--messages", self.messages)
            .with("--component", self.component)
            .message("an Event of the demo")
    }
}

/// Applies the policy, runs the sources, and reads what squelch says about them.
pub(crate) async fn play(stage: &Stage) -> Result<EveryStage> {
    say(&format!("kubectl apply --namespace {EVERY_STAGE} -f {POLICY_FILE}, and 600 Events (usually 10 s)"));
    stage.cluster.kubectl.run(&["create", "namespace", EVERY_STAGE]).await?;
    let kubectl = stage.kubectl(EVERY_STAGE);
    kubectl.run(&["apply", "-f", &checkout(POLICY_FILE).display().to_string()]).await?;
    let policy = Policy::named(stage.cluster.client.clone(), EVERY_STAGE, EVERY_STAGE);
    policy.effective().await?;
    let running = SOURCES.iter().map(|source| async move {
        let emitter = source.emission().start(source.reason, &stage.emitter, EVERY_STAGE, &stage.folder)?;
        Ok::<_, anyhow::Error>((source.event_type, emitter.finish(DEADLINE).await?.sent()))
    });
    let reported = try_join_all(running).await?;
    let of = |event_type| reported.iter().filter(|it| it.0 == event_type).map(|it| it.1).sum::<i64>();
    let (warnings, reported) = (of("Warning"), of("Warning") + of("Normal"));
    stage.squelch.admin().wait_until_idle(GENEROUS).await?;
    let status = policy.received(reported).await?;
    let report = report(stage, &status).await?;
    let receipt = receipt(stage, status.dropped()).await?;
    let stored = stage.stored(EVERY_STAGE).await?;
    let sum = |its: &dyn Fn(&str) -> bool| {
        let events = stored.iter().filter(|event| its(event.type_.as_deref().unwrap_or_default()));
        events.map(events::value).sum::<i64>()
    };
    Ok(EveryStage {
        reported,
        warnings,
        stored: sum(&|_| true),
        stored_warnings: sum(&|event_type| event_type == "Warning"),
        status,
        report,
        receipt,
        shown: shown(stage).await?,
    })
}

/// Waits until the report has the counters of the status; returns the last ones at the deadline.
async fn report(stage: &Stage, status: &Counters) -> Result<Counters> {
    let read = async || -> Result<Counters> {
        let text = stage.kubectl(EVERY_STAGE).run(&["get", "edr", "squelch", "--output=json"]).await?;
        let report: Value = serde_json::from_str(&text)?;
        Ok(Counters::deserialize(&report["policies"][0]["counters"])?)
    };
    let equal = wait_for("the report to equal the status", GENEROUS, async || {
        let counters = read().await.map_err(not_yet)?;
        if counters == *status { Ok(counters) } else { Err(format!("{counters:?}")) }
    });
    match equal.await {
        Ok(counters) => Ok(counters),
        // A difference fails the checks.
        Err(_) => read().await,
    }
}

/// Waits until the Event `EventsDropped` has this count; returns the last one at the deadline.
async fn receipt(stage: &Stage, dropped: i64) -> Result<i64> {
    let kubectl = stage.kubectl(EVERY_STAGE);
    let read = async || -> Result<i64> {
        let arguments = ["get", "events", "--field-selector=reason=EventsDropped", "--output=json"];
        let list: Value = serde_json::from_str(&kubectl.run(&arguments).await?)?;
        list["items"][0]["count"].as_i64().context("no Event EventsDropped")
    };
    let equal = wait_for("the Event EventsDropped", GENEROUS, async || {
        let count = read().await.map_err(not_yet)?;
        if count == dropped { Ok(count) } else { Err(format!("a count of {count}")) }
    });
    match equal.await {
        Ok(count) => Ok(count),
        Err(_) => read().await,
    }
}

/// What a user of the namespace sees.
async fn shown(stage: &Stage) -> Result<String> {
    let mut text = String::new();
    for arguments in [
        &["get", "eventpolicy,edr"][..],
        &[
            "get",
            "edr",
            "squelch",
            "--output",
            "custom-columns=REASON:.dropped[*].reason,COUNT:.dropped[*].count",
        ],
        &["get", "events", "--field-selector=reason=EventsDropped"],
    ] {
        let output = stage.kubectl(EVERY_STAGE).run(arguments).await?;
        let _ = write!(text, "\n$ kubectl --namespace {EVERY_STAGE} {}\n{output}", arguments.join(" "));
    }
    let kubeconfig = stage.cluster.kubeconfig.as_path();
    let _ = write!(text, "\n$ kubectl squelch top --once --all-namespaces\n{}", top(kubeconfig)?);
    Ok(text)
}

fn top(kubeconfig: &Path) -> Result<String> {
    let mut command = Command::new(given("SQUELCH_BIN")?);
    command.args(["top", "--once", "--all-namespaces", "--kubeconfig"]).arg(kubeconfig);
    let output = run_with_input(&mut command, "")?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

impl EveryStage {
    /// The dispositions, and what users see.
    pub(crate) fn table(&self) -> String {
        let mut text = format!(
            "\nEvery stage: {} Events, {} of them Warnings, under {POLICY_FILE}\n\n",
            number(self.reported),
            number(self.warnings)
        );
        for (disposition, occurrences) in self.status.by_disposition() {
            let meaning = match disposition {
                "admitted" => "stored as written",
                "compacted" => "equal to a stored Event, which counts them",
                "aggregated" => "similar to each other: a summary counts them",
                "filtered" => "dropped by the spam filter: the emitter wrote more than 20",
                "throttled" => "dropped by the budget: the namespace had more than 30",
                "muted" => "never stored: the policy names their reason",
                _ => "not decided",
            };
            let occurrences = number(occurrences);
            let _ = writeln!(text, "{disposition:LABEL$}{occurrences:>NUMBER$}   {meaning}");
        }
        let received = number(self.status.received);
        let _ = writeln!(text, "{:LABEL$}{received:>NUMBER$}   the sum", "received");
        text + &self.shown
    }

    /// The checks.
    pub(crate) fn checks(&self) -> Vec<Check> {
        let status = &self.status;
        let stages = status.by_disposition();
        let missing: Vec<_> =
            stages[..6].iter().filter(|(_, number)| *number == 0).map(|(name, _)| *name).collect();
        vec![
            equal(
                "every stage: received matches the reported occurrences",
                ("reported", self.reported),
                ("received", if status.are_conserved() { status.received } else { -1 }),
            ),
            Check {
                what: "each stage was at work".to_owned(),
                ok: missing.is_empty(),
                seen: if missing.is_empty() {
                    "6 of 6".to_owned()
                } else {
                    format!("no {}", missing.join(", no "))
                },
            },
            equal(
                "stored counts = admitted + compacted + aggregated",
                ("stored", self.stored),
                ("sum", status.admitted + status.compacted + status.aggregated),
            ),
            equal(
                "every Warning is in a stored count",
                ("reported", self.warnings),
                ("stored", self.stored_warnings),
            )
            .and(status.dropped_warnings == 0),
            equal(
                "the EventDropReport says the same as the status",
                ("status", status.received - status.admitted),
                ("report", self.report.received - self.report.admitted),
            )
            .and(self.report == *status),
            equal(
                "the Event EventsDropped counts what was dropped",
                ("dropped", status.dropped()),
                ("count", self.receipt),
            ),
        ]
    }
}
