//! Compares the engine with recorded decisions of the real client-go, Event by Event, with the stages that
//! client-go has.
//!
//! `tests/vectors` has the files and describes their format.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use super::*;
use crate::testing::{by, engine, flush, rules};

/// An option of at least this value disables its stage.
const OUT_OF_THE_WAY: u32 = 1_000_000;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Options {
    max_events: u32,
    interval_seconds: u64,
    burst: u32,
    refill_seconds: f64,
}

#[derive(Deserialize)]
struct Header {
    options: Options,
}

#[derive(Deserialize)]
struct Emitter {
    component: String,
    host: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Regarding {
    kind: String,
    namespace: String,
    name: String,
    uid: String,
    api_version: String,
    field_path: String,
}

#[derive(Deserialize)]
struct Expected {
    outcome: String,
    count: i64,
    #[serde(default)]
    aggregated: bool,
}

#[derive(Deserialize)]
struct Line {
    at: f64,
    emitter: Emitter,
    regarding: Regarding,
    r#type: String,
    reason: String,
    message: String,
    expect: Expected,
}

impl Line {
    fn at(&self) -> Moment {
        Moment::from_epoch(Duration::from_millis((self.at * 1000.0).round() as u64))
    }

    /// Returns a CREATE under a name of its own.
    fn write<'a>(&'a self, name: &'a str) -> Observation<'a> {
        let mut write = Observation { name: Some(name.into()), user: "kubelet", ..crate::testing::write() };
        write.event = EventView {
            regarding: ObjectReference {
                api_version: self.regarding.api_version.as_str().into(),
                kind: self.regarding.kind.as_str().into(),
                namespace: self.regarding.namespace.as_str().into(),
                name: self.regarding.name.as_str().into(),
                uid: self.regarding.uid.as_str().into(),
                field_path: self.regarding.field_path.as_str().into(),
            },
            event_type: self.r#type.as_str().into(),
            reason: self.reason.as_str().into(),
            message: self.message.as_str().into(),
            source_component: self.emitter.component.as_str().into(),
            source_host: self.emitter.host.as_str().into(),
            ..EventView::default()
        };
        write
    }

    /// Returns client-go's decision as a disposition.
    fn disposition(&self) -> Disposition {
        match self.expect.outcome.as_str() {
            "plain" => Disposition::Admitted,
            "aggregated" => Disposition::Aggregated,
            "skipped" if self.expect.aggregated => Disposition::Aggregated,
            "skipped" => Disposition::Filtered,
            other => panic!("no outcome: {other}"),
        }
    }
}

/// Returns the files of a family: name, rules and lines.
fn files(family: &str) -> Vec<(String, Rules, Vec<Line>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors");
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.file_name().unwrap().to_string_lossy().starts_with(family));
    paths.sort();
    assert!(!paths.is_empty(), "no vectors of {family}");
    paths.iter().map(|path| file(path)).collect()
}

fn file(path: &Path) -> (String, Rules, Vec<Line>) {
    let unpacked = flate2::read::GzDecoder::new(std::fs::File::open(path).unwrap());
    let mut lines = BufReader::new(unpacked).lines().map(Result::unwrap);
    let header: Header = serde_json::from_str(&lines.next().unwrap()).unwrap();
    let lines = lines.map(|line| serde_json::from_str(&line).unwrap()).collect();
    (path.file_name().unwrap().to_string_lossy().into_owned(), as_rules(&header.options), lines)
}

fn as_rules(options: &Options) -> Rules {
    let aggregation = (options.max_events < OUT_OF_THE_WAY).then_some(AggregationRules {
        max_events: options.max_events,
        idle_timeout: Duration::from_secs(options.interval_seconds),
        group_by: GroupBy::Object,
    });
    let spam_filter = (options.burst < OUT_OF_THE_WAY).then(|| SpamFilterRules {
        bucket: BucketRules {
            burst: options.burst.try_into().unwrap(),
            refill_interval: Duration::from_secs_f64(options.refill_seconds),
        },
        per: Per { emitter: true, object: true, event_type: true, reason: false },
    });
    Rules { series: None, aggregation, spam_filter, ..rules() }
}

/// Returns the disposition of each line under `rules`.
fn decided(rules: &Rules, lines: &[Line]) -> Vec<Disposition> {
    let engine = engine();
    let decide = |(number, line): (usize, &Line)| {
        let name = format!("e.{number}");
        engine.decide(by(rules), &line.write(&name), line.at()).disposition.expect("a policy governs")
    };
    lines.iter().enumerate().map(decide).collect()
}

#[test]
fn aggregation_and_spam_filter_decide_each_event_as_client_go_does() {
    let (mut compared, mut witnesses) = (0, 0);
    for (name, rules, lines) in ["aggregation-", "spam-", "classic-"].into_iter().flat_map(files) {
        let from_the_first = rules.aggregation.is_some_and(|aggregation| aggregation.max_events == 1);
        for (number, (line, ours)) in lines.iter().zip(decided(&rules, &lines)).enumerate() {
            // A summary needs a stored Event of its group, so the first one is not aggregated.
            let witness = from_the_first && ours == Disposition::Admitted;
            assert!(
                witness || ours == line.disposition(),
                "{name}, event {number}: {ours:?}, {}",
                line.message
            );
            compared += 1;
            witnesses += u64::from(witness);
        }
    }
    assert_eq!((compared, witnesses), (7555, 68), "events compared, and those that are stored only here");
}

#[test]
fn a_series_counts_what_client_go_counts() {
    let (mut compared, mut keys) = (0, 0);
    for (name, rules, lines) in files("dedup-") {
        let forever = Duration::from_secs(365 * 24 * 3600);
        let series = Some(SeriesRules { idle_timeout: forever, heartbeat_interval: forever });
        let rules = Rules { series, aggregation: None, spam_filter: None, ..rules };
        let engine = engine();
        let known_policy = KnownPolicy {
            policy: rules.policy.clone(),
            namespace: Some("shop".into()),
            rules: Some(rules.clone().into()),
        };
        engine.revise(&[known_policy], Moment::default());
        let mut counts: BTreeMap<String, (String, i64)> = BTreeMap::new();
        for (number, line) in lines.iter().enumerate() {
            let event = format!("e.{number}");
            engine.decide(by(&rules), &line.write(&event), line.at());
            let Line { emitter: e, regarding: r, .. } = line;
            let fields = [
                &e.component,
                &e.host,
                &r.kind,
                &r.namespace,
                &r.name,
                &r.uid,
                &r.api_version,
                &r.field_path,
            ];
            let key = format!("{fields:?} {:?}", (&line.r#type, &line.reason, &line.message));
            counts.entry(key).or_insert((event, 0)).1 = line.expect.count;
            compared += 1;
        }
        engine.drain();
        let end = lines.last().unwrap().at();
        let mut stored = BTreeMap::new();
        for task in engine.tick(end, usize::MAX / 2) {
            if let Some(value) = flush(&engine, &task, Some(1), end) {
                stored.insert(task.name.to_string(), value);
            }
        }
        for (key, (event, count)) in counts {
            assert_eq!(stored.get(&event).copied().unwrap_or(1), count, "{name}: {key}");
            keys += 1;
        }
    }
    assert_eq!((compared, keys), (1050, 111), "events and series compared");
}

#[test]
fn with_the_defaults_nothing_is_refused_that_client_go_admits() {
    let (mut compared, mut more) = (0, 0);
    for (name, rules, lines) in files("default-") {
        for (number, (line, ours)) in lines.iter().zip(decided(&rules, &lines)).enumerate() {
            let theirs = line.disposition();
            let better = theirs == Disposition::Filtered && ours == Disposition::Admitted;
            assert!(ours == theirs || better, "{name}, event {number}: {ours:?}, client-go {theirs:?}");
            compared += 1;
            more += u64::from(better);
        }
    }
    // client-go also charges a token for an aggregated Event. Here merging is free.
    assert_eq!((compared, more), (2986, 10), "events compared, and those that only get through here");
}
