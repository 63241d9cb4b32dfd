//! What every row stands on: squelch installed on the node, a policy, the demo's storm, and somebody independent who
//! writes Events all the time.

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Event;
use kube::Api;
use kube::api::ListParams;
use serde_json::{Value, json};

use crate::policy::Counters;
use crate::wait::told;
use crate::writer::{Answers, Timed, Writer};
use crate::{Emission, GENEROUS, Node, Policy, Storm, events, wait_for};

/// The storm's emitters end by themselves; on a busy machine later.
const STORM: Duration = Duration::from_secs(240);

/// Writes a second of the independent writer.
const WRITES: u32 = 50;

/// What the names of a row's own pods begin with: the node tells of their lives in Events, which nobody counts.
pub const STRANGER: &str = "stranger-";

/// The values of every row: statuses are written each second, so that they can be waited for.
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

/// Who writes Events in a row.
#[derive(Clone, Copy)]
pub struct Load {
    /// Writes a second of the independent writer.
    pub writes: u32,
    /// The storm, so many times 20 s; 0: none.
    pub storm: u32,
    /// So often he has written before there is a squelch.
    pub before: usize,
}

/// A row under way.
pub struct Stage {
    /// The node that it takes place on.
    pub node: Node,
    /// The policy of its namespace.
    pub policy: Policy,
    /// Who writes all the time.
    pub writer: Writer,
    storm: Option<Storm>,
    told: i64,
}

/// What a row has come to.
pub struct Evidence {
    /// Occurrences that the API server was told of.
    pub told: i64,
    /// What the stored Events show in all.
    pub stored: i64,
    /// What the policy's status says in the end.
    pub counters: Counters,
    /// The independent writer's.
    pub answers: Answers,
    /// Each of his writes.
    pub times: Vec<Timed>,
    /// What the storm's emitters complain of in their logs.
    complaints: Vec<String>,
}

impl Stage {
    /// The writer writes before there is a squelch; then it is installed, and the storm rages for `length` times 20 s.
    ///
    /// # Errors
    /// What cannot be set up.
    pub async fn begin(label: &str, more: &Value, length: u32) -> Result<Self> {
        Self::under(label, more, Load { writes: WRITES, storm: length, before: 20 }).await
    }

    /// The same under another load.
    ///
    /// # Errors
    /// What cannot be set up.
    pub async fn under(label: &str, more: &Value, load: Load) -> Result<Self> {
        let node = Node::begin(label).await?;
        let writer = node.writer(load.writes).await?;
        writer.goes_on(load.before).await?;
        node.helm().install(&values(more)).await?;
        let kubectl = node.cluster.kubectl.namespace(&node.namespace);
        let spec = json!({ "mode": "Enforce" });
        let client = node.cluster.client.clone();
        let policy = Policy::apply(client, &kubectl, &node.namespace, "policy", &spec).await?;
        let storm = if load.storm == 0 { None } else { Some(node.storm(load.storm)?) };
        Ok(Self { node, policy, writer, storm, told: 0 })
    }

    /// Somebody else reports, to the end.
    ///
    /// # Errors
    /// That he fails.
    pub async fn reports(&mut self, name: &str, emission: &Emission) -> Result<()> {
        self.told += self.node.emit(name, emission)?.finish(STORM).await?.sent();
        Ok(())
    }

    /// Waits until squelch counts more occurrences than it did, and takes the counters. They never go back.
    ///
    /// # Errors
    /// What it counts instead.
    pub async fn decides(&self, before: Counters) -> Result<Counters> {
        wait_for("more occurrences in the status", GENEROUS, async || {
            let now = self.policy.counters().await.map_err(told)?;
            if now.received > before.received { Ok(now) } else { Err(format!("{now:?}")) }
        })
        .await
    }

    /// Lets the storm end, has squelch pay by removing the chart, and counts what is stored.
    ///
    /// # Errors
    /// What goes wrong with that.
    pub async fn end(self) -> Result<(Node, Evidence)> {
        let emissions = match self.storm {
            Some(storm) => storm.finish(STORM).await?,
            None => Vec::new(),
        };
        let times = self.writer.times();
        let answers = self.writer.stop().await;
        let complaints = emissions.iter().flat_map(crate::emitters::Told::error_lines);
        let complaints = complaints.map(|line| format!("{line:?}")).collect();
        self.node.helm().uninstall().await?;
        let counters = self.policy.counters().await?;
        let api: Api<Event> = Api::namespaced(self.node.cluster.client.clone(), &self.node.namespace);
        let mut stored = api.list(&ListParams::default().fields(events::OF_OTHERS)).await?.items;
        stored.retain(|event| !events::object(event).starts_with(STRANGER));
        let sent: i64 = emissions.iter().map(crate::emitters::Told::sent).sum();
        let evidence = Evidence {
            told: self.told + sent + i64::try_from(answers.occurrences())?,
            stored: stored.iter().map(events::value).sum(),
            counters,
            answers,
            times,
            complaints,
        };
        Ok((self.node, evidence))
    }
}

impl Evidence {
    /// Nobody's write failed, and the counters add up.
    ///
    /// # Errors
    /// What failed.
    pub fn nobody_failed(&self) -> Result<()> {
        let Self { counters, answers, complaints, .. } = self;
        ensure!(answers.failed.is_empty(), "{answers}");
        ensure!(complaints.is_empty(), "an emitter's log: {complaints:?}");
        ensure!(counters.are_conserved(), "the counters do not add up: {counters:?}");
        Ok(())
    }

    /// Nobody's write failed, and every occurrence that was told of is in a stored Event, told twice only as often as
    /// the status says.
    ///
    /// # Errors
    /// What was lost, or failed.
    pub fn nothing_lost(&self) -> Result<String> {
        self.nobody_failed()?;
        let Self { told, stored, counters, answers, .. } = self;
        let retold = stored - told;
        ensure!(
            (0..=counters.recovered).contains(&retold),
            "{told} occurrences were told of, {stored} are stored; {counters:?}; {answers}"
        );
        let held_back = counters.received - counters.admitted;
        ensure!(held_back > 0, "squelch has held nothing back: {counters:?}");
        Ok(format!(
            "0 of {} writes failed (slowest {:.0?}), {told} told, {stored} stored, {held_back} held back",
            answers.occurrences(),
            answers.slowest
        ))
    }
}
