//! Events that squelch tells of itself: what became of a policy, and whether the webhook is armed. Few, only on change,
//! and never waited for: whoever has something to tell goes on at once.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use tokio::sync::Notify;
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
pub struct Announcer(Arc<Queue>);

/// Announcements on their way to [`run`].
pub struct Announced(Arc<Queue>);

/// Anybody who can edit a policy can cause announcements. So of the same object and reason only the newest waits, and
/// namespaces take turns.
#[derive(Debug, Default)]
struct Queue {
    waiting: Mutex<Waiting>,
    added: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    /// The oldest first.
    announcements: VecDeque<Announcement>,
    /// How many of each namespace were taken since nothing waited.
    taken: HashMap<Option<String>, usize>,
}

impl Announcer {
    /// An announcer, and what it takes.
    pub fn new() -> (Self, Announced) {
        let queue = Arc::<Queue>::default();
        (Self(queue.clone()), Announced(queue))
    }

    /// Adds it to those that wait to be written. Where too many wait, one is only logged.
    pub fn tell(&self, announcement: Announcement) {
        if let Some(unsaid) = self.0.waiting().add(announcement) {
            warn!(
                reason = unsaid.reason,
                note = unsaid.note,
                "too many Events wait: this one is not written"
            );
        }
        self.0.added.notify_one();
    }
}

impl Announced {
    /// The next that waits.
    pub(crate) fn next(&mut self) -> Option<Announcement> {
        self.0.waiting().take()
    }
}

impl Queue {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        // A panic elsewhere leaves a list of announcements all the same.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    /// Adds the newest announcement of an object. Returns the one that there is no room for: the oldest of the namespace
    /// that has most of them.
    fn add(&mut self, announcement: Announcement) -> Option<Announcement> {
        let about = |one: &Announcement| (one.regarding.uid.clone(), one.regarding.name.clone(), one.reason);
        let newest = about(&announcement);
        // At the end, so that an older one of another reason does not seem to be newer.
        self.announcements.retain(|waiting| about(waiting) != newest);
        self.announcements.push_back(announcement);
        if self.announcements.len() <= WAITING {
            return None;
        }
        let mut number_of: HashMap<&Option<String>, usize> = HashMap::new();
        for one in &self.announcements {
            *number_of.entry(&one.regarding.namespace).or_default() += 1;
        }
        let (largest, _) = number_of.into_iter().max_by_key(|(_, number)| *number)?;
        let largest = largest.clone();
        let oldest = self.announcements.iter().position(|one| one.regarding.namespace == largest)?;
        self.announcements.remove(oldest)
    }

    /// Takes the oldest announcement of the namespace of which fewest were taken.
    fn take(&mut self) -> Option<Announcement> {
        let taken = |one: &Announcement| self.taken.get(&one.regarding.namespace).copied().unwrap_or(0);
        let (next, _) = self.announcements.iter().enumerate().min_by_key(|(_, one)| taken(one))?;
        let next = self.announcements.remove(next)?;
        if self.announcements.is_empty() || self.taken.len() >= REMEMBERED {
            self.taken.clear();
        } else {
            *self.taken.entry(next.regarding.namespace.clone()).or_default() += 1;
        }
        Some(next)
    }
}

/// Writes what is announced. Ends when `stop` is cancelled and nothing waits any more.
pub async fn run(client: Client, mut announced: Announced, stop: CancellationToken) {
    let mut writer = Writer::new(client, reporter());
    loop {
        if let Some(announcement) = announced.next() {
            writer.write(announcement).await;
        } else if stop.run_until_cancelled(announced.0.added.notified()).await.is_none() {
            return;
        }
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
    /// The Events that can be counted up, by uid or name of their object and by reason.
    written: HashMap<(Option<String>, &'static str), Written>,
    /// How many Events were written.
    number: u64,
}

/// An Event that was written, and the one recorder that knows it.
struct Written {
    note: String,
    recorder: Recorder,
    /// Which one it was.
    number: u64,
}

impl Writer {
    fn new(client: Client, reporter: Reporter) -> Self {
        Self { client, reporter, written: HashMap::new(), number: 0 }
    }

    async fn write(&mut self, announcement: Announcement) {
        let Announcement { regarding, warning, reason, action, mut note } = announcement;
        note.truncate(note.floor_char_boundary(LONGEST_NOTE));
        let event = Event {
            type_: if warning { EventType::Warning } else { EventType::Normal },
            reason: reason.to_owned(),
            note: Some(note.clone()),
            action: action.to_owned(),
            secondary: None,
        };
        let about = (regarding.uid.clone().or_else(|| regarding.name.clone()), reason);
        let same = self.written.remove(&about).filter(|written| written.note == note);
        let mut recorder = same.map_or_else(|| self.recorder(), |written| written.recorder);
        // The one that it would have counted up may be gone.
        for last_attempt in [false, true] {
            let written = tokio::time::timeout(DEADLINE, recorder.publish(&event, &regarding)).await;
            let error = match written {
                Ok(Ok(())) => {
                    self.remember(about, note, recorder);
                    return;
                }
                Ok(Err(error)) => error.to_string(),
                Err(_) => format!("no answer within {} s", DEADLINE.as_secs()),
            };
            recorder = self.recorder();
            if last_attempt {
                warn!(reason, note, %error, "an Event of squelch's own could not be written");
            } else {
                debug!(reason, %error, "an Event of squelch's own could not be written; trying once more");
            }
        }
    }

    fn recorder(&self) -> Recorder {
        Recorder::new(self.client.clone(), self.reporter.clone())
    }

    fn remember(&mut self, about: (Option<String>, &'static str), note: String, recorder: Recorder) {
        if self.written.len() >= REMEMBERED {
            let oldest = self.written.iter().min_by_key(|(_, written)| written.number);
            if let Some(oldest) = oldest.map(|(about, _)| about.clone()) {
                self.written.remove(&oldest);
            }
        }
        self.number += 1;
        self.written.insert(about, Written { note, recorder, number: self.number });
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

    /// The same about another policy.
    fn about(namespace: &str, name: &str, note: &str) -> Announcement {
        let Announcement { mut regarding, .. } = announcement(note);
        (regarding.namespace, regarding.name) = (Some(namespace.into()), Some(name.into()));
        regarding.uid = Some(format!("uid-of-{namespace}-{name}"));
        Announcement { regarding, ..announcement(note) }
    }

    /// What the API server is asked when these are announced, each once the one before is written.
    async fn written(announcements: &[Announcement], refused: &[(usize, u16)]) -> Vec<(String, Value)> {
        let (service, server) = mock::pair();
        let write = async {
            let mut writer = Writer::new(Client::new(service, "default"), reporter());
            for announcement in announcements {
                writer.write(announcement.clone()).await;
            }
        };
        let ((), asked) = tokio::join!(write, serve(server, refused));
        asked
    }

    async fn told(notes: &[&str], refused: &[(usize, u16)]) -> Vec<(String, Value)> {
        written(&notes.iter().map(|note| announcement(note)).collect::<Vec<_>>(), refused).await
    }

    /// Names and notes of what waits, in the order in which it is written.
    fn waiting(announced: &mut Announced) -> Vec<(String, String)> {
        let next = || announced.next().map(|next| (next.regarding.name.unwrap(), next.note));
        std::iter::from_fn(next).collect()
    }

    fn pairs<const N: usize>(expected: [(&str, &str); N]) -> [(String, String); N] {
        expected.map(|(name, note)| (name.to_owned(), note.to_owned()))
    }

    fn verbs_and_notes(asked: &[(String, Value)]) -> Vec<(&str, &str)> {
        asked.iter().map(|(verb, event)| (&**verb, event["note"].as_str().unwrap())).collect()
    }

    #[tokio::test]
    async fn an_announcement_is_an_event_about_its_object_and_a_stop_loses_none() {
        let (service, server) = mock::pair();
        let (announcer, announced) = Announcer::new();
        announcer.tell(announcement("spec.budget is wrong"));
        let stop = CancellationToken::new();
        stop.cancel();
        let client = Client::new(service, "default");
        let ((), asked) = tokio::join!(run(client, announced, stop), serve(server, &[]));
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
    async fn a_policy_whose_note_changes_does_not_make_others_events_new() {
        let quiet = about("shop", "quiet", "x");
        let [one, two] = ["one", "two"].map(|note| about("ci", "edited", note));
        let asked = written(&[quiet.clone(), one, two, quiet], &[]).await;
        assert_eq!(
            verbs_and_notes(&asked),
            [("POST", "x"), ("POST", "one"), ("POST", "two"), ("PATCH", "x")]
        );
    }

    #[test]
    fn newer_news_of_a_policy_replaces_what_waits() {
        let (announcer, mut announced) = Announcer::new();
        announcer.tell(about("ci", "edited", "first"));
        announcer.tell(about("ci", "other", "x"));
        (0..2 * WAITING).for_each(|number| announcer.tell(about("ci", "edited", &number.to_string())));
        announcer.tell(about("ci", "last", "y"));
        let last = (2 * WAITING - 1).to_string();
        assert_eq!(waiting(&mut announced), pairs([("other", "x"), ("edited", &last), ("last", "y")]));
    }

    #[test]
    fn policies_of_one_namespace_do_not_crowd_out_those_of_others() {
        let (announcer, mut announced) = Announcer::new();
        (0..2 * WAITING).for_each(|number| announcer.tell(about("greedy", &number.to_string(), "x")));
        announcer.tell(about("shop", "quiet", "y"));
        let waiting = waiting(&mut announced);
        assert_eq!(waiting.len(), WAITING);
        assert!(waiting[..2].contains(&("quiet".to_owned(), "y".to_owned())), "{:?}", &waiting[..2]);
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
        let (announcer, mut announced) = Announcer::new();
        for number in 0..=WAITING {
            announcer.tell(about("ci", &number.to_string(), "one"));
        }
        assert_eq!(waiting(&mut announced).len(), WAITING);
    }
}
