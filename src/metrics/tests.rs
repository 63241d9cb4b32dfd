use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, mpsc};

use jiff::Timestamp;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use squelch_engine::testing::{at, by, rules, write};
use squelch_engine::{Engine, Observation, PolicyId, Rules, Settings};

use super::*;
use crate::clock;

fn all() -> Metrics {
    let metrics = Metrics::new();
    metrics.register_engine(Arc::new(squelch_engine::testing::engine()));
    metrics
}

#[test]
fn the_table_lists_all_gathered_metrics() {
    let metrics = all();
    let text = metrics.text();
    for row in table::ALL {
        let by_scope = row.labels.contains(&"policy");
        let shown = text.contains(&format!("# HELP {} {}\n", row.name, row.help));
        assert!(shown || by_scope, "{} is not gathered", row.name);
    }
    for line in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let name = line.split_whitespace().next().unwrap();
        let known = table::ALL.iter().any(|row| row.name == name) || name.starts_with("process_");
        assert!(known, "{name} is not in the table");
    }
}

#[test]
fn only_names_of_counters_end_in_total() {
    for row in table::ALL {
        assert_eq!(row.name.ends_with("_total"), row.metric_type == table::Type::Counter, "{}", row.name);
        assert!(row.help.ends_with('.') && row.name.starts_with("squelch_"), "{}", row.name);
    }
}

#[test]
fn known_label_values_are_exported_from_the_start() {
    let text = all().text();
    assert!(
        text.contains(r#"squelch_reviews_total{api="core",operation="create",result="already_exists"} 0"#),
        "{text}"
    );
    assert!(text.contains(r#"squelch_flushes_total{result="confirmed"} 0"#));
    assert!(text.contains(r#"squelch_policies{kind="ClusterEventPolicy",state="invalid"} 0"#));
}

#[test]
fn a_scrape_of_ten_thousand_namespaces_has_a_bounded_size() {
    let settings = Settings {
        seed: [3, 4],
        max_series: 100_000,
        max_pending_series: 100_000,
        began: Timestamp::UNIX_EPOCH,
    };
    let engine = Engine::new(settings);
    for number in 0..10_000 {
        let policy = number % 2_000;
        let id = PolicyId { display: format!("p{policy}").into(), uid: format!("u{policy}").into() };
        let rules = Rules { policy: id, ..rules() };
        let namespace = format!("n{number}");
        engine.decide(by(&rules), &Observation { namespace: &namespace, ..write() }, at(0));
    }
    let metrics = Metrics::new();
    metrics.register_engine(Arc::new(engine));
    metrics.text();
    let began = clock::now();
    let text = metrics.text();
    println!("a scrape took {} ms", clock::now().since(began).as_millis());
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    let series = samples.clone().count();
    assert!((5_000..5_500).contains(&series), "{series} series");
    let received = samples.filter(|line| line.starts_with("squelch_occurrences_total"));
    let received: u64 = received.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum();
    assert_eq!(received, 10_000, "`_other` has the counts of scopes without a series of their own");
}

#[test]
fn each_method_changes_its_metric() {
    let metrics = all();
    for (kind, result) in
        ReviewKind::ALL.iter().flat_map(|kind| ReviewResult::ALL.iter().map(move |result| (*kind, *result)))
    {
        metrics.review(kind, result);
        let (operation, api, result) = (kind.operation(), kind.api(), result.as_str());
        let line = format!(
            "squelch_reviews_total{{api=\"{api}\",operation=\"{operation}\",result=\"{result}\"}} 1\n"
        );
        assert!(metrics.text().contains(&line), "{line}");
    }
    for result in FlushResult::ALL {
        metrics.flushes(*result);
        let line = format!("squelch_flushes_total{{result=\"{}\"}} 1\n", result.as_str());
        assert!(metrics.text().contains(&line), "{line}");
    }
    for result in ProbeResult::ALL {
        metrics.probe(*result, Duration::from_millis(2));
        let line = format!("squelch_probes_total{{result=\"{}\"}} 1\n", result.as_str());
        assert!(metrics.text().contains(&line), "{line}");
    }
    let at = "2026-11-21T08:00:00Z".parse().unwrap();
    for resource in WatchedResource::ALL {
        metrics.watch_response(*resource, at);
        let name = "squelch_watch_last_response_timestamp_seconds";
        let line = format!("{name}{{resource=\"{}\"}} 1795248000\n", resource.as_str());
        assert!(metrics.text().contains(&line), "{line}");
    }
    metrics.foreign_entries(2);
    metrics.configuration_write();
    for task in BackgroundTask::ALL {
        metrics.task_failed(*task);
        let line = format!("squelch_task_failures_total{{task=\"{}\"}} 1\n", task.as_str());
        assert!(metrics.text().contains(&line), "{line}");
    }
    metrics.armed(true);
    metrics.certificate_expiration("2026-11-21T08:00:00Z".parse().unwrap());
    metrics.admission(Duration::from_micros(7));
    let text = metrics.text();
    assert!(text.contains("squelch_armed 1\n"));
    assert!(text.contains("squelch_webhook_foreign_entries 2\n"));
    assert!(text.contains("squelch_webhook_configuration_writes_total 1\n"));
    assert!(text.contains("squelch_serving_certificate_expiration_timestamp_seconds 1795248000\n"), "{text}");
    assert!(text.contains("squelch_admission_duration_seconds_bucket{le=\"0.00001\"} 1\n"), "{text}");
}

/// Calls its function during the collection, and collects nothing.
struct Slow<F>(F);

impl<F: Fn() + Send + Sync> Collector for Slow<F> {
    fn desc(&self) -> Vec<&Desc> {
        Vec::new()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        (self.0)();
        Vec::new()
    }
}

#[test]
fn only_one_scrape_collects_at_a_time() {
    const SCRAPES: usize = 8;
    let (metrics, collecting) = (Metrics::new(), AtomicUsize::new(0));
    let alone = move || {
        assert_eq!(collecting.fetch_add(1, Ordering::SeqCst), 0, "two scrapes collect at the same time");
        std::thread::yield_now();
        collecting.fetch_sub(1, Ordering::SeqCst);
    };
    metrics.registry.register(Box::new(Slow(alone))).unwrap();
    let together = Barrier::new(SCRAPES);
    std::thread::scope(|scope| {
        for _ in 0..SCRAPES {
            scope.spawn(|| {
                together.wait();
                assert!(metrics.text().contains("squelch_build_info"));
            });
        }
    });
}

#[tokio::test(start_paused = true)]
async fn a_concurrent_scrape_returns_the_last_text() {
    let metrics = Metrics::new();
    let (entered, has_entered) = mpsc::channel();
    let (leave, may_leave) = mpsc::channel();
    let may_leave = Mutex::new(may_leave);
    let slow = move || {
        entered.send(()).unwrap();
        locked(&may_leave).recv().unwrap();
    };
    metrics.registry.register(Box::new(Slow(slow))).unwrap();
    leave.send(()).unwrap();
    let before = metrics.text();
    has_entered.recv().unwrap();
    metrics.active(true);
    std::thread::scope(|scope| {
        let collecting = scope.spawn(|| metrics.text());
        has_entered.recv().unwrap();
        assert_eq!(metrics.text(), before);
        leave.send(()).unwrap();
        assert!(collecting.join().unwrap().contains("squelch_active 1"));
    });
}
