//! squelch's own writes: valid in every case, and otherwise counted as lost.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use e2e::policy::idle_after;
use e2e::wait::not_yet;
use e2e::{GENEROUS, Policy, Squelch, Test, events, wait_for};
use futures::future::try_join_all;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::Event;
use kube::api::DeleteParams;
use kube::{Api, Client};
use serde_json::{Value, json};

/// Posts an Event as the emitter through one of the two APIs; returns the status of the answer.
async fn post(client: &Client, api: &str, namespace: &str, event: &Value) -> Result<u16> {
    let url = match api {
        "v1" => format!("/api/v1/namespaces/{namespace}/events"),
        api => format!("/apis/{api}/namespaces/{namespace}/events"),
    };
    let request = http::Request::post(url).header("content-type", "application/json");
    match client.request_text(request.body(event.to_string().into_bytes())?).await {
        Ok(_) => Ok(201),
        Err(kube::Error::Api(status)) => Ok(status.code),
        Err(error) => Err(error.into()),
    }
}

fn named(event: &Value, name: &str) -> Value {
    let mut event = event.clone();
    event["metadata"] = json!({ "name": name });
    event
}

fn legacy(namespace: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Event", "type": "Warning", "reason": "BackOff", "message": "m", "count": 1,
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": "cart"},
        "source": {"component": "kubelet", "host": "n1"},
        "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:00Z",
    })
}

fn new_style(namespace: &str) -> Value {
    json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "type": "Warning", "reason": "BackOff", "note": "m",
        "action": "Restart", "reportingController": "example.com/kubelet", "reportingInstance": "n1",
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "regarding": {"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": "cart"},
    })
}

/// The same Event with another value at this pointer.
fn with(mut event: Value, pointer: &str, value: Value) -> Value {
    let (parent, field) = pointer.rsplit_once('/').unwrap_or_default();
    if let Some(parent) = event.pointer_mut(parent) {
        parent[field] = value;
    }
    event
}

/// The case of an Event with a name that is longer than that of any other object.
const LONG_EVENT_NAME: &str = "long-event-name";

/// Events that the API server accepts, and Events that it refuses after the webhook has reviewed them.
fn cases(namespace: &str) -> Vec<(&'static str, &'static str, Value)> {
    let (old, new) = (|| legacy(namespace), || new_style(namespace));
    let core = |event: Value| {
        let mut event = event;
        let fields = event.as_object_mut().map(std::mem::take).unwrap_or_default();
        let renamed = fields.into_iter().map(|(field, value)| match &*field {
            "note" => ("message".to_owned(), value),
            "regarding" => ("involvedObject".to_owned(), value),
            "reportingController" => ("reportingComponent".to_owned(), value),
            _ => (field, value),
        });
        with(Value::Object(renamed.collect()), "/apiVersion", json!("v1"))
    };
    let long = "x".repeat(253);
    vec![
        ("old", "v1", old()),
        ("new", "events.k8s.io/v1", new()),
        ("new-by-core", "v1", core(new())),
        ("no-message", "v1", with(old(), "/message", json!(""))),
        ("message-of-a-megabyte", "v1", with(old(), "/message", json!("m".repeat(1 << 20)))),
        ("multi-byte", "v1", with(old(), "/message", json!("ü🐙".repeat(400)))),
        ("note-too-long", "events.k8s.io/v1", with(new(), "/note", json!("ü🐙".repeat(400)))),
        ("long-name", "v1", with(old(), "/involvedObject/name", json!(long))),
        (LONG_EVENT_NAME, "v1", old()),
        ("no-subdomain", "v1", with(old(), "/involvedObject/name", json!("-A_b/ü..c-"))),
        ("of-the-cluster", "v1", with(old(), "/involvedObject/namespace", json!(""))),
        ("of-the-cluster-new", "events.k8s.io/v1", with(new(), "/regarding/namespace", json!(""))),
        ("of-elsewhere", "v1", with(old(), "/involvedObject/namespace", json!("elsewhere"))),
        ("of-elsewhere-new", "events.k8s.io/v1", with(new(), "/regarding/namespace", json!("elsewhere"))),
        ("no-instance", "v1", core(with(new(), "/reportingInstance", json!("")))),
        ("no-action", "v1", core(with(new(), "/action", json!("")))),
        ("no-reason", "v1", core(with(new(), "/reason", json!("")))),
        ("no-controller", "v1", core(with(new(), "/reportingController", json!("")))),
        ("no-qualified-name", "v1", core(with(new(), "/reportingController", json!("a b/c/d")))),
        ("long-words", "v1", core(with(new(), "/action", json!("A".repeat(200))))),
        ("odd-type", "v1", with(old(), "/type", json!("Alarm"))),
        ("no-type", "v1", with(old(), "/type", json!(""))),
        ("far-future", "v1", with(old(), "/firstTimestamp", json!("9999-12-31T23:59:59-01:00"))),
        ("far-past", "v1", with(old(), "/firstTimestamp", json!("0000-01-01T00:00:00+01:00"))),
        (
            "nothing",
            "v1",
            json!({"apiVersion": "v1", "kind": "Event", "involvedObject": {"namespace": namespace}}),
        ),
    ]
}

/// The API server stores these, and refuses every change of them, because it cannot parse their times itself.
const UNCHANGEABLE: [&str; 2] = ["far-future", "far-past"];

/// The outcome of the cases.
#[derive(Clone, Copy, Default)]
struct Outcome {
    /// Repeats of Events that the API server refused, or that cannot be changed: each is lost.
    lost: usize,
    /// Repeated attempts, because squelch admitted a repeat without a decision: the machine was too slow.
    undecided: usize,
}

/// Runs each case until squelch has decided on all of its repeats. `attempt` gets the case and a unique text; it
/// returns the lost occurrences, or `None` if squelch did not suppress a repeat.
async fn each_case(
    namespace: &str,
    attempt: impl AsyncFn(&str, (&'static str, &'static str, Value)) -> Result<Option<usize>>,
) -> Result<Outcome> {
    let attempt = &attempt;
    let until_decided = |case: (&'static str, &'static str, Value)| async move {
        for undecided in 0..10 {
            let unique = format!("{}-{undecided}", case.0);
            if let Some(lost) = attempt(&unique, case.clone()).await? {
                return Ok(Outcome { lost, undecided });
            }
        }
        bail!("{}: squelch never suppressed its repeats", case.0)
    };
    let outcomes = try_join_all(cases(namespace).into_iter().map(until_decided)).await?;
    Ok(outcomes.into_iter().fold(Outcome::default(), Outcome::and))
}

impl Outcome {
    fn and(self, other: Self) -> Self {
        Self { lost: self.lost + other.lost, undecided: self.undecided + other.undecided }
    }
}

/// Creates each Event, lets squelch read it, deletes it, and repeats it: squelch creates it again with the count 4.
async fn each_is_made_again(test: &Test, namespace: &str) -> Result<Outcome> {
    let emitter = test.emitter_client().await?;
    let stored: Api<Event> = Api::namespaced(test.client(), namespace);
    let label = &test.namespace;
    let admin = test.client();
    let again = async |unique: &str, (case, api, event): (&str, &str, Value)| {
        // A unique message.
        let about = if api == "v1" { "/involvedObject/uid" } else { "/regarding/uid" };
        let event = with(event, about, json!(unique));
        let end = if case == LONG_EVENT_NAME { format!(".{}", "x".repeat(253)) } else { String::new() };
        let name = format!("{label}.{unique}{end}");
        let is_suppressed = async |number: usize| {
            let answer =
                post(&emitter, api, namespace, &named(&event, &format!("{name}.again-{number}"))).await?;
            ensure!(matches!(answer, 201 | 409 | 422), "{case}: {answer}");
            Ok(answer == 409)
        };
        let shows = async |value: i64| {
            wait_for(&format!("{namespace}/{name} to show {value}"), GENEROUS, async || {
                let request = http::Request::get(format!("/api/v1/namespaces/{namespace}/events/{name}"));
                let request = request.body(Vec::new()).map_err(not_yet)?;
                let event: Value = admin.request(request).await.map_err(not_yet)?;
                if shown(&event) == value { Ok(()) } else { Err(event.to_string()) }
            })
            .await
        };
        let first = post(&emitter, api, namespace, &named(&event, &name)).await?;
        ensure!(matches!(first, 201 | 422), "{case}: {first}");
        if !is_suppressed(1).await? {
            return Ok(None);
        }
        if first == 422 || UNCHANGEABLE.contains(&case) {
            return Ok(Some(1));
        }
        shows(2).await?;
        stored.delete(&name, &DeleteParams::default()).await?;
        if !is_suppressed(2).await? || !is_suppressed(3).await? {
            return Ok(None);
        }
        shows(4).await?;
        anyhow::Ok(Some(0))
    };
    let outcome = each_case(namespace, again).await?;
    take_away(test, namespace).await?;
    Ok(outcome)
}

/// Deletes the Events of a test.
async fn take_away(test: &Test, namespace: &str) -> Result<()> {
    let stored: Api<Event> = Api::namespaced(test.client(), namespace);
    let ours = all(&test.client(), namespace).await?.iter().map(name).collect::<Vec<_>>();
    for name in ours.iter().filter(|name| name.starts_with(&test.namespace)) {
        stored.delete(name, &DeleteParams::default()).await?;
    }
    Ok(())
}

/// Checks that exactly the refused occurrences are lost, and that only changes of unchangeable Events were invalid.
async fn only_refused_ones_are_lost(
    squelch: &Squelch,
    expected: &Outcome,
    unchangeable: usize,
) -> Result<()> {
    let refused = expected.lost as f64;
    wait_for("the refused occurrences to be lost", GENEROUS, async || {
        let metrics = squelch.metrics().await.map_err(not_yet)?;
        let lost = metrics.sum("squelch_lost_occurrences_total", &[]);
        if lost == refused { Ok(()) } else { Err(format!("{lost} are lost, {refused} refused")) }
    })
    .await?;
    let metrics = squelch.metrics().await?;
    let failed_open = metrics.reviews("failed_open");
    let undecided = expected.undecided;
    ensure!(failed_open >= undecided as f64, "{undecided} repeats stored, {failed_open} writes failed open");
    let invalid = metrics.sum("squelch_flushes_total", &[("result", "invalid")]);
    ensure!(invalid == unchangeable as f64, "{invalid} writes were invalid of {unchangeable}");
    ensure!(metrics.sum("squelch_own_writes_reviewed_total", &[]) == 0.0, "squelch reviews its own writes");
    Ok(())
}

async fn nothing_is_lost(squelch: &Squelch) -> Result<()> {
    let metrics = squelch.metrics().await?;
    ensure!(metrics.sum("squelch_lost_occurrences_total", &[]) == 0.0, "occurrences were lost");
    ensure!(metrics.sum("squelch_flushes_total", &[("result", "invalid")]) == 0.0, "a write was invalid");
    ensure!(metrics.sum("squelch_own_writes_reviewed_total", &[]) == 0.0, "squelch reviews its own writes");
    Ok(())
}

#[tokio::test]
async fn recreated_events_are_valid_for_the_api_server() -> Result<()> {
    let test = Test::begin("valid").await?;
    let squelch = test.squelch().await?;
    test.policy(&idle_after("5m")).await?;
    let outcome = each_is_made_again(&test, &test.namespace).await?;
    ensure!(outcome.lost > UNCHANGEABLE.len(), "some cases must be refused");
    only_refused_ones_are_lost(&squelch, &outcome, UNCHANGEABLE.len()).await?;
    squelch.stop().await?;
    test.passed()
}

/// Aggregates each Event: squelch creates the summary, creates it again after its deletion, and changes it. If the
/// API server refused the only Event of a group, one repeat is lost, and no summary is created.
async fn each_is_summed_up(test: &Test, namespace: &str) -> Result<Outcome> {
    let emitter = test.emitter_client().await?;
    let stored: Api<Event> = Api::namespaced(test.client(), namespace);
    let label = &test.namespace;
    let admin = test.client();
    let summed_up = async |unique: &str, (case, api, event): (&str, &str, Value)| {
        // A group of its own, also across objects.
        let (about, text) = match api {
            "v1" => ("/involvedObject/kind", "/message"),
            _ => ("/regarding/kind", "/note"),
        };
        let kind = format!("{label}-{unique}");
        let event = with(event, about, json!(kind));
        let said = event.pointer(text).and_then(Value::as_str).unwrap_or_default().to_owned();
        // Returns the name of the summary, once it has this count.
        let summary = async |value: i64| {
            wait_for(&format!("the summary of {namespace}/{kind} to show {value}"), GENEROUS, async || {
                let mut events = all(&admin, namespace).await.map_err(not_yet)?;
                events.retain(|event| event["involvedObject"]["kind"] == kind && is_summary(event));
                match &events[..] {
                    [summary] if shown(summary) == value => Ok(name(summary)),
                    others => Err(format!("{others:?}")),
                }
            })
            .await
        };
        let write = async |twig: &str, message: &str| {
            let event = with(event.clone(), text, json!(message));
            post(&emitter, api, namespace, &named(&event, &format!("{kind}.{twig}"))).await
        };
        let is_suppressed = async |twig: &str, message: &str| {
            let answer = write(twig, message).await?;
            ensure!(matches!(answer, 201 | 409 | 422), "{case}: {answer}");
            Ok(answer == 409)
        };
        // squelch may create a summary only after an Event of the group was stored.
        let first = write("a", &format!("a{said}")).await?;
        ensure!(matches!(first, 201 | 422), "{case}: {first}");
        if !is_suppressed("b", &said).await? {
            return Ok(None);
        }
        if first == 422 {
            return Ok(Some(1));
        }
        let made = summary(1).await?;
        stored.delete(&made, &DeleteParams::default()).await?;
        if !is_suppressed("c", &format!("c{said}")).await? {
            return Ok(None);
        }
        summary(2).await?;
        if !is_suppressed("d", &format!("d{said}")).await? || !is_suppressed("e", &format!("e{said}")).await?
        {
            return Ok(None);
        }
        let last = summary(4).await?;
        stored.delete(&last, &DeleteParams::default()).await?;
        anyhow::Ok(Some(0))
    };
    let outcome = each_case(namespace, summed_up).await?;
    take_away(test, namespace).await?;
    Ok(outcome)
}

fn is_summary(event: &Value) -> bool {
    !event["metadata"]["labels"]["squelch.dev/summary"].is_null()
}

/// Its count.
fn shown(event: &Value) -> i64 {
    event["series"]["count"].as_i64().or(event["count"].as_i64()).unwrap_or(1)
}

fn name(event: &Value) -> String {
    event["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

/// The Events of a namespace as raw JSON: some have times that no library parses.
async fn all(admin: &Client, namespace: &str) -> Result<Vec<Value>> {
    let request = http::Request::get(format!("/api/v1/namespaces/{namespace}/events")).body(Vec::new())?;
    let list: Value = admin.request(request).await?;
    Ok(list["items"].as_array().cloned().unwrap_or_default())
}

fn summing_up(group_by: &str) -> Value {
    json!({
        "match": [{ "users": [e2e::accounts::EMITTER.user()] }],
        "aggregation": { "maxEvents": 1, "groupBy": group_by },
    })
}

#[tokio::test]
async fn summaries_are_valid_for_the_api_server() -> Result<()> {
    for group_by in ["Object", "Kind"] {
        let test = Test::begin("summed-up").await?;
        let squelch = test.squelch().await?;
        test.policy(&summing_up(group_by)).await?;
        let outcome = each_is_summed_up(&test, &test.namespace).await?;
        only_refused_ones_are_lost(&squelch, &outcome, 0).await?;
        squelch.stop().await?;
        test.passed()?;
    }
    Ok(())
}

/// Events about cluster-scoped objects are in these namespaces.
#[tokio::test]
async fn events_about_cluster_scoped_objects_are_recreated() -> Result<()> {
    let test = Test::begin("clusters-own").await?;
    let squelch = test.squelch().await?;
    let (mut outcome, mut unchangeable) = (Outcome::default(), 0);
    for namespace in ["default", "kube-system"] {
        let kubectl = test.cluster.kubectl.namespace(namespace);
        // Only the test's Events may be merged.
        let ours = json!({ "match": [{ "users": [e2e::accounts::EMITTER.user()] }] });
        let policy = Policy::apply(test.client(), &kubectl, namespace, &test.namespace, &ours).await?;
        let made_again = each_is_made_again(&test, namespace).await;
        let changed = policy.change(&kubectl, &summing_up("Object")).await;
        let summed_up = each_is_summed_up(&test, namespace).await;
        outcome = outcome.and(made_again?).and(summed_up?);
        unchangeable += UNCHANGEABLE.len();
        changed?;
        only_refused_ones_are_lost(&squelch, &outcome, unchangeable).await?;
        kubectl.run(&["delete", "eventpolicy", &test.namespace]).await?;
    }
    squelch.stop().await?;
    test.passed()
}

/// An admission policy that refuses new Events in the test's namespace, for this reason.
struct Refusing<'a> {
    test: &'a Test,
    name: String,
}

impl<'a> Refusing<'a> {
    /// Creates it, and waits until an Event is refused with `code`.
    async fn begin(test: &'a Test, reason: &str, code: u16) -> Result<Self> {
        let name = format!("e2e-{}", test.namespace);
        let rule = json!({
            "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["events"],
        });
        let selector = json!({"matchLabels": {"kubernetes.io/metadata.name": test.namespace}});
        let validation =
            json!({"expression": "object.reason != 'BackOff'", "reason": reason, "message": "no"});
        let policy = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": name}, "spec": {
                "matchConstraints": {"resourceRules": [rule]}, "validations": [validation],
            },
        });
        let binding = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": name}, "spec": {
                "policyName": name, "validationActions": ["Deny"], "matchResources": {"namespaceSelector": selector},
            },
        });
        for object in [&policy, &binding] {
            test.kubectl().apply(object).await?;
        }
        let refusing = Self { test, name };
        let probe = with(legacy(&test.namespace), "/message", json!("in force?"));
        wait_for("the refusing policy to be in force", GENEROUS, async || {
            let answer = post(&test.client(), "v1", &test.namespace, &named(&probe, &refusing.name)).await;
            // The administrator's probe is a series of its own.
            match answer.map_err(not_yet)? {
                refused if refused == code => Ok(()),
                other => {
                    test.kubectl().say(&["delete", "event", &refusing.name]);
                    Err(format!("answered {other}"))
                }
            }
        })
        .await?;
        Ok(refusing)
    }

    async fn end(self) -> Result<()> {
        for kind in ["validatingadmissionpolicybinding", "validatingadmissionpolicy"] {
            self.test.kubectl().run(&["delete", kind, &self.name]).await?;
        }
        Ok(())
    }
}

#[tokio::test]
async fn forbidden_flushes_stay_pending_until_allowed() -> Result<()> {
    let test = Test::begin("forbidden").await?;
    let squelch = test.squelch().await?;
    test.policy(&json!({"match": [{"users": [e2e::accounts::EMITTER.user()]}]})).await?;

    let emitter = test.emitter_client().await?;
    let event = legacy(&test.namespace);
    assert_eq!(post(&emitter, "v1", &test.namespace, &named(&event, "cart.1")).await?, 201);
    let repeat = async |name: &str| {
        assert_eq!(post(&emitter, "v1", &test.namespace, &named(&event, name)).await?, 409);
        anyhow::Ok(())
    };
    repeat("cart.2").await?;
    // squelch has read it, and may create it again.
    test.one_event("cart", 2).await?;
    let refusing = Refusing::begin(&test, "Forbidden", 403).await?;
    let stored: Api<Event> = Api::namespaced(test.client(), &test.namespace);
    stored.delete("cart.1", &DeleteParams::default()).await?;
    repeat("cart.3").await?;
    repeat("cart.4").await?;
    wait_for("a flush to be forbidden", GENEROUS, async || {
        let metrics = squelch.metrics().await.map_err(not_yet)?;
        let forbidden = metrics.sum("squelch_flushes_total", &[("result", "forbidden")]);
        if forbidden > 0.0 { Ok(()) } else { Err(metrics.show("squelch_flushes_total")) }
    })
    .await?;
    assert_eq!(squelch.metrics().await?.sum("squelch_pending_occurrences", &[]), 2.0);
    refusing.end().await?;
    test.one_event("cart", 4).await?;
    nothing_is_lost(&squelch).await?;
    squelch.stop().await?;
    test.passed()
}

#[tokio::test]
async fn invalid_flushes_are_lost_and_the_client_gets_the_error() -> Result<()> {
    let test = Test::begin("invalid").await?;
    let squelch = test.squelch().await?;
    test.policy(&json!({"match": [{"users": [e2e::accounts::EMITTER.user()]}]})).await?;
    let refusing = Refusing::begin(&test, "Invalid", 422).await?;

    let emitter = test.emitter_client().await?;
    let event = legacy(&test.namespace);
    assert_eq!(post(&emitter, "v1", &test.namespace, &named(&event, "cart.1")).await?, 422);
    assert_eq!(post(&emitter, "v1", &test.namespace, &named(&event, "cart.2")).await?, 409);
    wait_for("the pending occurrences to be lost", GENEROUS, async || {
        let metrics = squelch.metrics().await.map_err(not_yet)?;
        let namespace = ("event_namespace", test.namespace.as_str());
        let lost = metrics.sum("squelch_lost_occurrences_total", &[namespace]);
        if lost == 1.0 { Ok(()) } else { Err(metrics.show("squelch_flushes_total")) }
    })
    .await?;
    assert_eq!(squelch.metrics().await?.sum("squelch_pending_occurrences", &[]), 0.0);
    assert_eq!(
        post(&emitter, "v1", &test.namespace, &named(&event, "cart.3")).await?,
        422,
        "no pending series may merge it"
    );
    refusing.end().await?;
    assert_eq!(test.events(None).await?.len(), 0);
    squelch.stop().await?;
    test.passed()
}

const PENDING_SERIES: usize = 5000;

#[tokio::test]
async fn five_thousand_pending_series_are_flushed_at_shutdown() -> Result<()> {
    let test = Test::begin("five-thousand").await?;
    // Few flushes before the end.
    let squelch = test.squelch_with(&["--flush-qps", "1", "--shutdown-timeout", "120s"]).await?;
    let off = json!({ "mode": "Disabled" });
    test.policy(&json!({"series": {"idleTimeout": "1h"}, "aggregation": off, "spamFilter": off})).await?;
    let emitter = test.emitter_client().await?;
    let makes = (0..PENDING_SERIES).map(|number| {
        let (emitter, namespace) = (emitter.clone(), test.namespace.clone());
        async move {
            let event = with(legacy(&namespace), "/message", json!(number.to_string()));
            let first = post(&emitter, "v1", &namespace, &named(&event, &format!("e.{number}"))).await?;
            let second =
                post(&emitter, "v1", &namespace, &named(&event, &format!("e.{number}.again"))).await?;
            ensure!((first, second) == (201, 409), "{number}: answered {first} and {second}");
            Ok(())
        }
    });
    stream::iter(makes).buffer_unordered(16).try_collect::<()>().await?;
    let pending = squelch.metrics().await?.sum("squelch_pending_occurrences", &[]);
    ensure!(pending > 0.9 * PENDING_SERIES as f64, "{pending} of {PENDING_SERIES} are pending");

    let before = Instant::now();
    squelch.stop_within(Duration::from_secs(150)).await?;
    println!("{pending} pending occurrences flushed in {:?}", before.elapsed());
    let stored = test.events(None).await?;
    let short: Vec<_> = stored.iter().filter(|event| events::value(event) != 2).cloned().collect();
    ensure!(short.is_empty() && stored.len() == PENDING_SERIES, "{} short of {}", short.len(), stored.len());
    test.passed()
}

/// A name with path segments is invalid: the API server refuses it, and squelch must not follow it.
#[tokio::test]
async fn a_name_with_path_segments_is_never_followed() -> Result<()> {
    let test = Test::begin("path").await?;
    let neighbour = test.neighbour().await?;
    let squelch = test.squelch().await?;
    test.policy(&idle_after("5m")).await?;
    let admin = test.client();
    post(&admin, "v1", &neighbour.namespace, &named(&legacy(&neighbour.namespace), "theirs")).await?;

    let emitter = test.emitter_client().await?;
    let path = format!("../../{}/events/theirs", neighbour.namespace);
    let event = legacy(&test.namespace);
    assert_eq!(post(&emitter, "v1", &test.namespace, &named(&event, &path)).await?, 422);
    assert_eq!(post(&emitter, "v1", &test.namespace, &named(&event, "mine")).await?, 409);
    wait_for("the pending occurrences to be lost", GENEROUS, async || {
        let metrics = squelch.metrics().await.map_err(not_yet)?;
        let lost = metrics.sum("squelch_lost_occurrences_total", &[]);
        if lost == 1.0 { Ok(()) } else { Err(metrics.show("squelch_flushes_total")) }
    })
    .await?;
    let theirs = neighbour.events(None).await?.pop().context("the neighbour's Event is missing")?;
    assert_eq!(events::value(&theirs), 1);
    squelch.stop().await?;
    neighbour.passed()?;
    test.passed()
}
