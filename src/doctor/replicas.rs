//! Checks of the replicas: their pods, the active replica, and the endpoints of the webhook's Service.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;

use super::finding::{Finding, printable};
use super::snapshot::{Snapshot, Unreadable};

/// The label of the active replica's pod.
const ROLE: (&str, &str) = ("squelch.dev/role", "active");

/// The tolerated difference between the clocks of this process and of the lease holder.
const CLOCKS: SignedDuration = SignedDuration::from_secs(10);

pub(super) fn findings(snapshot: &Snapshot) -> Vec<Finding> {
    let mut found = vec![pods(snapshot), active(snapshot)];
    found.extend(endpoints(snapshot));
    found
}

fn pods(snapshot: &Snapshot) -> Finding {
    let name = &snapshot.installation.deployment;
    let Deployment { spec, status, .. } = match &snapshot.deployment {
        Ok(deployment) => deployment,
        Err(Unreadable::Missing) => {
            let message = format!(
                "the Deployment {} does not exist in the namespace {}",
                printable(name),
                printable(&snapshot.installation.namespace)
            );
            return Finding::warning(
                "replicas",
                message,
                "set --install-namespace and --deployment, unless squelch runs outside the cluster",
            );
        }
        Err(unreadable) => {
            return Finding::unreadable(
                "replicas",
                &format!("the Deployment {}", printable(name)),
                unreadable,
            );
        }
    };
    let wanted = spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let ready = status.as_ref().and_then(|status| status.ready_replicas).unwrap_or(0);
    let message = format!("{ready} of {wanted} pods of the Deployment {} are ready", printable(name));
    let namespace = printable(&snapshot.installation.namespace);
    let remedy = format!("kubectl --namespace {namespace} describe pods");
    match (ready, wanted) {
        (_, 0) => Finding::error(
            "replicas",
            format!("the Deployment {} is scaled to 0: Events are stored without a review", printable(name)),
            format!(
                "kubectl --namespace {namespace} scale deployment/{} --replicas=2, or helm upgrade",
                printable(name)
            ),
        ),
        (0, _) => Finding::error("replicas", message, remedy),
        _ if ready < wanted => Finding::warning("replicas", message, remedy),
        (_, 1) => Finding::ok(
            "replicas",
            format!("{message}; while it is replaced, Events are stored without a decision"),
        ),
        _ => Finding::ok("replicas", message),
    }
}

/// Whether the Deployment is scaled to 0.
pub(super) fn are_none_wanted(snapshot: &Snapshot) -> bool {
    let spec = snapshot.deployment.as_ref().ok().and_then(|deployment| deployment.spec.as_ref());
    spec.is_some_and(|spec| spec.replicas == Some(0))
}

/// One pod is the active replica: it holds the Lease and has the label.
fn active(snapshot: &Snapshot) -> Finding {
    let lease = match &snapshot.lease {
        Ok(lease) => lease,
        Err(Unreadable::Missing) => {
            return Finding::warning(
                "active",
                "the Lease does not exist: no replica is active",
                "see `replicas`",
            );
        }
        Err(unreadable) => return Finding::unreadable("active", "the Lease", unreadable),
    };
    let holder = match holder(lease, snapshot.at) {
        Ok(holder) => holder,
        Err(message) => return Finding::error("active", message, "see `replicas` and the log of squelch"),
    };
    let labelled = match &snapshot.pods {
        Ok(pods) => labelled(pods),
        Err(unreadable) => return Finding::unreadable("active", "the pods", unreadable),
    };
    let again = "run squelch doctor again in 10 s: a handover takes some seconds";
    match &labelled[..] {
        _ if snapshot.endpoints.is_none() => {
            Finding::ok("active", format!("{} is active", printable(holder)))
        }
        [] => Finding::error(
            "active",
            format!("{} holds the Lease, but no pod has the label {}={}", printable(holder), ROLE.0, ROLE.1),
            again,
        ),
        [one] if is_of(holder, one) => Finding::ok("active", format!("{} is active", printable(one))),
        [one] => Finding::warning(
            "active",
            format!(
                "{} holds the Lease, but the pod {} has the label of the active replica",
                printable(holder),
                printable(one)
            ),
            again,
        ),
        many => {
            let message =
                format!("{} pods have the label {}={} of the active replica", many.len(), ROLE.0, ROLE.1);
            Finding::warning("active", message, again)
        }
    }
}

/// Returns the holder of the Lease.
fn holder(lease: &Lease, at: Timestamp) -> Result<&str, String> {
    let spec = lease.spec.as_ref();
    let holder = spec.and_then(|spec| spec.holder_identity.as_deref()).filter(|holder| !holder.is_empty());
    let holder = holder.ok_or("the Lease has no holder: no replica is active")?;
    let length = spec.and_then(|spec| spec.lease_duration_seconds).unwrap_or(0);
    let renewed = spec.and_then(|spec| spec.renew_time.as_ref()).ok_or("the Lease has no renewTime")?;
    let silent = at.duration_since(renewed.0);
    if silent > CLOCKS + SignedDuration::from_secs(length.into()) {
        return Err(format!(
            "{} holds the Lease, but has not renewed it for {} s",
            printable(holder),
            silent.as_secs()
        ));
    }
    Ok(holder)
}

/// Whether the holder is a process of this pod. Its identity is the name of the pod and a random suffix.
fn is_of(holder: &str, pod: &str) -> bool {
    holder.split_once('_').map_or(holder, |(pod, _)| pod) == pod
}

fn labelled(pods: &[Pod]) -> Vec<&str> {
    let has_label = |pod: &&Pod| {
        let labels = pod.metadata.labels.as_ref();
        labels.and_then(|labels| labels.get(ROLE.0)).is_some_and(|role| role == ROLE.1)
    };
    pods.iter().filter(has_label).filter_map(|pod| pod.metadata.name.as_deref()).collect()
}

/// The webhook's Service has the endpoint of one pod.
fn endpoints(snapshot: &Snapshot) -> Option<Finding> {
    let slices = match snapshot.endpoints.as_ref()? {
        Ok(slices) => slices,
        Err(unreadable) => {
            return Some(Finding::unreadable(
                "endpoints",
                "the endpoints of the webhook's Service",
                unreadable,
            ));
        }
    };
    // A dual-stack Service has each endpoint in a slice of IPv4, and in one of IPv6.
    let mut addresses = BTreeMap::<&str, usize>::new();
    for slice in slices {
        let number = slice.endpoints.iter().map(|endpoint| endpoint.addresses.len()).sum::<usize>();
        *addresses.entry(&slice.address_type).or_default() += number;
    }
    Some(match addresses.into_values().max().unwrap_or_default() {
        0 => Finding::error(
            "endpoints",
            "the webhook's Service has no endpoint: the API server cannot reach squelch",
            "see `replicas` and `active`: the Service selects the active pod",
        ),
        1 => Finding::ok("endpoints", "the webhook's Service has one endpoint"),
        many => Finding::warning(
            "endpoints",
            format!("the webhook's Service has {many} endpoints: a standby admits Events without a decision"),
            "run squelch doctor again in 10 s: a handover takes some seconds",
        ),
    })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::discovery::v1::EndpointSlice;

    use super::super::finding::Level;
    use super::super::fixtures::{healthy, pod, slice};
    use super::*;

    fn levels(snapshot: &Snapshot) -> Vec<(&'static str, Level)> {
        findings(snapshot).iter().map(|finding| (finding.check, finding.level)).collect()
    }

    #[test]
    fn two_replicas_with_one_active_pass() {
        assert_eq!(levels(&healthy()), ["replicas", "active", "endpoints"].map(|what| (what, Level::Ok)));
    }

    #[test]
    fn pods_that_are_not_ready_are_counted() {
        let with = |ready| {
            let mut snapshot = healthy();
            snapshot.deployment.as_mut().unwrap().status.as_mut().unwrap().ready_replicas = ready;
            levels(&snapshot)[0].1
        };
        assert_eq!([with(Some(2)), with(Some(1)), with(None)], [Level::Ok, Level::Warning, Level::Error]);
        let mut snapshot = healthy();
        assert!(!are_none_wanted(&snapshot));
        let deployment = snapshot.deployment.as_mut().unwrap();
        deployment.spec.as_mut().unwrap().replicas = Some(0);
        deployment.status.as_mut().unwrap().ready_replicas = None;
        let found = &findings(&snapshot)[0];
        assert!(are_none_wanted(&snapshot) && found.level == Level::Error);
        assert!(found.message.contains("scaled to 0") && found.remedy.contains("--replicas=2"), "{found}");
        snapshot.deployment = Err(Unreadable::Missing);
        assert_eq!(levels(&snapshot)[0].1, Level::Warning);
    }

    #[test]
    fn the_label_and_the_lease_belong_to_one_pod() {
        let with = |pods: Vec<Pod>| {
            let mut snapshot = healthy();
            snapshot.pods = Ok(pods);
            levels(&snapshot)[1].1
        };
        assert_eq!(with(vec![pod("squelch-a", true), pod("squelch-b", false)]), Level::Ok);
        assert_eq!(with(vec![pod("squelch-a", false), pod("squelch-b", true)]), Level::Warning);
        assert_eq!(with(vec![pod("squelch-a", true), pod("squelch-b", true)]), Level::Warning);
        assert_eq!(with(vec![pod("squelch-a", false)]), Level::Error);
    }

    #[test]
    fn an_expired_lease_is_an_error_and_a_missing_one_is_a_warning() {
        let mut snapshot = healthy();
        snapshot.at = snapshot.at.checked_add(SignedDuration::from_secs(30)).unwrap();
        let found = &findings(&snapshot)[1];
        assert!(
            found.level == Level::Error && found.message.contains("not renewed it for 31 s"),
            "{}",
            found.message
        );
        snapshot.lease.as_mut().unwrap().spec.as_mut().unwrap().holder_identity = Some(String::new());
        assert_eq!(levels(&snapshot)[1].1, Level::Error);
        snapshot.lease = Err(Unreadable::Missing);
        assert_eq!(levels(&snapshot)[1].1, Level::Warning);
    }

    #[test]
    fn a_service_without_an_endpoint_is_an_error() {
        let with = |slices| {
            let mut snapshot = healthy();
            snapshot.endpoints = Some(Ok(slices));
            levels(&snapshot)[2].1
        };
        assert_eq!(with(vec![slice(&[])]), Level::Error);
        assert_eq!(with(vec![slice(&["10.0.0.1"])]), Level::Ok);
        assert_eq!(with(vec![slice(&["10.0.0.1"]), slice(&["10.0.0.2"])]), Level::Warning);
        let dual = |addresses: &[&str]| EndpointSlice { address_type: "IPv6".to_owned(), ..slice(addresses) };
        assert_eq!(with(vec![slice(&["10.0.0.1"]), dual(&["fd00::1"])]), Level::Ok);
        assert_eq!(with(vec![slice(&["10.0.0.1"]), dual(&["fd00::1", "fd00::2"])]), Level::Warning);
    }
}
