//! The memory of each kind of client.

use std::time::Duration;

use super::super::World;
use super::super::steps::MESSAGES;
use super::{Client, Moment, Reply, Request, wall};
use crate::Api;

/// Time for which the Recorders of kube and client-go remember a series without repeats.
const REMEMBERED: Duration = Duration::from_secs(360);
/// Minimum time between two refreshes of client-go's recorder.
const REFRESHED: Duration = Duration::from_secs(1700);

/// A legacy recorder: the number in its Event's name, and its count.
#[derive(Clone, Copy)]
struct Legacy {
    number: u64,
    count: i64,
}

/// kube's Recorder: a count that only successes raise, and the time of the last one.
#[derive(Clone, Copy)]
struct Kube {
    number: u64,
    count: i64,
    seen: Moment,
}

/// client-go's recorder: counts a series by itself from the second occurrence on.
#[derive(Clone, Copy)]
struct Tools {
    number: u64,
    count: i64,
    series: bool,
    seen: Moment,
}

/// The memory of all clients.
pub(in super::super) struct Memories {
    legacy: [Legacy; 3],
    kube: [Option<Kube>; 2],
    tools: Option<Tools>,
    refreshed: Moment,
    /// Number of the reader's Event, the highest value that it wrote, and when.
    reader: (u64, i64, u64),
    /// The count that the reader has read ahead of its next write.
    read_ahead: Option<i64>,
    /// The same of the reader that retries.
    pub(super) retrying_reader: (u64, i64, u64),
    /// The second of the last occurrence of each client that replaces or creates.
    pub(super) replacers: [u64; 2],
    /// The count of the client that applies.
    pub(super) applied: i64,
    /// The last number used in a name.
    made: u64,
}

impl Default for Memories {
    fn default() -> Self {
        Self {
            legacy: [1, 2, 3].map(|number| Legacy { number, count: 0 }),
            kube: [None; 2],
            tools: None,
            refreshed: Moment::default(),
            reader: (9, 0, 0),
            read_ahead: None,
            retrying_reader: (8, 0, 0),
            replacers: [0; 2],
            applied: 0,
            made: 10,
        }
    }
}

impl Memories {
    pub(in super::super) fn new_number(&mut self) -> u64 {
        self.made += 1;
        self.made
    }

    /// `client` gets the answer to a write of `value`.
    pub(super) fn answered(&mut self, client: Client, value: i64, reply: Reply, now: Moment) {
        match (client, reply) {
            (Client::Legacy(number), Reply::Done(stored)) => self.legacy[number].count = stored.count,
            (Client::Kube(number), Reply::Done(_)) => {
                let kube = self.kube[number].as_mut().expect("it has asked");
                (kube.count, kube.seen) = (value, now);
            }
            (Client::Kube(number), _) => {
                self.kube[number] = self.kube[number].filter(|kube| kube.count > 0);
            }
            (Client::ToolsRefresh, Reply::Done(stored)) => {
                let tools = self.tools.as_mut().expect("it is not forgotten while it refreshes");
                (tools.series, tools.count) = (stored.series, if stored.series { stored.count } else { 1 });
            }
            _ => {}
        }
    }
}

/// The steps of clients.
impl World {
    pub(in super::super) fn legacy(&mut self, number: usize) {
        let client = Client::Legacy(number);
        if self.busy(client) {
            return;
        }
        let legacy = &mut self.clients.legacy[number];
        legacy.count += 1;
        let (name, count) = (format!("l.{}", legacy.number), legacy.count);
        self.occurs(&name);
        self.send(Request::nth(client, &name, count));
    }

    pub(in super::super) fn legacy_forgets(&mut self, number: usize) {
        if !self.busy(Client::Legacy(number)) {
            self.clients.legacy[number] = Legacy { number: self.clients.new_number(), count: 0 };
        }
    }

    pub(in super::super) fn kube(&mut self, number: usize) {
        let client = Client::Kube(number);
        if self.busy(client) {
            return;
        }
        let now = self.now;
        let remembered = self.clients.kube[number].filter(|kube| now.since(kube.seen) < REMEMBERED);
        let kube =
            remembered.unwrap_or_else(|| Kube { number: self.clients.new_number(), count: 0, seen: now });
        self.clients.kube[number] = Some(kube);
        let (name, count) = (format!("k.{}", kube.number), kube.count + 1);
        // It does not count failures: the next occurrence repeats the count and is not new.
        let reported = self.knowledge.known(&name).reported;
        while self.knowledge.known(&name).occurred < count.max(reported) {
            self.occurs(&name);
        }
        self.send(Request::nth(client, &name, count));
    }

    pub(in super::super) fn tools(&mut self) {
        if !self.with_tools || self.busy(Client::ToolsRefresh) {
            return;
        }
        let seen = self.now;
        let Some(tools) = &mut self.clients.tools else {
            let number = self.clients.new_number();
            self.clients.tools = Some(Tools { number, count: 1, series: false, seen });
            let name = format!("t.{number}");
            self.occurs(&name);
            return self.send(Request::first(Client::Tools, &name).observed_last(self.wall()));
        };
        let begins = !tools.series;
        let count = if begins { 2 } else { tools.count + 1 };
        *tools = Tools { count, series: true, seen, ..*tools };
        let name = format!("t.{}", tools.number);
        self.occurs(&name);
        if begins {
            self.send(Request::nth(Client::Tools, &name, count).observed_last(self.wall()));
        }
    }

    pub(in super::super) fn tools_refresh(&mut self) {
        let due = self.now.since(self.clients.refreshed) >= REFRESHED;
        if due
            && !self.busy(Client::ToolsRefresh)
            && let Some(tools) = self.clients.tools.filter(|tools| tools.series)
        {
            self.clients.refreshed = self.now;
            let request = Request::nth(Client::ToolsRefresh, &format!("t.{}", tools.number), tools.count);
            self.send(request.observed_last(wall(tools.seen)));
        }
    }

    pub(in super::super) fn tools_finish(&mut self) {
        let now = self.now;
        if !self.busy(Client::ToolsRefresh)
            && let Some(tools) = self.clients.tools.take_if(|tools| now.since(tools.seen) > REMEMBERED)
            && tools.series
        {
            let request = Request::nth(Client::Tools, &format!("t.{}", tools.number), tools.count);
            self.send(request.observed_last(wall(tools.seen)));
        }
    }

    /// What it has counted and not reported is lost.
    pub(in super::super) fn tools_restart(&mut self) {
        if !self.busy(Client::ToolsRefresh)
            && let Some(tools) = self.clients.tools.take()
        {
            let under_way: Vec<Request> = self.pending.iter().chain(&self.unanswered).cloned().collect();
            let name = format!("t.{}", tools.number);
            let of_name = under_way.iter().filter(|request| request.name.as_deref() == Some(&name));
            let highest_under_way = of_name.map(|request| request.value).max().unwrap_or(0);
            let known = self.knowledge.known(&name);
            known.occurred = known.reported.max(highest_under_way);
        }
    }

    /// It reads the stored count, adds one and writes it back. Two of its writes with the same value in the
    /// same second cannot be distinguished from a write and its retry.
    pub(in super::super) fn reader(&mut self) {
        if self.busy(Client::Reader) {
            return;
        }
        let second = self.second();
        let (number, highest, latest) = self.clients.reader;
        let name = format!("r.{number}");
        let stored = self.etcd.get(&name).map(|event| event.count);
        let read_ahead = self.clients.read_ahead.take();
        let value = stored.map_or(1, |stored| read_ahead.unwrap_or(stored) + 1);
        if value == 1 && highest > 0 {
            // Its Event is gone, so it starts another.
            self.clients.reader = (self.clients.new_number(), 0, 0);
            return;
        }
        if value > highest || second > latest {
            self.occurs(&name);
        }
        self.clients.reader = (number, highest.max(value), latest.max(second));
        self.send(Request { create: value == 1, value, ..Request::first(Client::Reader, &name) });
    }

    /// It reads, and writes later with a PATCH that has no resource version.
    pub(in super::super) fn reader_reads(&mut self) {
        if !self.busy(Client::Reader) {
            let stored = self.etcd.get(&format!("r.{}", self.clients.reader.0));
            self.clients.read_ahead = stored.map(|event| event.count);
        }
    }

    /// It creates an Event under the name of another client's.
    pub(in super::super) fn take_name(&mut self, at: usize) {
        let Some(name) = self.etcd.nth(at) else { return };
        let value = [1, 1000][at % 2];
        self.send(Request { create: true, value, ..Request::first(Client::Tenant, &name) });
    }

    pub(in super::super) fn create_only(&mut self, message: usize, api: Api) {
        let name = format!("c.{}", self.clients.new_number());
        self.occurs(&name);
        self.send(Request { message: MESSAGES[message], ..Request::first(Client::Passing(api), &name) });
    }

    pub(in super::super) fn generate(&mut self) {
        self.send(Request::generated(Client::Passing(Api::Core)));
    }

    /// To squelch, each retry after a 403 is another occurrence.
    pub(in super::super) fn kopf(&mut self) {
        self.send(Request::generated(Client::Kopf));
    }

    pub(super) fn occurs(&mut self, name: &str) {
        let now = self.wall();
        self.knowledge.occurs(name, now);
    }
}
