//! Clients that read, and read again after a 409.

use super::super::World;
use super::{Client, Reply, Request};

impl World {
    /// A client with a fixed name creates its Event, and replaces the stored one after a 409. Two of its occurrences in
    /// one second could not be distinguished from one and its retry.
    ///
    /// Number 0 reads before it creates, and creates with the stored count plus one (fabric8's `createOrReplace`, as in
    /// the Flink operator). Number 1 creates with 1 (Ceph's operator).
    pub(in super::super) fn replacer(&mut self, number: usize) {
        let (client, second) = (Client::Replacer(number), self.second());
        if self.busy(client) || self.clients.replacers[number] == second {
            return;
        }
        self.clients.replacers[number] = second;
        let name = format!("p.{number}");
        self.occurs(&name);
        let stored = self.etcd.get(&name).map_or(0, |event| event.count);
        let value = if number == 0 { stored + 1 } else { 1 };
        self.send(Request { create: true, value, ..Request::first(client, &name) });
    }

    /// It reads the stored count, adds one and writes it back, as [`Self::reader`] does. After a 409 it tries again.
    pub(in super::super) fn retrying_reader(&mut self) {
        let (client, second) = (Client::RetryingReader, self.second());
        if self.busy(client) {
            return;
        }
        let (number, highest, latest) = self.clients.retrying_reader;
        let name = format!("y.{number}");
        let value = self.etcd.get(&name).map_or(1, |event| event.count + 1);
        if value == 1 && highest > 0 {
            // Its Event is gone, so it starts another.
            self.clients.retrying_reader = (self.clients.new_number(), 0, 0);
            return;
        }
        if value > highest || second > latest {
            self.occurs(&name);
        }
        self.clients.retrying_reader = (number, highest.max(value), latest.max(second));
        self.send(Request { create: value == 1, value, ..Request::first(client, &name) });
    }

    /// After a 409, some clients read again, and write the stored count plus one with the same time. Returns the request
    /// if its client does not.
    pub(super) fn read_again(&mut self, request: Request, reply: Reply) -> Option<Request> {
        let stored = self.etcd.get(request.name.as_deref()?);
        match (stored, reply) {
            (Some(stored), Reply::Exists) if request.tries < request.client.retries() => {
                if request.client == Client::RetryingReader {
                    let highest = &mut self.clients.retrying_reader.1;
                    *highest = (*highest).max(stored.count + 1);
                }
                self.send(request.replaces(stored.count));
                None
            }
            _ => {
                if request.create && request.client.reads() {
                    self.knowledge.ends_with(&request);
                }
                Some(request)
            }
        }
    }
}

impl Request {
    /// Returns the next attempt: an UPDATE that adds one to this count.
    fn replaces(self, stored: i64) -> Self {
        let fresh = Self { create: false, value: stored + 1, tries: self.tries + 1, ..self };
        // What was certain of an UPDATE depends on its retry now. A CREATE was refused.
        let certain = if self.create { 0 } else { fresh.certain };
        Self { reviewed_on: 0, counted: 0, certain, is_first: false, beside_series: false, ..fresh }
            .undecided()
    }

    fn undecided(self) -> Self {
        Self { unseen: false, admitted: false, ..self }
    }
}
