//! Delivers the records of a queue in batches, and tries again what may succeed later.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::queue::Account;
use super::record::ExportRecord;
use crate::clock;
use crate::log_limit::LogLimit;
use crate::metrics::{ExportLoss, ExporterKind};

/// Maximum number of records in a batch, which then has at most 4.6 MB. A collector accepts 20 MiB.
const MAX_BATCH: usize = 256;

/// The pause after the first failure. It doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// The longest pause, also if the collector asks for a longer one.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The time for the pending records when the process ends.
const LAST_RECORDS: Duration = Duration::from_secs(5);

/// The outcome of one attempt to deliver a batch.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Delivered, apart from this number of records that the receiver refused. It does not say which.
    Delivered {
        /// Number of refused records.
        refused: usize,
    },
    /// A later attempt can succeed.
    Failed {
        /// The cause, and what to do.
        error: String,
        /// The pause that the receiver asked for.
        pause: Option<Duration>,
    },
    /// No later attempt can succeed.
    Refused {
        /// The cause, and what to do.
        error: String,
    },
}

/// Where records are delivered to.
pub trait Exporter: Send + Sync {
    /// Attempts to deliver a batch.
    fn send(&self, batch: &[Arc<ExportRecord>]) -> impl Future<Output = Outcome> + Send;
}

/// The half of a queue that delivers.
pub struct Delivery {
    records: mpsc::Receiver<Arc<ExportRecord>>,
    account: Account,
    batch: Vec<Arc<ExportRecord>>,
}

impl Delivery {
    pub(super) fn new(records: mpsc::Receiver<Arc<ExportRecord>>, account: Account) -> Self {
        Self { records, account, batch: Vec::new() }
    }

    /// Waits for records. Returns false at the end. After `stop` the queue takes no more records.
    async fn next_batch(&mut self, stop: &CancellationToken) -> bool {
        if !self.records.is_closed() {
            tokio::select! {
                number = self.records.recv_many(&mut self.batch, MAX_BATCH) => return number > 0,
                () = stop.cancelled() => self.records.close(),
            }
        }
        self.records.recv_many(&mut self.batch, MAX_BATCH).await > 0
    }

    /// Counts the batch, of which the receiver has refused some records.
    fn delivered(&mut self, refused: usize) {
        let exported = self.batch.len().saturating_sub(refused);
        for (position, record) in self.batch.drain(..).enumerate() {
            if position < exported {
                self.account.exported(&record);
            } else {
                self.account.lost(&record, ExportLoss::Refused);
            }
        }
    }

    /// Counts the batch and everything that is still queued as lost. Returns their number.
    fn discard(&mut self) -> usize {
        self.records.close();
        while let Ok(record) = self.records.try_recv() {
            self.batch.push(record);
        }
        let lost = self.batch.len();
        for record in self.batch.drain(..) {
            self.account.lost(&record, ExportLoss::Shutdown);
        }
        lost
    }
}

/// Delivers until `stop`, and then the pending records, for at most five seconds.
pub async fn deliver(mut delivery: Delivery, exporter: impl Exporter, stop: CancellationToken) {
    let mut end = pin!(async {
        stop.cancelled().await;
        sleep(LAST_RECORDS).await;
    });
    let refusals = LogLimit::new();
    loop {
        tokio::select! {
            biased;
            () = &mut end => break,
            is_some = delivery.next_batch(&stop) => if !is_some { return },
        }
        tokio::select! {
            biased;
            () = &mut end => break,
            refused = attempt(delivery.account.kind(), &delivery.batch, &exporter, &stop, &refusals) => {
                delivery.delivered(refused);
            }
        }
    }
    let records = delivery.discard();
    if records > 0 {
        let exporter = delivery.account.kind().as_str();
        warn!(exporter, records, "shutdown timed out before all records were exported");
    }
}

/// Attempts to deliver a batch until it is delivered or refused. Returns the number of refused records. `stop` ends a
/// pause: the receiver may be back. `refusals` limits their log: clients decide how many batches there are.
async fn attempt(
    kind: ExporterKind,
    batch: &[Arc<ExportRecord>],
    to: &impl Exporter,
    stop: &CancellationToken,
    refusals: &LogLimit,
) -> usize {
    let exporter = kind.as_str();
    let (mut pause, mut failures) = (FIRST_PAUSE, 0_u32);
    loop {
        let (refused, error) = match to.send(batch).await {
            Outcome::Delivered { refused } => {
                if failures > 0 {
                    info!(exporter, failures, "export works again");
                }
                (refused, "the collector accepted the other records, see its log".to_owned())
            }
            Outcome::Refused { error } => (batch.len(), error),
            Outcome::Failed { error, pause: asked } => {
                failures += 1;
                let pause_now = asked.map_or(pause, |asked| asked.clamp(pause, LONGEST_PAUSE));
                warn!(exporter, error, retry_after_seconds = pause_now.as_secs(), "export failed, retrying");
                pause = (pause * 2).min(LONGEST_PAUSE);
                if stop.is_cancelled() {
                    sleep(pause_now).await;
                } else if stop.run_until_cancelled(sleep(pause_now)).await.is_none() {
                    pause = FIRST_PAUSE;
                }
                continue;
            }
        };
        if refused > 0
            && let Some(suppressed) = refusals.permit(clock::now())
        {
            warn!(exporter, records = refused, error, suppressed, "export refused, the records are lost");
        }
        return refused;
    }
}
