//! A client that applies.

use super::super::World;
use super::{Client, Request};

impl World {
    /// It applies its Event under a fixed name (server-side apply with forced conflicts), with a count of its own. It
    /// creates what is missing and ignores every answer.
    pub(in super::super) fn applier(&mut self) {
        if !self.busy(Client::Applier) {
            self.clients.applied += 1;
            let (name, value) = ("s.0", self.clients.applied);
            self.occurs(name);
            self.send(Request { create: false, ..Request::nth(Client::Applier, name, value) });
        }
    }

    /// Its process restarts and counts from 1 under the same name. Nothing of the former one is reported any more.
    pub(in super::super) fn applier_restarts(&mut self) {
        if !self.busy(Client::Applier) {
            self.clients.applied = 0;
            self.knowledge.starts_anew("s.0");
        }
    }
}
