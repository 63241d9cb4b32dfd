//! The environment of a row: squelch on the node, a policy, the demo's storm, and an independent writer.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::policy::Counters;
use crate::process::Process;
use crate::wait::not_yet;
use crate::writer::{Answers, Timed, Writer};
use crate::{Emission, GENEROUS, Node, Policy, STORM, Storm, events, wait_for};

/// Writes per second of the independent writer.
const WRITES: u32 = 50;

/// Name prefix of a row's own pods: the node writes Events about them, which are not counted.
pub const TEST_POD_PREFIX: &str = "test-pod-";

/// Chart values of every row: statuses are written every second, so that tests can wait for them.
pub fn values(more: &Value) -> Value {
    let mut values =
        json!({ "operator": { "statusInterval": "1s", "statusQps": 50, "logLevel": "info,squelch=debug" } });
    merge(&mut values, more);
    values
}

fn merge(into: &mut Value, more: &Value) {
    match (into, more) {
        (Value::Object(into), Value::Object(more)) => {
            for (key, value) in more {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, more) => *into = more.clone(),
    }
}

/// The load of a row.
#[derive(Clone, Copy)]
pub struct Load {
    /// Writes per second of the independent writer.
    pub writes: u32,
    /// The length of the storm in units of 20 s; 0: no storm.
    pub storm: u32,
    /// Writes before squelch is installed.
    pub before: usize,
}

/// A running row.
pub struct Stage {
    /// The node.
    pub node: Node,
    /// The policy of its namespace.
    pub policy: Policy,
    /// The independent writer.
    pub writer: Writer,
    storm: Option<Storm>,
    /// The logs of the pods before the fault.
    logs: Option<Process>,
    reported: i64,
    failed_webhook_calls: i64,
}

/// The result of a row.
pub struct Evidence {
    /// Reported occurrences.
    pub reported: i64,
    /// The sum of the stored counts.
    pub stored: i64,
    /// The highest stored count.
    pub highest: i64,
    /// Event reviews that the API server admitted without an answer, by its own metrics.
    pub failed_webhook_calls: i64,
    /// The final counters of the policy's status.
    pub counters: Counters,
    /// The answers to the independent writer.
    pub answers: Answers,
    /// Each of its writes.
    pub times: Vec<Timed>,
    /// When it started.
    pub writer_started: jiff::Timestamp,
    /// Errors in the logs of the storm's emitters.
    complaints: Vec<String>,
}

impl Stage {
    /// Starts the writer, installs squelch, and starts the storm of `length` times 20 s.
    ///
    /// # Errors
    /// If the setup fails.
    pub async fn begin(label: &str, more: &Value, length: u32) -> Result<Self> {
        Self::under(label, more, Load { writes: WRITES, storm: length, before: 20 }).await
    }

    /// Same under another load.
    ///
    /// # Errors
    /// If the setup fails.
    pub async fn under(label: &str, more: &Value, load: Load) -> Result<Self> {
        let node = Node::begin(label).await?;
        let writer = node.writer(load.writes).await?;
        writer.wait_for_answers(load.before).await?;
        node.helm().install(&values(more)).await?;
        let kubectl = node.cluster.kubectl.namespace(&node.namespace);
        let spec = json!({ "mode": "Enforce" });
        let client = node.cluster.client.clone();
        let policy = Policy::apply(client, &kubectl, &node.namespace, "policy", &spec).await?;
        let storm = if load.storm == 0 { None } else { Some(node.storm(load.storm)?) };
        let failed_webhook_calls = node.cluster.failed_webhook_calls().await?;
        Ok(Self { node, policy, writer, storm, logs: None, reported: 0, failed_webhook_calls })
    }

    /// Keeps the logs of squelch's present pods for the report of a failed row, also if the row ends the pods.
    ///
    /// # Errors
    /// If kubectl cannot be started.
    pub fn follow_logs(&mut self) -> Result<()> {
        self.logs = Some(self.node.follow_logs()?);
        Ok(())
    }

    /// Runs another emitter to its end.
    ///
    /// # Errors
    /// If it fails.
    pub async fn run_emitter(&mut self, name: &str, emission: &Emission) -> Result<()> {
        self.reported += self.node.emit(name, emission)?.finish(STORM).await?.sent();
        Ok(())
    }

    /// Waits until squelch counts more occurrences than `before`, and returns the counters. They never decrease.
    ///
    /// # Errors
    /// If the deadline passes, with the last counters.
    pub async fn wait_for_decisions(&self, before: Counters) -> Result<Counters> {
        wait_for("more occurrences in the status", GENEROUS, async || {
            let now = self.policy.counters().await.map_err(not_yet)?;
            if now.received > before.received { Ok(now) } else { Err(format!("{now:?}")) }
        })
        .await
    }

    /// Waits for the end of the storm, uninstalls the chart, which flushes pending occurrences, and counts the stored
    /// Events.
    ///
    /// # Errors
    /// If a step fails.
    pub async fn end(self) -> Result<(Node, Evidence)> {
        let emissions = match self.storm {
            Some(storm) => storm.finish(STORM).await?,
            None => Vec::new(),
        };
        let (times, writer_started) = (self.writer.times(), self.writer.started);
        let answers = self.writer.stop().await;
        let complaints = emissions.iter().flat_map(crate::emitters::Report::error_lines);
        let complaints = complaints.map(|line| format!("{line:?}")).collect();
        // The logs of the pods go with them.
        self.node.keep_logs();
        drop(self.logs);
        self.node.helm().uninstall().await?;
        let counters = self.policy.counters().await?;
        let failed_webhook_calls = match self.node.cluster.failed_webhook_calls().await? {
            // The API server was restarted, and counts from 0.
            since_restart if since_restart < self.failed_webhook_calls => since_restart,
            all => all - self.failed_webhook_calls,
        };
        let mut stored = events::of_others(&self.node.cluster.client, &self.node.namespace).await?;
        stored.retain(|event| !events::object(event).starts_with(TEST_POD_PREFIX));
        let sent: i64 = emissions.iter().map(crate::emitters::Report::sent).sum();
        let evidence = Evidence {
            reported: self.reported + sent + i64::try_from(answers.occurrences())?,
            stored: stored.iter().map(events::value).sum(),
            highest: stored.iter().map(events::value).max().unwrap_or_default(),
            failed_webhook_calls,
            counters,
            answers,
            times,
            writer_started,
            complaints,
        };
        Ok((self.node, evidence))
    }

    /// Ends the storm, and checks that nothing was lost. Returns what was measured.
    ///
    /// # Errors
    /// If a step fails, a write failed or an occurrence is lost.
    pub async fn passed(self) -> Result<String> {
        let (node, evidence) = self.end().await?;
        let measured = evidence.nothing_lost()?;
        node.passed()?;
        Ok(measured)
    }
}

impl Evidence {
    /// Checks that no write failed, and that the counters add up.
    ///
    /// # Errors
    /// The failed writes.
    pub fn no_write_failed(&self) -> Result<()> {
        let Self { counters, answers, complaints, .. } = self;
        ensure!(answers.failed.is_empty(), "{answers}");
        ensure!(complaints.is_empty(), "an emitter's log: {complaints:?}");
        ensure!(counters.are_conserved(), "the counters do not add up: {counters:?}");
        Ok(())
    }

    /// The bound of occurrences that are stored twice: those counted as recovered, and the pending occurrences of a
    /// series whose UPDATE was admitted undecided (docs/promises.md). An UPDATE is, if the machine is so busy that the
    /// API server does not wait for its review.
    pub fn stored_twice_at_most(&self) -> i64 {
        let undecided = self.failed_webhook_calls.max(self.counters.failed_open);
        self.counters.recovered + undecided * self.highest
    }

    /// Checks that no write failed, that every reported occurrence is stored, and that no more of them are stored twice
    /// than promised.
    ///
    /// # Errors
    /// The lost occurrences or failed writes.
    pub fn nothing_lost(&self) -> Result<String> {
        self.no_write_failed()?;
        let Self { reported, stored, counters, answers, .. } = self;
        let reported_twice = stored - reported;
        ensure!(
            (0..=self.stored_twice_at_most()).contains(&reported_twice),
            "{reported} occurrences reported, {stored} stored, {} webhook calls failed; {counters:?}; {answers}",
            self.failed_webhook_calls
        );
        let suppressed = counters.received - counters.admitted;
        ensure!(suppressed > 0, "squelch suppressed nothing: {counters:?}");
        Ok(format!(
            "0 of {} writes failed (slowest {:.0?}), {reported} reported, {stored} stored, {suppressed} suppressed",
            answers.occurrences(),
            answers.slowest
        ))
    }
}
