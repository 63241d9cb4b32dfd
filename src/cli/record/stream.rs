//! Lists and watches Events, and passes what the API server sends to the recording.
//!
//! The API is `v1`. Both APIs show the same stored objects, and neither loses a field; reviews have the fields of `v1`,
//! which `squelch replay` reads without a conversion. The API of a client is in managedFields, in both.
//!
//! Watches of Events are not served from a cache: they show each write once, and have no bookmarks (kube-apiserver's
//! default watch cache size of events is 0). A namespace without Events is silent for hours, and so is a dead connection.
//! So a silent watch is opened again from the last version, which loses nothing.

use std::convert::Infallible;
use std::time::Duration;

use anyhow::{Result, anyhow};
use futures::StreamExt as _;
use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::Event;
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::core::{Request, Status};
use kube::{Client, Resource as _};
use serde_json::Value;
use tokio::sync::mpsc::Sender;
use tokio::time::{sleep, timeout};

use super::progress::RecordProgress;
use super::recording::{EventPage, Recording};
use crate::clock;
use crate::output::with_causes;
use crate::replay::text::clean;
use crate::watching::WatchBackoff;

/// Maximum Events of a page. As of kubectl.
const PAGE: u32 = 500;

/// Timeout of a page, and of the head of a watch. The API server ends a list after 60 s.
const RESPONSE: Duration = Duration::from_secs(60);

/// Maximum time without an event of a watch.
const SILENCE: Duration = Duration::from_secs(90);

/// `timeoutSeconds` of a watch. As of kube's watcher.
const WATCH_SECONDS: u32 = 290;

/// A watch that lived this long is opened again without a pause.
const LIVED: Duration = Duration::from_secs(10);

/// After this number of first lists that expired before a watch, one after the other, there is no recording.
const EXPIRED_LISTS: u32 = 3;

/// Maximum characters of a reason.
const REASON: usize = 300;

/// The events of a watch.
pub(super) type EventWatch = BoxStream<'static, kube::Result<WatchEvent<Value>>>;

/// Why a list or a watch has ended.
#[derive(Debug)]
pub(super) enum Interruption {
    /// The API server has discarded the version (410).
    Expired,
    /// Nothing was received for [`SILENCE`].
    Silent,
    /// The API server has closed the watch.
    Closed,
    /// The user may not do it (403).
    Forbidden,
    /// Another error.
    Failed(String),
    /// The output takes no more lines.
    NoOutput,
}

impl From<kube::Error> for Interruption {
    fn from(error: kube::Error) -> Self {
        match &error {
            kube::Error::Api(status) => Self::of(status),
            error => Self::Failed(clean(&with_causes(error), REASON)),
        }
    }
}

impl Interruption {
    fn of(status: &Status) -> Self {
        match status.code {
            410 => Self::Expired,
            403 => Self::Forbidden,
            code => Self::Failed(clean(&format!("{code} {}", status.message), REASON)),
        }
    }
}

/// The Events that are recorded.
pub(super) struct RecordedEvents {
    client: Client,
    request: Request,
    /// Where they are, for messages.
    pub(super) place: String,
}

impl RecordedEvents {
    /// The Events of a namespace, or of all.
    pub(super) fn new(client: Client, namespace: Option<&str>) -> Self {
        let request = Request::new(Event::url_path(&(), namespace));
        let place =
            namespace.map_or_else(|| "all namespaces".to_owned(), |namespace| clean(namespace, REASON));
        Self { client, request, place }
    }

    /// Reads all Events, and opens the first watch.
    ///
    /// # Errors
    /// The user may not read the Events, the API server cannot be reached, or no list ends before it expires.
    pub(super) async fn begin(&self) -> Result<(Recording, EventWatch)> {
        let (mut backoff, mut lists) = (WatchBackoff::default(), 0);
        loop {
            lists += 1;
            let mut recording = Recording::default();
            let begun = match self.list(&mut recording, None).await {
                Ok(()) => {
                    self.watch(recording.version()).await.map_err(|interruption| ("watch", interruption))
                }
                Err(interruption) => Err(("list", interruption)),
            };
            match begun {
                Ok(watch) => return Ok((recording, watch)),
                Err((_, Interruption::Expired)) if lists < EXPIRED_LISTS => {
                    sleep(backoff.next().unwrap_or(LIVED)).await;
                }
                Err((verb, interruption)) => return Err(anyhow!(self.reason(verb, &interruption))),
            }
        }
    }

    /// Records until the output takes no more lines.
    pub(super) async fn record(
        &self,
        recording: &mut Recording,
        first: EventWatch,
        output: &Sender<String>,
        progress: &RecordProgress,
    ) {
        let (mut watch, mut backoff, mut said) = (Some(first), WatchBackoff::default(), String::new());
        loop {
            let began = clock::now();
            let Err(interruption) = self.follow(watch.take(), recording, output, progress).await;
            let now = clock::now();
            let is_short = now.since(began) < LIVED;
            if !is_short {
                said.clear();
            }
            match &interruption {
                Interruption::NoOutput => return,
                Interruption::Closed => recording.closed(now),
                Interruption::Silent => recording.silent(now),
                Interruption::Expired => recording.expired(now),
                Interruption::Forbidden | Interruption::Failed(_) => recording.disconnected(now),
            }
            if !matches!(interruption, Interruption::Closed | Interruption::Silent) {
                let reason = self.reason("watch", &interruption);
                if reason != said {
                    progress.say(&format!("squelch: {reason}. The recording continues with the next watch."));
                    said = reason;
                }
            }
            if is_short {
                sleep(backoff.next().unwrap_or(LIVED)).await;
            }
        }
    }

    /// Lists if that is necessary, and records one watch until it ends.
    async fn follow(
        &self,
        watch: Option<EventWatch>,
        recording: &mut Recording,
        output: &Sender<String>,
        progress: &RecordProgress,
    ) -> Result<Infallible, Interruption> {
        if recording.needs_list() {
            self.list(recording, Some(output)).await?;
        }
        let mut watch = match watch {
            Some(watch) => watch,
            None => self.watch(recording.version()).await?,
        };
        recording.connected(clock::now());
        loop {
            // Before the next event is taken: the recording may end at each await, and no event may be lost then.
            let place = output.reserve().await.map_err(|_| Interruption::NoOutput)?;
            let next = timeout(SILENCE, watch.next()).await.map_err(|_| Interruption::Silent)?;
            let event = next.ok_or(Interruption::Closed)??;
            if let WatchEvent::Error(status) = &event {
                return Err(Interruption::of(status));
            }
            place.send(recording.watched(event, clock::now()));
            progress.show(recording);
        }
    }

    /// Passes all pages to the recording. Only the first list needs no output: its Events are no writes.
    async fn list(
        &self,
        recording: &mut Recording,
        output: Option<&Sender<String>>,
    ) -> Result<(), Interruption> {
        recording.begin_list();
        let mut token = String::new();
        loop {
            let place = match output {
                Some(output) => Some(output.reserve().await.map_err(|_| Interruption::NoOutput)?),
                None => None,
            };
            let params = ListParams::default().limit(PAGE);
            let params = if token.is_empty() { params } else { params.continue_token(&token) };
            let request =
                self.request.list(&params).map_err(|error| Interruption::Failed(error.to_string()))?;
            let page = timeout(RESPONSE, self.client.request::<EventPage>(request)).await;
            let page = page.map_err(|_| no_response())??;
            page.next().clone_into(&mut token);
            let lines = recording.page(page, clock::now());
            if let Some(place) = place {
                place.send(lines);
            }
            if token.is_empty() {
                return Ok(());
            }
        }
    }

    async fn watch(&self, version: &str) -> Result<EventWatch, Interruption> {
        let params = WatchParams::default().timeout(WATCH_SECONDS);
        let request = self.request.watch(&params, version);
        let request = request.map_err(|error| Interruption::Failed(error.to_string()))?;
        let watch = timeout(RESPONSE, self.client.request_events::<Value>(request)).await;
        Ok(watch.map_err(|_| no_response())??.boxed())
    }

    /// What is missing, and what to do next.
    fn reason(&self, verb: &str, interruption: &Interruption) -> String {
        let place = &self.place;
        match interruption {
            Interruption::Forbidden => format!(
                "you may not {verb} events in {place}; a recording needs the verbs list and watch on events there: ask \
                 for the ClusterRole view in a namespace and name it with -n, or for a ClusterRoleBinding to record \
                 all namespaces"
            ),
            Interruption::Failed(reason) => format!(
                "cannot {verb} events in {place}: {reason}; check that the API server runs, and its address and the \
                 user in the kubeconfig"
            ),
            Interruption::Expired => format!(
                "cannot {verb} events in {place}: the API server has discarded the version of the list (410); if that \
                 repeats, record fewer Events, such as those of one namespace with -n"
            ),
            other => format!("cannot {verb} events in {place}: {other:?}"),
        }
    }
}

fn no_response() -> Interruption {
    Interruption::Failed(format!("no response for {} s", RESPONSE.as_secs()))
}

#[cfg(test)]
mod tests;
