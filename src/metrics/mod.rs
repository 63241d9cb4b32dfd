//! What Prometheus sees. Metrics are an interface: names, labels and meanings stand in [`table`], every label is a
//! closed set, and no label holds a reason, an object's name or a message.

mod accounts;
mod labels;
mod process;
mod scopes;
pub mod table;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use jiff::Timestamp;
use prometheus::core::Collector;
use prometheus::{
    Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry, TextEncoder,
};

pub use labels::{
    BackgroundTask, EntryTable, EvictionTable, FlushResult, PendingLimit, PolicyCondition, PolicyKind,
    ProofResult, WatchedResource, WriteKind, WriteOutcome,
};
pub use scopes::InForce;
use scopes::Scopes;
use squelch_engine::{Engine, Moment};
use table::Row;

use crate::clock;

/// The content type of [`Metrics::text`].
pub const CONTENT_TYPE: &str = prometheus::TEXT_FORMAT;

/// While one scrape collects, others get the last text if it is no older than this.
const FRESH: Duration = Duration::from_secs(1);

/// Every metric of the process. One is made at start, and shared.
pub struct Metrics {
    registry: Registry,
    scopes: Arc<Mutex<Scopes>>,
    /// Held by the scrape that collects.
    collecting: Mutex<()>,
    /// The last text, and when its collection began.
    last: Mutex<Option<(Moment, String)>>,
    writes: Vec<IntCounter>,
    admission_duration: Histogram,
    stray_requests: IntCounter,
    refused_handshakes: IntCounter,
    flushes: Vec<IntCounter>,
    own_reviews: IntCounter,
    policies: IntGaugeVec,
    watch_last_response: Vec<IntGauge>,
    active: IntGauge,
    armed: IntGauge,
    break_glass: IntGauge,
    configuration_writes: IntCounter,
    foreign_entries: IntGauge,
    proofs: Vec<IntCounter>,
    probe_duration: Histogram,
    proofs_given: IntCounter,
    certificate_not_after: IntGauge,
    keys_refused: IntCounter,
    task_failures: Vec<IntCounter>,
}

/// Registers what is known of the process and of its build.
fn show_process(registry: &Registry) {
    let build_info = gauges(registry, &table::BUILD_INFO);
    build_info.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
    process::register(registry);
}

impl Metrics {
    /// Registers every metric, with every child that is known beforehand.
    pub fn new() -> Self {
        let registry = Registry::new();
        let writes = counters(&registry, &table::WRITES);
        let flushes = counters(&registry, &table::FLUSHES);
        let proofs = counters(&registry, &table::PROOFS);
        let watches = gauges(&registry, &table::WATCH_LAST_RESPONSE);
        let task_failures = counters(&registry, &table::TASK_FAILURES);
        show_process(&registry);
        Self {
            writes: WriteKind::ALL
                .iter()
                .flat_map(|kind| WriteOutcome::ALL.iter().map(move |outcome| (kind, outcome)))
                .map(|(kind, outcome)| {
                    writes.with_label_values(&[kind.operation(), kind.api(), outcome.as_str()])
                })
                .collect(),
            admission_duration: histogram(&registry, &table::ADMISSION_DURATION, &table::ADMISSION_BUCKETS),
            stray_requests: registered(&registry, IntCounter::with_opts(options(&table::STRAY_REQUESTS))),
            refused_handshakes: registered(
                &registry,
                IntCounter::with_opts(options(&table::REFUSED_HANDSHAKES)),
            ),
            flushes: FlushResult::ALL
                .iter()
                .map(|result| flushes.with_label_values(&[result.as_str()]))
                .collect(),
            own_reviews: registered(&registry, IntCounter::with_opts(options(&table::OWN_REVIEWS))),
            policies: policies(&registry),
            watch_last_response: WatchedResource::ALL
                .iter()
                .map(|resource| watches.with_label_values(&[resource.as_str()]))
                .collect(),
            active: registered(&registry, IntGauge::with_opts(options(&table::ACTIVE))),
            armed: registered(&registry, IntGauge::with_opts(options(&table::ARMED))),
            break_glass: registered(&registry, IntGauge::with_opts(options(&table::BREAK_GLASS))),
            configuration_writes: registered(
                &registry,
                IntCounter::with_opts(options(&table::CONFIGURATION_WRITES)),
            ),
            foreign_entries: registered(&registry, IntGauge::with_opts(options(&table::FOREIGN_ENTRIES))),
            proofs: ProofResult::ALL
                .iter()
                .map(|result| proofs.with_label_values(&[result.as_str()]))
                .collect(),
            probe_duration: histogram(&registry, &table::PROBE_DURATION, &table::PROBE_BUCKETS),
            proofs_given: registered(&registry, IntCounter::with_opts(options(&table::PROOFS_GIVEN))),
            certificate_not_after: registered(
                &registry,
                IntGauge::with_opts(options(&table::CERTIFICATE_NOT_AFTER)),
            ),
            keys_refused: registered(&registry, IntCounter::with_opts(options(&table::KEYS_REFUSED))),
            task_failures: BackgroundTask::ALL
                .iter()
                .map(|task| task_failures.with_label_values(&[task.as_str()]))
                .collect(),
            registry,
            scopes: Arc::default(),
            collecting: Mutex::default(),
            last: Mutex::default(),
        }
    }

    /// Shows the engine's accounts and gauges from now on, read anew at each scrape, so that the status and the
    /// metrics can never disagree. Once a process.
    pub fn show_engine(&self, engine: Arc<Engine>) {
        self.registry
            .register(Box::new(accounts::EngineCollector::new(engine, self.scopes.clone())))
            .expect("the engine is shown once, under names that only it has");
    }

    /// A review was answered.
    pub fn write(&self, kind: WriteKind, outcome: WriteOutcome) {
        self.writes[kind as usize * WriteOutcome::ALL.len() + outcome as usize].inc();
    }

    /// A review took this long, from its head to its answer.
    pub fn admission(&self, took: Duration) {
        self.admission_duration.observe(took.as_secs_f64());
    }

    /// A request came on a path without an accepted token.
    pub fn stray_request(&self) {
        self.stray_requests.inc();
    }

    /// A caller was turned away for want of a certificate.
    pub fn refused_handshake(&self) {
        self.refused_handshakes.inc();
    }

    /// A write of the operator's own was reviewed.
    pub fn own_review(&self) {
        self.own_reviews.inc();
    }

    /// A look of the operator at a stored Event ended so.
    pub fn flushes(&self, result: FlushResult) {
        self.flushes[result as usize].inc();
    }

    /// So many policies of this kind have this condition True.
    pub fn policies(&self, kind: PolicyKind, condition: PolicyCondition, number: usize) {
        let number = i64::try_from(number).unwrap_or(i64::MAX);
        self.policies.with_label_values(&[kind.as_str(), condition.as_str()]).set(number);
    }

    /// Takes the cluster-scoped policies that are in force: their series begin with 0.
    pub fn in_force(&self, in_force: InForce) {
        locked(&self.scopes).put_in_force(in_force);
    }

    /// The API server has sent something on the list or watch of this resource.
    pub fn watch_response(&self, resource: WatchedResource, at: Timestamp) {
        self.watch_last_response[resource as usize].set(at.as_second());
    }

    /// Whether this replica is the active one.
    pub fn active(&self, active: bool) {
        self.active.set(i64::from(active));
    }

    /// Whether the webhook's rules are in force.
    pub fn armed(&self, armed: bool) {
        self.armed.set(i64::from(armed));
    }

    /// Whether somebody keeps the webhook disarmed.
    pub fn break_glass(&self, broken: bool) {
        self.break_glass.set(i64::from(broken));
    }

    /// The API server has accepted a write of the webhook configuration.
    pub fn configuration_write(&self) {
        self.configuration_writes.inc();
    }

    /// The number of entries in the webhook configuration that squelch has not written.
    pub fn foreign_entries(&self, number: usize) {
        self.foreign_entries.set(i64::try_from(number).unwrap_or(i64::MAX));
    }

    /// A proof took this long and ended so.
    pub fn proof(&self, result: ProofResult, took: Duration) {
        self.proofs[result as usize].inc();
        self.probe_duration.observe(took.as_secs_f64());
    }

    /// The webhook has answered a proof with its mark.
    pub fn proof_given(&self) {
        self.proofs_given.inc();
    }

    /// When the served certificate ends.
    pub fn certificate_not_after(&self, at: Timestamp) {
        self.certificate_not_after.set(at.as_second());
    }

    /// Kept or mounted keys could not be used.
    pub fn keys_refused(&self) {
        self.keys_refused.inc();
    }

    /// A background task panicked or ended unexpectedly.
    pub fn task_failed(&self, task: BackgroundTask) {
        self.task_failures[task as usize].inc();
    }

    /// Returns all metrics in Prometheus' text format. To collect them takes as long as a pass over all namespaces, so
    /// one call collects at a time. Calls during that time return the last text if it is fresh, else wait.
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

/// A panic elsewhere leaves counters that are still sums.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

fn options(row: &Row) -> Opts {
    Opts::new(row.name, row.help)
}

fn counters(registry: &Registry, row: &Row) -> IntCounterVec {
    registered(registry, IntCounterVec::new(options(row), row.labels))
}

fn gauges(registry: &Registry, row: &Row) -> IntGaugeVec {
    registered(registry, IntGaugeVec::new(options(row), row.labels))
}

fn histogram(registry: &Registry, row: &Row, buckets: &[f64]) -> Histogram {
    let options = HistogramOpts::new(row.name, row.help).buckets(buckets.to_vec());
    registered(registry, Histogram::with_opts(options))
}

fn policies(registry: &Registry) -> IntGaugeVec {
    let policies = gauges(registry, &table::POLICIES);
    for kind in PolicyKind::ALL {
        for condition in PolicyCondition::ALL {
            policies.with_label_values(&[kind.as_str(), condition.as_str()]);
        }
    }
    policies
}

fn registered<M: Collector + Clone + 'static>(registry: &Registry, metric: prometheus::Result<M>) -> M {
    let metric = metric.expect("the table holds valid names, labels and buckets");
    registry.register(Box::new(metric.clone())).expect("no two rows of the table have one name");
    metric
}

#[cfg(test)]
mod tests;
