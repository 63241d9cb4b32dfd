use http::{Request, Response};
use kube::client::Body;
use serde_json::{Value, json};
use tower_test::mock::{self, Handle};

use super::*;

type ApiServer = Handle<Request<Body>, Response<Body>>;

fn announcement(note: &str) -> Announcement {
    let regarding = ObjectReference {
        api_version: Some("squelch.dev/v1alpha1".into()),
        kind: Some("EventPolicy".into()),
        namespace: Some("ci".into()),
        name: Some("quiet".into()),
        uid: Some("u1".into()),
        ..ObjectReference::default()
    };
    Announcement { regarding, warning: true, reason: "Rejected", action: "Accept", note: note.to_owned() }
}

/// Responds to each request with its body, or with the status code that `failures` has for its index. Returns the
/// requests.
async fn serve(mut server: ApiServer, failures: &[(usize, u16)]) -> Vec<(String, Value)> {
    let mut requests = Vec::new();
    while let Some((request, send)) = server.next_request().await {
        let (head, body) = request.into_parts();
        let body: Value = serde_json::from_slice(&body.collect_bytes().await.unwrap()).unwrap();
        let (code, response) = match failures.iter().find(|(at, _)| *at == requests.len()) {
            Some((_, code)) => (*code, json!({"kind": "Status", "status": "Failure", "code": code})),
            None => (200, body.clone()),
        };
        requests.push((head.method.to_string(), body));
        let response = Response::builder().status(code).body(Body::from(response.to_string().into_bytes()));
        send.send_response(response.unwrap());
    }
    requests
}

/// An announcement about another policy.
fn about(namespace: &str, name: &str, note: &str) -> Announcement {
    let Announcement { mut regarding, .. } = announcement(note);
    (regarding.namespace, regarding.name) = (Some(namespace.into()), Some(name.into()));
    regarding.uid = Some(format!("uid-of-{namespace}-{name}"));
    Announcement { regarding, ..announcement(note) }
}

/// Emits these announcements one after the other, and returns the requests.
async fn emit(announcements: &[Announcement], failures: &[(usize, u16)]) -> Vec<(String, Value)> {
    let (service, server) = mock::pair();
    let emit = async {
        let mut emitter = EventEmitter::new(Client::new(service, "default"), reporter());
        for announcement in announcements {
            emitter.emit(announcement.clone()).await;
        }
    };
    let ((), requests) = tokio::join!(emit, serve(server, failures));
    requests
}

async fn emit_notes(notes: &[&str], failures: &[(usize, u16)]) -> Vec<(String, Value)> {
    emit(&notes.iter().map(|note| announcement(note)).collect::<Vec<_>>(), failures).await
}

/// Names and notes of the queued announcements, in the order of emission.
fn queued(receiver: &mut AnnouncementReceiver) -> Vec<(String, String)> {
    let next = || receiver.next().map(|next| (next.regarding.name.unwrap(), next.note));
    std::iter::from_fn(next).collect()
}

fn pairs<const N: usize>(expected: [(&str, &str); N]) -> [(String, String); N] {
    expected.map(|(name, note)| (name.to_owned(), note.to_owned()))
}

fn verbs_and_notes(requests: &[(String, Value)]) -> Vec<(&str, &str)> {
    requests.iter().map(|(verb, event)| (&**verb, event["note"].as_str().unwrap())).collect()
}

#[tokio::test]
async fn a_queued_event_about_its_object_is_emitted_before_the_stop() {
    let (service, server) = mock::pair();
    let (announcer, receiver) = Announcer::new();
    announcer.announce(announcement("spec.budget is wrong"));
    let stop = CancellationToken::new();
    stop.cancel();
    let client = Client::new(service, "default");
    let ((), requests) = tokio::join!(run(client, receiver, stop), serve(server, &[]));
    let [(verb, event)] = &requests[..] else { panic!("{requests:?}") };
    assert_eq!(verb, "POST");
    assert_eq!((&event["type"], &event["reason"]), (&json!("Warning"), &json!("Rejected")));
    assert_eq!(event["note"], "spec.budget is wrong");
    assert_eq!(event["metadata"]["namespace"], "ci");
    assert_eq!(event["regarding"]["uid"], "u1");
    assert_eq!(event["reportingController"], REPORTING_CONTROLLER);
}

#[tokio::test]
async fn an_event_about_an_object_with_a_long_name_gets_a_shorter_name() {
    let long = format!("{}-{}", "a".repeat(235), "b".repeat(17));
    let requests = emit(&[about("ci", &long, "x"), about("ci", "quiet", "x")], &[]).await;
    let mut events: Vec<_> = requests.into_iter().map(|(_, event)| event).collect();
    assert_eq!(events[0]["regarding"]["name"], long);
    let name = events[0]["metadata"]["name"].as_str().unwrap();
    assert!(name.len() <= 253 && name.starts_with(&format!("{}.", "a".repeat(235))), "{name}");
    for event in &mut events {
        event["metadata"]["name"].take();
        event["regarding"].take();
        event["eventTime"].take();
    }
    assert_eq!(events[0], events[1], "that of a Recorder");
}

#[tokio::test]
async fn a_repeat_increments_the_series_and_another_note_is_a_new_event() {
    let requests = emit_notes(&["one", "one", "two", "two"], &[]).await;
    let expected = [("POST", "one"), ("PATCH", "one"), ("POST", "two"), ("PATCH", "two")];
    assert_eq!(verbs_and_notes(&requests), expected);
    assert_eq!(requests[1].1["series"]["count"], 2);
}

#[tokio::test]
async fn a_changed_note_of_one_policy_keeps_the_series_of_others() {
    let quiet = about("shop", "quiet", "x");
    let [one, two] = ["one", "two"].map(|note| about("ci", "edited", note));
    let requests = emit(&[quiet.clone(), one, two, quiet], &[]).await;
    assert_eq!(verbs_and_notes(&requests), [("POST", "x"), ("POST", "one"), ("POST", "two"), ("PATCH", "x")]);
}

#[test]
fn a_later_announcement_replaces_a_queued_one_of_the_same_policy() {
    let (announcer, mut receiver) = Announcer::new();
    announcer.announce(about("ci", "edited", "first"));
    announcer.announce(about("ci", "other", "x"));
    (0..2 * MAX_QUEUED).for_each(|number| announcer.announce(about("ci", "edited", &number.to_string())));
    announcer.announce(about("ci", "last", "y"));
    let last = (2 * MAX_QUEUED - 1).to_string();
    assert_eq!(queued(&mut receiver), pairs([("other", "x"), ("edited", &last), ("last", "y")]));
}

#[test]
fn policies_of_one_namespace_do_not_delay_those_of_others() {
    let (announcer, mut receiver) = Announcer::new();
    (0..2 * MAX_QUEUED).for_each(|number| announcer.announce(about("greedy", &number.to_string(), "x")));
    announcer.announce(about("shop", "quiet", "y"));
    let queued = queued(&mut receiver);
    assert_eq!(queued.len(), MAX_QUEUED);
    assert!(queued[..2].contains(&("quiet".to_owned(), "y".to_owned())), "{:?}", &queued[..2]);
}

#[tokio::test]
async fn a_new_event_is_created_if_the_first_was_deleted() {
    let requests = emit_notes(&["one", "one", "one"], &[(1, 404)]).await;
    let expected = [("POST", "one"), ("PATCH", "one"), ("POST", "one"), ("PATCH", "one")];
    assert_eq!(verbs_and_notes(&requests), expected);
}

#[tokio::test]
async fn a_long_note_is_truncated_and_an_event_is_tried_twice() {
    let requests = emit_notes(&[&"ä".repeat(600)], &[(0, 500), (1, 500)]).await;
    assert_eq!(requests.len(), 2);
    assert_eq!(requests[0].1["note"].as_str().unwrap().len(), 1024);
}

#[test]
fn the_queue_has_a_capacity() {
    let (announcer, mut receiver) = Announcer::new();
    for number in 0..=MAX_QUEUED {
        announcer.announce(about("ci", &number.to_string(), "one"));
    }
    assert_eq!(queued(&mut receiver).len(), MAX_QUEUED);
}
