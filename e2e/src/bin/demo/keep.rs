//! `--keep`: the running environment and its commands.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use e2e::cluster::given;

use crate::operator::Left;
use crate::stage::{POLICY, Stage, WITH_POLICY};

/// Leaves squelch running until `cluster-down`, and prints the commands to use it.
pub(crate) fn keep(stage: Stage) -> Result<()> {
    let Stage { cluster, squelch, folder, emitter, .. } = stage;
    let (admin, cluster_folder) = (squelch.admin().url.clone(), cluster.folder.display().to_string());
    let Left { what, log } = squelch.leave(&cluster, &folder)?;
    let storm = given("SQUELCH_EMITTER_GO")?;
    let kubectl = on_path("kubectl").context("kubectl is not in PATH")?;
    eprintln!(
        "
The cluster and squelch ({what}) keep running, with both namespaces and the policy.

  export KUBECONFIG={kubeconfig}
  export PATH={path}:$PATH     # the kubectl that the demo uses

  kubectl get eventpolicies --all-namespaces --watch
  kubectl explain eventpolicy.spec.series
  kubectl edit eventpolicy {POLICY} --namespace {WITH_POLICY}     # try `mode: Observe`
  curl --silent {admin}/metrics | grep ^squelch_
  {log}

Another storm, of 20 objects and 2,000 occurrences in 10 s:

  {storm} --kubeconfig {emitter} --namespace {WITH_POLICY} \\
    --name-prefix again --objects 20 --count 100 --rate 200 --spam-filter open >/dev/null

To stop the cluster and squelch:

  ./justw cluster-down {cluster_folder}
",
        kubeconfig = cluster.kubeconfig.display(),
        path = kubectl.parent().unwrap_or(Path::new("/")).display(),
        storm = storm.display(),
        emitter = emitter.display(),
    );
    Ok(())
}

fn on_path(program: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?)
        .map(|folder| folder.join(program))
        .find(|path| path.is_file())
}
