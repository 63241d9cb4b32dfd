//! Keeps the webhook's keys: what proves squelch to the API server, and the API server to squelch.
//!
//! Every few seconds the Secret is looked at (and the mounted files), what [`Rotation`] says is done, and what follows
//! is served, accepted, and handed to whoever writes the webhook configuration.

mod secret;
mod start;
mod time;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use squelch_engine::Moment;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::arming::{Address, ClientConfig, Desired};
use crate::clock;
use crate::metrics::Metrics;
use crate::tls::kept::{self, Keys};
use crate::tls::mounted::{Mounted, Pair};
use crate::tls::rotation::{Generation as _, Id, Lifetimes, Ring, Rotation, Step, later, renewal, signed};
use crate::tls::{AcceptedTokens, Leaf, ServedCertificate, TlsError, Validity};
use crate::webhook::path;

use secret::{Found, Look, Store, Written};
use time::Time;

/// What complaints are about.
const SECRET: &str = "the Secret with the webhook's keys";
const FILES: &str = "the files of --certificate-dir";
const CERTIFICATE: &str = "the certificate";

/// More steps than a rotation takes where it needs not wait.
const STEPS_AT_ONCE: usize = 3;

/// The keys of this replica, and all that has to be known to keep them.
pub(super) struct Keeper {
    store: Store,
    time: Time,
    lifetimes: Lifetimes,
    rotation: Rotation<Keys>,
    /// `resourceVersion` of the Secret as it was seen last.
    revision: Option<String>,
    /// The files that are to be served in place of what the authority signs, and what they held last.
    mounted: Option<(Mounted, Arc<Pair>)>,
    address: Address,
    /// The webhook's names, the one first that the API server looks for.
    names: Vec<String>,
    serving: Serving,
    certificate: Arc<ServedCertificate>,
    tokens: Arc<AcceptedTokens>,
    metrics: Arc<Metrics>,
    /// Whether it is this replica that writes the Secret; the others follow it.
    active: watch::Receiver<bool>,
    /// Who writes the configuration was told of this last.
    told: Option<ClientConfig>,
    /// What is complained of, by what it is about: it is said once.
    troubles: BTreeMap<&'static str, String>,
}

/// Who has signed what is served.
struct Serving {
    id: Id,
    authority: String,
    /// What it signs itself is renewed then.
    renewal: Timestamp,
    /// Where it is not squelch's own: what the files held.
    files: Option<Arc<Pair>>,
}

impl Keeper {
    /// What handshakes are answered with.
    pub(super) fn certificate(&self) -> Arc<ServedCertificate> {
        self.certificate.clone()
    }

    /// Which tokens are accepted.
    pub(super) fn tokens(&self) -> Arc<AcceptedTokens> {
        self.tokens.clone()
    }

    /// How the API server is to call the webhook.
    pub(super) fn client_config(&self) -> ClientConfig {
        let all = self.rotation.all();
        let authorities: Vec<&str> = match &self.mounted {
            Some((_, pair)) => vec![pair.authority(), &self.serving.authority],
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

    /// Keeps them until `stop`. `desired` is told how the API server is to call the webhook; `acknowledged` tells
    /// which of that is in force, and `exposed` when a failed call has last shown the token to others.
    pub(super) async fn run(
        mut self,
        desired: watch::Sender<Desired>,
        mut acknowledged: watch::Receiver<Option<ClientConfig>>,
        mut exposed: watch::Receiver<Option<Moment>>,
        stop: CancellationToken,
    ) {
        let mut looks = interval(self.lifetimes.look);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut active = self.active.clone();
        let keeping = async {
            loop {
                tokio::select! {
                    _ = looks.tick() => self.look().await,
                    // The replica that was active before may have written the Secret since the last look.
                    changed = active.changed() => {
                        if changed.is_err() { return }
                        self.look().await;
                    }
                    changed = acknowledged.changed() => if changed.is_err() { return },
                    Ok(()) = exposed.changed() => {
                        let failed = *exposed.borrow_and_update();
                        failed.into_iter().for_each(|at| self.expose(at));
                    }
                }
                let in_force = acknowledged.borrow_and_update().clone();
                self.turn(in_force.as_ref()).await;
                self.tell(&desired, in_force.as_ref());
            }
        };
        stop.run_until_cancelled(keeping).await;
    }

    /// A call failed at `at`: the API server may have logged the token.
    fn expose(&mut self, at: Moment) {
        let ago = signed(clock::now().since(at));
        self.rotation.expose(later(self.time.wall(), -ago));
    }

    /// Everything that follows from what is known.
    async fn turn(&mut self, in_force: Option<&ClientConfig>) {
        if in_force == Some(&self.client_config()) {
            let ids = self.rotation.all().map(|keys| keys.term().id);
            let files = self.mounted.iter().map(|(_, pair)| pair.authority_id());
            let trusted: Vec<Id> = ids.chain(files).chain([self.serving.id]).collect();
            self.rotation.hear(&trusted, self.rotation.ring().current.term().id, now());
        }
        self.rotate().await;
        if let Err(error) = self.serve() {
            self.complain(CERTIFICATE, format!("no new one can be made: {error}"));
        }
        self.rotation.settle(self.serving.id, now());
        self.tokens.replace(self.rotation.all().map(|keys| keys.token.clone()).collect());
        self.metrics.certificate_not_after(self.certificate.validity().ends);
    }

    /// Looks at what is kept, and at the files.
    async fn look(&mut self) {
        let Look { date, found } = self.store.look().await;
        if let Some(date) = date {
            self.time.hear(date);
        }
        match found {
            Found::Nowhere => {}
            Found::Nothing if !self.may_write() => self.revision = None,
            Found::Nothing => {
                warn!("the Secret with the webhook's keys was deleted; new keys replace those in use");
                self.revision = None;
                self.renew().await;
            }
            Found::Kept(data, revision) => self.read(&data, revision).await,
            Found::Failed(error) => {
                self.complain(SECRET, format!("it cannot be read: {error}"));
            }
        }
        if let Some((mounted, pair)) = &mut self.mounted {
            match mounted.look(self.time.wall()) {
                Ok(changed) => {
                    if let Some(changed) = changed {
                        *pair = changed;
                    }
                    self.content(FILES);
                }
                Err(refusal) => {
                    if self.complain(FILES, format!("the former certificate is kept: {refusal}")) {
                        self.metrics.keys_refused();
                    }
                }
            }
        }
    }

    /// What is kept is what counts, if it is sound.
    async fn read(&mut self, data: &BTreeMap<String, Vec<u8>>, revision: String) {
        self.revision = Some(revision);
        self.content(SECRET);
        if kept::is_printed(self.rotation.ring(), data) {
            return;
        }
        match kept::parse(data, self.mounted.is_none()) {
            Ok(ring) => {
                info!("the Secret holds other keys than before: they are taken over");
                let tidy = kept::is_printed(&ring, data);
                self.rotation.adopt(ring, now());
                if !tidy {
                    self.keep(self.rotation.ring().clone()).await;
                }
            }
            Err(damage) if !self.may_write() => {
                self.complain(
                    SECRET,
                    format!("it is damaged, and the active replica is to repair it: {damage}"),
                );
            }
            Err(damage) => {
                warn!(%damage, "the Secret with the webhook's keys is damaged; new keys replace those in use");
                self.metrics.keys_refused();
                self.renew().await;
            }
        }
    }

    /// What is due.
    async fn rotate(&mut self) {
        for _ in 0..STEPS_AT_ONCE {
            let step = self.rotation.step(self.serving.id, self.time.wall(), now());
            let fresh = || match step {
                Step::IntroduceToken => self.rotation.ring().current.with_new_token(self.time.wall()).ok(),
                _ => self.fresh(),
            };
            let Some(ring) = self.rotation.after(step, fresh) else { return };
            if !self.keep(ring).await {
                return;
            }
            match step {
                Step::Keep => {}
                Step::IntroduceToken => info!("new webhook token introduced"),
                Step::Introduce => info!("new webhook keys introduced"),
                Step::Promote => info!("new webhook keys promoted"),
                Step::Drop => info!("former webhook keys dropped"),
            }
        }
    }

    /// Writes the Secret again. New keys replace what it held: whoever deleted it wants to be rid of them.
    async fn renew(&mut self) {
        self.rotation.spoil(now());
        let step = self.rotation.step(self.serving.id, self.time.wall(), now());
        // All at once, or another deletion would come between.
        let introduced =
            (step == Step::Introduce).then(|| self.rotation.after(step, || self.fresh())).flatten();
        let ring = introduced.unwrap_or_else(|| self.rotation.ring().clone());
        self.keep(ring).await;
    }

    fn fresh(&self) -> Option<Keys> {
        Keys::generate(self.mounted.is_none(), self.lifetimes, self.time.wall()).ok()
    }

    /// Writes `ring`, unless somebody else was first: then the next look reads theirs.
    async fn keep(&mut self, ring: Ring<Keys>) -> bool {
        if !self.may_write() {
            return false;
        }
        match self.store.write(&ring, self.revision.as_deref()).await {
            Ok(Written::Kept(revision)) => {
                self.revision = revision;
                self.rotation.adopt(ring, now());
                return true;
            }
            Ok(Written::Conflict) => info!("somebody else has written the Secret: it is read again"),
            Err(error) => {
                self.complain(SECRET, format!("it cannot be written: {error}"));
            }
        }
        false
    }

    /// What is kept in no Secret is this process's own.
    fn may_write(&self) -> bool {
        !self.store.is_shared() || *self.active.borrow()
    }

    /// Serves another certificate where that is due and the API server trusts whoever has signed it.
    fn serve(&mut self) -> Result<(), TlsError> {
        let (wall, validity) = (self.time.wall(), self.certificate.validity());
        let good = is_good(validity, wall);
        let current = &self.rotation.ring().current;
        let (candidate, due) = match &self.mounted {
            Some((_, pair)) => {
                let served = self.serving.files.as_ref().is_some_and(|files| Arc::ptr_eq(files, pair));
                (pair.authority_id(), !served)
            }
            None => {
                let signs =
                    current.authority.as_ref().is_some_and(|its| its.ca_pem() == self.serving.authority);
                if signs {
                    // Another token of the same authority.
                    self.serving.id = current.term().id;
                }
                (current.term().id, wall >= self.serving.renewal || !good)
            }
        };
        let same = candidate == self.serving.id;
        if if same { !due } else { !self.rotation.may_serve(candidate, good, now()) } {
            return Ok(());
        }
        let (leaf, serving) = match &self.mounted {
            Some((_, pair)) => (pair.leaf(), Serving::mounted(pair)),
            // It can sign nothing that is good: the next one takes over soon.
            None if !current.term().is_good(wall) => return Ok(()),
            None => Serving::issued(current, &self.names, self.lifetimes, wall)?,
        };
        self.certificate.replace(leaf)?;
        self.serving = serving;
        info!(not_after = %self.certificate.validity().ends, "another certificate is served");
        Ok(())
    }

    /// Tells who writes the webhook configuration, unless it is so already. Nothing is written before that one has
    /// begun to: until the policies are known, rules that a process before this one left stay.
    fn tell(&mut self, desired: &watch::Sender<Desired>, in_force: Option<&ClientConfig>) {
        let wanted = self.client_config();
        let news =
            in_force.is_some_and(|in_force| *in_force != wanted) && self.told.as_ref() != Some(&wanted);
        if news {
            self.told = Some(wanted.clone());
        }
        desired.send_if_modified(|desired| {
            desired.client = wanted;
            news
        });
    }

    /// Logs it, unless that was done already; whether it was new.
    fn complain(&mut self, about: &'static str, complaint: String) -> bool {
        let news = self.troubles.get(about) != Some(&complaint);
        if news {
            warn!("{about}: {complaint}");
            self.troubles.insert(about, complaint);
        }
        news
    }

    /// There is nothing to complain of any more.
    fn content(&mut self, about: &'static str) {
        if self.troubles.remove(about).is_some() {
            info!("{about}: all is well again");
        }
    }
}

impl Serving {
    fn mounted(pair: &Arc<Pair>) -> Self {
        let (id, authority) = (pair.authority_id(), pair.authority().to_owned());
        Self { id, authority, renewal: Timestamp::MAX, files: Some(pair.clone()) }
    }

    fn issued(
        keys: &Keys,
        names: &[String],
        lifetimes: Lifetimes,
        wall: Timestamp,
    ) -> Result<(Leaf, Self), TlsError> {
        let authority = keys.authority.as_ref().ok_or(TlsError::NoAuthority)?;
        let leaf = authority.issue(names, lifetimes.leaf, wall)?;
        let ends =
            leaf.chain.first().map_or(Ok(wall), |first| Validity::of(first).map(|found| found.ends))?;
        let renewal = renewal(wall, ends.duration_since(wall));
        let (id, authority) = (keys.term().id, authority.ca_pem().to_owned());
        Ok((leaf, Self { id, authority, renewal, files: None }))
    }
}

fn is_good(validity: Validity, wall: Timestamp) -> bool {
    validity.begins <= wall && wall < validity.ends
}

/// The time of the process.
fn now() -> Duration {
    clock::now().since(Moment::default())
}

#[cfg(test)]
mod tests;
