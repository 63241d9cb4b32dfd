//! The cluster with its nodes, and one measurement on it.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use e2e::accounts::SQUELCH;
use e2e::bench::gauges::Gauges;
use e2e::bench::limiter;
use e2e::figures::quantile;
use e2e::oracle::AuditLog;
use e2e::policy::Counters;
use e2e::process::Process;
use e2e::squelch::StartOptions;
use e2e::test::make_namespace;
use e2e::wait::{not_yet, pass};
use e2e::{Cluster, Policy, STORM, Squelch, events, wait_for};
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::DeleteParams;

use crate::churn::Churn;
use crate::nodes;
use crate::row::{Account, Evidence, Row, stored_writes};
use crate::setting::Setting;

/// Deadline of the flushes at the end.
const FLUSHING: Duration = Duration::from_secs(90);

/// The Event writes have ended if there was none for this long.
const QUIET: Duration = Duration::from_secs(5);

/// The running environment.
pub(crate) struct Scene {
    cluster: Cluster,
    folder: PathBuf,
    squelch_kubeconfig: PathBuf,
    /// Ends with the scene.
    _kwok: Process,
}

impl Scene {
    /// Starts kwok and this many nodes.
    pub(crate) async fn set(number: usize) -> Result<Self> {
        let cluster = Cluster::connect().await?;
        let folder = cluster.folder.join("bench");
        std::fs::create_dir_all(&folder)?;
        cluster.install().await?;
        let squelch_kubeconfig = SQUELCH.kubeconfig(&cluster, &folder).await?;
        let kwok = nodes::start(&cluster, &folder)?;
        let began = Instant::now();
        nodes::create(&cluster, number).await?;
        eprintln!("{number} nodes are ready after {:.0} s", began.elapsed().as_secs_f64());
        Ok(Self { cluster, folder, squelch_kubeconfig, _kwok: kwok })
    }

    /// Where the Events are stored, in the name of the section.
    pub(crate) fn etcds(&self) -> &'static str {
        if self.cluster.process_of("etcd-events").is_ok() { "own-etcd" } else { "common-etcd" }
    }

    /// Measures the rollouts in a new namespace.
    pub(crate) async fn measure(&self, setting: Setting, churn: Churn) -> Result<Row> {
        self.limit(setting == Setting::Limiter).await?;
        let client = &self.cluster.client;
        let namespace = make_namespace(client, "kwok").await?;
        let mut governed = None;
        if let Some(spec) = setting.spec()? {
            let options = StartOptions { as_installed: true, ..StartOptions::default() };
            let squelch = Squelch::start("squelch", &self.squelch_kubeconfig, &self.folder, options).await?;
            let kubectl = self.cluster.kubectl.namespace(&namespace);
            let policy = Policy::apply(client.clone(), &kubectl, &namespace, "bench", &spec).await?;
            governed = Some((squelch, policy));
        }
        self.quiet().await?;

        let log = AuditLog::from_now(&self.cluster.folder.join("logs/audit.log"))?;
        let gauges = Gauges::of(&self.cluster)?;
        let webhook = governed.as_ref().map(|(squelch, _)| squelch.id());
        let before = gauges.read(webhook).await?;
        let began = Instant::now();
        churn.run(client, &namespace).await?;
        let rollouts_seconds = began.elapsed().as_secs_f64();
        self.quiet().await?;
        let used = gauges.read(webhook).await?.since(&before);

        let mut counters = Counters::default();
        if let Some((squelch, policy)) = governed {
            squelch.stop_within(FLUSHING).await?;
            counters = policy.counters().await?;
            ensure!(counters.are_conserved(), "the counters do not add up: {counters:?}");
            ensure!(counters.failed_open == 0, "failed open: {counters:?}");
        }
        let evidence = self.evidence(&log, &namespace, counters).await?;
        self.remove(&namespace).await?;
        Ok(Row { setting, rollouts_seconds, used, evidence })
    }

    /// Deletes a namespace, and waits until it is gone: deletions are load, too.
    async fn remove(&self, namespace: &str) -> Result<()> {
        let namespaces: Api<Namespace> = Api::all(self.cluster.client.clone());
        namespaces.delete(namespace, &DeleteParams::background()).await?;
        wait_for("the namespace to be gone", STORM, async || {
            pass(Duration::from_secs(1)).await;
            let left = namespaces.get_metadata_opt(namespace).await.map_err(not_yet)?;
            left.map_or(Ok(()), |_| Err("it is terminating".to_owned()))
        })
        .await
    }

    /// Reads the audit log and the stored Events.
    async fn evidence(&self, log: &AuditLog, namespace: &str, counters: Counters) -> Result<Evidence> {
        let own_user = SQUELCH.user();
        let writes = log.writes(&self.cluster.client, namespace).await?;
        let stored = events::of_others(&self.cluster.client, namespace).await?;
        let stored = stored.iter().map(events::value).sum();
        let latency = |resource: &str| {
            let took = log.latencies(resource, |user| user != own_user)?;
            Ok::<_, anyhow::Error>([0.5, 0.99].map(|part| quantile(&took, part)))
        };
        Ok(Evidence {
            requests: writes.iter().filter(|write| write.user != own_user).count(),
            stored_writes: stored_writes(&writes),
            account: Account::of(&writes, &own_user, stored, counters),
            event_ms: latency("events")?,
            lease_ms: latency("leases")?,
        })
    }

    /// Starts the API server with or without EventRateLimit.
    async fn limit(&self, limited: bool) -> Result<()> {
        if limited {
            limiter::switch_on(&self.cluster, &self.folder).await
        } else {
            self.cluster.as_it_came_up().await
        }
    }

    /// Waits until the API server is asked to write no Event any more. squelch's probes are dry runs.
    async fn quiet(&self) -> Result<()> {
        let asked = async || {
            let metrics = self.cluster.metrics().await.map_err(not_yet)?;
            let writes = ["POST", "PUT", "PATCH", "DELETE"].map(|verb| {
                let labels = [("resource", "events"), ("verb", verb), ("dry_run", "")];
                metrics.sum("apiserver_request_total", &labels)
            });
            Ok::<_, String>(writes.iter().sum::<f64>())
        };
        wait_for("the Event writes to end", STORM, async || {
            let before = asked().await?;
            pass(QUIET).await;
            let more = asked().await? - before;
            if more == 0.0 { Ok(()) } else { Err(format!("{more} writes in {QUIET:?}")) }
        })
        .await
    }
}
