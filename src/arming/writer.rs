//! Keeps the MutatingWebhookConfiguration as it should be.

use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::configuration::{ClientConfig, Desired, NAME, Reach};
use crate::FIELD_MANAGER;
use crate::announcer::{Announcement, Announcer};

/// A write that failed is tried again after this long.
const PAUSE: Duration = Duration::from_secs(1);
/// A call without an answer after this long is tried again.
const DEADLINE: Duration = Duration::from_secs(5);

/// The configuration in the API server.
pub struct Arming {
    api: Api<DynamicObject>,
    announcer: Announcer,
    acknowledged: watch::Sender<Option<ClientConfig>>,
}

impl Arming {
    /// Writes through `client`; `announcer` hears when the rules come and go.
    pub fn new(client: Client, announcer: Announcer) -> Self {
        let kind =
            GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", "MutatingWebhookConfiguration");
        let resource = ApiResource::from_gvk_with_plural(&kind, "mutatingwebhookconfigurations");
        Self { api: Api::all_with(client, &resource), announcer, acknowledged: watch::Sender::new(None) }
    }

    /// How the API server calls the webhook by what it has acknowledged last; `None` before it has anything.
    pub fn acknowledged(&self) -> watch::Receiver<Option<ClientConfig>> {
        self.acknowledged.subscribe()
    }

    /// Makes the configuration what `desired` says, and names it. In force about a millisecond after the answer.
    ///
    /// # Errors
    /// What the API server answers, or that it did not answer in time.
    pub async fn apply(&self, desired: &Desired) -> Result<ObjectReference, String> {
        // Nobody else has a say in these fields: what a person changed by hand is taken back.
        let as_owner = PatchParams { force: true, ..PatchParams::apply(FIELD_MANAGER) };
        let object = Patch::Apply(desired.object());
        let call = self.api.patch(NAME, &as_owner, &object);
        match tokio::time::timeout(DEADLINE, call).await {
            Ok(Ok(configuration)) => {
                self.acknowledged.send_replace(Some(desired.client.clone()));
                Ok(reference(&configuration))
            }
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!("no answer within {} s", DEADLINE.as_secs())),
        }
    }

    /// Tells in an Event that the rules came or went.
    pub fn announce(&self, configuration: ObjectReference, armed: bool, note: String) {
        let reason = if armed { "Armed" } else { "Disarmed" };
        let regarding = configuration;
        self.announcer.tell(Announcement { regarding, warning: false, reason, action: "Arm", note });
    }
}

fn reference(configuration: &DynamicObject) -> ObjectReference {
    ObjectReference {
        api_version: Some("admissionregistration.k8s.io/v1".to_owned()),
        kind: Some("MutatingWebhookConfiguration".to_owned()),
        name: Some(NAME.to_owned()),
        uid: configuration.metadata.uid.clone(),
        ..ObjectReference::default()
    }
}

/// Follows `desired` until `stop`. `armed` hears whether the API server asks squelch about any write.
pub async fn run(
    arming: &Arming,
    mut desired: watch::Receiver<Desired>,
    armed: impl Fn(bool),
    stop: CancellationToken,
) {
    let mut in_force: Option<Reach> = None;
    loop {
        let wanted = desired.borrow_and_update().clone();
        let next = match arming.apply(&wanted).await {
            Ok(configuration) => {
                if in_force.as_ref() != Some(&wanted.reach) {
                    info!(reach = %described(&wanted.reach), "webhook configuration written");
                }
                let was = in_force.is_some_and(|reach| reach != Reach::Nothing);
                let is = wanted.reach != Reach::Nothing;
                if is != was {
                    arming.announce(configuration, is, note(&wanted.reach));
                }
                armed(is);
                in_force = Some(wanted.reach);
                None
            }
            Err(error) => {
                warn!(%error, "the webhook configuration could not be written; trying again");
                Some(PAUSE)
            }
        };
        tokio::select! {
            () = stop.cancelled() => return,
            changed = desired.changed() => if changed.is_err() { return },
            () = pause(next) => {}
        }
    }
}

/// Waits for `pause`, or for ever if there is none.
async fn pause(pause: Option<Duration>) {
    match pause {
        Some(pause) => tokio::time::sleep(pause).await,
        None => std::future::pending().await,
    }
}

fn note(reach: &Reach) -> String {
    match reach {
        Reach::Nothing => "No policy governs any namespace: no Event write is sent to squelch.".to_owned(),
        reach => format!("Event writes in {} are sent to squelch.", described(reach)),
    }
}

fn described(reach: &Reach) -> String {
    match reach {
        Reach::Nothing => "no namespace: no rules".to_owned(),
        Reach::Named(namespaces) if namespaces.len() == 1 => "1 namespace".to_owned(),
        Reach::Named(namespaces) => format!("{} namespaces", namespaces.len()),
        Reach::Everything => "all namespaces".to_owned(),
    }
}
