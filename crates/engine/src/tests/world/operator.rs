//! squelch in the world: replicas one after the other.

use super::*;

/// What answers the API server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Webhook {
    /// The last replica.
    Active,
    /// The last replica while it drains.
    Draining,
    /// A standby replica without state.
    Standby,
    Unreachable,
}

/// One engine from its start.
pub(super) struct Replica {
    pub(super) engine: Engine,
    pub(super) model: Option<NaiveModel>,
    /// Whether it has ended and flushes nothing more.
    pub(super) over: bool,
    /// When it became active.
    pub(super) began: Timestamp,
}

impl Replica {
    /// Whether a series was evicted. The fate of its client's last write is unknown then.
    pub(super) fn has_evicted(&self) -> bool {
        self.engine.gauges().series_evicted > 0
    }
}

impl World {
    pub(super) fn active(&self) -> Option<&Replica> {
        let answers = matches!(self.webhook, Webhook::Active | Webhook::Draining);
        self.replicas.last().filter(|_| answers)
    }

    pub(super) fn start_replica(&mut self, began: Timestamp) {
        let seed = [3, self.replicas.len() as u64];
        let engine =
            Engine::new(Settings { seed, max_series: self.max_series, max_pending_series: 100_000, began });
        let known_policy = KnownPolicy {
            policy: self.rules.policy.clone(),
            namespace: Some("shop".into()),
            rules: Some(Arc::new(self.rules.clone())),
        };
        engine.identify_namespaces(&self.uids());
        engine.revise(&[known_policy], self.now);
        let model = self.with_model.then(|| NaiveModel::new(self.rules.clone(), began));
        self.replicas.push(Replica { engine, model, over: false, began });
        self.late.clear(); // the former replica has ended, or is no longer asked
        if self.replicas.len() > 1 {
            self.oracle.begins();
        }
        self.webhook = Webhook::Active;
    }

    /// Returns the current uid of the namespace.
    pub(super) fn uids(&self) -> Arc<NamespaceUids> {
        Arc::new(NamespaceUids::from([("shop".into(), self.renewals.to_string().into())]))
    }

    pub(super) fn terminate(&mut self) {
        if self.webhook == Webhook::Active {
            self.note("SIGTERM");
            self.webhook = Webhook::Draining;
            let replica = self.replicas.last_mut().expect("one is active");
            replica.engine.drain();
            replica.model.iter_mut().for_each(NaiveModel::drain);
        }
    }

    /// Everything merged is flushed, and the process ends.
    pub(super) fn depart(&mut self, standby: bool) {
        if self.webhook != Webhook::Draining {
            return;
        }
        self.find_all_closed();
        let at = self.replicas.len() - 1;
        self.drain_remaining(at);
        self.commit_all(); // no write stays in progress for two seconds
        self.flush_all(Duration::from_secs(2));
        let gauges = self.replicas[at].engine.gauges();
        if gauges.pending_occurrences > 0 || self.replicas[at].engine.unflushed() > 0 {
            self.break_law(format!("drained, and still: {gauges:?}"));
        }
        self.stop_replica(at);
        self.webhook = if standby { Webhook::Standby } else { Webhook::Unreachable };
        self.note(format!("squelch has ended, {:?} answers", self.webhook));
    }

    pub(super) fn kill(&mut self) {
        if self.active().is_some() {
            let at = self.replicas.len() - 1;
            self.balance.lost += self.replicas[at].engine.gauges().pending_occurrences as i64;
            self.oracle.crashes(false);
            self.note(format!("SIGKILL: {} pending in all replicas", self.balance.lost));
            self.stop_replica(at);
            self.webhook = Webhook::Unreachable;
        }
    }

    /// The former active replica flushes once; the new one does not know its pending occurrences.
    pub(super) fn lose_lease(&mut self) {
        if self.active().is_some() {
            let at = self.replicas.len() - 1;
            self.balance.lost += self.replicas[at].engine.gauges().pending_occurrences as i64;
            self.oracle.crashes(true);
            self.note("the lease is lost, another becomes active");
            self.drain_remaining(at);
            self.now = self.now.plus(Duration::from_millis(1));
            self.start_replica(self.wall());
        }
    }

    pub(super) fn begin(&mut self) {
        self.depart(false);
        if self.webhook != Webhook::Active {
            self.note("another becomes active");
            self.now = self.now.plus(Duration::from_millis(1));
            self.start_replica(self.wall());
        }
    }

    pub(super) fn drain_remaining(&mut self, at: usize) {
        let replica = &mut self.replicas[at];
        replica.engine.drain();
        replica.engine.drain_remaining();
        replica.model.iter_mut().for_each(NaiveModel::drain_remaining);
    }

    fn stop_replica(&mut self, at: usize) {
        self.replicas[at].over = true;
        self.tasks.retain(|tasks| tasks.replica != at);
    }
}
