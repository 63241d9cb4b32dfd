//! The clients: their memory, their requests, and their reactions to answers.

mod applier;
mod kinds;
mod knowledge;
mod recorders;
mod replacers;

use jiff::Timestamp;

use super::etcd::{Stored, Written};
use super::steps::MESSAGES;
use super::{Api, Moment, Observation, Operation, World};
use crate::testing::write;
pub(super) use kinds::{Client, USERS};
pub(super) use knowledge::{Knowledge, Known};
pub(super) use recorders::Memories;

/// Number of kopf's retries after a 403.
const KOPF_RETRIES: u32 = 8;

/// A write between its client and etcd.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) client: Client,
    /// Whether it is a CREATE.
    pub(super) create: bool,
    /// `None` for a `generateName` that is not completed yet.
    pub(super) name: Option<String>,
    pub(super) value: i64,
    pub(super) message: &'static str,
    /// When its client observed the first occurrence under this name.
    pub(super) first_seen: Timestamp,
    /// The second in which it was sent.
    pub(super) second: u64,
    /// The time of its occurrence.
    occurred: Timestamp,
    /// Number of occurrences under its name that its client knew of.
    pub(super) knows: i64,
    /// Number of earlier attempts.
    pub(super) tries: u32,
    /// Version of the stored Event at its last review.
    pub(super) reviewed_on: u64,
    /// Occurrences that the engine counted for it, including recovered ones.
    pub(super) counted: i64,
    /// Occurrences that the oracle expects to be stored because of it.
    pub(super) certain: i64,
    /// Of those that it stores again, the ones that must be stored.
    pub(super) sure_again: i64,
    /// Whether it was admitted by a replica that did not know its name.
    pub(super) is_first: bool,
    /// Whether it was admitted outside series compaction, so that its fate is unknown.
    pub(super) beside_series: bool,
    /// Whether no engine decided it, or the answer was lost.
    pub(super) unseen: bool,
    /// Whether an engine admitted it, so that the total of its series includes it.
    pub(super) admitted: bool,
}

impl Request {
    /// Returns the CREATE of a first occurrence.
    fn first(client: Client, name: &str) -> Self {
        Self { name: Some(name.to_owned()), ..Self::generated(client) }
    }

    /// The same with `generateName`.
    fn generated(client: Client) -> Self {
        Self {
            client,
            create: true,
            name: None,
            value: 1,
            message: MESSAGES[0],
            first_seen: Timestamp::UNIX_EPOCH,
            second: 0,
            occurred: Timestamp::UNIX_EPOCH,
            knows: 1,
            tries: 0,
            reviewed_on: 0,
            counted: 0,
            certain: 0,
            sure_again: 0,
            is_first: false,
            beside_series: false,
            admitted: false,
            unseen: false,
        }
    }

    /// Returns the first CREATE, or the PATCH of a series to `value`.
    fn nth(client: Client, name: &str, value: i64) -> Self {
        Self { create: value == 1, value, ..Self::first(client, name) }
    }

    /// The same with this last occurrence.
    fn observed_last(self, occurred: Timestamp) -> Self {
        Self { occurred, ..self }
    }

    /// Whether it is an UPDATE that follows another one for the same occurrence.
    pub(super) fn is_retried(&self) -> bool {
        self.client.sends_a_version() && self.tries > u32::from(matches!(self.client, Client::Replacer(_)))
    }

    pub(super) fn api(&self) -> Api {
        match self.client {
            Client::Kube(_) | Client::Tools | Client::ToolsRefresh => Api::Events,
            Client::Passing(api) => api,
            _ => Api::Core,
        }
    }

    /// Whether what it stores has a `series`.
    pub(super) fn has_series(&self) -> bool {
        self.api() == Api::Events && self.value > 1
    }

    /// Returns the name under which it is stored.
    pub(super) fn stored_name(&self) -> &str {
        self.name.as_deref().expect("whatever is admitted has a name")
    }

    /// Returns what it stores over `found`.
    pub(super) fn written(&self, found: Option<Stored>) -> Written {
        let api = found.map_or(self.api(), |event| event.api);
        let content = Some((self.client.user(), self.message));
        Written { count: self.value, api, series: self.has_series(), second: self.second, content }
    }

    /// Returns the engine's view of it; an UPDATE changes `stored`.
    pub(super) fn observed(&self, stored: Option<Stored>) -> Observation<'_> {
        let (api, value, name) = (self.api(), self.value, self.name.as_deref().map(Into::into));
        let mut seen = Observation { api, value, user: self.client.user(), name, ..write() };
        // Each identity reports an object of its own, so that a summary's name shows its user.
        seen.event.regarding.name = self.client.user().into();
        seen.event.message = self.message.into();
        seen.event.event_type = type_of(self.client.user()).into();
        seen.event.event_time = event_time(stored.map_or(api, |stored| stored.api)).into();
        let written = |time: Timestamp| match api {
            // Times of core/v1 are in whole seconds.
            Api::Core => Timestamp::from_second(time.as_second()).unwrap(),
            Api::Events => time,
        };
        (seen.first_seen, seen.last_observed) =
            (Some(written(self.first_seen)), Some(written(self.occurred)));
        seen.occurred_at = written(self.occurred);
        match stored {
            None => Observation { has_series: self.has_series(), generate_name: "g.".into(), ..seen },
            Some(old) => Observation {
                operation: Operation::Update,
                old_value: old.count,
                has_series: api == Api::Events,
                unchanged: api == Api::Core && value == old.count && self.second == old.second,
                ..seen
            },
        }
    }
}

impl std::fmt::Display for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let verb = if self.create { "CREATE" } else { "UPDATE" };
        write!(f, "{:?}: {verb} {} = {}", self.client, self.name.as_deref().unwrap_or("g.?"), self.value)
    }
}

/// What a client reads back from a successful write.
#[derive(Clone, Copy)]
pub(super) struct ReadBack {
    pub(super) count: i64,
    pub(super) series: bool,
}

/// The answer to a request, as its client sees it.
#[derive(Clone, Copy)]
pub(super) enum Reply {
    Done(ReadBack),
    /// 409, from squelch or because the Event exists.
    Exists,
    /// Refused otherwise, or not found.
    Failed,
    /// No answer.
    Lost,
}

/// Returns the type of a user's Events. Some users report Warnings, the others Normal Events.
pub(super) fn type_of(user: &str) -> &'static str {
    if user.len().is_multiple_of(2) { "Warning" } else { "Normal" }
}

/// Returns the `eventTime` of an Event that was created through this API.
pub(super) fn event_time(api: Api) -> &'static str {
    if api == Api::Events { "1970-01-01T00:00:00.000000Z" } else { "" }
}

fn wall(moment: Moment) -> Timestamp {
    let milliseconds = moment.since(Moment::default()).as_millis();
    Timestamp::from_millisecond(i64::try_from(milliseconds).expect("a run takes hours")).unwrap()
}

impl World {
    /// Sends a request. If there is nothing to PATCH, all clients except kube's Recorder CREATE instead.
    fn send(&mut self, mut request: Request) {
        if request.second == 0 {
            request.second = self.second();
        }
        if request.occurred == Timestamp::UNIX_EPOCH {
            request.occurred = self.wall();
        }
        if let Some(name) = &request.name {
            let known = self.knowledge.known(name);
            request.first_seen = known.first_seen;
            request.knows = if request.tries == 0 { known.occurred } else { request.knows };
        }
        if !request.create && self.etcd.get(request.stored_name()).is_none() {
            if matches!(request.client, Client::Kube(_)) {
                return self.reply(request, Reply::Failed);
            }
            request.create = true;
        }
        self.review(request);
    }

    /// Whether a write of this client is in progress or waits for a retry.
    fn busy(&self, client: Client) -> bool {
        self.pending.iter().chain(&self.unanswered).any(|request| request.client == client)
    }

    /// A client retries with the same value. client-go stops after 12 attempts.
    pub(super) fn retry(&mut self, at: usize) {
        if at < self.unanswered.len() {
            let again = self.unanswered.remove(at);
            let name = again.stored_name().to_owned();
            let fresh = Request { message: again.message, ..Request::nth(again.client, &name, again.value) };
            let Request { occurred, knows, .. } = again;
            self.send(Request { tries: again.tries + 1, knows, occurred, ..fresh });
        }
    }

    /// Every waiting client retries, and the API server completes the writes.
    pub(super) fn retry_all(&mut self) {
        (0..self.unanswered.len()).for_each(|_| self.retry(0));
        self.commit_all();
    }

    /// Gives the answer to the client of a request.
    pub(super) fn reply(&mut self, request: Request, reply: Reply) {
        let Some(request) = self.read_again(request, reply) else { return };
        if request.client == Client::Kopf && matches!(reply, Reply::Failed) && request.tries < KOPF_RETRIES {
            return self.send(Request { tries: request.tries + 1, ..Request::generated(Client::Kopf) });
        }
        let asks_again = match (request.client, reply) {
            (Client::Legacy(_) | Client::Tools, Reply::Lost) => true,
            (Client::Tools, Reply::Exists) => request.value > 1,
            _ => false,
        };
        if asks_again && request.tries < 12 {
            self.unanswered.push(request);
        } else {
            self.clients.answered(request.client, request.value, reply, self.now);
        }
    }

    /// No client retries, because the namespace ends.
    pub(super) fn give_up_all(&mut self) {
        for request in std::mem::take(&mut self.unanswered) {
            self.clients.answered(request.client, request.value, Reply::Failed, self.now);
        }
    }

    pub(super) fn wall(&self) -> Timestamp {
        wall(self.now)
    }

    /// Times of core/v1 are in whole seconds.
    pub(super) fn second(&self) -> u64 {
        self.now.since(Moment::default()).as_secs()
    }
}
