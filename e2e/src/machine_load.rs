//! A process that takes all processors and the disk of this machine (`bin/machine-load`).

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::Cluster;
use crate::cluster::given;

/// The process ends after this time, whatever happens.
const LIMIT: Duration = Duration::from_secs(15 * 60);

/// A running load. Ends on drop, and when the test process exits.
pub struct MachineLoad(Option<Child>);

impl MachineLoad {
    /// Starts it; its file is in the folder of the cluster, beside the data of etcd.
    ///
    /// # Errors
    /// If the process cannot be started.
    pub fn start(cluster: &Cluster) -> Result<Self> {
        let mut command = Command::new(given("SQUELCH_MACHINE_LOAD")?);
        command.arg("--file").arg(cluster.folder.join("machine-load"));
        command.args(["--seconds", &LIMIT.as_secs().to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        Ok(Self(Some(command.spawn().context("starting machine-load")?)))
    }

    /// Ends it; returns what it did.
    ///
    /// # Errors
    /// If it has ended before.
    pub fn end(mut self) -> Result<String> {
        let mut child = self.0.take().context("a load is ended once")?;
        let early = child.try_wait()?;
        // `wait_with_output` closes the standard input first.
        let output = child.wait_with_output()?;
        ensure!(early.is_none() && output.status.success(), "machine-load ended by itself: {output:?}");
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    }
}

impl Drop for MachineLoad {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
