//! Export: the Event writes that a policy's `export` includes, as JSON lines to a file and as OpenTelemetry logs to a
//! collector, so that the full stream can be kept outside of the cluster.
//!
//! A review only puts a record into a bounded queue. A task per exporter delivers the records. Each occurrence is exported,
//! pending, or lost and counted.

mod delivery;
mod json_lines;
mod otlp;
mod queue;
mod record;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use jiff::Timestamp;
use squelch_engine::{Observation, Rules, Verdict};

pub use delivery::{Delivery, Exporter, Outcome, deliver};
pub use json_lines::JsonLines;
pub use otlp::{CollectorError, OtlpCollector};
use queue::Queue;
pub use record::ExportRecord;

use crate::metrics::{ExporterKind, Metrics};

/// The exporters of the process, for reviews.
#[derive(Default)]
pub struct Exporters {
    queues: Vec<Queue>,
    /// The number of the next record.
    next: AtomicU64,
}

impl Exporters {
    /// Adds an exporter. The returned half is for [`deliver`].
    pub fn add(&mut self, kind: ExporterKind, metrics: &Arc<Metrics>) -> Delivery {
        let (queue, delivery) = queue::new(kind, metrics);
        self.queues.push(queue);
        delivery
    }

    /// Exports a decided write if its policy includes it. `received` returns the time and the message, which other writes
    /// do not need. Never waits.
    pub fn export<'a>(
        &self,
        rules: &Rules,
        write: &Observation<'_>,
        verdict: &Verdict,
        received: impl FnOnce() -> (Timestamp, Cow<'a, str>),
    ) {
        let Some(disposition) = verdict.disposition else { return };
        if self.queues.is_empty() || !rules.export.includes(disposition) {
            return;
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (received_at, message) = received();
        let decided = (disposition, verdict.occurrences);
        let record = Arc::new(ExportRecord::new(number, received_at, rules, decided, write, &message));
        for queue in &self.queues {
            queue.offer(&record);
        }
    }
}
