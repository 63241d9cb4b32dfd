//! The replicas: their pods, which of them decides, and whether the webhook's Service leads there.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;

use super::finding::{Finding, told};
use super::seen::{Seen, Unseen};

/// The label of the pod that decides.
const ROLE: (&str, &str) = ("squelch.dev/role", "active");

/// The clocks of who looks and of who renews may differ by this.
const CLOCKS: SignedDuration = SignedDuration::from_secs(10);

pub(super) fn findings(seen: &Seen) -> Vec<Finding> {
    let mut found = vec![pods(seen), active(seen)];
    found.extend(endpoints(seen));
    found
}

fn pods(seen: &Seen) -> Finding {
    let name = &seen.installation.deployment;
    let Deployment { spec, status, .. } = match &seen.deployment {
        Ok(deployment) => deployment,
        Err(Unseen::Missing) => {
            let why = format!(
                "there is no Deployment {} in namespace {}",
                told(name),
                told(&seen.installation.namespace)
            );
            return Finding::warning(
                "replicas",
                why,
                "say which with --namespace and --deployment, unless squelch runs elsewhere",
            );
        }
        Err(unseen) => return Finding::unseen("replicas", &format!("the Deployment {}", told(name)), unseen),
    };
    let wanted = spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let ready = status.as_ref().and_then(|status| status.ready_replicas).unwrap_or(0);
    let why = format!("{ready} of {wanted} pods of the Deployment {} are ready", told(name));
    let namespace = told(&seen.installation.namespace);
    let to_do = format!("kubectl --namespace {namespace} describe pods");
    match (ready, wanted) {
        (_, 0) => Finding::error(
            "replicas",
            format!("the Deployment {} is scaled to 0: no Event is reviewed", told(name)),
            format!(
                "kubectl --namespace {namespace} scale deployment/{} --replicas=2; a helm upgrade does it too",
                told(name)
            ),
        ),
        (0, _) => Finding::error("replicas", why, to_do),
        _ if ready < wanted => Finding::warning("replicas", why, to_do),
        (_, 1) => Finding::ok("replicas", format!("{why}: while it is replaced, Events pass undecided")),
        _ => Finding::ok("replicas", why),
    }
}

/// Somebody has scaled it to 0.
pub(super) fn are_none_wanted(seen: &Seen) -> bool {
    let spec = seen.deployment.as_ref().ok().and_then(|deployment| deployment.spec.as_ref());
    spec.is_some_and(|spec| spec.replicas == Some(0))
}

/// One pod decides: it holds the Lease and has the label.
fn active(seen: &Seen) -> Finding {
    let lease = match &seen.lease {
        Ok(lease) => lease,
        Err(Unseen::Missing) => {
            return Finding::warning(
                "active",
                "there is no Lease: no replica says that it decides",
                "see `replicas`",
            );
        }
        Err(unseen) => return Finding::unseen("active", "the Lease", unseen),
    };
    let holder = match holder(lease, seen.at) {
        Ok(holder) => holder,
        Err(why) => return Finding::error("active", why, "see `replicas`, and the log of squelch"),
    };
    let labelled = match &seen.pods {
        Ok(pods) => labelled(pods),
        Err(unseen) => return Finding::unseen("active", "the pods", unseen),
    };
    let again = "look again in some seconds: it is so while one takes over from another";
    match &labelled[..] {
        _ if seen.endpoints.is_none() => Finding::ok("active", format!("{} decides", told(holder))),
        [] => Finding::error(
            "active",
            format!("{} decides, and no pod has the label {}={}", told(holder), ROLE.0, ROLE.1),
            again,
        ),
        [one] if is_of(holder, one) => Finding::ok("active", format!("{} decides", told(one))),
        [one] => Finding::warning(
            "active",
            format!("{} decides, and {} has its label", told(holder), told(one)),
            again,
        ),
        many => {
            let why = format!("{} pods have the label {}={}", many.len(), ROLE.0, ROLE.1);
            Finding::warning("active", why, again)
        }
    }
}

/// Who holds the Lease.
fn holder(lease: &Lease, at: Timestamp) -> Result<&str, String> {
    let spec = lease.spec.as_ref();
    let holder = spec.and_then(|spec| spec.holder_identity.as_deref()).filter(|holder| !holder.is_empty());
    let holder = holder.ok_or("nobody holds the Lease: no replica decides")?;
    let length = spec.and_then(|spec| spec.lease_duration_seconds).unwrap_or(0);
    let renewed = spec.and_then(|spec| spec.renew_time.as_ref()).ok_or("the Lease was never renewed")?;
    let silent = at.duration_since(renewed.0);
    if silent > CLOCKS + SignedDuration::from_secs(length.into()) {
        return Err(format!(
            "{} holds the Lease and has not renewed it for {} s",
            told(holder),
            silent.as_secs()
        ));
    }
    Ok(holder)
}

/// A holder is called as its pod, and something that tells its processes apart.
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

/// The API server finds a pod behind the Service.
fn endpoints(seen: &Seen) -> Option<Finding> {
    let slices = match seen.endpoints.as_ref()? {
        Ok(slices) => slices,
        Err(unseen) => {
            return Some(Finding::unseen("endpoints", "the endpoints of the webhook's Service", unseen));
        }
    };
    let addresses: usize =
        slices.iter().flat_map(|slice| &slice.endpoints).map(|endpoint| endpoint.addresses.len()).sum();
    Some(match addresses {
        0 => Finding::error(
            "endpoints",
            "the webhook's Service leads to no pod: the API server cannot ask squelch",
            "see `replicas` and `active`: the Service selects the pod that decides",
        ),
        1 => Finding::ok("endpoints", "the webhook's Service leads to one pod"),
        many => Finding::warning(
            "endpoints",
            format!("the webhook's Service leads to {many} pods: those that do not decide let Events pass"),
            "look again in some seconds: it is so while one takes over from another",
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::super::testing::{pod, slice, well};
    use super::*;

    fn levels(seen: &Seen) -> Vec<(&'static str, Level)> {
        findings(seen).iter().map(|finding| (finding.what, finding.level)).collect()
    }

    #[test]
    fn two_replicas_of_which_one_decides_are_well() {
        assert_eq!(levels(&well()), ["replicas", "active", "endpoints"].map(|what| (what, Level::Ok)));
    }

    #[test]
    fn pods_that_are_not_ready_are_counted() {
        let with = |ready| {
            let mut seen = well();
            seen.deployment.as_mut().unwrap().status.as_mut().unwrap().ready_replicas = ready;
            levels(&seen)[0].1
        };
        assert_eq!([with(Some(2)), with(Some(1)), with(None)], [Level::Ok, Level::Warning, Level::Error]);
        let mut seen = well();
        assert!(!are_none_wanted(&seen));
        let deployment = seen.deployment.as_mut().unwrap();
        deployment.spec.as_mut().unwrap().replicas = Some(0);
        deployment.status.as_mut().unwrap().ready_replicas = None;
        let found = &findings(&seen)[0];
        assert!(are_none_wanted(&seen) && found.level == Level::Error);
        assert!(found.why.contains("scaled to 0") && found.what_to_do.contains("--replicas=2"), "{found}");
        seen.deployment = Err(Unseen::Missing);
        assert_eq!(levels(&seen)[0].1, Level::Warning);
    }

    #[test]
    fn label_and_lease_are_of_one_pod() {
        let with = |pods: Vec<Pod>| {
            let mut seen = well();
            seen.pods = Ok(pods);
            levels(&seen)[1].1
        };
        assert_eq!(with(vec![pod("squelch-a", true), pod("squelch-b", false)]), Level::Ok);
        assert_eq!(with(vec![pod("squelch-a", false), pod("squelch-b", true)]), Level::Warning);
        assert_eq!(with(vec![pod("squelch-a", true), pod("squelch-b", true)]), Level::Warning);
        assert_eq!(with(vec![pod("squelch-a", false)]), Level::Error);
    }

    #[test]
    fn a_lease_that_nobody_renews_is_an_error_and_none_is_a_warning() {
        let mut seen = well();
        seen.at = seen.at.checked_add(SignedDuration::from_secs(30)).unwrap();
        let found = &findings(&seen)[1];
        assert!(
            found.level == Level::Error && found.why.contains("not renewed it for 31 s"),
            "{}",
            found.why
        );
        seen.lease.as_mut().unwrap().spec.as_mut().unwrap().holder_identity = Some(String::new());
        assert_eq!(levels(&seen)[1].1, Level::Error);
        seen.lease = Err(Unseen::Missing);
        assert_eq!(levels(&seen)[1].1, Level::Warning);
    }

    #[test]
    fn a_service_that_leads_nowhere_is_an_error() {
        let with = |slices| {
            let mut seen = well();
            seen.endpoints = Some(Ok(slices));
            levels(&seen)[2].1
        };
        assert_eq!(with(vec![slice(&[])]), Level::Error);
        assert_eq!(with(vec![slice(&["10.0.0.1"])]), Level::Ok);
        assert_eq!(with(vec![slice(&["10.0.0.1"]), slice(&["10.0.0.2"])]), Level::Warning);
    }
}
