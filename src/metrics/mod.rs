//! The metrics of the process. They are an API: [`table`] defines names, labels and meanings. Labels are closed sets, apart
//! from the bounded namespaces and policies, and never contain a reason, an object's name or a message.

mod api_servers;
mod engine_collector;
mod labels;
mod process;
mod registration;
mod scopes;
pub mod table;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use jiff::Timestamp;
use prometheus::{Histogram, IntCounter, IntGauge, IntGaugeVec, Registry, TextEncoder};

use api_servers::ProbeFailures;
pub use api_servers::{MAX_API_SERVERS, OTHER_API_SERVERS};
pub use labels::{
    ArmTransition, BackgroundTask, EntryTable, EvictionTable, ExportLoss, ExporterKind, FlushResult,
    PendingLimit, PolicyKind, PolicyState, ProbeResult, RestoredField, ReviewKind, ReviewResult,
    WatchedResource,
};
use registration::{
    counter, counters_by, export_losses, gauge, gauges, histogram, policies, register_process, reviews,
};
pub use scopes::InForce;
use scopes::Scopes;
use squelch_engine::{Engine, Moment};

use crate::clock;

/// The content type of [`Metrics::text`].
pub const CONTENT_TYPE: &str = prometheus::TEXT_FORMAT;

/// Maximum age of the last text that a scrape returns while another scrape collects.
const FRESH: Duration = Duration::from_secs(1);

/// All metrics of the process. Created once at start, and shared.
pub struct Metrics {
    registry: Registry,
    scopes: Arc<Mutex<Scopes>>,
    /// Locked by the scrape that collects.
    collecting: Mutex<()>,
    /// The last text, and the start of its collection.
    last: Mutex<Option<(Moment, String)>>,
    reviews: Vec<IntCounter>,
    admission_duration: Histogram,
    unauthenticated_requests: IntCounter,
    tls_handshake_failures: IntCounter,
    flushes: Vec<IntCounter>,
    own_reviews: IntCounter,
    policies: IntGaugeVec,
    refused_status_writes: IntCounter,
    watch_last_response: Vec<IntGauge>,
    active: IntGauge,
    armed: IntGauge,
    break_glass: IntGauge,
    configuration_writes: IntCounter,
    configuration_restores: Vec<IntCounter>,
    foreign_entries: IntGauge,
    probes: Vec<IntCounter>,
    probe_duration: Histogram,
    probe_answered: IntCounter,
    probe_failures: ProbeFailures,
    arm_transitions: Vec<IntCounter>,
    certificate_expiration: IntGauge,
    keys_rejected: IntCounter,
    task_failures: Vec<IntCounter>,
    exported: Vec<IntCounter>,
    export_lost: Vec<IntCounter>,
    export_pending: Vec<IntGauge>,
}

impl Metrics {
    /// Registers all metrics, with all label values that are known in advance.
    pub fn new() -> Self {
        let registry = Registry::new();
        let watches = gauges(&registry, &table::WATCH_LAST_RESPONSE);
        let export_pending = gauges(&registry, &table::EXPORT_PENDING);
        register_process(&registry);
        Self {
            reviews: reviews(&registry),
            admission_duration: histogram(&registry, &table::ADMISSION_DURATION, &table::ADMISSION_BUCKETS),
            unauthenticated_requests: counter(&registry, &table::UNAUTHENTICATED_REQUESTS),
            tls_handshake_failures: counter(&registry, &table::TLS_HANDSHAKE_FAILURES),
            flushes: counters_by(&registry, &table::FLUSHES, FlushResult::ALL, FlushResult::as_str),
            own_reviews: counter(&registry, &table::OWN_REVIEWS),
            policies: policies(&registry),
            refused_status_writes: counter(&registry, &table::REFUSED_STATUS_WRITES),
            watch_last_response: WatchedResource::ALL
                .iter()
                .map(|resource| watches.with_label_values(&[resource.as_str()]))
                .collect(),
            active: gauge(&registry, &table::ACTIVE),
            armed: gauge(&registry, &table::ARMED),
            break_glass: gauge(&registry, &table::BREAK_GLASS),
            configuration_writes: counter(&registry, &table::CONFIGURATION_WRITES),
            configuration_restores: counters_by(
                &registry,
                &table::CONFIGURATION_RESTORES,
                RestoredField::ALL,
                RestoredField::as_str,
            ),
            foreign_entries: gauge(&registry, &table::FOREIGN_ENTRIES),
            probes: counters_by(&registry, &table::PROBES, ProbeResult::ALL, ProbeResult::as_str),
            probe_duration: histogram(&registry, &table::PROBE_DURATION, &table::PROBE_BUCKETS),
            probe_answered: counter(&registry, &table::PROBES_ANSWERED),
            probe_failures: ProbeFailures::new(&registry),
            arm_transitions: counters_by(
                &registry,
                &table::ARM_TRANSITIONS,
                ArmTransition::ALL,
                ArmTransition::as_str,
            ),
            certificate_expiration: gauge(&registry, &table::CERTIFICATE_EXPIRATION),
            keys_rejected: counter(&registry, &table::REJECTED_KEYS),
            task_failures: counters_by(
                &registry,
                &table::TASK_FAILURES,
                BackgroundTask::ALL,
                BackgroundTask::as_str,
            ),
            exported: counters_by(&registry, &table::EXPORTED, ExporterKind::ALL, ExporterKind::as_str),
            export_lost: export_losses(&registry),
            export_pending: ExporterKind::ALL
                .iter()
                .map(|kind| export_pending.with_label_values(&[kind.as_str()]))
                .collect(),
            registry,
            scopes: Arc::default(),
            collecting: Mutex::default(),
            last: Mutex::default(),
        }
    }

    /// Registers the engine's metrics. Each scrape reads the counters that statuses are computed from. Call it once.
    pub fn register_engine(&self, engine: Arc<Engine>) {
        self.registry
            .register(Box::new(engine_collector::EngineCollector::new(engine, self.scopes.clone())))
            .expect("the engine is registered once, under names that no other metric has");
    }

    /// Counts an answered review.
    pub fn review(&self, kind: ReviewKind, result: ReviewResult) {
        self.reviews[kind as usize * ReviewResult::ALL.len() + result as usize].inc();
    }

    /// Records the time from the head of a review to its answer.
    pub fn admission(&self, took: Duration) {
        self.admission_duration.observe(took.as_secs_f64());
    }

    /// Counts a request on a path without an accepted token.
    pub fn unauthenticated_request(&self) {
        self.unauthenticated_requests.inc();
    }

    /// Counts a TLS handshake that failed because the client presented no accepted certificate.
    pub fn tls_handshake_failure(&self) {
        self.tls_handshake_failures.inc();
    }

    /// Counts a review of a write by squelch itself.
    pub fn own_review(&self) {
        self.own_reviews.inc();
    }

    /// Counts a flush.
    pub fn flushes(&self, result: FlushResult) {
        self.flushes[result as usize].inc();
    }

    /// Counts a refused write of a status.
    pub fn refused_status_write(&self) {
        self.refused_status_writes.inc();
    }

    /// Sets the number of policies of a kind in a state.
    pub fn policies(&self, kind: PolicyKind, state: PolicyState, number: usize) {
        let number = i64::try_from(number).unwrap_or(i64::MAX);
        self.policies.with_label_values(&[kind.as_str(), state.as_str()]).set(number);
    }

    /// Sets the cluster-scoped policies that are in force. Their series start at 0.
    pub fn in_force(&self, in_force: InForce) {
        locked(&self.scopes).set_in_force(in_force);
    }

    /// Sets the time of the last response to the list or watch of a resource.
    pub fn watch_response(&self, resource: WatchedResource, at: Timestamp) {
        self.watch_last_response[resource as usize].set(at.as_second());
    }

    /// Sets whether this replica is active.
    pub fn active(&self, active: bool) {
        self.active.set(i64::from(active));
    }

    /// Sets whether the webhook is armed.
    pub fn armed(&self, armed: bool) {
        self.armed.set(i64::from(armed));
    }

    /// Sets whether an administrator keeps the webhook disarmed.
    pub fn break_glass(&self, broken: bool) {
        self.break_glass.set(i64::from(broken));
    }

    /// Counts an accepted write of the webhook configuration.
    pub fn configuration_write(&self) {
        self.configuration_writes.inc();
    }

    /// Counts a field of the webhook configuration that was restored after a change by another writer.
    pub fn configuration_restore(&self, field: RestoredField) {
        self.configuration_restores[field as usize].inc();
    }

    /// Sets the number of entries in the webhook configuration that squelch did not write.
    pub fn foreign_entries(&self, number: usize) {
        self.foreign_entries.set(i64::try_from(number).unwrap_or(i64::MAX));
    }

    /// Counts a probe and records its duration.
    pub fn probe(&self, result: ProbeResult, took: Duration) {
        self.probes[result as usize].inc();
        self.probe_duration.observe(took.as_secs_f64());
    }

    /// Counts a probe that this replica's webhook signed.
    pub fn probe_answered(&self) {
        self.probe_answered.inc();
    }

    /// Replaces the API servers that are probed: each has a series of its own while there is capacity.
    pub fn probed_api_servers(&self, addresses: &BTreeSet<String>) {
        self.probe_failures.set_probed(addresses);
    }

    /// Counts a failed probe of an API server.
    pub fn probe_failure(&self, address: &str) {
        self.probe_failures.add(address);
    }

    /// Counts an arming or disarming.
    pub fn arm_transition(&self, to: ArmTransition) {
        self.arm_transitions[to as usize].inc();
    }

    /// Sets the expiration of the served certificate.
    pub fn certificate_expiration(&self, at: Timestamp) {
        self.certificate_expiration.set(at.as_second());
    }

    /// Counts a read of unusable keys from the Secret or the mounted files.
    pub fn keys_rejected(&self) {
        self.keys_rejected.inc();
    }

    /// Counts a background task that panicked or ended unexpectedly.
    pub fn task_failed(&self, task: BackgroundTask) {
        self.task_failures[task as usize].inc();
    }

    /// Adds occurrences that wait for their delivery to an exporter.
    pub fn export_pending(&self, exporter: ExporterKind, occurrences: u64) {
        self.export_pending[exporter as usize].add(signed(occurrences));
    }

    /// Counts pending occurrences as delivered.
    pub fn exported(&self, exporter: ExporterKind, occurrences: u64) {
        self.export_pending[exporter as usize].sub(signed(occurrences));
        self.exported[exporter as usize].inc_by(occurrences);
    }

    /// Counts pending occurrences as lost.
    pub fn export_lost(&self, exporter: ExporterKind, reason: ExportLoss, occurrences: u64) {
        self.export_pending[exporter as usize].sub(signed(occurrences));
        self.export_lost[exporter as usize * ExportLoss::ALL.len() + reason as usize].inc_by(occurrences);
    }

    /// Returns all metrics in the Prometheus text format. Collecting them iterates over all namespaces, so only one call
    /// collects at a time. Concurrent calls return the last text if it is at most 1 s old. Otherwise they wait.
    pub fn text(&self) -> String {
        let collecting = match self.collecting.try_lock() {
            Ok(collecting) => collecting,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                if let Some(text) = self.fresh_text() {
                    return text;
                }
                let collecting = locked(&self.collecting);
                if let Some(text) = self.fresh_text() {
                    return text;
                }
                collecting
            }
        };
        let began = clock::now();
        let text = TextEncoder::new()
            .encode_to_string(&self.registry.gather())
            .expect("every gathered family has a name and metrics");
        *locked(&self.last) = Some((began, text.clone()));
        drop(collecting);
        text
    }

    fn fresh_text(&self) -> Option<String> {
        let last = locked(&self.last);
        last.as_ref().filter(|(began, _)| clock::now().since(*began) < FRESH).map(|(_, text)| text.clone())
    }
}

fn signed(occurrences: u64) -> i64 {
    i64::try_from(occurrences).unwrap_or(i64::MAX)
}

/// Locks a mutex, also after a panic elsewhere: counters stay valid sums.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests;
