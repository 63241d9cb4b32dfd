//! `--keep`: what runs on, and what to do with it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use e2e::cluster::given;

use crate::stage::{POLICY, Stage, WITH_POLICY};

/// Leaves squelch running, in the care of `cluster-down`, and says how to use it.
pub(crate) fn keep(stage: Stage) -> Result<()> {
    let Stage { cluster, squelch, folder, emitter, .. } = stage;
    let (admin, cluster_folder) = (squelch.admin.clone(), cluster.folder.display().to_string());
    let pid = squelch.leave();
    let recorded = format!("{pid} {}\n", start_time(pid)?);
    fs::write(cluster.folder.join("run/squelch.pid"), recorded)?;
    let storm = given("SQUELCH_EMITTER_GO")?;
    let kubectl = on_path("kubectl").context("kubectl is gone")?;
    eprintln!(
        "
The cluster and squelch (process {pid}) run on, with both namespaces and the policy.

  export KUBECONFIG={kubeconfig}
  export PATH={path}:$PATH     # the kubectl that the demo uses

  kubectl get eventpolicies --all-namespaces --watch
  kubectl explain eventpolicy.spec.series
  kubectl edit eventpolicy {POLICY} --namespace {WITH_POLICY}     # try `mode: Observe`
  curl --silent {admin}/metrics | grep ^squelch_
  less {log}

Another storm, of 20 objects and 2,000 occurrences in 10 s:

  {storm} --kubeconfig {emitter} --namespace {WITH_POLICY} \\
    --name-prefix again --objects 20 --count 100 --rate 200 --spam-filter open >/dev/null

To end it all, squelch too:

  ./justw cluster-down {cluster_folder}
",
        kubeconfig = cluster.kubeconfig.display(),
        path = kubectl.parent().unwrap_or(Path::new("/")).display(),
        log = folder.join("squelch.log").display(),
        storm = storm.display(),
        emitter = emitter.display(),
    );
    Ok(())
}

/// With its number it tells a process from a later one, as `e2e/cluster/process.sh` has it: the 22nd field of stat,
/// counted behind the last parenthesis, since a process may have any name.
fn start_time(pid: u32) -> Result<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    Ok(fields.split_whitespace().nth(19).context("an unreadable /proc/PID/stat")?.to_owned())
}

fn on_path(program: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?)
        .map(|folder| folder.join(program))
        .find(|path| path.is_file())
}
