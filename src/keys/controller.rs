//! Keeps the webhook's keys current.
//!
//! The controller reads the Secret and the mounted files at an interval, takes the steps of the [`Rotation`], serves
//! the resulting certificate, accepts the resulting tokens, and publishes both for the webhook configuration.

mod problems;
mod serving;
mod steps;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use squelch_engine::Moment;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::api_server_clock::ApiServerClock;
use super::secret::{SecretRead, SecretState, SecretStore};
use crate::arming::{Address, ClientConfig, Desired};
use crate::clock;
use crate::metrics::Metrics;
use crate::tls::encoding::{self, Keys};
use crate::tls::mounted::{MountedCertificate, MountedFiles};
use crate::tls::rotation::{Generation as _, Id, Lifetimes, Rotation, later, signed};
use crate::tls::{AcceptedTokens, ServedCertificate, TlsError, Validity};
use crate::webhook::path;

pub(super) use problems::Subject;
pub(super) use serving::Serving;

/// Maximum steps of one rotation that need no wait in between.
const MAX_STEPS: usize = 3;

/// The controller of this replica's keys.
pub struct KeysController {
    pub(super) store: SecretStore,
    pub(super) clock: ApiServerClock,
    pub(super) lifetimes: Lifetimes,
    pub(super) rotation: Rotation<Keys>,
    /// `resourceVersion` of the Secret when it was last read or written.
    pub(super) resource_version: Option<String>,
    /// The mounted files, if they replace squelch's own authority, and their last valid certificate.
    pub(super) mounted: Option<(MountedFiles, Arc<MountedCertificate>)>,
    pub(super) address: Address,
    /// The webhook's host names. The API server verifies the first.
    pub(super) names: Vec<String>,
    pub(super) serving: Serving,
    pub(super) certificate: Arc<ServedCertificate>,
    pub(super) tokens: Arc<AcceptedTokens>,
    pub(super) metrics: Arc<Metrics>,
    /// Whether this replica is active. Only the active replica writes the Secret.
    pub(super) active: watch::Receiver<bool>,
    /// The last client configuration that was published as a change.
    pub(super) published: Option<ClientConfig>,
    /// The logged problems. Each is logged once.
    pub(super) problems: BTreeMap<Subject, String>,
}

impl KeysController {
    /// Returns the served certificate.
    pub fn certificate(&self) -> Arc<ServedCertificate> {
        self.certificate.clone()
    }

    /// Returns the accepted tokens.
    pub fn tokens(&self) -> Arc<AcceptedTokens> {
        self.tokens.clone()
    }

    /// Returns how the API server has to call the webhook.
    pub fn client_config(&self) -> ClientConfig {
        let all = self.rotation.all();
        let authorities: Vec<&str> = match &self.mounted {
            Some((_, certificate)) => vec![certificate.authority(), &self.serving.authority],
            None => {
                all.filter_map(|keys| keys.authority.as_ref()).map(|authority| authority.ca_pem()).collect()
            }
        };
        let mut ca_bundle = String::new();
        for authority in authorities.into_iter().map(str::trim) {
            if !ca_bundle.contains(authority) {
                ca_bundle.push_str(authority);
                ca_bundle.push('\n');
            }
        }
        let path = path(&self.rotation.ring().current.token);
        ClientConfig { address: self.address.clone(), path, ca_bundle }
    }

    /// Runs until `stop`. Publishes the client configuration to `desired`. `acknowledged` is the one that the API
    /// server has acknowledged, `exposed` the time of the last failed call that exposed the token.
    pub async fn run(
        mut self,
        desired: watch::Sender<Desired>,
        mut acknowledged: watch::Receiver<Option<ClientConfig>>,
        mut exposed: watch::Receiver<Option<Moment>>,
        stop: CancellationToken,
    ) {
        let mut polls = interval(self.lifetimes.poll_interval);
        polls.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut active = self.active.clone();
        let running = async {
            loop {
                tokio::select! {
                    _ = polls.tick() => self.poll().await,
                    // The former active replica may have written the Secret since the last poll.
                    changed = active.changed() => {
                        if changed.is_err() { return }
                        self.poll().await;
                    }
                    changed = acknowledged.changed() => if changed.is_err() { return },
                    Ok(()) = exposed.changed() => {
                        let failed = *exposed.borrow_and_update();
                        failed.into_iter().for_each(|at| self.expose(at));
                    }
                }
                let in_force = acknowledged.borrow_and_update().clone();
                self.reconcile(in_force.as_ref()).await;
                self.publish(&desired, in_force.as_ref());
            }
        };
        stop.run_until_cancelled(running).await;
    }

    /// Records that a call failed at `at`, and that the API server may have logged the token.
    fn expose(&mut self, at: Moment) {
        let ago = signed(clock::now().since(at));
        self.rotation.expose(later(self.clock.wall(), -ago));
    }

    /// Takes due steps of the rotation, serves the certificate and accepts the tokens. `in_force` is the client
    /// configuration that the API server has acknowledged.
    pub(super) async fn reconcile(&mut self, in_force: Option<&ClientConfig>) {
        if in_force == Some(&self.client_config()) {
            let ids = self.rotation.all().map(|keys| keys.info().id);
            let files = self.mounted.iter().map(|(_, certificate)| certificate.authority_id());
            let trusted: Vec<Id> = ids.chain(files).chain([self.serving.id]).collect();
            self.rotation.record_in_force(&trusted, self.rotation.ring().current.info().id, now());
        }
        self.rotate().await;
        if let Err(error) = self.serve() {
            self.report(Subject::Certificate, format!("cannot make a new certificate: {error}"));
        }
        self.rotation.drop_lingering(self.serving.id, now());
        self.tokens.replace(self.rotation.all().map(|keys| keys.token.clone()).collect());
        self.metrics.certificate_expiration(self.certificate.validity().ends);
    }

    /// Reads the Secret and the mounted files.
    async fn poll(&mut self) {
        let SecretRead { date, state } = self.store.read().await;
        if let Some(date) = date {
            self.clock.record(date);
        }
        match state {
            SecretState::NotShared => {}
            SecretState::Absent if !self.may_write() => self.resource_version = None,
            SecretState::Absent => {
                warn!("keys Secret was deleted, replacing the keys in use");
                self.resource_version = None;
                self.replace_all().await;
            }
            SecretState::Present(data, resource_version) => self.load(&data, resource_version).await,
            SecretState::Unknown(error) => {
                self.report(Subject::Secret, format!("cannot read it: {error}"));
            }
        }
        if let Some((files, certificate)) = &mut self.mounted {
            match files.read_changed(self.clock.wall()) {
                Ok(changed) => {
                    if let Some(changed) = changed {
                        *certificate = changed;
                    }
                    self.resolve(Subject::Files);
                }
                Err(error) => {
                    if self.report(Subject::Files, format!("keeping the former certificate: {error}")) {
                        self.metrics.keys_rejected();
                    }
                }
            }
        }
    }

    /// Adopts the keys in the Secret, or replaces them if they cannot be decoded.
    async fn load(&mut self, data: &BTreeMap<String, Vec<u8>>, resource_version: String) {
        self.resource_version = Some(resource_version);
        self.resolve(Subject::Secret);
        if encoding::is_encoding_of(self.rotation.ring(), data) {
            return;
        }
        match encoding::decode(data, self.mounted.is_none()) {
            Ok(ring) => {
                info!("keys Secret changed, adopting its keys");
                let is_exact = encoding::is_encoding_of(&ring, data);
                self.rotation.adopt(ring, now());
                if !is_exact {
                    self.write(self.rotation.ring().clone()).await;
                }
            }
            Err(error) if !self.may_write() => {
                self.report(
                    Subject::Secret,
                    format!("it is damaged, waiting for the active replica to repair it: {error}"),
                );
            }
            Err(error) => {
                warn!(%error, "keys Secret is damaged, replacing the keys in use");
                self.metrics.keys_rejected();
                self.replace_all().await;
            }
        }
    }

    /// Serves a new certificate if one is due and the API server trusts its authority.
    fn serve(&mut self) -> Result<(), TlsError> {
        let (wall, validity) = (self.clock.wall(), self.certificate.validity());
        let is_valid = is_valid(validity, wall);
        let current = &self.rotation.ring().current;
        let (candidate, due) = match &self.mounted {
            Some((_, certificate)) => {
                let is_served =
                    self.serving.files.as_ref().is_some_and(|files| Arc::ptr_eq(files, certificate));
                (certificate.authority_id(), !is_served)
            }
            None => {
                let has_signed =
                    current.authority.as_ref().is_some_and(|its| its.ca_pem() == self.serving.authority);
                if has_signed {
                    // The generation has another token and the same authority.
                    self.serving.id = current.info().id;
                }
                (current.info().id, wall >= self.serving.renewal || !is_valid)
            }
        };
        let same = candidate == self.serving.id;
        if if same { !due } else { !self.rotation.may_serve(candidate, is_valid, now()) } {
            return Ok(());
        }
        let (leaf, serving) = match &self.mounted {
            Some((_, certificate)) => (certificate.leaf(), Serving::mounted(certificate)),
            // An expired authority cannot sign. The next generation takes over soon.
            None if !current.info().is_valid(wall) => return Ok(()),
            None => Serving::issued(current, &self.names, self.lifetimes, wall)?,
        };
        self.certificate.replace(leaf)?;
        self.serving = serving;
        info!(not_after = %self.certificate.validity().ends, "serving a new certificate");
        Ok(())
    }

    /// Publishes the client configuration. Receivers are notified only after a first configuration was acknowledged:
    /// until the policies are known, the configuration of an earlier process stays.
    fn publish(&mut self, desired: &watch::Sender<Desired>, in_force: Option<&ClientConfig>) {
        let wanted = self.client_config();
        let is_new =
            in_force.is_some_and(|in_force| *in_force != wanted) && self.published.as_ref() != Some(&wanted);
        if is_new {
            self.published = Some(wanted.clone());
        }
        desired.send_if_modified(|desired| {
            desired.client = wanted;
            is_new
        });
    }
}

fn is_valid(validity: Validity, wall: Timestamp) -> bool {
    validity.begins <= wall && wall < validity.ends
}

/// Returns the time since the process's epoch.
fn now() -> Duration {
    clock::now().since(Moment::default())
}

#[cfg(test)]
mod tests;
