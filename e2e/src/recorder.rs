//! `squelch record` as a process, with the rights of the ClusterRole `view` in the namespace of a test.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::accounts::{Account, EMITTER};
use crate::process::{Process, tail};
use crate::wait::{GENEROUS, wait_for};
use crate::{Test, cluster};

/// Its ServiceAccount.
const RECORDER: Account = Account { namespace: EMITTER.namespace, name: "recorder" };

/// One write of an Event, in a recording or elsewhere.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RecordedWrite {
    /// etcd's revision.
    pub version: u64,
    /// `CREATE` or `UPDATE`.
    pub operation: String,
    /// `v1` or `events.k8s.io/v1`.
    pub api: String,
    /// The name of the Event.
    pub name: String,
    /// Its count.
    pub count: i64,
}

/// A running recording.
pub struct Recorder {
    process: Process,
    trace: PathBuf,
}

impl Recorder {
    /// Writes a kubeconfig of a ServiceAccount that may view the namespace.
    ///
    /// # Errors
    /// What kubectl or the API server reports.
    pub async fn kubeconfig(test: &Test) -> Result<PathBuf> {
        let group = "rbac.authorization.k8s.io";
        let subject =
            json!({ "kind": "ServiceAccount", "namespace": RECORDER.namespace, "name": RECORDER.name });
        let items = [
            json!({ "apiVersion": "v1", "kind": "ServiceAccount",
                "metadata": { "namespace": RECORDER.namespace, "name": RECORDER.name } }),
            json!({ "apiVersion": format!("{group}/v1"), "kind": "RoleBinding",
                "metadata": { "namespace": test.namespace, "name": RECORDER.name },
                "roleRef": { "apiGroup": group, "kind": "ClusterRole", "name": "view" }, "subjects": [subject] }),
        ];
        test.cluster.kubectl.apply(&json!({ "apiVersion": "v1", "kind": "List", "items": items })).await?;
        RECORDER.kubeconfig(&test.cluster, test.folder()).await
    }

    /// Starts to record the namespace. Every write from now on belongs to the recording.
    ///
    /// # Errors
    /// If there is no watch in time, with the last lines of its standard error.
    pub async fn start(test: &Test, kubeconfig: &Path) -> Result<Self> {
        let trace = test.folder().join("trace.jsonl");
        let mut command = Command::new(cluster::given("SQUELCH_BIN")?);
        command.arg("record").arg("--kubeconfig").arg(kubeconfig).args(["--namespace", &test.namespace]);
        command.arg("--file").arg(&trace);
        let process = Process::start("record", &mut command, test.folder())?;
        // The file is created once the first watch is open.
        wait_for("the file of squelch record", GENEROUS, async || {
            if trace.exists() { Ok(()) } else { Err(tail(&process.log, 5)) }
        })
        .await?;
        Ok(Self { process, trace })
    }

    /// The lines so far; the last one may be incomplete.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn trace(&self) -> Result<String> {
        let text = std::fs::read_to_string(&self.trace).with_context(|| self.trace.display().to_string())?;
        Ok(text[..text.rfind('\n').map_or(0, |end| end + 1)].to_owned())
    }

    /// The writes of the lines so far.
    ///
    /// # Errors
    /// If a line is invalid.
    pub fn writes(&self) -> Result<Vec<RecordedWrite>> {
        self.trace()?.lines().map(write).collect()
    }

    /// Sends SIGTERM, and returns the summary.
    ///
    /// # Errors
    /// If it does not end in time with the exit code 0.
    pub async fn stop(&mut self) -> Result<String> {
        self.process.terminate()?;
        self.process.success(GENEROUS).await?;
        Ok(std::fs::read_to_string(&self.process.log)?)
    }
}

fn write(line: &str) -> Result<RecordedWrite> {
    let line: Value = serde_json::from_str(line).with_context(|| format!("a line of a trace: {line}"))?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let object = &line["object"];
    let counts = [&object["count"], &object["deprecatedCount"], &object["series"]["count"]];
    Ok(RecordedWrite {
        version: text(&object["metadata"]["resourceVersion"]).parse().context("a resourceVersion")?,
        operation: text(&line["operation"]),
        api: text(&object["apiVersion"]),
        name: text(&object["metadata"]["name"]),
        count: counts.into_iter().filter_map(Value::as_i64).max().unwrap_or(1).max(1),
    })
}
