use bytes::Bytes;
use futures::stream;
use http::{Request as HttpRequest, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Frame;
use kube::client::Body;
use serde_json::json;
use tokio::sync::mpsc;
use tower_test::mock;

use super::*;
use crate::cli::record::recording::RecordingCounts;

type AnswerBody = UnsyncBoxBody<Bytes, Infallible>;

fn complete(text: String) -> AnswerBody {
    Full::new(Bytes::from(text)).boxed_unsync()
}

/// A response of the API server.
enum Answer {
    Complete(u16, Value),
    /// A watch with these events, which the API server closes.
    Watch(Vec<Value>),
    /// A watch without any event, which stays open.
    Silent,
}

impl Answer {
    fn response(self) -> Response<AnswerBody> {
        let (code, body) = match self {
            Self::Complete(code, value) => (code, complete(value.to_string())),
            Self::Watch(events) => {
                let lines: String = events.iter().map(|event| format!("{event}\n")).collect();
                (200, complete(lines))
            }
            Self::Silent => {
                let frames = stream::pending::<Result<Frame<Bytes>, Infallible>>();
                (200, StreamBody::new(frames).boxed_unsync())
            }
        };
        Response::builder().status(code).body(body).unwrap()
    }
}

fn stored(name: &str, version: u64, count: i64) -> Value {
    json!({ "metadata": { "name": name, "namespace": "shop", "uid": name, "resourceVersion": version.to_string() },
        "involvedObject": { "kind": "Pod", "name": name }, "count": count })
}

fn list(version: u64, next: &str, items: &[Value]) -> Answer {
    let metadata = json!({ "resourceVersion": version.to_string(), "continue": next });
    Answer::Complete(
        200,
        json!({ "kind": "EventList", "apiVersion": "v1", "metadata": metadata, "items": items }),
    )
}

fn status(code: u16) -> Value {
    json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code, "message": "no",
        "reason": "No" })
}

fn seen(kind: &str, event: &Value) -> Value {
    json!({ "type": kind, "object": event })
}

/// What a recording has asked for and written.
struct Recorded {
    /// Continue tokens and versions of the requests.
    requests: Vec<String>,
    /// Operation, name and count of each line.
    lines: Vec<String>,
    counts: RecordingCounts,
}

/// What matters of a request.
fn asked(request: &HttpRequest<Body>) -> String {
    assert_eq!(request.uri().path(), "/api/v1/namespaces/shop/events");
    let query = request.uri().query().unwrap_or_default();
    let of =
        |key: &str| query.split('&').find_map(|pair| pair.strip_prefix(key)).unwrap_or_default().to_owned();
    if query.contains("watch=true") {
        assert!(query.contains("allowWatchBookmarks=true"), "{query}");
        return format!("watch {}", of("resourceVersion="));
    }
    assert_eq!(of("limit="), "500");
    format!("list {}", of("continue=")).trim_end().to_owned()
}

/// Records with these answers, until the request after them.
async fn record(answers: Vec<Answer>) -> Recorded {
    let (service, mut server) = mock::pair::<HttpRequest<Body>, Response<AnswerBody>>();
    let events = RecordedEvents::new(Client::new(service, "default"), Some("shop"));
    let serving = async {
        let mut requests = Vec::new();
        for answer in answers {
            let (request, send) = server.next_request().await.unwrap();
            requests.push(asked(&request));
            send.send_response(answer.response());
        }
        let (request, _unanswered) = server.next_request().await.unwrap();
        requests.push(asked(&request));
        requests
    };
    let (output, mut written) = mpsc::channel(1_000);
    let (mut state, progress) = (None, RecordProgress::new(true));
    let recording = async {
        let (recording, watch) = events.begin().await.unwrap();
        events.record(state.insert(recording), watch, &output, &progress).await;
    };
    let requests = tokio::select! {
        requests = serving => requests,
        () = recording => panic!("the recording has ended"),
    };
    let counts = state.unwrap().counts(clock::now());
    let mut lines = Vec::new();
    while let Ok(text) = written.try_recv() {
        for line in text.lines() {
            let line: Value = serde_json::from_str(line).unwrap();
            let (operation, object) = (line["operation"].as_str().unwrap(), &line["object"]);
            lines.push(format!(
                "{operation} {} {}",
                object["metadata"]["name"].as_str().unwrap(),
                object["count"]
            ));
        }
    }
    Recorded { requests, lines, counts }
}

#[tokio::test(start_paused = true)]
async fn a_closed_watch_continues_from_the_last_version() {
    let recorded = record(vec![
        list(100, "more", &[stored("a", 90, 1)]),
        list(100, "", &[stored("b", 91, 1)]),
        Answer::Watch(vec![seen("MODIFIED", &stored("a", 101, 2)), seen("ADDED", &stored("c", 102, 1))]),
        Answer::Watch(vec![seen(
            "BOOKMARK",
            &json!({ "kind": "Event", "apiVersion": "v1", "metadata": { "resourceVersion": "150" } }),
        )]),
        Answer::Complete(500, status(500)),
        Answer::Watch(vec![seen("MODIFIED", &stored("b", 151, 2))]),
    ])
    .await;
    let expected = ["list", "list more", "watch 100", "watch 102", "watch 150", "watch 150", "watch 151"];
    assert_eq!(recorded.requests, expected);
    assert_eq!(recorded.lines, ["UPDATE a 2", "CREATE c 1", "UPDATE b 2"]);
    assert_eq!((recorded.counts.gaps, recorded.counts.at_beginning), (0, 2));
}

#[tokio::test(start_paused = true)]
async fn an_expired_version_leads_to_a_list_whether_it_is_a_status_or_an_event() {
    let as_event = Answer::Watch(vec![seen("ERROR", &status(410))]);
    for expired in [Answer::Complete(410, status(410)), as_event] {
        let recorded = record(vec![
            list(100, "", &[stored("a", 90, 1), stored("b", 91, 1)]),
            Answer::Watch(vec![seen("MODIFIED", &stored("a", 101, 2))]),
            expired,
            // The list fails too at first, and its token expires.
            Answer::Complete(503, status(503)),
            list(300, "more", &[stored("a", 250, 7)]),
            Answer::Complete(410, status(410)),
            list(400, "", &[stored("a", 250, 7), stored("b", 91, 1), stored("c", 350, 1)]),
            Answer::Watch(vec![seen("MODIFIED", &stored("c", 401, 2))]),
        ])
        .await;
        let expected =
            ["list", "watch 100", "watch 101", "list", "list", "list more", "list", "watch 400", "watch 401"];
        assert_eq!(recorded.requests, expected);
        assert_eq!(recorded.lines, ["UPDATE a 2", "UPDATE a 7", "CREATE c 1", "UPDATE c 2"]);
        let counts = recorded.counts;
        assert_eq!((counts.gaps, counts.gap_writes, counts.gap_occurrences), (1, 2, 6));
        assert!(counts.gap_time > Duration::ZERO);
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_watch_is_opened_again_and_then_the_events_are_listed() {
    let began = clock::now();
    let same = [stored("a", 90, 1)];
    let recorded = record(vec![
        list(100, "", &same),
        Answer::Silent,
        Answer::Silent,
        Answer::Silent,
        list(900, "", &same),
    ])
    .await;
    assert_eq!(recorded.requests, ["list", "watch 100", "watch 100", "watch 100", "list", "watch 900"]);
    assert_eq!((recorded.counts.gaps, recorded.lines.len()), (0, 0));
    let took = clock::now().since(began);
    assert!((3 * SILENCE..4 * SILENCE).contains(&took), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn failing_watches_are_repeated_with_growing_pauses() {
    let began = clock::now();
    let failures = (0..8).map(|_| Answer::Complete(500, status(500)));
    let answers = [list(100, "", &[]), Answer::Watch(vec![])].into_iter().chain(failures).collect();
    let recorded = record(answers).await;
    assert!(recorded.requests[1..].iter().all(|request| request == "watch 100"));
    let took = clock::now().since(began);
    assert!((Duration::from_secs(20)..Duration::from_secs(150)).contains(&took), "{took:?}");
    assert!(recorded.counts.missing_at_end > Duration::from_secs(20));
}

async fn refusal(answers: Vec<Answer>) -> String {
    let (service, mut server) = mock::pair::<HttpRequest<Body>, Response<AnswerBody>>();
    let events = RecordedEvents::new(Client::new(service, "default"), Some("shop"));
    let serving = async {
        for answer in answers {
            let (_, send) = server.next_request().await.unwrap();
            send.send_response(answer.response());
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = serving => panic!("it waits for more requests"),
        begun = events.begin() => format!("{:#}", begun.map(drop).unwrap_err()),
    }
}

#[tokio::test(start_paused = true)]
async fn a_missing_right_is_named_before_anything_is_written() {
    let list_refused = refusal(vec![Answer::Complete(403, status(403))]).await;
    assert!(list_refused.starts_with("you may not list events in shop;"), "{list_refused}");
    let watch_refused = refusal(vec![list(100, "", &[]), Answer::Complete(403, status(403))]).await;
    assert!(watch_refused.starts_with("you may not watch events in shop;"), "{watch_refused}");
    assert!(watch_refused.contains("ask for"), "{watch_refused}");
    let failed = refusal(vec![Answer::Complete(401, status(401))]).await;
    assert!(failed.starts_with("cannot list events in shop: 401 no; check"), "{failed}");
}

#[tokio::test(start_paused = true)]
async fn a_list_that_always_expires_is_an_error() {
    let round = || [list(100, "more", &[stored("a", 90, 1)]), Answer::Complete(410, status(410))];
    let expired = refusal([round(), round(), round()].into_iter().flatten().collect()).await;
    assert!(expired.starts_with("cannot list events in shop: the API server has discarded"), "{expired}");
    assert!(expired.ends_with("one namespace with -n"), "{expired}");
}
