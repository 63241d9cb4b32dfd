//! A replay decides as the webhook does. The same storm is sent as reviews through the router in this process, with a
//! clock that the test moves and the same flushes, and as a trace through `squelch replay`.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test, also in the functions around it")]

#[path = "replay/storm.rs"]
mod storm;

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use bytes::Bytes;
use clap::Parser;
use futures::FutureExt;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::header::CONTENT_TYPE;
use jiff::Timestamp;
use kube::core::DynamicObject;
use serde::Deserialize;
use serde_json::Value;
use squelch::clock::Clock;
use squelch::config::{Cli, Command};
use squelch::policy::{Index, Set, Store};
use squelch::replay::{Flusher, engine};
use squelch::tls::PathToken;
use squelch::webhook::{Router, Webhook, path, review, router};
use squelch_engine::{
    Answer, Denial, Disposition, Engine, KnownPolicy, Moment, ScopeCounters, Stage, Verdict,
};

use storm::{OWN_USER, Storm, Written};

const WRITES: usize = 100_000;

/// Policies of every kind; ns-8 and ns-9 have none.
const POLICIES: &str = include_str!("replay/policies.yaml");

/// A line of `--decisions`.
#[derive(Debug, Deserialize)]
struct Decision {
    at: f64,
    namespace: String,
    name: String,
    disposition: String,
    stage: String,
    occurrences: i64,
    answer: String,
    policy: Option<String>,
}

/// The webhook in process.
struct Served {
    engine: Arc<Engine>,
    flusher: Flusher,
    clock: Clock,
    router: Router,
    path: String,
    flushes: u64,
    /// When the process began, in milliseconds of the Unix epoch.
    began: u64,
}

/// The decision of the webhook on a write.
struct Seen {
    answer: &'static str,
    /// The disposition in the refusal.
    said: Option<String>,
    /// Disposition, occurrences and policy, as far as the scopes have changed.
    counted: Option<(Disposition, i64, String)>,
}

impl Served {
    /// A webhook whose process started at this time, in milliseconds of the Unix epoch.
    fn new(began: u64) -> Self {
        let engine = Arc::new(engine());
        let set = policies();
        let known = set.policies().iter().map(|policy| KnownPolicy {
            policy: policy.id.clone(),
            namespace: policy.namespace.clone(),
            rules: policy.outcome.as_ref().as_ref().ok().map(|compiled| Arc::new(compiled.rules.clone())),
        });
        engine.revise(&known.collect::<Vec<_>>(), Moment::default());
        let policies = Store::default();
        policies.swap(set);
        let wall = Timestamp::from_millisecond(began as i64).unwrap();
        let (clock, token) = (Clock::manual_from(wall), PathToken::generate().unwrap());
        let webhook = Webhook {
            clock: clock.clone(),
            ..Webhook::new(engine.clone(), Arc::new(policies), OWN_USER, token.clone())
        };
        let (router, path) = (router(Arc::new(webhook)), path(&token));
        Self { engine, flusher: Flusher::default(), clock, router, path, flushes: 0, began }
    }

    fn review(&mut self, number: usize, write: &Written) -> Seen {
        let at = Duration::from_millis(write.at - self.began);
        let flushes = &mut self.flushes;
        self.flusher.advance(&self.engine, Moment::from_epoch(at), |_| *flushes += 1);
        self.clock.set(at);
        let before = self.engine.counters();
        let bytes = Bytes::from(write.review(number));
        let request = Request::post(&self.path).header(CONTENT_TYPE, "application/json");
        let request = request.body(Full::new(bytes.clone())).unwrap();
        let response = self.router.route(request).now_or_never().unwrap();
        let answer = response.into_body().collect().now_or_never().unwrap().unwrap().to_bytes();
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        let (word, answer, said) = answered(&answer["response"]);
        let counted = counted(&before, &self.engine.counters());
        let verdict = Verdict {
            disposition: counted.as_ref().map(|(disposition, ..)| *disposition),
            stage: Stage::Admit,
            occurrences: counted.as_ref().map_or(0, |(_, occurrences, _)| *occurrences),
            answer,
        };
        let review = review::decode(&bytes).unwrap();
        let seen = review.observe(OWN_USER, Timestamp::UNIX_EPOCH).unwrap();
        self.flusher.decided(&self.engine, &seen, &verdict, 1, Moment::from_epoch(at));
        Seen { answer: word, said, counted }
    }
}

fn policies() -> Set {
    let mut index = Index::default();
    for document in serde_saphyr::from_multiple::<Value>(POLICIES).unwrap() {
        let mut object: DynamicObject = serde_json::from_value(document).unwrap();
        object.metadata.uid = object.metadata.name.clone();
        index.apply(&object);
    }
    index.set()
}

/// The name of an answer, the answer, and the last word of a refusal.
fn answered(response: &Value) -> (&'static str, Answer, Option<String>) {
    let said = || response["status"]["message"].as_str().unwrap().rsplit(' ').next().map(ToOwned::to_owned);
    if !response["allowed"].as_bool().unwrap() {
        return match response["status"]["code"].as_u64().unwrap() {
            409 => ("409", Answer::Deny(Denial::AlreadyExists), said()),
            403 => ("403", Answer::Deny(Denial::Forbidden), said()),
            other => panic!("refused with {other}"),
        };
    }
    let Some(patch) = response["patch"].as_str() else { return ("allow", Answer::Allow, None) };
    let patch = base64::engine::general_purpose::STANDARD.decode(patch).unwrap();
    let patch: Value = serde_json::from_slice(&patch).unwrap();
    match patch[0]["path"].as_str() {
        Some("/metadata/name") => {
            ("allow", Answer::AllowNamed(patch[0]["value"].as_str().unwrap().to_owned()), None)
        }
        _ => ("restore", Answer::Restore, None),
    }
}

/// What one write has changed in the counters.
fn counted(before: &[ScopeCounters], after: &[ScopeCounters]) -> Option<(Disposition, i64, String)> {
    let mut changes = after.iter().flat_map(|now| {
        let then = before.iter().find(|then| {
            (&then.namespace, &then.policy, then.mode) == (&now.namespace, &now.policy, now.mode)
        });
        Disposition::ALL.into_iter().filter_map(move |disposition| {
            let then = then.map_or(0, |then| then.counters.of(disposition));
            let more = now.counters.of(disposition) - then;
            (more > 0).then(|| (disposition, more as i64, now.policy.display.to_string()))
        })
    });
    let change = changes.next();
    assert_eq!(changes.next(), None, "one write has one disposition");
    change
}

/// Replays the trace, and returns the decisions.
fn replayed(folder: &Path) -> (squelch::replay::ReplayReport, Vec<Decision>) {
    let file = |name: &str| folder.join(name).display().to_string();
    std::fs::write(file("policies.yaml"), POLICIES).unwrap();
    let words = [
        "squelch",
        "replay",
        "--policy",
        &file("policies.yaml"),
        "--decisions",
        &file("decisions"),
        &file("trace"),
    ];
    let Command::Replay(options) = Cli::try_parse_from(words).unwrap().command else { panic!("replay") };
    let report = squelch::replay::replay(&options).unwrap();
    let decisions = std::fs::read_to_string(file("decisions")).unwrap();
    (report, decisions.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}

#[tokio::test]
async fn a_replay_decides_each_write_as_the_webhook_does() {
    let folder = std::env::temp_dir().join(format!("squelch-equality-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let storm: Vec<Written> = Storm::new(7, 400, 100).take(WRITES).collect();
    let mut trace = std::io::BufWriter::new(std::fs::File::create(folder.join("trace")).unwrap());
    storm.iter().for_each(|write| writeln!(trace, "{}", write.line()).unwrap());
    trace.into_inner().unwrap();
    let (report, decisions) = replayed(&folder);
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(decisions.len(), WRITES);

    // The process time starts at the second of the first write.
    let mut served = Served::new(storm[0].at / 1000 * 1000);
    let mut kinds = std::collections::BTreeMap::<String, usize>::new();
    for (number, (write, decision)) in storm.iter().zip(&decisions).enumerate() {
        let seen = served.review(number, write);
        let context = || format!("write {number}, {}: {decision:?}", write.line());
        assert_eq!(decision.answer, seen.answer, "{}", context());
        assert_eq!((decision.at * 1000.0).round() as u64, write.at, "{}", context());
        assert_eq!(decision.namespace, write.namespace(), "{}", context());
        assert!(!decision.name.is_empty(), "{}", context());
        match &seen.counted {
            Some((disposition, occurrences, policy)) => {
                assert_eq!(decision.disposition, disposition.as_str(), "{}", context());
                assert_eq!(decision.occurrences, *occurrences, "{}", context());
                assert_eq!(decision.policy.as_ref(), Some(policy), "{}", context());
            }
            None => assert_eq!(decision.occurrences, 0, "{}", context()),
        }
        if let Some(said) = seen.said {
            assert_eq!(decision.disposition, said, "{}", context());
        }
        let kind = format!("{} {} {}", decision.disposition, decision.stage, decision.answer);
        *kinds.entry(kind).or_default() += 1;
    }
    let flushes = &mut served.flushes;
    served.flusher.finish(&served.engine, |_| *flushes += 1);

    assert_eq!(report.total.writes.flushes, served.flushes);
    assert!(served.flushes > 1_000, "{}", served.flushes);
    for row in &report.policies {
        let scopes = served.engine.counters();
        let scope = scopes.iter().find(|scope| *scope.policy.display == *row.policy).unwrap();
        assert_eq!(row.occurrences.received, scope.counters.received(), "{row:?}");
        assert_eq!(row.occurrences.recovered, scope.counters.recovered, "{row:?}");
    }
    // The storm has covered every decision that is possible with these policies.
    let seen: Vec<&str> = kinds.keys().map(String::as_str).collect();
    for expected in EXPECTED {
        assert!(seen.contains(expected), "{expected} is not among {kinds:#?}");
    }
}

const EXPECTED: &[&str] = &[
    "admitted admit allow",
    "admitted exempt allow",
    "admitted series allow",
    "aggregated aggregation 409",
    "aggregated aggregation allow",
    "compacted series 409",
    "compacted series 403",
    "compacted series allow",
    "compacted series restore",
    "filtered spam-filter 409",
    "filtered spam-filter restore",
    "muted mute 409",
    "muted mute restore",
    "passed dry-run allow",
    "passed edit allow",
    "passed no-policy allow",
    "passed own allow",
    "throttled budget 403",
];
