//! Events about squelch itself: the acceptance of policies, the active replica, and the arming of the webhook. They are
//! emitted only on changes, by a task of its own, so that callers never wait for the API server.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::PostParams;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Api, Client};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::{REPORTING_CONTROLLER, clock};

/// Maximum number of queued Events. Most of them follow the write of a status, which `--status-qps` limits.
const MAX_QUEUED: usize = 256;
/// Timeout of one write.
const DEADLINE: Duration = Duration::from_secs(5);
/// Maximum length of a note in bytes; the API server rejects longer ones.
const MAX_NOTE: usize = 1024;
/// Maximum length of an object's name for a [`Recorder`]. It makes the name of the Event by adding a dot and 16 digits, and
/// the API server accepts 253 bytes.
const MAX_RECORDED_NAME: usize = 253 - 17;
/// Maximum number of Events whose recorders are kept, to recognize repeats.
const MAX_REMEMBERED: usize = 1024;

/// An Event to be emitted.
#[derive(Clone, Debug, PartialEq)]
pub struct Announcement {
    /// The object that the Event is about.
    pub regarding: ObjectReference,
    /// Whether the type is `Warning`; otherwise it is `Normal`.
    pub warning: bool,
    /// The reason, such as `Accepted`.
    pub reason: &'static str,
    /// The action of squelch, in one word.
    pub action: &'static str,
    /// The note, a sentence.
    pub note: String,
}

/// Queues Events about squelch.
#[derive(Clone, Debug)]
pub struct Announcer(Arc<AnnouncementQueue>);

/// The receiver of queued Events, for [`run`].
pub struct AnnouncementReceiver(Arc<AnnouncementQueue>);

/// Every user who can edit a policy can cause announcements. So the queue keeps only the latest one for each object and
/// reason, and alternates between namespaces.
#[derive(Debug, Default)]
struct AnnouncementQueue {
    state: Mutex<QueueState>,
    added: Notify,
}

#[derive(Debug, Default)]
struct QueueState {
    /// From the oldest to the latest.
    announcements: VecDeque<Announcement>,
    /// Number of announcements taken per namespace since the queue was last empty.
    taken: HashMap<Option<String>, usize>,
}

impl Announcer {
    /// Creates a queue.
    pub fn new() -> (Self, AnnouncementReceiver) {
        let queue = Arc::<AnnouncementQueue>::default();
        (Self(queue.clone()), AnnouncementReceiver(queue))
    }

    /// Queues an Event. At capacity, one Event is logged instead of emitted.
    pub fn announce(&self, announcement: Announcement) {
        if let Some(evicted) = self.0.state().add(announcement) {
            warn!(
                reason = evicted.reason,
                note = evicted.note,
                "Event queue is at capacity, Event not emitted"
            );
        }
        self.0.added.notify_one();
    }
}

impl AnnouncementReceiver {
    /// Takes the next Event from the queue.
    pub(crate) fn next(&mut self) -> Option<Announcement> {
        self.0.state().take()
    }
}

impl AnnouncementQueue {
    fn state(&self) -> MutexGuard<'_, QueueState> {
        // The queue stays valid after a panic elsewhere.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl QueueState {
    /// Adds an announcement, and removes an older one of the same object and reason. At capacity, removes and returns the
    /// oldest announcement of the namespace with the most announcements.
    fn add(&mut self, announcement: Announcement) -> Option<Announcement> {
        let about = |one: &Announcement| (one.regarding.uid.clone(), one.regarding.name.clone(), one.reason);
        let latest = about(&announcement);
        // The latest one moves to the end: announcements of an object with different reasons stay in order.
        self.announcements.retain(|queued| about(queued) != latest);
        self.announcements.push_back(announcement);
        if self.announcements.len() <= MAX_QUEUED {
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

    /// Takes the oldest announcement of the namespace from which the fewest were taken.
    fn take(&mut self) -> Option<Announcement> {
        let taken = |one: &Announcement| self.taken.get(&one.regarding.namespace).copied().unwrap_or(0);
        let (next, _) = self.announcements.iter().enumerate().min_by_key(|(_, one)| taken(one))?;
        let next = self.announcements.remove(next)?;
        if self.announcements.is_empty() || self.taken.len() >= MAX_REMEMBERED {
            self.taken.clear();
        } else {
            *self.taken.entry(next.regarding.namespace.clone()).or_default() += 1;
        }
        Some(next)
    }
}

/// Emits the queued Events. Ends when `stop` is cancelled and the queue is empty.
pub async fn run(client: Client, mut receiver: AnnouncementReceiver, stop: CancellationToken) {
    let mut emitter = EventEmitter::new(client, reporter());
    loop {
        if let Some(announcement) = receiver.next() {
            emitter.emit(announcement).await;
        } else if stop.run_until_cancelled(receiver.0.added.notified()).await.is_none() {
            return;
        }
    }
}

fn reporter() -> Reporter {
    REPORTING_CONTROLLER.into()
}

/// Emits Events one after the other. A [`Recorder`] adds a repeat to the series of its Event and keeps the first note. So an
/// Event with another note gets a recorder of its own.
struct EventEmitter {
    client: Client,
    reporter: Reporter,
    /// The latest Events, by uid or name of their object and by reason.
    emitted: HashMap<(Option<String>, &'static str), Emitted>,
    /// Number of emitted Events.
    number: u64,
}

/// An emitted Event, with its recorder.
struct Emitted {
    note: String,
    recorder: Recorder,
    /// Sequence number.
    number: u64,
}

impl EventEmitter {
    fn new(client: Client, reporter: Reporter) -> Self {
        Self { client, reporter, emitted: HashMap::new(), number: 0 }
    }

    async fn emit(&mut self, announcement: Announcement) {
        let Announcement { regarding, warning, reason, action, mut note } = announcement;
        note.truncate(note.floor_char_boundary(MAX_NOTE));
        let event = Event {
            type_: if warning { EventType::Warning } else { EventType::Normal },
            reason: reason.to_owned(),
            note: Some(note.clone()),
            action: action.to_owned(),
            secondary: None,
        };
        let about = (regarding.uid.clone().or_else(|| regarding.name.clone()), reason);
        let same = self.emitted.remove(&about).filter(|emitted| emitted.note == note);
        let mut recorder = same.map_or_else(|| self.recorder(), |emitted| emitted.recorder);
        // The first attempt fails if the Event of the series was deleted.
        for last_attempt in [false, true] {
            let publish = self.publish(&recorder, &event, &regarding);
            let published = tokio::time::timeout(DEADLINE, publish).await;
            let error = match published {
                Ok(Ok(())) => {
                    self.remember(about, note, recorder);
                    return;
                }
                Ok(Err(error)) => error.to_string(),
                Err(_) => format!("no response within {} s", DEADLINE.as_secs()),
            };
            recorder = self.recorder();
            if last_attempt {
                warn!(reason, note, %error, "emitting an Event failed");
            } else {
                debug!(reason, %error, "emitting an Event failed, retrying");
            }
        }
    }

    /// Publishes an Event. One about an object with a long name gets a shorter name than that of a [`Recorder`], and no series.
    async fn publish(
        &self,
        recorder: &Recorder,
        event: &Event,
        regarding: &ObjectReference,
    ) -> kube::Result<()> {
        let mut name = regarding.name.clone().unwrap_or_default();
        if name.len() <= MAX_RECORDED_NAME {
            return recorder.publish(event, regarding).await;
        }
        name.truncate(name.floor_char_boundary(MAX_RECORDED_NAME));
        let (name, now) = (name.trim_end_matches(['-', '.']), clock::wall());
        let Reporter { controller, instance } = self.reporter.clone();
        let event = v1::Event {
            metadata: ObjectMeta {
                namespace: regarding.namespace.clone(),
                name: Some(format!("{name}.{:x}", now.as_nanosecond())),
                ..ObjectMeta::default()
            },
            event_time: Some(MicroTime(now)),
            regarding: Some(regarding.clone()),
            type_: Some(if event.type_ == EventType::Warning { "Warning" } else { "Normal" }.to_owned()),
            reason: Some(event.reason.clone()),
            note: event.note.clone(),
            action: Some(event.action.clone()),
            reporting_instance: Some(instance.unwrap_or_else(|| controller.clone())),
            reporting_controller: Some(controller),
            ..v1::Event::default()
        };
        let events: Api<v1::Event> =
            Api::namespaced(self.client.clone(), regarding.namespace.as_deref().unwrap_or("default"));
        events.create(&PostParams::default(), &event).await.map(|_| ())
    }

    fn recorder(&self) -> Recorder {
        Recorder::new(self.client.clone(), self.reporter.clone())
    }

    fn remember(&mut self, about: (Option<String>, &'static str), note: String, recorder: Recorder) {
        if self.emitted.len() >= MAX_REMEMBERED {
            let oldest = self.emitted.iter().min_by_key(|(_, emitted)| emitted.number);
            if let Some(oldest) = oldest.map(|(about, _)| about.clone()) {
                self.emitted.remove(&oldest);
            }
        }
        self.number += 1;
        self.emitted.insert(about, Emitted { note, recorder, number: self.number });
    }
}

#[cfg(test)]
mod tests;
