//! The state of a recording: pages of lists and events of a watch in, lines of a trace and counts out.

use std::time::Duration;

use kube::api::WatchEvent;
use serde::Deserialize;
use serde_json::Value;
use squelch_engine::{Api, Moment};

use super::event::{KnownEvent, SeenEvent, push_line};
use crate::replay::LastSeen;

/// After this number of watches without any event, one after the other, the Events are listed. After a restore of etcd
/// an API server accepts a watch from a version that it has not reached, and sends nothing.
const SILENT_WATCHES: u32 = 3;

/// One page of a list of Events.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct EventPage {
    metadata: PageMetadata,
    items: Vec<Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PageMetadata {
    resource_version: String,
    #[serde(rename = "continue")]
    next: String,
}

impl EventPage {
    /// The token of the next page; empty after the last one.
    pub(super) fn next(&self) -> &str {
        &self.metadata.next
    }
}

/// What a recording contains.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RecordingCounts {
    /// The time from the first list on.
    pub(super) time: Duration,
    /// Events that were stored at the beginning.
    pub(super) at_beginning: u64,
    pub(super) creates: u64,
    pub(super) updates: u64,
    /// Writes through `events.k8s.io`; all others are through `v1`.
    pub(super) through_new_api: u64,
    /// Writes whose API is not in managedFields.
    pub(super) of_assumed_api: u64,
    /// Writes of squelch itself.
    pub(super) by_squelch: u64,
    /// Updates that are not written, because the Event before them was evicted.
    pub(super) without_previous: u64,
    /// Periods whose intermediate writes are lost.
    pub(super) gaps: u64,
    pub(super) gap_time: Duration,
    /// Writes that the lists after the gaps showed, and the occurrences in them.
    pub(super) gap_writes: u64,
    pub(super) gap_occurrences: i64,
    /// Watches that were opened again from the last version, without a gap, and the time without a watch.
    pub(super) reopened: u64,
    pub(super) reopening: Duration,
    /// The time at the end without a watch.
    pub(super) missing_at_end: Duration,
}

/// Why the Events have to be listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ListReason {
    /// The state is unknown.
    First,
    /// The API server has discarded the version of the watch.
    Expired,
    /// The watches were silent. This is a gap only if the list shows a change.
    Silence,
}

/// A list that is being read.
#[derive(Debug, Default)]
struct Listing {
    /// Events that are not inserted after this insertion do not exist any more.
    from: u64,
    /// The creation time of the newest Event before the list.
    newest: String,
    items: u64,
    writes: u64,
    occurrences: i64,
}

/// The state of a recording.
#[derive(Debug)]
pub(super) struct Recording {
    began: Moment,
    events: LastSeen,
    /// The `resourceVersion` from which a watch continues.
    version: String,
    list_reason: Option<ListReason>,
    listing: Option<Listing>,
    /// The last time at which nothing was missing.
    contact: Moment,
    /// Since when there is no watch.
    interrupted: Option<Moment>,
    silent_watches: u32,
    /// The latest creation time of an Event.
    newest: String,
    last_namespace: String,
    counts: RecordingCounts,
}

impl Default for Recording {
    fn default() -> Self {
        Self::with_events(LastSeen::default())
    }
}

impl Recording {
    /// With this capacity for the last versions of the Events.
    fn with_events(events: LastSeen) -> Self {
        Self {
            began: Moment::default(),
            events,
            version: String::new(),
            list_reason: Some(ListReason::First),
            listing: None,
            contact: Moment::default(),
            interrupted: None,
            silent_watches: 0,
            newest: String::new(),
            last_namespace: String::new(),
            counts: RecordingCounts::default(),
        }
    }

    /// Whether the Events have to be listed before the next watch.
    pub(super) fn needs_list(&self) -> bool {
        self.list_reason.is_some()
    }

    /// The `resourceVersion` from which the next watch continues.
    pub(super) fn version(&self) -> &str {
        &self.version
    }

    /// The namespace of the last write.
    pub(super) fn last_namespace(&self) -> &str {
        &self.last_namespace
    }

    /// A list begins, or begins again.
    pub(super) fn begin_list(&mut self) {
        let newest = self.newest.clone();
        // A list that broke off has shown writes already.
        let begun = self.listing.take().unwrap_or(Listing { newest, ..Listing::default() });
        self.listing = Some(Listing { from: self.events.last_insertion(), items: 0, ..begun });
    }

    /// Takes one page of the list, received at `now`. Returns the lines of Events that differ from the known ones.
    pub(super) fn page(&mut self, page: EventPage, now: Moment) -> String {
        let mut lines = String::new();
        let Some(mut listing) = self.listing.take() else { return lines };
        listing.items += page.items.len() as u64;
        for item in page.items {
            self.listed(SeenEvent::new(item), &mut listing, now, &mut lines);
        }
        self.version = page.metadata.resource_version;
        if page.metadata.next.is_empty() {
            self.end_list(&listing, now);
        } else {
            self.listing = Some(listing);
        }
        lines
    }

    fn listed(&mut self, event: SeenEvent, listing: &mut Listing, now: Moment, lines: &mut String) {
        let old = self.events.remove(&event.namespace, &event.name);
        if self.list_reason != Some(ListReason::First) {
            let known = old.as_deref().map(KnownEvent::read);
            let is_evicted = old.is_none() && self.events.evicted() > 0 && event.created < listing.newest;
            let occurrences = match known {
                Some(known) if known.is(&event) => None,
                Some(known) if known.is_earlier(&event) => {
                    self.write(&event, old.as_deref(), now, lines);
                    Some(event.value - known.value())
                }
                _ if is_evicted => {
                    self.counts.without_previous += 1;
                    None
                }
                _ => {
                    self.write(&event, None, now, lines);
                    Some(event.value)
                }
            };
            listing.writes += u64::from(occurrences.is_some());
            listing.occurrences += occurrences.unwrap_or_default().max(0);
        }
        self.remember(event);
    }

    fn end_list(&mut self, listing: &Listing, now: Moment) {
        self.events.retain_after(listing.from);
        match self.list_reason.take() {
            Some(ListReason::First) => {
                self.began = now;
                self.counts.at_beginning = listing.items;
            }
            Some(ListReason::Silence) if listing.writes == 0 => {}
            _ => {
                self.counts.gaps += 1;
                self.counts.gap_time += now.since(self.contact);
                self.counts.gap_writes += listing.writes;
                self.counts.gap_occurrences += listing.occurrences;
                // The time before the list belongs to the gap.
                self.interrupted = self.interrupted.map(|_| now);
            }
        }
        self.contact = now;
    }

    /// The API server has accepted a watch.
    pub(super) fn connected(&mut self, now: Moment) {
        if let Some(since) = self.interrupted.take() {
            self.counts.reopened += 1;
            self.counts.reopening += now.since(since);
        }
    }

    /// Takes one event of the watch, received at `now`. Returns its line; empty if it is no write.
    pub(super) fn watched(&mut self, event: WatchEvent<Value>, now: Moment) -> String {
        (self.contact, self.silent_watches) = (now, 0);
        let mut line = String::new();
        match event {
            WatchEvent::Added(object) => {
                let event = SeenEvent::new(object);
                self.events.remove(&event.namespace, &event.name);
                self.write(&event, None, now, &mut line);
                self.follow(event);
            }
            WatchEvent::Modified(object) => {
                let event = SeenEvent::new(object);
                match self.events.remove(&event.namespace, &event.name) {
                    Some(old) => self.write(&event, Some(&old), now, &mut line),
                    // `squelch replay` needs an oldObject.
                    None => self.counts.without_previous += 1,
                }
                self.follow(event);
            }
            WatchEvent::Deleted(object) => {
                let event = SeenEvent::new(object);
                self.events.remove(&event.namespace, &event.name);
                self.version = event.version;
            }
            WatchEvent::Bookmark(bookmark) => self.version = bookmark.metadata.resource_version,
            WatchEvent::Error(_) => {}
        }
        line
    }

    /// The watch has ended, or could not be opened.
    pub(super) fn disconnected(&mut self, now: Moment) {
        self.interrupted.get_or_insert(now);
    }

    /// The API server has closed the watch after everything that it had to send.
    pub(super) fn closed(&mut self, now: Moment) {
        self.contact = now;
        self.disconnected(now);
    }

    /// Nothing came for a while: there were no writes, or the connection is dead.
    pub(super) fn silent(&mut self, now: Moment) {
        self.disconnected(now);
        self.silent_watches += 1;
        if self.silent_watches >= SILENT_WATCHES {
            self.silent_watches = 0;
            self.list_reason.get_or_insert(ListReason::Silence);
        }
    }

    /// The API server has discarded the version of the watch.
    pub(super) fn expired(&mut self, now: Moment) {
        self.disconnected(now);
        if self.list_reason != Some(ListReason::First) {
            self.list_reason = Some(ListReason::Expired);
        }
    }

    /// Returns what the recording contains if it ends at `now`.
    pub(super) fn counts(&self, now: Moment) -> RecordingCounts {
        let mut counts = self.counts.clone();
        counts.time = now.since(self.began);
        let missing_since = if self.list_reason == Some(ListReason::Expired) {
            counts.gaps += 1;
            Some(self.contact)
        } else {
            self.interrupted
        };
        counts.missing_at_end = missing_since.map_or(Duration::ZERO, |since| now.since(since));
        if self.list_reason == Some(ListReason::Expired) {
            counts.gap_time += counts.missing_at_end;
        }
        counts
    }

    /// Adds the line of a write. `old` is the Event before an UPDATE.
    fn write(&mut self, event: &SeenEvent, old: Option<&str>, now: Moment, lines: &mut String) {
        let counts = &mut self.counts;
        let operation = if old.is_some() { "UPDATE" } else { "CREATE" };
        *(if old.is_some() { &mut counts.updates } else { &mut counts.creates }) += 1;
        counts.through_new_api += u64::from(event.api == Api::Events);
        counts.of_assumed_api += u64::from(!event.is_api_recorded);
        counts.by_squelch += u64::from(event.is_by_squelch);
        self.last_namespace.clone_from(&event.namespace);
        push_line(lines, now.since(self.began).as_millis(), operation, event.api, &event.json, old);
    }

    fn follow(&mut self, event: SeenEvent) {
        self.version.clone_from(&event.version);
        self.remember(event);
    }

    fn remember(&mut self, event: SeenEvent) {
        self.events.insert(&event.namespace, &event.name, &event.json);
        if event.created > self.newest {
            self.newest = event.created;
        }
    }
}

#[cfg(test)]
mod tests;
