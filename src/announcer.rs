//! Events that squelch tells of itself: what became of a policy, and whether the webhook is armed. Few, only on change,
//! and never waited for: whoever has something to tell goes on at once.

use std::collections::HashMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

/// So many may wait to be written. Statuses, which most of them follow, are written at `--status-qps`.
const WAITING: usize = 256;
/// How long one write may take.
const DEADLINE: Duration = Duration::from_secs(5);
/// The longest note that the API server takes, in bytes.
const LONGEST_NOTE: usize = 1024;
/// So many different Events are remembered, to tell which are repeats.
const REMEMBERED: usize = 1024;
/// Whose Events they are (`reportingController`).
const CONTROLLER: &str = "squelch.dev/squelch";

/// One Event to be told.
#[derive(Clone, Debug, PartialEq)]
pub struct Announcement {
    /// What it is about.
    pub regarding: ObjectReference,
    /// It is something to look after (`Warning`), or not (`Normal`).
    pub warning: bool,
    /// One word, such as `Accepted`.
    pub reason: &'static str,
    /// What squelch was doing, in one word.
    pub action: &'static str,
    /// A sentence.
    pub note: String,
}

/// Takes announcements.
#[derive(Clone, Debug)]
pub struct Announcer {
    queue: mpsc::Sender<Announcement>,
}

/// Announcements on their way to [`run`].
pub struct Announced(mpsc::Receiver<Announcement>);

impl Announcer {
    /// An announcer, and what it takes.
    pub fn new() -> (Self, Announced) {
        let (queue, announced) = mpsc::channel(WAITING);
        (Self { queue }, Announced(announced))
    }

    /// Tells it, sometime. Where too many wait it is only logged.
    pub fn tell(&self, announcement: Announcement) {
        if let Err(unsaid) = self.queue.try_send(announcement) {
            let (mpsc::error::TrySendError::Full(unsaid) | mpsc::error::TrySendError::Closed(unsaid)) =
                unsaid;
            warn!(
                reason = unsaid.reason,
                note = unsaid.note,
                "too many Events wait: this one is not written"
            );
        }
    }
}

#[cfg(test)]
impl Announced {
    /// The next that waits.
    pub(crate) fn next(&mut self) -> Option<Announcement> {
        self.0.try_recv().ok()
    }
}

/// Writes what is announced. Ends when `stop` is cancelled and nothing waits any more.
pub async fn run(client: Client, announced: Announced, stop: CancellationToken) {
    let Announced(mut queue) = announced;
    let mut writer = Writer::new(client, reporter());
    loop {
        let next = tokio::select! {
            biased;
            next = queue.recv() => next,
            () = stop.cancelled() => None,
        };
        let Some(announcement) = next else { return };
        writer.write(announcement).await;
    }
}

/// squelch, in this pod.
fn reporter() -> Reporter {
    CONTROLLER.into()
}

/// Writes Events one after the other. What is told again within minutes counts up the Event that is there, which
/// [`Recorder`] does, but under the note of the first: with another note it is an Event of its own.
struct Writer {
    client: Client,
    reporter: Reporter,
    recorder: Recorder,
    /// The notes of the Events that `recorder` may count up.
    notes: HashMap<(Option<String>, &'static str), String>,
}

impl Writer {
    fn new(client: Client, reporter: Reporter) -> Self {
        let recorder = Recorder::new(client.clone(), reporter.clone());
        Self { client, reporter, recorder, notes: HashMap::new() }
    }

    async fn write(&mut self, announcement: Announcement) {
        let Announcement { regarding, warning, reason, action, mut note } = announcement;
        note.truncate(note.floor_char_boundary(LONGEST_NOTE));
        let about = (regarding.uid.clone().or_else(|| regarding.name.clone()), reason);
        if self.notes.get(&about).is_some_and(|told| *told != note) || self.notes.len() >= REMEMBERED {
            self.forget();
        }
        let event = Event {
            type_: if warning { EventType::Warning } else { EventType::Normal },
            reason: reason.to_owned(),
            note: Some(note.clone()),
            action: action.to_owned(),
            secondary: None,
        };
        // The one that it would have counted up may be gone.
        for last_attempt in [false, true] {
            let written = tokio::time::timeout(DEADLINE, self.recorder.publish(&event, &regarding)).await;
            let error = match written {
                Ok(Ok(())) => {
                    self.notes.insert(about, note);
                    return;
                }
                Ok(Err(error)) => error.to_string(),
                Err(_) => format!("no answer within {} s", DEADLINE.as_secs()),
            };
            self.forget();
            if last_attempt {
                warn!(reason, note, %error, "an Event of squelch's own could not be written");
            } else {
                debug!(reason, %error, "an Event of squelch's own could not be written; trying once more");
            }
        }
    }

    fn forget(&mut self) {
        self.recorder = Recorder::new(self.client.clone(), self.reporter.clone());
        self.notes.clear();
    }
}

#[cfg(test)]
mod tests {
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

    /// Answers every call with what it was sent, but those at the places that `refused` names; what it was asked.
    async fn serve(mut server: ApiServer, refused: &[(usize, u16)]) -> Vec<(String, Value)> {
        let mut asked = Vec::new();
        while let Some((request, send)) = server.next_request().await {
            let (head, body) = request.into_parts();
            let body: Value = serde_json::from_slice(&body.collect_bytes().await.unwrap()).unwrap();
            let (code, answer) = match refused.iter().find(|(at, _)| *at == asked.len()) {
                Some((_, code)) => (*code, json!({"kind": "Status", "status": "Failure", "code": code})),
                None => (200, body.clone()),
            };
            asked.push((head.method.to_string(), body));
            let answer = Response::builder().status(code).body(Body::from(answer.to_string().into_bytes()));
            send.send_response(answer.unwrap());
        }
        asked
    }

    /// What the API server is asked when these are told, one after the other, and squelch stops.
    async fn told(notes: &[&str], refused: &[(usize, u16)]) -> Vec<(String, Value)> {
        let (service, server) = mock::pair();
        let (announcer, announced) = Announcer::new();
        notes.iter().for_each(|note| announcer.tell(announcement(note)));
        let stop = CancellationToken::new();
        stop.cancel();
        let client = Client::new(service, "default");
        let ((), asked) = tokio::join!(run(client, announced, stop), serve(server, refused));
        asked
    }

    fn verbs_and_notes(asked: &[(String, Value)]) -> Vec<(&str, &str)> {
        asked.iter().map(|(verb, event)| (&**verb, event["note"].as_str().unwrap())).collect()
    }

    #[tokio::test]
    async fn an_announcement_is_an_event_about_its_object_and_a_stop_loses_none() {
        let asked = told(&["spec.budget is wrong"], &[]).await;
        let [(verb, event)] = &asked[..] else { panic!("{asked:?}") };
        assert_eq!(verb, "POST");
        assert_eq!((&event["type"], &event["reason"]), (&json!("Warning"), &json!("Rejected")));
        assert_eq!(event["note"], "spec.budget is wrong");
        assert_eq!(event["metadata"]["namespace"], "ci");
        assert_eq!(event["regarding"]["uid"], "u1");
        assert_eq!(event["reportingController"], CONTROLLER);
    }

    #[tokio::test]
    async fn the_same_again_counts_up_and_another_note_is_another_event() {
        let asked = told(&["one", "one", "two", "two"], &[]).await;
        let said = [("POST", "one"), ("PATCH", "one"), ("POST", "two"), ("PATCH", "two")];
        assert_eq!(verbs_and_notes(&asked), said);
        assert_eq!(asked[1].1["series"]["count"], 2);
    }

    #[tokio::test]
    async fn where_the_first_is_gone_a_new_one_is_made() {
        let asked = told(&["one", "one", "one"], &[(1, 404)]).await;
        let said = [("POST", "one"), ("PATCH", "one"), ("POST", "one"), ("PATCH", "one")];
        assert_eq!(verbs_and_notes(&asked), said);
    }

    #[tokio::test]
    async fn a_note_is_cut_to_what_the_api_server_takes_and_refusals_end() {
        let asked = told(&[&"ä".repeat(600)], &[(0, 500), (1, 500)]).await;
        assert_eq!(asked.len(), 2);
        assert_eq!(asked[0].1["note"].as_str().unwrap().len(), 1024);
    }

    #[test]
    fn too_many_are_not_kept() {
        let (announcer, announced) = Announcer::new();
        for _ in 0..=WAITING {
            announcer.tell(announcement("one"));
        }
        assert_eq!(announced.0.len(), WAITING);
    }
}
