//! Keeps the MutatingWebhookConfiguration as it should be.

use std::time::Duration;

use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::configuration::{Desired, NAME, Reach};
use crate::FIELD_MANAGER;

/// A write that failed is tried again after this long.
const PAUSE: Duration = Duration::from_secs(1);
/// A call without an answer after this long is tried again.
const DEADLINE: Duration = Duration::from_secs(5);

/// The configuration in the API server.
pub struct Arming {
    api: Api<DynamicObject>,
}

impl Arming {
    /// Writes through `client`.
    pub fn new(client: Client) -> Self {
        let kind =
            GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", "MutatingWebhookConfiguration");
        let resource = ApiResource::from_gvk_with_plural(&kind, "mutatingwebhookconfigurations");
        Self { api: Api::all_with(client, &resource) }
    }

    /// Makes the configuration what `desired` says. In force about a millisecond after the answer.
    ///
    /// # Errors
    /// What the API server answers, or that it did not answer in time.
    pub async fn apply(&self, desired: &Desired) -> Result<(), String> {
        // Nobody else has a say in these fields: what a person changed by hand is taken back.
        let as_owner = PatchParams { force: true, ..PatchParams::apply(FIELD_MANAGER) };
        let object = Patch::Apply(desired.object());
        let call = self.api.patch(NAME, &as_owner, &object);
        match tokio::time::timeout(DEADLINE, call).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!("no answer within {} s", DEADLINE.as_secs())),
        }
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
            Ok(()) => {
                if in_force.as_ref() != Some(&wanted.reach) {
                    info!(reach = %described(&wanted.reach), "webhook configuration written");
                }
                armed(wanted.reach != Reach::Nothing);
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

fn described(reach: &Reach) -> String {
    match reach {
        Reach::Nothing => "no namespace: no rules".to_owned(),
        Reach::Named(namespaces) => format!("{} namespaces", namespaces.len()),
        Reach::Everything => "all namespaces".to_owned(),
    }
}
