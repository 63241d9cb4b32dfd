//! The task that writes the reports and receipts.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use kube::Client;
use squelch_engine::Moment;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::clock;
use crate::log_limit::LogLimit;
use crate::policy::Store;
use crate::status::ReadCounters;

use super::content::{PolicyRef, PolicyUid, counters_of, report};
use super::plan::{DueReceipt, DueWrite, OutdatedReport, ReportLimits, ReportPlan};
use super::receipts::Receipt;
use super::requests::{ReportFailure, read, write, write_receipt};

/// Maximum interval at which due writes are looked for. That iterates over all namespaces.
const REFRESH_INTERVAL: Duration = Duration::from_secs(5);

/// Time without attempts after one has shown that the definition is not installed.
const NOT_INSTALLED_PAUSE: Duration = Duration::from_secs(60);

/// Maximum number of concurrent writes before exit.
const LAST_WRITES_IN_FLIGHT: usize = 16;

/// Writes the reports and receipts. No other component writes them.
pub struct ReportWriter {
    client: Client,
    store: Arc<Store>,
    read_counters: ReadCounters,
    active: watch::Receiver<bool>,
    plan: ReportPlan,
    /// The writes that were due at the last refresh, in reverse order.
    queue: Vec<DueWrite>,
    /// Time between two refreshes.
    refresh_interval: Duration,
    next_refresh: Moment,
    /// Minimum time between two writes.
    pause: Duration,
    /// Maximum length of the queue: the number of writes until the next refresh. Others are computed again then.
    max_queued: usize,
    warnings: LogLimit,
}

impl ReportWriter {
    /// Creates the task. `active`: whether this replica is active. Only the active replica writes reports.
    pub fn new(
        client: Client,
        store: Arc<Store>,
        read_counters: ReadCounters,
        active: watch::Receiver<bool>,
        limits: ReportLimits,
    ) -> Self {
        let refresh_interval = REFRESH_INTERVAL.min(limits.interval);
        let writes = refresh_interval.as_millis() / limits.pause().as_millis().max(1);
        Self {
            client,
            store,
            read_counters,
            active,
            plan: ReportPlan::new(limits),
            queue: Vec::new(),
            refresh_interval,
            next_refresh: Moment::default(),
            pause: limits.pause(),
            max_queued: usize::try_from(writes).unwrap_or(usize::MAX).max(1),
            warnings: LogLimit::new(),
        }
    }

    /// Writes reports while this replica is active, until `stop` is cancelled. Returns itself for [`Self::write_all_now`].
    pub async fn run(mut self, stop: CancellationToken) -> Self {
        while !stop.is_cancelled() {
            // `write_all_now` repeats a write that the stop interrupts.
            let Some(pause) = stop.run_until_cancelled(self.step(clock::now())).await else { break };
            stop.run_until_cancelled(tokio::time::sleep(pause)).await;
        }
        self
    }

    /// Writes all outdated reports before exit, without intervals between writes. A namespace in which nothing was suppressed
    /// may have the report of an earlier process, and gets no new one. Returns the number of failed writes. The caller sets
    /// the deadline.
    pub async fn write_all_now(&mut self) -> usize {
        if !self.store.listed() {
            return 0;
        }
        let policies = self.policies();
        let uids = self.store.load().namespace_uids().clone();
        let all = self.plan.all((self.read_counters)(), &policies, &uids, clock::wall());
        let (client, plan) = (&self.client, &self.plan);
        let writes = all.iter().map(|due| {
            let policies = &policies;
            async move {
                let base = match plan.base(&due.namespace) {
                    Some(base) => base.clone(),
                    None => plan.base_of(&due.namespace, read(client, &due.namespace).await?),
                };
                if base.uid.is_empty() && !due.may_create {
                    return Ok(base.uid);
                }
                let content = report(
                    &base.content,
                    &due.counted,
                    &plan.windows(&due.namespace),
                    policies,
                    clock::wall(),
                );
                write(client, &due.namespace, &base.uid, &content).await
            }
        });
        let written = futures::stream::iter(writes).buffer_unordered(LAST_WRITES_IN_FLIGHT);
        written
            .filter(|outcome| std::future::ready(matches!(outcome, Err(ReportFailure::Failed(_)))))
            .count()
            .await
    }

    /// Makes at most one write. Returns the time until the next step.
    async fn step(&mut self, now: Moment) -> Duration {
        if !*self.active.borrow() || !self.store.listed() {
            return self.refresh_interval;
        }
        if self.queue.is_empty() {
            if now < self.next_refresh {
                return self.next_refresh.since(now);
            }
            self.next_refresh = now.plus(self.refresh_interval);
            self.queue = self.plan.due(
                (self.read_counters)(),
                &self.policies(),
                self.store.load().namespace_uids(),
                now,
                clock::wall(),
            );
            self.queue.truncate(self.max_queued);
            self.queue.reverse();
        }
        match self.queue.pop() {
            None => self.refresh_interval,
            Some(DueWrite::Report(due)) => self.write_report(&due, now).await,
            Some(DueWrite::Receipt(due)) => self.write_receipt(&due, now).await,
        }
    }

    /// Writes a report. Returns the time until the next step.
    async fn write_report(&mut self, due: &OutdatedReport, now: Moment) -> Duration {
        let outcome = self.write(due).await;
        // A write in a deleted namespace is not repeated.
        let is_done = matches!(outcome, Ok(()) | Err(ReportFailure::NoNamespace));
        self.plan.attempted(due, is_done, now);
        match outcome {
            Ok(()) => {}
            Err(ReportFailure::NoNamespace) => self.plan.forget(&due.namespace),
            Err(ReportFailure::Deleted) => self.plan.deleted(&due.namespace),
            Err(ReportFailure::NotFound) => {
                warn!(
                    "the CustomResourceDefinition EventDropReport is not installed, no reports are written"
                );
                self.queue.clear();
                self.next_refresh = now.plus(NOT_INSTALLED_PAUSE);
                return NOT_INSTALLED_PAUSE;
            }
            Err(ReportFailure::Failed(error)) => self.warn("report", &due.namespace, &error, now),
        }
        self.pause
    }

    async fn write(&mut self, due: &OutdatedReport) -> Result<(), ReportFailure> {
        if self.plan.base(&due.namespace).is_none() {
            let base = read(&self.client, &due.namespace).await?;
            self.plan.read(&due.namespace, base);
        }
        let base = self.plan.base(&due.namespace).cloned().unwrap_or_default();
        let windows = self.plan.windows(&due.namespace);
        let content = report(&base.content, &due.counted, &windows, &self.policies(), clock::wall());
        let uid = write(&self.client, &due.namespace, &base.uid, &content).await?;
        self.plan.written(&due.namespace, uid);
        Ok(())
    }

    /// Writes a receipt. Returns the time until the next step.
    async fn write_receipt(&mut self, due: &DueReceipt, now: Moment) -> Duration {
        let policies = self.policies();
        let (Some(policy), Some(base)) = (policies.get(&due.policy), self.plan.base(&due.namespace)) else {
            return Duration::ZERO;
        };
        let receipt = Receipt {
            namespace: &due.namespace,
            report_uid: &base.uid,
            policy,
            policy_uid: &due.policy,
            total: counters_of(&due.policy, &base.content, Some(&due.counted)).dropped(),
            new: &due.new,
        };
        let outcome = write_receipt(&self.client, &receipt, clock::wall()).await;
        self.plan.attempted_receipt(due, outcome.is_ok(), now);
        if let Err(ReportFailure::Failed(error)) = outcome {
            self.warn("receipt", &due.namespace, &error, now);
        }
        self.pause
    }

    fn warn(&mut self, object: &'static str, namespace: &str, error: &str, now: Moment) {
        if let Some(suppressed) = self.warnings.permit(now) {
            warn!(object, namespace, error, suppressed, "a write failed, retrying later");
        }
    }

    fn policies(&self) -> BTreeMap<PolicyUid, PolicyRef> {
        let set = self.store.load();
        let policies = set.policies().iter().map(|policy| {
            (policy.id.uid.clone(), PolicyRef { kind: policy.kind(), name: policy.name.clone() })
        });
        policies.collect()
    }
}

#[cfg(test)]
mod tests;
