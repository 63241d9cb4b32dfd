//! The bounded queue between reviews and an exporter.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::mpsc::{self, error::TrySendError};

use super::delivery::Delivery;
use super::record::ExportRecord;
use crate::metrics::{ExportLoss, ExporterKind, Metrics};

/// Maximum number of queued records.
pub(super) const MAX_RECORDS: usize = 65_536;

/// Maximum size of the queued records in bytes.
pub(super) const MAX_BYTES: usize = 64 << 20;

/// The half that takes records.
pub(super) struct Queue {
    records: mpsc::Sender<Arc<ExportRecord>>,
    account: Account,
}

/// The account of one exporter: what it has received is exported, pending or lost.
#[derive(Clone)]
pub(super) struct Account {
    kind: ExporterKind,
    metrics: Arc<Metrics>,
    /// Size of the pending records in bytes.
    bytes: Arc<AtomicUsize>,
}

/// Creates a queue.
pub(super) fn new(kind: ExporterKind, metrics: &Arc<Metrics>) -> (Queue, Delivery) {
    let account = Account { kind, metrics: metrics.clone(), bytes: Arc::default() };
    let (sender, receiver) = mpsc::channel(MAX_RECORDS);
    (Queue { records: sender, account: account.clone() }, Delivery::new(receiver, account))
}

impl Queue {
    /// Queues a record, or counts it as lost.
    pub(super) fn offer(&self, record: &Arc<ExportRecord>) {
        if !self.account.admit(record) {
            return;
        }
        match self.records.try_send(record.clone()) {
            Ok(()) => {}
            Err(TrySendError::Full(record)) => self.account.lost(&record, ExportLoss::QueueFull),
            Err(TrySendError::Closed(record)) => self.account.lost(&record, ExportLoss::Shutdown),
        }
    }
}

impl Account {
    /// Counts a record as pending. Returns false if it has no place, and counts it as lost.
    fn admit(&self, record: &ExportRecord) -> bool {
        let size = record.size();
        self.metrics.export_pending(self.kind, record.occurrences);
        if self.bytes.fetch_add(size, Ordering::Relaxed) + size > MAX_BYTES {
            self.lost(record, ExportLoss::QueueFull);
            return false;
        }
        true
    }

    /// Counts a pending record as exported.
    pub(super) fn exported(&self, record: &ExportRecord) {
        self.bytes.fetch_sub(record.size(), Ordering::Relaxed);
        self.metrics.exported(self.kind, record.occurrences);
    }

    /// Counts a pending record as lost.
    pub(super) fn lost(&self, record: &ExportRecord, reason: ExportLoss) {
        self.bytes.fetch_sub(record.size(), Ordering::Relaxed);
        self.metrics.export_lost(self.kind, reason, record.occurrences);
    }

    pub(super) fn kind(&self) -> ExporterKind {
        self.kind
    }
}
