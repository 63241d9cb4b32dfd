//! Squelch ends, restarts and crashes while another process takes all processors and the disk. Each run has a new storm
//! and its own counts: the emitters' own records against the stored Events.

use anyhow::{Context, Result, ensure};
use e2e::Node;
use e2e::faults::{active, process};
use e2e::machine_load::MachineLoad;
use e2e::node::SQUELCH;
use e2e::policy::Counters;
use e2e::process::send;
use e2e::rows::Wanted;
use e2e::stage::{Evidence, Stage};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::json;

/// The length of each storm in units of 20 s. A busy machine takes several times as long.
const STORM: u32 = 1;

/// How squelch is disturbed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Disturbance {
    Uninstall,
    RolloutRestart,
    KillContainer,
    KillPod,
}

const ROWS: [(&str, Disturbance); 4] = [
    ("helm uninstall", Disturbance::Uninstall),
    ("rollout restart", Disturbance::RolloutRestart),
    ("SIGKILL of the container", Disturbance::KillContainer),
    ("SIGKILL of the pod", Disturbance::KillPod),
];

impl Disturbance {
    /// Whether squelch is killed: pending occurrences are lost.
    fn kills(self) -> bool {
        matches!(self, Self::KillContainer | Self::KillPod)
    }

    async fn disturb(self, stage: &Stage) -> Result<()> {
        let kubectl = stage.node.cluster.kubectl.namespace(SQUELCH);
        match self {
            Self::Uninstall => drop(stage.node.helm().uninstall().await?),
            Self::RolloutRestart => {
                kubectl.run(&["rollout", "restart", "deployment/squelch"]).await?;
                stage.node.rolled_out(SQUELCH, SQUELCH).await?;
            }
            Self::KillContainer | Self::KillPod => {
                let pod: Pod = active(&stage.node.cluster).await?;
                send(process(&pod)?, "KILL")?;
                if self == Self::KillPod {
                    let name = pod.name_any();
                    let at_once = ["--force", "--grace-period=0", "--wait=false"];
                    kubectl.run(&[&["delete", "pod", &name], &at_once[..]].concat()).await?;
                }
                stage.node.rolled_out(SQUELCH, SQUELCH).await?;
            }
        }
        Ok(())
    }
}

/// The counts of one run.
struct Run {
    evidence: Evidence,
    /// Reviews that the API server admitted without an answer.
    unreviewed: i64,
    load: String,
}

impl Run {
    /// Reported occurrences that are not stored.
    fn lost(&self) -> i64 {
        (self.evidence.reported - self.evidence.stored).max(0)
    }

    /// Checks the counts. An unreviewed PATCH stores the client's own count with merged occurrences, which are not
    /// counted as recovered.
    fn check(&self, disturbance: Disturbance) -> Result<()> {
        let Evidence { reported, stored, counters, .. } = &self.evidence;
        self.evidence.no_write_failed()?;
        ensure!(counters.received > counters.admitted, "squelch suppressed nothing: {counters:?}");
        let most = if self.unreviewed == 0 { counters.recovered } else { counters.compacted };
        ensure!(
            stored - reported <= most,
            "{} occurrences stored twice, {most} allowed: {counters:?}",
            stored - reported
        );
        // Of each series a crash loses less than its stored count.
        let lost_at_most = if disturbance.kills() { *stored } else { 0 };
        ensure!(self.lost() <= lost_at_most, "{} occurrences lost: {counters:?}", self.lost());
        Ok(())
    }
}

async fn run(disturbance: Disturbance) -> Result<Run> {
    let stage = Stage::begin("row-load", &json!({ "replicas": 2 }), STORM).await?;
    let counters = stage.wait_for_decisions(Counters::default()).await?;
    let unreviewed = stage.node.cluster.failed_webhook_calls().await?;
    let load = MachineLoad::start(&stage.node.cluster)?;
    let counters = stage.wait_for_decisions(counters).await.context("under the load")?;
    disturbance.disturb(&stage).await?;
    if disturbance == Disturbance::Uninstall {
        stage.writer.wait_for_answers(100).await?;
    } else {
        stage.wait_for_decisions(counters).await.context("after the disturbance")?;
    }
    let (node, evidence): (Node, _) = stage.end().await?;
    let load = load.end()?;
    let unreviewed = node.cluster.failed_webhook_calls().await? - unreviewed;
    let run = Run { evidence, unreviewed, load };
    run.check(disturbance).with_context(|| line(disturbance, 0, &run))?;
    node.passed()?;
    Ok(run)
}

const HEAD: &str = "row                        run  reported    stored  recovered     lost  unreviewed  load";

fn line(disturbance: Disturbance, number: usize, run: &Run) -> String {
    let name = ROWS.iter().find(|(_, it)| *it == disturbance).map_or("", |(name, _)| name);
    let Evidence { reported, stored, counters, .. } = &run.evidence;
    format!(
        "{name:<25} {number:>4} {reported:>9} {stored:>9} {:>10} {:>8} {:>11}  {}",
        counters.recovered,
        run.lost(),
        run.unreviewed,
        run.load
    )
}

#[tokio::test]
#[ignore = "takes the whole machine: just test-node --load"]
async fn nothing_is_lost_under_load() -> Result<()> {
    let runs = std::env::var("SQUELCH_LOAD_RUNS").unwrap_or_default();
    let runs: usize = runs.parse().with_context(|| format!("SQUELCH_LOAD_RUNS is {runs:?}"))?;
    let wanted = Wanted::asked();
    let (mut table, mut failures) = (Vec::new(), Vec::new());
    for number in 1..=runs {
        for (name, disturbance) in ROWS.into_iter().filter(|(name, _)| wanted.is(name)) {
            match run(disturbance).await {
                Ok(run) => table.push(line(disturbance, number, &run)),
                Err(error) => {
                    let failure = format!("{name}, run {number}: {error:#}");
                    eprintln!("{failure}");
                    table.push(format!("{name:<25} {number:>4} MISS"));
                    failures.push(failure);
                }
            }
            eprintln!("{}", table.last().map_or("", String::as_str));
        }
    }
    eprintln!("\n{HEAD}\n{}", table.join("\n"));
    ensure!(!table.is_empty(), "no row matches {wanted:?}, or there are no runs");
    ensure!(
        failures.is_empty(),
        "{} of {} runs failed:\n{}",
        failures.len(),
        table.len(),
        failures.join("\n")
    );
    Ok(())
}
