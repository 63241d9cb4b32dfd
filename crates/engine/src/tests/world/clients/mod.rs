//! The clients: what each remembers, what it asks for, and what it makes of the answer.

mod recorders;

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::etcd::{Stored, Written};
use super::steps::MESSAGES;
use super::{Api, Moment, Observation, Operation, World};
use crate::testing::write;
pub(super) use recorders::Memories;

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Client {
    /// A legacy recorder, by its number. Waits for an answer before it asks again.
    Legacy(usize),
    /// A Recorder of kube, by its number. Waits too.
    Kube(usize),
    /// The recorder of client-go's `tools/events`, which does not look at the answer.
    Tools,
    /// The same when it refreshes its series: it waits, and goes on from what it reads back.
    ToolsRefresh,
    /// A client that asks once and remembers nothing.
    Passing,
    /// A client that reads the stored Event, adds one and writes it back.
    Reader,
    /// A tenant that may only create, and takes the names of others.
    Tenant,
}

impl Client {
    pub(super) fn user(self) -> &'static str {
        match self {
            Self::Legacy(_) | Self::Passing => "core",
            Self::Kube(_) => "kube",
            Self::Tools | Self::ToolsRefresh => "tools",
            Self::Reader => "reader",
            Self::Tenant => "tenant",
        }
    }
}

/// A write on its way from a client into etcd.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) client: Client,
    /// A CREATE, not an UPDATE.
    pub(super) create: bool,
    /// None for a `generateName` that nobody has completed yet.
    pub(super) name: Option<String>,
    pub(super) value: i64,
    message: &'static str,
    /// When its client observed the first occurrence under this name.
    first_seen: Timestamp,
    /// The second in which it was sent.
    second: u64,
    /// When its occurrence happened.
    occurred: Timestamp,
    /// How many occurrences under its name its client knew of when it was made.
    pub(super) knows: i64,
    /// How often it was sent before.
    tries: u32,
    /// The version of the stored Event on which it was last reviewed.
    pub(super) reviewed_on: u64,
    /// What the engine has counted of it, recovered occurrences too.
    pub(super) counted: i64,
    /// It was let through beside any series: nobody looks after what becomes of it.
    pub(super) beside_series: bool,
    /// No engine has decided it.
    pub(super) unseen: bool,
}

impl Request {
    /// The CREATE of a first occurrence.
    fn first(client: Client, name: &str) -> Self {
        Self { name: Some(name.to_owned()), ..Self::generated(client) }
    }

    /// The same by `generateName`.
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
            beside_series: false,
            unseen: false,
        }
    }

    /// The first CREATE, or the PATCH by which a series now counts `value`.
    fn nth(client: Client, name: &str, value: i64) -> Self {
        Self { create: value == 1, value, ..Self::first(client, name) }
    }

    /// The same, whose last occurrence was then.
    fn observed_last(self, occurred: Timestamp) -> Self {
        Self { occurred, ..self }
    }

    pub(super) fn api(&self) -> Api {
        match self.client {
            Client::Legacy(_) | Client::Passing | Client::Reader | Client::Tenant => Api::Core,
            Client::Kube(_) | Client::Tools | Client::ToolsRefresh => Api::Events,
        }
    }

    /// Whether what it stores has a `series`.
    pub(super) fn has_series(&self) -> bool {
        self.api() == Api::Events && self.value > 1
    }

    /// The name it is to be stored under.
    pub(super) fn stored_name(&self) -> &str {
        self.name.as_deref().expect("whatever is admitted has a name")
    }

    /// What it stores where `found` is stored.
    pub(super) fn written(&self, found: Option<Stored>) -> Written {
        let api = found.map_or(self.api(), |event| event.api);
        Written { count: self.value, api, series: self.has_series(), second: self.second }
    }

    /// What the engine gets to see of it; an UPDATE is one of what is `stored`.
    pub(super) fn observed(&self, stored: Option<Stored>) -> Observation<'_> {
        let (api, value, name) = (self.api(), self.value, self.name.as_deref().map(Into::into));
        let mut seen = Observation { api, value, user: self.client.user(), name, ..write() };
        // Each identity reports an object of its own, so that a summary's name tells whose it is.
        seen.event.regarding.name = self.client.user().into();
        seen.event.message = self.message.into();
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

/// What a client reads back from a write that succeeded.
#[derive(Clone, Copy)]
pub(super) struct ReadBack {
    pub(super) count: i64,
    pub(super) series: bool,
}

/// What becomes of a request, as its client sees it.
#[derive(Clone, Copy)]
pub(super) enum Reply {
    Done(ReadBack),
    /// 409, by squelch or because there is such an Event.
    Exists,
    /// Refused otherwise, or not found.
    Failed,
    /// No answer.
    Lost,
}

/// What clients know of the occurrences under one name, and who has heard of them.
#[derive(Clone, Copy, Default)]
pub(super) struct Known {
    /// Those that have happened.
    occurred: i64,
    /// Those of them that some engine has heard of.
    pub(super) reported: i64,
    /// The last life that has heard of the name.
    pub(super) reported_to: Option<usize>,
    /// A write of this name has passed unseen.
    pub(super) passed_unseen: bool,
    /// The namespace was made anew since.
    pub(super) renewed: bool,
    first_seen: Timestamp,
}

/// Who has heard of what.
#[derive(Default)]
pub(super) struct Knowledge {
    names: BTreeMap<String, Known>,
}

impl Knowledge {
    fn known(&mut self, name: &str) -> &mut Known {
        self.names.entry(name.to_owned()).or_default()
    }

    /// One more occurrence, observed first at `now` if it is the first.
    fn occurs(&mut self, name: &str, now: Timestamp) {
        let known = self.known(name);
        if known.occurred == 0 {
            known.first_seen = now;
        }
        known.occurred += 1;
    }

    /// What a request tells that no engine has heard of, and what is known of its name.
    pub(super) fn news(&mut self, request: &Request) -> (i64, Known) {
        let known = request.name.as_deref().map_or_else(Known::default, |name| *self.known(name));
        ((request.knows - known.reported).max(0), known)
    }

    /// The engine of this life hears all that a request tells.
    pub(super) fn report(&mut self, request: &Request, replica: usize) {
        if let Some(name) = request.name.as_deref() {
            let known = self.known(name);
            known.reported = known.reported.max(request.knows);
            known.reported_to = Some(replica);
        }
    }

    /// The namespace is another one: whoever hears of a name next knows nothing of it.
    pub(super) fn forget_reports(&mut self) {
        for known in self.names.values_mut() {
            (known.reported_to, known.passed_unseen, known.renewed) = (None, true, true);
        }
    }

    /// A write of `name` passes that no engine hears of.
    pub(super) fn pass_unseen(&mut self, name: &str) {
        self.known(name).passed_unseen = true;
    }
}

fn wall(moment: Moment) -> Timestamp {
    let milliseconds = moment.since(Moment::default()).as_millis();
    Timestamp::from_millisecond(i64::try_from(milliseconds).expect("a run takes hours")).unwrap()
}

impl World {
    /// A client sends: where there is nothing to PATCH it CREATEs instead, all but kube's Recorder.
    fn send(&mut self, mut request: Request) {
        request.second = self.second();
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

    /// Whether a write of this client is under way, or to be tried again.
    fn busy(&self, client: Client) -> bool {
        self.pending.iter().chain(&self.unanswered).any(|request| request.client == client)
    }

    /// A client asks again, with the same value; client-go gives up after 12 times.
    pub(super) fn retry(&mut self, at: usize) {
        if at < self.unanswered.len() {
            let again = self.unanswered.remove(at);
            let name = again.stored_name().to_owned();
            let fresh = Request { message: again.message, ..Request::nth(again.client, &name, again.value) };
            let Request { occurred, knows, .. } = again;
            self.send(Request { tries: again.tries + 1, knows, occurred, ..fresh });
        }
    }

    /// Every client that will ask again does, and the API server is done with it.
    pub(super) fn retry_all(&mut self) {
        (0..self.unanswered.len()).for_each(|_| self.retry(0));
        self.commit_all();
    }

    /// The client of a request hears what became of it.
    pub(super) fn reply(&mut self, request: Request, reply: Reply) {
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

    /// No client asks again: the namespace ends.
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
