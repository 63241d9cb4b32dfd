//! The clients: what each remembers, what it asks for, and what it makes of the answer.

use super::*;

/// How long kube's Recorder and client-go's remember a series that is not repeated.
const REMEMBERED: Duration = Duration::from_secs(360);
/// At least so much lies between two refreshes by client-go's recorder.
const REFRESHED: Duration = Duration::from_secs(1700);

/// Who asks. All but [`Client::Passing`] wait for an answer before they ask again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Client {
    /// A legacy recorder, by its number.
    Legacy(usize),
    /// A Recorder of kube, by its number.
    Kube(usize),
    /// The recorder of client-go's `tools/events`, which does not look at the answer.
    Tools,
    /// The same when it refreshes its series: it goes on from what it reads back.
    ToolsRefresh,
    /// A client that asks once and remembers nothing.
    Passing,
}

impl Client {
    fn is_tools(self) -> bool {
        matches!(self, Self::Tools | Self::ToolsRefresh)
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
    /// The version of the stored Event on which it was last reviewed.
    pub(super) reviewed_on: u64,
    /// The second in which it was sent.
    pub(super) second: u64,
}

impl Request {
    /// The CREATE of a first occurrence.
    fn first(client: Client, name: &str) -> Self {
        Self { create: true, name: Some(name.to_owned()), ..Self::generated(client) }
    }

    /// The same by `generateName`.
    fn generated(client: Client) -> Self {
        Self { client, create: true, name: None, value: 1, reviewed_on: 0, second: 0 }
    }

    /// The PATCH by which a series now counts `value`.
    fn repeat(client: Client, name: &str, value: i64) -> Self {
        Self { create: false, value, ..Self::first(client, name) }
    }

    /// The first CREATE or a repeat, as the count has it.
    fn nth(client: Client, name: &str, count: i64) -> Self {
        if count == 1 { Self::first(client, name) } else { Self::repeat(client, name, count) }
    }

    pub(super) fn api(&self) -> Api {
        match self.client {
            Client::Legacy(_) | Client::Passing => Api::Core,
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

    /// What the engine gets to see of it; an UPDATE is one of what is `stored`.
    pub(super) fn observed(&self, stored: Option<Stored>) -> Observation<'_> {
        let user = match self.client {
            Client::Legacy(_) | Client::Passing => "core",
            Client::Kube(_) => "kube",
            Client::Tools | Client::ToolsRefresh => "tools",
        };
        let (api, value, name) = (self.api(), self.value, self.name.as_deref().map(Into::into));
        let base = Observation { api, value, user, name, ..write() };
        match stored {
            None => Observation { has_series: self.has_series(), generate_name: "g.".into(), ..base },
            Some(old) => Observation {
                operation: Operation::Update,
                old_value: old.count,
                has_series: api == Api::Events,
                unchanged: api == Api::Core && value == old.count && self.second == old.second,
                ..base
            },
        }
    }
}

/// What a client reads back from a write that succeeded.
#[derive(Clone, Copy)]
pub(super) struct ReadBack {
    pub(super) count: i64,
    pub(super) series: bool,
}

/// The memory of a legacy recorder: the number in its Event's name, and its count.
#[derive(Clone, Copy)]
struct Legacy {
    number: u64,
    count: i64,
}

/// The memory of kube's Recorder: a count that only successes raise, and when the last one was.
#[derive(Clone, Copy)]
struct Kube {
    number: u64,
    count: i64,
    seen: Moment,
}

/// The memory of client-go's recorder: from the second occurrence on it counts a series by itself.
#[derive(Clone, Copy)]
struct Tools {
    number: u64,
    count: i64,
    series: bool,
    seen: Moment,
}

/// What clients know of the occurrences under one name.
#[derive(Clone, Copy, Default)]
struct Known {
    /// Those that have happened.
    occurred: i64,
    /// Those of them that some request has carried.
    told: i64,
}

/// What all clients remember.
pub(super) struct Memories {
    legacy: [Legacy; 2],
    kube: [Option<Kube>; 2],
    tools: Option<Tools>,
    refreshed: Moment,
    known: BTreeMap<String, Known>,
}

impl Default for Memories {
    fn default() -> Self {
        Self {
            legacy: [1, 2].map(|number| Legacy { number, count: 0 }),
            kube: [None; 2],
            tools: None,
            refreshed: Moment::default(),
            known: BTreeMap::new(),
        }
    }
}

impl Memories {
    fn occurs(&mut self, name: &str) {
        self.known.entry(name.to_owned()).or_default().occurred += 1;
    }

    /// Something carries all that has happened under `name`; returns how much of it is news.
    fn tell(&mut self, name: &str) -> i64 {
        let known = self.known.entry(name.to_owned()).or_default();
        let news = (known.occurred - known.told).max(0);
        known.told += news;
        news
    }

    /// `client` has its answer: what it reads back, or nothing if its write failed.
    pub(super) fn answered(&mut self, client: Client, value: i64, answer: Option<ReadBack>, now: Moment) {
        match (client, answer) {
            (Client::Legacy(number), Some(stored)) => self.legacy[number].count = stored.count,
            (Client::Kube(number), Some(_)) => {
                let kube = self.kube[number].as_mut().expect("it has asked");
                (kube.count, kube.seen) = (value, now);
            }
            (Client::Kube(number), None) => {
                self.kube[number] = self.kube[number].filter(|kube| kube.count > 0);
            }
            (Client::ToolsRefresh, Some(stored)) => {
                let tools = self.tools.as_mut().expect("it is not forgotten while it refreshes");
                (tools.series, tools.count) = (stored.series, if stored.series { stored.count } else { 1 });
            }
            _ => {}
        }
    }
}

/// The steps of clients.
impl World {
    /// Whether a write of this client, or of another hand of the same, is under way.
    fn busy(&self, client: Client) -> bool {
        let same = |other: Client| other == client || other.is_tools() && client.is_tools();
        self.pending.iter().any(|request| same(request.client))
    }

    pub(super) fn legacy(&mut self, number: usize) {
        let client = Client::Legacy(number);
        if self.busy(client) {
            return;
        }
        let legacy = &mut self.clients.legacy[number];
        legacy.count += 1;
        let (name, count) = (format!("l.{}", legacy.number), legacy.count);
        self.clients.occurs(&name);
        self.send(Request::nth(client, &name, count));
    }

    pub(super) fn legacy_forgets(&mut self, number: usize) {
        if !self.busy(Client::Legacy(number)) {
            self.clients.legacy[number] = Legacy { number: self.new_number(), count: 0 };
        }
    }

    pub(super) fn kube(&mut self, number: usize) {
        let client = Client::Kube(number);
        if self.busy(client) {
            return;
        }
        let now = self.now;
        let remembered = self.clients.kube[number].filter(|kube| now.since(kube.seen) < REMEMBERED);
        let kube = remembered.unwrap_or_else(|| Kube { number: self.new_number(), count: 0, seen: now });
        self.clients.kube[number] = Some(kube);
        let (name, count) = (format!("k.{}", kube.number), kube.count + 1);
        // It does not count what failed: the next occurrence carries the same count, and is no news.
        let known = self.clients.known.entry(name.clone()).or_default();
        known.occurred = count.max(known.told);
        self.send(Request::nth(client, &name, count));
    }

    pub(super) fn tools(&mut self) {
        if !self.with_tools || self.busy(Client::Tools) {
            return;
        }
        let seen = self.now;
        let Some(tools) = &mut self.clients.tools else {
            let number = self.new_number();
            self.clients.tools = Some(Tools { number, count: 1, series: false, seen });
            let name = format!("t.{number}");
            self.clients.occurs(&name);
            return self.send(Request::first(Client::Tools, &name));
        };
        let begins = !tools.series;
        let count = if begins { 2 } else { tools.count + 1 };
        *tools = Tools { count, series: true, seen, ..*tools };
        let name = format!("t.{}", tools.number);
        self.clients.occurs(&name);
        if begins {
            self.send(Request::repeat(Client::Tools, &name, count));
        }
    }

    pub(super) fn tools_refresh(&mut self) {
        let due = self.now.since(self.clients.refreshed) >= REFRESHED;
        if due
            && !self.busy(Client::ToolsRefresh)
            && let Some(tools) = self.clients.tools.filter(|tools| tools.series)
        {
            self.clients.refreshed = self.now;
            let name = format!("t.{}", tools.number);
            self.send(Request::repeat(Client::ToolsRefresh, &name, tools.count));
        }
    }

    pub(super) fn tools_finish(&mut self) {
        let now = self.now;
        if !self.busy(Client::Tools)
            && let Some(tools) = self.clients.tools.take_if(|tools| now.since(tools.seen) > REMEMBERED)
            && tools.series
        {
            self.send(Request::repeat(Client::Tools, &format!("t.{}", tools.number), tools.count));
        }
    }

    /// What it has counted and not told is lost.
    pub(super) fn tools_restart(&mut self) {
        if !self.busy(Client::Tools)
            && let Some(tools) = self.clients.tools.take()
        {
            let known = self.clients.known.entry(format!("t.{}", tools.number)).or_default();
            known.occurred = known.told;
        }
    }

    pub(super) fn create_only(&mut self) {
        let name = format!("c.{}", self.new_number());
        self.clients.occurs(&name);
        self.send(Request::first(Client::Passing, &name));
    }

    pub(super) fn generate(&mut self) {
        self.truth += 1;
        self.send(Request::generated(Client::Passing));
    }

    /// A client sends: where there is nothing to PATCH it CREATEs instead, all but kube's Recorder.
    fn send(&mut self, mut request: Request) {
        request.second = self.second();
        if !request.create && !self.etcd.contains_key(request.stored_name()) {
            if matches!(request.client, Client::Kube(_)) {
                return self.answer(&request, None);
            }
            request.create = true;
        }
        if let Some(name) = &request.name {
            self.truth += self.clients.tell(name);
        }
        self.review(request);
    }
}
