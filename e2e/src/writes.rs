//! All writes of Events in etcd. A watch of Events is not served from a cache: it delivers each write exactly once,
//! in the order of `resourceVersion`s.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Result, ensure};
use futures::TryStreamExt as _;
use k8s_openapi::api::core::v1::Event;
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::{Api, Client};
use tokio::task::JoinHandle;

use crate::events;
use crate::wait::{GENEROUS, not_yet, wait_for};

/// The kind of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A new Event.
    Added,
    /// A change.
    Modified,
    /// A deletion.
    Deleted,
}

/// One write and the resulting Event.
#[derive(Clone, Debug)]
pub struct Write {
    /// The kind.
    pub kind: Kind,
    /// etcd's revision.
    pub resource_version: String,
    /// The Event; for a deletion, its last state.
    pub event: Event,
    /// When the watch reported it.
    pub at: Instant,
}

impl Write {
    fn value(&self) -> i64 {
        events::value(&self.event)
    }
}

/// The writes of a namespace's Events from a revision on, except squelch's Events about policies.
pub struct Writes {
    events: Api<Event>,
    /// etcd's revision at the start.
    since: Option<u64>,
    seen: Arc<Mutex<Seen>>,
    watching: JoinHandle<()>,
}

#[derive(Default)]
struct Seen {
    writes: Vec<Write>,
    failure: Option<String>,
}

impl Writes {
    /// Watches from now on.
    ///
    /// # Errors
    /// The error of the API server.
    pub async fn watch(client: Client, namespace: &str) -> Result<Self> {
        let events: Api<Event> = Api::namespaced(client, namespace);
        let from = events.list(&of_others()).await?.metadata.resource_version.unwrap_or_default();
        let since = revision(Some(&from));
        let seen = Arc::<Mutex<Seen>>::default();
        let watching = tokio::spawn(follow(events.clone(), from, seen.clone()));
        Ok(Self { events, since, seen, watching })
    }

    /// The writes so far, including all that precede this call.
    ///
    /// # Errors
    /// If the watch broke off.
    pub async fn so_far(&self) -> Result<Vec<Write>> {
        let stored = self.events.list(&of_others()).await?;
        let newest =
            stored.items.iter().filter_map(|event| revision(event.metadata.resource_version.as_ref())).max();
        // No write since: the watch is up to date.
        let newest = newest.filter(|newest| Some(*newest) > self.since);
        wait_for("the watch of Events to catch up", GENEROUS, async || {
            let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(failure) = &seen.failure {
                return Ok(Err(failure.clone()));
            }
            let last = seen.writes.last().and_then(|write| revision(Some(&write.resource_version)));
            if last >= newest { Ok(Ok(seen.writes.clone())) } else { Err(format!("{last:?} of {newest:?}")) }
        })
        .await?
        .map_err(|failure| anyhow::anyhow!("the watch of Events broke off: {failure}"))
    }

    /// The writes so far of the Events about an object.
    ///
    /// # Errors
    /// As [`Self::so_far`].
    pub async fn about(&self, object: &str) -> Result<Vec<Write>> {
        let mut writes = self.so_far().await?;
        writes.retain(|write| events::object(&write.event) == object);
        Ok(writes)
    }
}

impl Drop for Writes {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

fn of_others() -> ListParams {
    ListParams::default().fields(events::OF_OTHERS)
}

fn revision(resource_version: Option<&String>) -> Option<u64> {
    resource_version?.parse().ok()
}

/// Watches, and restarts the watch when the API server ends it.
async fn follow(events: Api<Event>, mut from: String, seen: Arc<Mutex<Seen>>) {
    loop {
        if let Err(error) = follow_once(&events, &mut from, &seen).await {
            seen.lock().unwrap_or_else(PoisonError::into_inner).failure = Some(not_yet(error));
            return;
        }
    }
}

async fn follow_once(events: &Api<Event>, from: &mut String, seen: &Mutex<Seen>) -> Result<()> {
    let mut stream = Box::pin(events.watch(&WatchParams::default().fields(events::OF_OTHERS), from).await?);
    while let Some(change) = stream.try_next().await? {
        let (kind, event) = match change {
            WatchEvent::Added(event) => (Kind::Added, event),
            WatchEvent::Modified(event) => (Kind::Modified, event),
            WatchEvent::Deleted(event) => (Kind::Deleted, event),
            WatchEvent::Bookmark(_) => continue,
            WatchEvent::Error(status) => anyhow::bail!("{status:?}"),
        };
        let resource_version = event.metadata.resource_version.clone().unwrap_or_default();
        from.clone_from(&resource_version);
        let write = Write { kind, resource_version, event, at: Instant::now() };
        seen.lock().unwrap_or_else(PoisonError::into_inner).writes.push(write);
    }
    Ok(())
}

/// Name, kind and count of each write, for messages.
pub fn history(writes: &[Write]) -> String {
    let line = |write: &Write| format!("{:?} {} ×{}", write.kind, events::name(&write.event), write.value());
    writes.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Checks that no write lowered the count of an Event.
///
/// # Errors
/// The write and the history.
pub fn never_lowered(writes: &[Write]) -> Result<()> {
    pairs(writes).try_for_each(|(before, after)| {
        ensure!(after.value() >= before.value(), "a count was lowered:\n{}", history(writes));
        Ok(())
    })
}

/// Checks that every change of an Event raised its count.
///
/// # Errors
/// The history.
pub fn every_change_raised(writes: &[Write]) -> Result<()> {
    pairs(writes).try_for_each(|(before, after)| {
        let name = events::name(&after.event);
        ensure!(
            after.value() > before.value(),
            "{name} was written without a higher count:\n{}",
            history(writes)
        );
        Ok(())
    })
}

/// Each change of an Event with the previous state.
fn pairs(writes: &[Write]) -> impl Iterator<Item = (&Write, &Write)> {
    let changes = writes.iter().enumerate().filter(|(_, write)| write.kind == Kind::Modified);
    changes.filter_map(|(at, after)| {
        let uid = &after.event.metadata.uid;
        let before = writes[..at].iter().rev().find(|write| &write.event.metadata.uid == uid)?;
        Some((before, after))
    })
}
