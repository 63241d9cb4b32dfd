//! The account of an exporter: exported + lost + pending = what was offered.

use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use squelch_engine::testing::{rules, write};
use squelch_engine::{Answer, Disposition, Exported, Rules, Stage, Verdict};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::clock;
use crate::metrics::ExportLoss;

/// A verdict on a write with three occurrences.
pub(super) fn verdict(disposition: Disposition) -> Verdict {
    Verdict { disposition: Some(disposition), stage: Stage::Series, occurrences: 3, answer: Answer::Allow }
}

/// ExportRecord `number`, with this message.
pub(super) fn record(number: u64, message: &str) -> Arc<ExportRecord> {
    let rules = rules();
    let decided = (Disposition::Muted, 3);
    Arc::new(ExportRecord::new(number, Timestamp::UNIX_EPOCH, &rules, decided, &write(), message))
}

struct Exporting {
    exporters: Exporters,
    metrics: Arc<Metrics>,
    rules: Rules,
}

impl Exporting {
    fn new() -> (Self, Delivery) {
        let metrics = Arc::new(Metrics::new());
        let mut exporters = Exporters::default();
        let delivery = exporters.add(ExporterKind::Otlp, &metrics);
        let rules = Rules { export: Exported::All, ..rules() };
        (Self { exporters, metrics, rules }, delivery)
    }

    fn offer(&self, message: &str) {
        let verdict = verdict(Disposition::Compacted);
        self.exporters.export(&self.rules, &write(), &verdict, || (Timestamp::UNIX_EPOCH, message.into()));
    }

    fn metric(&self, name: &str) -> u64 {
        let text = self.metrics.text();
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        line.rsplit(' ').next().unwrap().parse().unwrap()
    }

    fn exported(&self) -> u64 {
        self.metric(r#"squelch_exported_occurrences_total{exporter="otlp"}"#)
    }

    fn lost(&self, reason: ExportLoss) -> u64 {
        let reason = reason.as_str();
        self.metric(&format!(r#"squelch_export_lost_occurrences_total{{exporter="otlp",reason="{reason}"}}"#))
    }

    fn pending(&self) -> u64 {
        self.metric(r#"squelch_export_pending_occurrences{exporter="otlp"}"#)
    }
}

/// Answers with these outcomes in turn, and then never.
struct Scripted(Mutex<Vec<Outcome>>);

impl Scripted {
    fn new(outcomes: impl IntoIterator<Item = Outcome, IntoIter: DoubleEndedIterator>) -> Self {
        Self(Mutex::new(outcomes.into_iter().rev().collect()))
    }
}

impl Exporter for Scripted {
    async fn send(&self, _: &[Arc<ExportRecord>]) -> Outcome {
        let next = self.0.lock().unwrap().pop();
        match next {
            Some(outcome) => outcome,
            None => std::future::pending().await,
        }
    }
}

fn failed(pause: Option<Duration>) -> Outcome {
    Outcome::Failed { error: "x".into(), pause }
}

/// Ends the queue, and delivers everything in it.
async fn delivered(exporting: &mut Exporting, delivery: Delivery, exporter: impl Exporter) {
    // Without a sender the queue ends.
    exporting.exporters = Exporters::default();
    deliver(delivery, exporter, CancellationToken::new()).await;
}

#[test]
fn only_writes_that_the_policy_includes_are_exported() {
    let (exporting, _delivery) = Exporting::new();
    let exports = |exporters: &Exporters, rules: &Rules, verdict: &Verdict| {
        let mut exported = false;
        exporters.export(rules, &write(), verdict, || {
            exported = true;
            (Timestamp::UNIX_EPOCH, "".into())
        });
        exported
    };
    let included = |export: Exported| {
        let rules = Rules { export, ..rules() };
        assert!(!exports(&exporting.exporters, &rules, &Verdict::passed(Stage::Edit)));
        let muted = verdict(Disposition::Muted);
        assert!(!exports(&Exporters::default(), &rules, &muted), "without an exporter");
        let included = |it: &Disposition| exports(&exporting.exporters, &rules, &verdict(*it));
        let names = Disposition::ALL.iter().filter(|it| included(it)).map(|it| it.as_str());
        names.collect::<Vec<_>>()
    };
    assert_eq!(included(Exported::None), Vec::<&str>::new());
    assert_eq!(included(Exported::Dropped), ["filtered", "throttled", "muted"]);
    assert_eq!(included(Exported::Suppressed), ["compacted", "aggregated", "filtered", "throttled", "muted"]);
    assert_eq!(included(Exported::All).len(), Disposition::ALL.len());
}

#[tokio::test(start_paused = true)]
async fn a_failed_batch_is_sent_again_and_a_refused_one_is_lost() {
    let (mut exporting, delivery) = Exporting::new();
    for _ in 0..300 {
        exporting.offer("m");
    }
    assert_eq!(exporting.pending(), 900);
    // Batches of 256 and 44 records.
    let outcomes = [
        failed(None),
        failed(None),
        Outcome::Delivered { refused: 6 },
        Outcome::Refused { error: "x".into() },
    ];
    let began = clock::now();
    delivered(&mut exporting, delivery, Scripted::new(outcomes)).await;
    assert_eq!(clock::now().since(began).as_secs(), 1 + 2);
    assert_eq!(exporting.exported(), 3 * 250);
    assert_eq!((exporting.lost(ExportLoss::Refused), exporting.pending()), (3 * 50, 0));
}

#[tokio::test(start_paused = true)]
async fn refused_batches_have_one_log_line_in_ten_seconds() {
    let lines = Arc::<AtomicUsize>::default();
    let counted = lines.clone();
    let writer = move || {
        counted.fetch_add(1, Ordering::Relaxed);
        std::io::sink()
    };
    let _guard = tracing::subscriber::set_default(tracing_subscriber::fmt().with_writer(writer).finish());
    let (mut exporting, delivery) = Exporting::new();
    for _ in 0..1000 {
        exporting.offer("m");
    }
    // Four batches. The collector refuses all records of three, and some of one.
    let refused = || Outcome::Refused { error: "x".into() };
    let outcomes = [refused(), refused(), Outcome::Delivered { refused: 1 }, refused()];
    delivered(&mut exporting, delivery, Scripted::new(outcomes)).await;
    assert_eq!(exporting.exported(), 3 * 255);
    assert_eq!(lines.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn pauses_double_up_to_thirty_seconds_and_the_collector_can_ask_for_longer_ones() {
    for (asked, expected) in
        [(None, 1 + 2 + 4 + 8 + 16 + 30 + 30), (Some(20), 5 * 20 + 30 + 30), (Some(3600), 7 * 30)]
    {
        let (mut exporting, delivery) = Exporting::new();
        exporting.offer("m");
        let failures = (0..7).map(|_| failed(asked.map(Duration::from_secs)));
        let outcomes: Vec<_> = failures.chain([Outcome::Delivered { refused: 0 }]).collect();
        let began = clock::now();
        delivered(&mut exporting, delivery, Scripted::new(outcomes)).await;
        assert_eq!(clock::now().since(began).as_secs(), expected, "{asked:?}");
        assert_eq!(exporting.exported(), 3);
    }
}

#[tokio::test(start_paused = true)]
async fn at_the_end_pending_records_have_five_seconds() {
    let (exporting, delivery) = Exporting::new();
    for _ in 0..1000 {
        exporting.offer("m");
    }
    let stop = CancellationToken::new();
    stop.cancel();
    let began = clock::now();
    deliver(delivery, Scripted::new([Outcome::Delivered { refused: 0 }]), stop).await;
    assert_eq!(clock::now().since(began).as_secs(), 5);
    // What comes later has no place.
    exporting.offer("m");
    assert_eq!(exporting.exported(), 3 * 256);
    assert_eq!((exporting.lost(ExportLoss::Shutdown), exporting.pending()), (3 * (1000 - 256 + 1), 0));
}

#[tokio::test(start_paused = true)]
async fn the_end_interrupts_a_pause() {
    let (exporting, delivery) = Exporting::new();
    exporting.offer("m");
    let (stop, began) = (CancellationToken::new(), clock::now());
    let stopping = async {
        tokio::time::sleep(Duration::from_secs(10)).await;
        stop.cancel();
    };
    let outcomes = [failed(Some(Duration::from_secs(30))), failed(None), Outcome::Delivered { refused: 0 }];
    tokio::join!(deliver(delivery, Scripted::new(outcomes), stop.clone()), stopping);
    assert_eq!((exporting.exported(), exporting.lost(ExportLoss::Shutdown)), (3, 0));
    assert_eq!(clock::now().since(began).as_secs(), 10 + 1);
}

#[tokio::test(start_paused = true)]
async fn the_queue_is_bounded_by_records_and_by_bytes() {
    for (message, most) in [("m", queue::MAX_RECORDS), (&*"m".repeat(9000), queue::MAX_BYTES / 4096)] {
        let (mut exporting, delivery) = Exporting::new();
        for _ in 0..queue::MAX_RECORDS + 7 {
            exporting.offer(message);
        }
        let offered = 3 * (queue::MAX_RECORDS as u64 + 7);
        let lost = exporting.lost(ExportLoss::QueueFull);
        assert_eq!(exporting.pending() + lost, offered);
        let pending = usize::try_from(exporting.pending() / 3).unwrap();
        assert!(pending <= most && pending > most * 3 / 4, "{pending} pending, {most} at most");
        let batches = (0..pending.div_ceil(256)).map(|_| Outcome::Delivered { refused: 0 });
        delivered(&mut exporting, delivery, Scripted::new(batches.collect::<Vec<_>>())).await;
        assert_eq!((exporting.exported() + lost, exporting.pending()), (offered, 0));
    }
}

#[test]
fn the_texts_of_a_record_are_cut_between_characters() {
    let mut write = write();
    write.event.reason = "ü".repeat(2000).into();
    let rules = rules();
    let message = format!("a{}", "ü".repeat(4000));
    let decided = (Disposition::Admitted, -1);
    let record = ExportRecord::new(1, Timestamp::UNIX_EPOCH, &rules, decided, &write, &message);
    assert_eq!(record.message.len(), 4095);
    assert_eq!(record.occurrences, 0);
    let reason = record.attributes().find(|(name, _)| *name == "k8s.event.reason").unwrap().1;
    assert!(matches!(reason, record::Attribute::Text(text) if text.len() == 1024));
    assert!(record.size() < 8192);
}
