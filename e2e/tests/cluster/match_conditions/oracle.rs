//! The match condition against the matcher of squelch, on random policies and Events: the API server's own code evaluates
//! the condition (e2e/match-conditions).

use std::env;
use std::io::{BufRead as _, BufReader, BufWriter, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use e2e::cluster::given;
use fastrand::Rng;
use jiff::Timestamp;
use kube::core::{ApiResource, DynamicObject};
use serde_json::{Value, json};
use squelch::api::{ClusterEventPolicy, EventPolicy};
use squelch::policy::{Index, Labels, NamespaceSelection, Set};
use squelch::webhook::review::decode;

/// Writes for each set of policies. The answers to them fit into a pipe.
const BATCH: usize = 500;

/// A hundredth of what the API server allows the conditions of a webhook.
const MOST_COST: i64 = 25_000;

const NAMESPACES: [&str; 3] = ["a", "b", "c"];

/// The program that evaluates conditions.
struct ApiServerCode {
    child: Child,
    questions: BufWriter<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl ApiServerCode {
    /// Starts it. `--unstructured`: with the objects of Kubernetes before 1.37.
    fn start(arguments: &[&str]) -> Result<Self> {
        let mut child = Command::new(given("SQUELCH_MATCH_CONDITIONS")?)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let questions = BufWriter::new(child.stdin.take().context("no standard input")?);
        let answers = BufReader::new(child.stdout.take().context("no standard output")?);
        Ok(Self { child, questions, answers })
    }

    fn ask(&mut self, lines: &[Value]) -> Result<Vec<Value>> {
        for line in lines {
            writeln!(self.questions, "{line}")?;
        }
        self.questions.flush()?;
        let mut answers = Vec::with_capacity(lines.len());
        let mut answer = String::new();
        for _ in lines {
            answer.clear();
            self.answers.read_line(&mut answer)?;
            answers.push(serde_json::from_str(&answer).with_context(|| format!("answered {answer:?}"))?);
        }
        Ok(answers)
    }
}

impl Drop for ApiServerCode {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

const TYPES: [&str; 4] = ["Normal", "Warning", "Other", ""];
const WORDS: [&str; 9] = ["a", "b", "ab", "ba", "o'n\"e\\il", "ü\u{1F642}", "a\nb", "aab", ""];
const GLOBS: [&str; 15] =
    ["a", "b", "ab", "a*", "*b", "?", "*", "a*b", "??", "o'n*", "*\\*", "ü?", "*\u{1F642}", "a?b", "*a*b*"];
const NAMES: [&str; 4] = ["a", "b", "ab", "a-b.c"];
const KINDS: [(&str, &str); 4] = [("Pod", "v1"), ("Node", "v1"), ("Deployment", "apps/v1"), ("", "")];

fn some<'a>(rng: &mut Rng, texts: &[&'a str], most: usize) -> Vec<&'a str> {
    (0..rng.usize(1..=most)).map(|_| texts[rng.usize(..texts.len())]).collect()
}

fn one<'a>(rng: &mut Rng, texts: &[&'a str]) -> &'a str {
    texts[rng.usize(..texts.len())]
}

/// An entry of `match` or `exclude`.
fn clauses(rng: &mut Rng) -> Value {
    let mut clauses = json!({});
    let plain: Vec<&str> = GLOBS.iter().copied().filter(|glob| !glob.contains('\\')).collect();
    while clauses.as_object().is_some_and(serde_json::Map::is_empty) {
        if rng.u8(..4) == 0 {
            clauses["types"] = json!([one(rng, &["Normal", "Warning"])]);
        }
        for (list, globs) in [
            ("reasons", &plain[..]),
            ("messages", &GLOBS),
            ("reportingComponents", &plain),
            ("users", &GLOBS),
        ] {
            if rng.u8(..4) == 0 {
                clauses[list] = json!(some(rng, globs, 3));
            }
        }
        if rng.u8(..4) == 0 {
            let entry = |rng: &mut Rng| match rng.u8(..4) {
                0 => json!({ "kind": one(rng, &["Pod", "P*", "Node", "*"]) }),
                1 => json!({ "apiGroup": one(rng, &["", "apps", "app*", "*"]) }),
                2 => json!({ "name": one(rng, &["a", "a*", "?b", "*.c"]) }),
                _ => json!({ "kind": "Deployment", "apiGroup": "apps", "name": "a*" }),
            };
            clauses["regarding"] = (0..rng.usize(1..3)).map(|_| entry(rng)).collect();
        }
    }
    clauses
}

fn policies(rng: &mut Rng) -> Set {
    let mut index = Index::default();
    for namespace in NAMESPACES {
        let labels: Labels = [("team".to_owned(), one(rng, &["x", "y"]).to_owned())].into();
        index.apply_namespace(namespace, namespace, labels);
    }
    for number in 0..rng.usize(1..4) {
        let list =
            |rng: &mut Rng, most: usize| -> Value { (0..rng.usize(..=most)).map(|_| clauses(rng)).collect() };
        let mut spec = json!({ "match": list(rng, 3), "exclude": list(rng, 1) });
        if rng.u8(..8) > 0 && spec["match"] == json!([]) {
            spec["match"] = json!([clauses(rng)]);
        }
        let namespaced = rng.bool();
        let resource = if namespaced {
            ApiResource::erase::<EventPolicy>(&())
        } else {
            ApiResource::erase::<ClusterEventPolicy>(&())
        };
        if !namespaced && rng.bool() {
            spec["namespaceSelector"] = json!({ "matchLabels": { "team": "x" } });
        }
        let mut object = DynamicObject::new(&format!("p{number}"), &resource).data(json!({ "spec": spec }));
        object.metadata.namespace = namespaced.then(|| one(rng, &NAMESPACES).to_owned());
        object.metadata.uid = Some(number.to_string());
        object.metadata.generation = Some(1);
        index.apply(&object);
    }
    index.set()
}

/// A core/v1 Event. Its fields can be absent, empty or long.
fn event(rng: &mut Rng, namespace: &str) -> Value {
    let (kind, version) = KINDS[rng.usize(..KINDS.len())];
    let mut event = json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": { "name": "e", "namespace": namespace, "uid": "u" },
        "involvedObject": { "kind": kind, "apiVersion": version, "namespace": namespace, "name": one(rng, &NAMES) },
        "source": {}, "count": 2,
    });
    let long = format!("{}b", "ä".repeat([100, 127, 128, 600][rng.usize(..4)]));
    for field in ["reason", "message", "reportingComponent"] {
        if rng.u8(..6) > 0 {
            event[field] = if rng.u8(..16) == 0 { json!(long) } else { json!(one(rng, &WORDS)) };
        }
    }
    if rng.u8(..6) > 0 {
        event["type"] = json!(one(rng, &TYPES));
    }
    match rng.u8(..4) {
        0 => drop(event.as_object_mut().map(|event| event.remove("source"))),
        1 => {}
        _ => event["source"]["component"] = json!(one(rng, &WORDS)),
    }
    if rng.u8(..16) == 0 {
        event.as_object_mut().map(|event| event.remove("involvedObject"));
    }
    event
}

/// A random write: a line for the program, and the review that squelch would get.
fn write(rng: &mut Rng, selected: &NamespaceSelection) -> (Value, Vec<u8>) {
    let namespace = loop {
        let namespace = one(rng, &["a", "b", "c", "elsewhere"]);
        match selected {
            NamespaceSelection::Named(names) if !names.contains(namespace) => {}
            _ => break namespace,
        }
    };
    let user = one(rng, &["a", "ab", "o'n\"e\\il", "system:node:b"]);
    let stored = event(rng, namespace);
    let mut written = stored.clone();
    let operation = if rng.bool() { "CREATE" } else { "UPDATE" };
    let mut line = json!({ "user": user, "namespace": namespace, "operation": operation, "dryRun": false });
    let kind = json!({ "group": "", "version": "v1", "kind": "Event" });
    let mut request = json!({
        "uid": "u", "kind": kind, "requestKind": kind, "operation": operation, "namespace": namespace, "name": "e",
        "userInfo": { "username": user }, "dryRun": false,
    });
    if operation == "UPDATE" {
        written["count"] = json!(3);
        if rng.bool() {
            written["message"] = json!(one(rng, &WORDS));
        }
        line["stored"] = stored.clone();
        request["oldObject"] = stored;
    }
    request["object"] = written.clone();
    line["event"] = written;
    let review =
        json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request });
    (line, review.to_string().into_bytes())
}

/// What a number of writes showed.
#[derive(Debug, Default)]
struct Figures {
    writes: usize,
    governed: usize,
    /// Called, although no policy governs the write.
    in_vain: usize,
    longest_expression: usize,
    highest_cost: i64,
}

fn compare(writes: usize, seed: u64, arguments: &[&str]) -> Result<Figures> {
    let mut rng = Rng::with_seed(seed);
    let mut program = ApiServerCode::start(arguments)?;
    let mut figures = Figures::default();
    while figures.writes < writes {
        let set = policies(&mut rng);
        let scope = set.scope();
        if scope.is_none() {
            continue;
        }
        let Some(expression) = scope.writes.expression(&scope.namespaces) else { continue };
        figures.longest_expression = figures.longest_expression.max(expression.len());
        let conditions =
            json!({ "conditions": [{ "name": "matched-by-a-policy", "expression": expression }] });
        let compiled = program.ask(&[conditions])?;
        ensure!(compiled[0] == json!({ "compiled": true }), "seed {seed}: {expression}: {}", compiled[0]);
        let (lines, reviews): (Vec<_>, Vec<_>) =
            (0..BATCH).map(|_| write(&mut rng, &scope.namespaces)).unzip();
        for ((answer, line), review) in program.ask(&lines)?.iter().zip(&lines).zip(&reviews) {
            let review = decode(review)?;
            let observation = review.observe("squelch", Timestamp::UNIX_EPOCH);
            let Ok(observation) = observation else { bail!("{observation:?}: {line}") };
            let governed = set.governing(&observation).is_some();
            let called = answer["called"] == true;
            ensure!(
                answer.get("failed").is_none() && answer.get("error").is_none() && (called || !governed),
                "seed {seed}: {expression}\n{line}\n{answer}, governed: {governed}"
            );
            figures.writes += 1;
            figures.highest_cost = figures.highest_cost.max(answer["cost"].as_i64().context("no cost")?);
            figures.governed += usize::from(governed);
            figures.in_vain += usize::from(called && !governed);
        }
    }
    Ok(figures)
}

/// The number of writes is `SQUELCH_WRITES`, if that is set.
#[test]
fn squelch_is_called_for_each_write_that_a_policy_matches() -> Result<()> {
    let number = |name: &str, default: u64| env::var(name).map_or(Ok(default), |text| text.parse());
    let writes = usize::try_from(number("SQUELCH_WRITES", 40_000)?)?;
    let seed = number("SQUELCH_SEED", fastrand::u64(..))?;
    println!("SQUELCH_SEED={seed}");
    for arguments in [&["--cost"][..], &["--cost", "--unstructured"]] {
        let figures = compare(writes, seed, arguments)?;
        println!("{figures:?}");
        let Figures { writes, governed, in_vain, highest_cost, longest_expression: _ } = figures;
        ensure!(highest_cost <= MOST_COST, "an evaluation cost {highest_cost}");
        ensure!(governed > writes / 10, "few writes are governed");
        ensure!(in_vain < (writes - governed) / 2, "most calls for other writes are in vain");
    }
    Ok(())
}
