use jiff::Timestamp;

use super::*;
use crate::clock;
use crate::engine::testing::{at, by, rules, write};
use crate::engine::{Engine, Observation, PolicyId, Rules, Settings};

fn all() -> Metrics {
    let metrics = Metrics::new();
    metrics.show_engine(Arc::new(crate::engine::testing::engine()));
    metrics
}

#[test]
fn what_is_gathered_is_what_the_table_says() {
    let metrics = all();
    let text = metrics.text();
    for row in table::ALL {
        let by_scope = row.labels.contains(&"policy");
        let shown = text.contains(&format!("# HELP {} {}\n", row.name, row.help));
        assert!(shown || by_scope, "{} is not shown", row.name);
    }
    for line in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let name = line.split_whitespace().next().unwrap();
        let known = table::ALL.iter().any(|row| row.name == name) || name.starts_with("process_");
        assert!(known, "{name} is not in the table");
    }
}

#[test]
fn names_end_as_their_type_wants() {
    for row in table::ALL {
        assert_eq!(row.name.ends_with("_total"), row.metric_type == table::Type::Counter, "{}", row.name);
        assert!(row.help.ends_with('.') && row.name.starts_with("squelch_"), "{}", row.name);
    }
}

#[test]
fn known_children_exist_from_the_start() {
    let text = all().text();
    assert!(
        text.contains(r#"squelch_writes_total{api="core",operation="create",outcome="already_exists"} 0"#),
        "{text}"
    );
    assert!(text.contains(r#"squelch_flushes_total{result="confirmed"} 0"#));
    assert!(text.contains(r#"squelch_policies{condition="Accepted",kind="ClusterEventPolicy"} 0"#));
}

#[test]
fn a_scrape_of_ten_thousand_namespaces_is_small() {
    let settings =
        Settings { seed: [3, 4], max_series: 100_000, max_owing: 100_000, began: Timestamp::UNIX_EPOCH };
    let engine = Engine::new(settings);
    for number in 0..10_000 {
        let policy = number % 2_000;
        let id = PolicyId { display: format!("p{policy}").into(), uid: format!("u{policy}").into() };
        let rules = Rules { policy: id, ..rules() };
        let namespace = format!("n{number}");
        engine.decide(by(&rules), &Observation { namespace: &namespace, ..write() }, at(0));
    }
    let metrics = Metrics::new();
    metrics.show_engine(Arc::new(engine));
    let began = clock::now();
    let text = metrics.text();
    println!("a scrape took {} ms", clock::now().since(began).as_millis());
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    let series = samples.clone().count();
    assert!((4_500..5_000).contains(&series), "{series} series");
    let received = samples.filter(|line| line.starts_with("squelch_events_total"));
    let received: u64 = received.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum();
    assert_eq!(received, 10_000, "what has no children of its own is in `other`");
}

#[test]
fn each_counter_counts_its_own() {
    let metrics = all();
    for (kind, outcome) in
        WriteKind::ALL.iter().flat_map(|kind| WriteOutcome::ALL.iter().map(move |outcome| (*kind, *outcome)))
    {
        metrics.write(kind, outcome);
        let (operation, api, outcome) = (kind.operation(), kind.api(), outcome.as_str());
        let line = format!(
            "squelch_writes_total{{api=\"{api}\",operation=\"{operation}\",outcome=\"{outcome}\"}} 1\n"
        );
        assert!(metrics.text().contains(&line), "{line}");
    }
    for result in FlushResult::ALL {
        metrics.flushes(*result);
        let line = format!("squelch_flushes_total{{result=\"{}\"}} 1\n", result.as_str());
        assert!(metrics.text().contains(&line), "{line}");
    }
    for result in ProofResult::ALL {
        metrics.proof(*result, Duration::from_millis(2));
        let line = format!("squelch_proofs_total{{result=\"{}\"}} 1\n", result.as_str());
        assert!(metrics.text().contains(&line), "{line}");
    }
    metrics.armed(true);
    metrics.certificate_not_after("2026-11-21T08:00:00Z".parse().unwrap());
    metrics.admission(Duration::from_micros(7));
    let text = metrics.text();
    assert!(text.contains("squelch_armed 1\n"));
    assert!(text.contains("squelch_serving_certificate_not_after_seconds 1795248000\n"), "{text}");
    assert!(text.contains("squelch_admission_duration_seconds_bucket{le=\"0.00001\"} 1\n"), "{text}");
}
