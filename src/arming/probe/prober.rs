//! Sends probes through each API server, and publishes what they show.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::{BoxFuture, FutureExt as _};
use futures::stream::FuturesUnordered;
use squelch_engine::Moment;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::api_servers::{self, Addresses};
use super::clients::ApiServerClients;
use super::outcome::{ProbeOutcome, TokenExposure};
use super::reachability::Reachability;
use super::request::{Probe, ProbeReport};
use super::server::ServerState;
use super::status::{ProbeStatus, Publisher};
use super::target::{ProbePlan, ProbeTarget, Sent, send};
use crate::clock;
use crate::metrics::{Metrics, ProbeResult};
use crate::tls::AcceptedTokens;

/// The time between the starts of two probes of an API server.
const INTERVAL: Duration = Duration::from_secs(1);
/// The same after a start or a takeover, so that squelch arms within half a second.
const QUICK_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum number of quick probes. An API server may need this long to load the probe entry.
const QUICK_PROBES: u32 = 20;

/// How probes are sent.
pub struct Probing {
    /// Clients for the API servers.
    pub clients: ApiServerClients,
    /// squelch's own namespace, in which probes are sent.
    pub namespace: String,
    /// The tokens that verify the signatures.
    pub tokens: Arc<AcceptedTokens>,
}

/// Sends probes.
pub struct Prober {
    probing: Probing,
    /// The addresses of the API servers.
    listed: watch::Sender<Addresses>,
    /// Whether the API servers have the probe entry.
    entry_exists: watch::Receiver<bool>,
    /// Whether this replica is active, so that the probes reach its own webhook.
    active: watch::Receiver<bool>,
    publisher: Publisher,
    /// When the last probe failed that exposed the token. Set once probes succeed again.
    exposed: watch::Sender<Option<Moment>>,
    metrics: Arc<Metrics>,
    history: History,
}

/// The probes since the probe entry exists.
#[derive(Default)]
struct History {
    targets: BTreeMap<String, ProbeTarget>,
    reachability: Reachability,
    /// Whether the webhook could be armed once.
    confirmed_once: bool,
    /// Whether the probes reach the own webhook.
    active: bool,
    /// Probes of earlier rounds are discarded.
    round: u64,
}

impl Probing {
    fn probe(&self, address: &str) -> Result<Probe, String> {
        let client = self.clients.connect(address)?;
        Ok(Probe::new(client, self.namespace.clone(), self.tokens.clone()))
    }
}

impl Prober {
    /// `entry_exists` is whether the API servers have the probe entry, `active` whether this replica is active.
    pub(in crate::arming) fn new(
        probing: Probing,
        entry_exists: watch::Receiver<bool>,
        active: watch::Receiver<bool>,
        metrics: Arc<Metrics>,
    ) -> (Self, ProbeStatus) {
        let (publisher, status) = Publisher::new();
        // Without clients for single API servers, there is nothing to read.
        let listed = watch::Sender::new((!probing.clients.can_connect()).then(BTreeSet::new));
        let prober = Self {
            probing,
            listed,
            entry_exists,
            active,
            publisher,
            exposed: watch::Sender::new(None),
            metrics,
            history: History::default(),
        };
        (prober, status)
    }

    /// Returns when the last probe failed that exposed the token. It changes once probes succeed again, so that a new
    /// token is not exposed at once.
    pub fn exposed(&self) -> watch::Receiver<Option<Moment>> {
        self.exposed.subscribe()
    }

    /// Sends probes until `stop`.
    pub async fn run(mut self, stop: CancellationToken) {
        let follows = self.probing.clients.can_connect();
        let (usual, listed) = (self.probing.clients.usual.clone(), self.listed.clone());
        let following = async {
            if follows {
                api_servers::follow(usual, listed).await;
            }
            std::future::pending::<()>().await;
        };
        let probing = async {
            tokio::select! {
                () = self.send_probes() => {}
                () = following => {}
            }
        };
        stop.run_until_cancelled(probing).await;
    }

    /// Returns once a sender is dropped.
    async fn send_probes(&mut self) {
        let mut listed = self.listed.subscribe();
        let mut exposure = TokenExposure::default();
        let wake = watch::Sender::new(0);
        let mut probing: FuturesUnordered<BoxFuture<'static, Sent>> = FuturesUnordered::new();
        let mut under_way = BTreeSet::new();
        loop {
            let exists = *self.entry_exists.borrow_and_update();
            if !exists && !self.history.targets.is_empty() {
                wake.send_modify(|round| *round += 1);
                let active = self.history.active;
                self.history = History { active, round: *wake.borrow(), ..History::default() };
                self.publisher.begin();
            }
            let active = *self.active.borrow_and_update();
            if active != std::mem::replace(&mut self.history.active, active) {
                // Another replica's webhook answers from now on.
                wake.send_modify(|round| *round += 1);
                if active {
                    self.history.take_over();
                }
            }
            if let Some(reset) = self.publisher.requested_reset() {
                // A probe that was sent before the rules were removed says nothing about the time after it.
                wake.send_modify(|round| *round += 1);
                self.history.reset(*wake.borrow());
                self.publisher.reset_to(reset);
            }
            if let Some(addresses) = listed.borrow_and_update().clone().filter(|_| exists) {
                self.set_targets(addresses);
            }
            for (address, target) in &self.history.targets {
                if under_way.insert(address.clone()) {
                    let plan = self.plan(address, Duration::ZERO, wake.subscribe());
                    probing.push(send(target.probe.clone(), plan).boxed());
                }
            }
            tokio::select! {
                biased;
                changed = self.active.changed() => if changed.is_err() { return },
                changed = self.publisher.reset.changed() => if changed.is_err() { return },
                changed = self.entry_exists.changed() => if changed.is_err() { return },
                Some(sent) = probing.next() => {
                    self.record(&sent, &mut exposure);
                    under_way.remove(&sent.api_server);
                    if let Some(target) = self.history.targets.get(&sent.api_server) {
                        let pause = self.history.interval(target).saturating_sub(clock::now().since(sent.began));
                        let pause = if sent.round < self.history.round { Duration::ZERO } else { pause };
                        let plan = self.plan(&sent.api_server, pause, wake.subscribe());
                        probing.push(send(target.probe.clone(), plan).boxed());
                        under_way.insert(sent.api_server);
                    }
                }
                // The sender is part of this prober.
                Ok(()) = listed.changed() => {}
            }
        }
    }

    /// Probes the listed API servers. The usual address is probed only if no listed API server can be judged: it leads
    /// to one of them, and the others show more.
    fn set_targets(&mut self, mut addresses: BTreeSet<String>) {
        let history = &mut self.history;
        let is_unknown = |address: &String| history.reachability.state(address) == Some(ServerState::Unknown);
        if addresses.iter().all(is_unknown) {
            addresses.insert(self.probing.clients.usual_address.clone());
        }
        history.targets.retain(|address, _| addresses.contains(address));
        for address in &addresses {
            if history.targets.contains_key(address) {
                continue;
            }
            match self.probing.probe(address) {
                Ok(probe) => {
                    history.targets.insert(address.clone(), ProbeTarget::new(probe));
                }
                Err(error) => warn!(address, %error, "cannot probe the API server at this address"),
            }
        }
        let servers = history.targets.keys().cloned().collect();
        history.reachability.set_servers(&servers);
        self.metrics.probed_api_servers(&servers);
        self.publisher.publish(&history.reachability);
    }

    fn plan(&self, api_server: &str, pause: Duration, wake: watch::Receiver<u64>) -> ProbePlan {
        let further = self.history.further_probes(api_server);
        let entry_exists = self.entry_exists.clone();
        ProbePlan { api_server: api_server.to_owned(), pause, wake, entry_exists, further }
    }

    fn record(&mut self, sent: &Sent, exposure: &mut TokenExposure) {
        for (probed, took) in &sent.reports {
            self.metrics.probe(probed.result, *took);
            if let Some(at) = exposure.record(probed.result, clock::now()) {
                self.exposed.send_replace(Some(at));
            }
        }
        let is_current =
            sent.round >= self.history.round && self.history.targets.contains_key(&sent.api_server);
        for probed in sent.counted().filter(|_| is_current) {
            if self.history.record(&sent.api_server, probed).is_failure() {
                self.metrics.probe_failure(&sent.api_server);
            }
        }
        if is_current && sent.shows_shared_address() {
            self.history.reachability.demand_steadiness(&sent.api_server);
        }
        self.publisher.publish(&self.history.reachability);
    }
}

impl History {
    fn record(&mut self, api_server: &str, probed: &ProbeReport) -> ProbeOutcome {
        let outcome = self.outcome(probed.result);
        let is_quick = !self.confirmed_once;
        if let Some(target) = self.targets.get_mut(api_server) {
            target.probes = target.probes.saturating_add(1);
            let is_expected = is_quick && target.probes < QUICK_PROBES;
            target.log(api_server, probed, outcome, is_expected);
        }
        self.reachability.record(api_server, outcome, &probed.message);
        self.confirmed_once |= self.reachability.is_confirmed();
        outcome
    }

    /// Returns the outcome of a result. A standby without file descriptors knows nothing about the active replica's
    /// webhook.
    fn outcome(&self, result: ProbeResult) -> ProbeOutcome {
        if result == ProbeResult::NoDescriptors && !self.active {
            ProbeOutcome::Inconclusive
        } else {
            ProbeOutcome::of(result)
        }
    }

    /// Returns the number of further probes of an API server that does not answer soon.
    fn further_probes(&self, api_server: &str) -> usize {
        let state = |address: &str| self.reachability.state(address);
        let is_other =
            |address: &String| address != api_server && state(address) != Some(ServerState::Unknown);
        let is_only_address = !self.targets.keys().any(is_other);
        let target =
            self.targets.get(api_server).filter(|_| state(api_server).is_some_and(ServerState::reaches));
        target.map_or(0, |target| target.further_probes(is_only_address))
    }

    /// Starts to probe the own webhook. A confirmed reachability stays until probes fail. Otherwise quick probes follow.
    fn take_over(&mut self) {
        self.targets.values_mut().for_each(|target| target.probes = 0);
        self.reachability.discard_failures();
        self.confirmed_once = self.reachability.is_confirmed();
    }

    /// Discards the probes before `round`. Soon after a takeover, quick probes follow.
    fn reset(&mut self, round: u64) {
        self.round = round;
        self.reachability.demand_successes();
        self.confirmed_once &= self.targets.values().any(|target| target.probes >= QUICK_PROBES);
    }

    fn interval(&self, target: &ProbeTarget) -> Duration {
        let is_quick = self.active && !self.confirmed_once && target.probes < QUICK_PROBES;
        if is_quick { QUICK_INTERVAL } else { INTERVAL }
    }
}

#[cfg(test)]
mod tests;
