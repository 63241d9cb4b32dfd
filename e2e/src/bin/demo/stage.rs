//! The environment of the demo: a cluster, squelch, two namespaces, and a policy for one of them.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;
use e2e::accounts::{EMITTER, install_emitter};
use e2e::cluster::{checkout, given};
use e2e::kubectl::Kubectl;
use e2e::policy::Counters;
use e2e::process::tail;
use e2e::prometheus::dashboard;
use e2e::storm::Storm;
use e2e::wait::not_yet;
use e2e::{Cluster, GENEROUS, Policy, Prometheus, Writes, wait_for};
use k8s_openapi::api::core::v1::Event;
use serde::Serialize;

use crate::operator::{self, Operator};
use crate::report::say;
use crate::tally::{Seen, Tally};

/// The namespace of the first storm.
pub(crate) const NO_POLICY: &str = "no-policy";
/// The namespace of the second storm.
pub(crate) const WITH_POLICY: &str = "with-policy";

/// The policy of `examples/quickstart.yaml`.
pub(crate) const POLICY: &str = "quickstart";
/// The file of the policy.
pub(crate) const POLICY_FILE: &str = "examples/quickstart.yaml";

/// Instead of 6 minutes: a series closes, and its count is written, this long after its last occurrence.
pub(crate) const IDLE_TIMEOUT: &str = "5s";

/// Folder for logs and kubeconfigs, in the cluster's folder.
const FOLDER: &str = "demo";

/// A storm takes 20 s on an idle machine.
const STORM: Duration = Duration::from_secs(180);

/// Query of the checks.
const RECEIVED: &str = "sum(squelch_occurrences_total)";

/// Dashboard query of the storm.
pub(crate) const RATES: &str =
    r#"sum by (disposition) (rate(squelch_occurrences_total{event_namespace="with-policy"}[1m]))"#;

/// The running environment.
pub(crate) struct Stage {
    pub(crate) cluster: Cluster,
    pub(crate) squelch: Operator,
    /// It scrapes squelch every second.
    pub(crate) prometheus: Prometheus,
    /// Logs and kubeconfigs; deleted with the cluster.
    pub(crate) folder: PathBuf,
    /// Kubeconfig of the emitters.
    pub(crate) emitter: PathBuf,
}

/// Counters that squelch reports.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ReportedCounters {
    /// The policy's `status.counters`.
    pub(crate) status: Counters,
    /// `squelch_occurrences_total` by disposition, summed.
    pub(crate) received_in_metrics: i64,
    /// The same in Prometheus.
    pub(crate) received_in_prometheus: i64,
    /// Dashboard queries without data.
    pub(crate) without_data: Vec<String>,
    /// Number of dashboard queries.
    pub(crate) queries: usize,
    /// `squelch_pending_occurrences` and `squelch_lost_occurrences_total` together.
    pub(crate) pending_and_lost: i64,
}

/// Prints the end of each log of a failed demo: the files are deleted with the cluster.
pub(crate) fn print_log_tails(node: bool) {
    if node {
        operator::print_log_tails();
    }
    let logs = given("SQUELCH_CLUSTER_DIR").and_then(|folder| Ok(std::fs::read_dir(folder.join(FOLDER))?));
    for path in logs.into_iter().flatten().flatten().map(|entry| entry.path()) {
        let words = if path.extension().is_some_and(|extension| extension == "log") {
            tail(&path, 20)
        } else {
            continue;
        };
        if !words.is_empty() {
            eprintln!("--- the end of {}:\n{words}", path.display());
        }
    }
}

impl Stage {
    /// Installs and starts squelch in the cluster of the environment, on its node or as a process.
    pub(crate) async fn set(node: bool) -> Result<Self> {
        let cluster = Cluster::connect().await?;
        let folder = cluster.folder.join(FOLDER);
        std::fs::create_dir_all(&folder)?;
        let squelch = if node {
            Operator::install(&cluster).await?
        } else {
            Operator::start(&cluster, &folder).await?
        };
        say("start Prometheus, create two namespaces (usually 1 s)");
        let prometheus = Prometheus::start("prometheus", &squelch.admin().url, &folder).await?;
        install_emitter(&cluster).await?;
        for namespace in [NO_POLICY, WITH_POLICY] {
            cluster.kubectl.run(&["create", "namespace", namespace]).await?;
        }
        let emitter = EMITTER.kubeconfig(&cluster, &folder).await?;
        Ok(Self { cluster, squelch, prometheus, folder, emitter })
    }

    /// kubectl in a namespace, as the administrator.
    pub(crate) fn kubectl(&self, namespace: &str) -> Kubectl {
        self.cluster.kubectl.namespace(namespace)
    }

    /// Applies the quickstart policy, and waits until it is in force.
    pub(crate) async fn apply_policy(&self) -> Result<Policy> {
        say(&format!(
            "kubectl apply --namespace {WITH_POLICY} -f {POLICY_FILE}   (idleTimeout: {IDLE_TIMEOUT})"
        ));
        let kubectl = self.kubectl(WITH_POLICY);
        let file = checkout(POLICY_FILE).display().to_string();
        kubectl.run(&["apply", "-f", &file]).await?;
        let shorter = format!(r#"{{"spec":{{"series":{{"idleTimeout":"{IDLE_TIMEOUT}"}}}}}}"#);
        kubectl.run(&["patch", "eventpolicy", POLICY, "--type=merge", "--patch", &shorter]).await?;
        let policy = Policy::named(self.cluster.client.clone(), WITH_POLICY, POLICY);
        policy.effective().await?;
        Ok(policy)
    }

    /// Runs all emitters in this namespace to their end, and counts.
    pub(crate) async fn run_storm(&self, namespace: &'static str) -> Result<Tally> {
        let usually = match namespace {
            NO_POLICY => "22 s",
            _ => "30 s: the last counts are written after idleTimeout",
        };
        say(&format!("the storm in namespace {namespace} (usually {usually})"));
        let writes = Writes::watch(self.cluster.client.clone(), namespace).await?;
        let requests_before = self.event_requests().await?;
        let began = Instant::now();
        let emissions = Storm::start(&self.emitter, namespace, &self.folder, 1)?.finish(STORM).await?;
        self.squelch.admin().wait_until_idle(GENEROUS).await?;
        let clients: usize = emissions.iter().map(|report| report.calls.len()).sum();
        // The API server counts a request shortly after its answer.
        let requests =
            wait_for("the API server to have counted the emitters' requests", GENEROUS, async || {
                let counted = self.event_requests().await.map_err(not_yet)? - requests_before;
                if counted >= clients { Ok(counted) } else { Err(format!("{counted} of {clients}")) }
            })
            .await?;
        let stored = self.stored(namespace).await?;
        let writes = writes.so_far().await?;
        Ok(Tally::of(namespace, &Seen { reported: emissions, stored, writes, requests, began }))
    }

    /// Reads the policy's status and the metrics, once the status includes the whole storm.
    pub(crate) async fn counters(&self, policy: &Policy, storm: &Tally) -> Result<ReportedCounters> {
        say("wait for the policy's status (usually 1 s)");
        let received = storm.reported();
        let wait = wait_for(
            "status.counters.received to match the reported occurrences",
            Duration::from_secs(10),
            async || {
                let counters = policy.counters().await.map_err(not_yet)?;
                if counters.received == received { Ok(counters) } else { Err(format!("{counters:?}")) }
            },
        );
        let status = match wait.await {
            Ok(counters) => counters,
            // A difference fails the checks.
            Err(_) => policy.counters().await?,
        };
        let metrics = self.squelch.admin().metrics().await?;
        let of = |name| metrics.sum(name, &[]) as i64;
        let scraped =
            self.prometheus.until(RECEIVED, |sum| sum as i64 == of("squelch_occurrences_total")).await?;
        let queries = dashboard()?;
        let mut without_data = Vec::new();
        for (panel, query) in &queries {
            if self.prometheus.query(query).await?.is_empty() {
                without_data.push(format!("{panel}: {query}"));
            }
        }
        Ok(ReportedCounters {
            status,
            received_in_metrics: of("squelch_occurrences_total"),
            received_in_prometheus: scraped as i64,
            without_data,
            queries: queries.len(),
            pending_and_lost: of("squelch_pending_occurrences") + of("squelch_lost_occurrences_total"),
        })
    }

    /// Stops squelch, but not the cluster.
    pub(crate) async fn clear(self) -> Result<()> {
        self.squelch.end().await
    }

    pub(crate) async fn stored(&self, namespace: &str) -> Result<Vec<Event>> {
        Ok(e2e::events::of_others(&self.cluster.client, namespace).await?)
    }

    /// Requests for single Events that the API server has answered, through both APIs.
    async fn event_requests(&self) -> Result<usize> {
        let metrics = self.cluster.metrics().await?;
        let of = |verb| metrics.sum("apiserver_request_total", &[("resource", "events"), ("verb", verb)]);
        Ok(["GET", "POST", "PUT", "PATCH"].into_iter().map(of).sum::<f64>() as usize)
    }
}
