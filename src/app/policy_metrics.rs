//! The metrics of policies.

use std::sync::Arc;

use squelch_engine::{Applicability, Mode};

use crate::metrics::table::MAX_SCOPES;
use crate::metrics::{InForce, Metrics, PolicyKind, PolicyState};
use crate::policy::{Armed, Policy, Set};

/// Maximum pairs of namespace and policy that are examined, for policies that govern few namespaces.
const TRIED: usize = 20_000;

/// Sets the numbers of policies by state. No policy is effective while the webhook is not armed for its namespaces.
pub(super) fn count(metrics: &Metrics, set: &Set, armed: &Armed) {
    let awaiting = armed.as_ref().map(|scope| set.awaiting(scope));
    let is_armed_for =
        |policy: &Policy| awaiting.as_ref().is_ok_and(|awaiting| !awaiting.wholly(&policy.id.uid));
    for kind in [PolicyKind::EventPolicy, PolicyKind::ClusterEventPolicy] {
        let of_kind = |policy: &&Arc<Policy>| {
            let cluster_scoped = policy.namespace.is_none();
            cluster_scoped == (kind == PolicyKind::ClusterEventPolicy)
        };
        let policies: Vec<_> = set.policies().iter().filter(of_kind).collect();
        let accepted = policies.iter().filter(|policy| set.is_accepted(policy)).count();
        let effective = policies
            .iter()
            .filter(|policy| is_armed_for(policy) && set.is_accepted(policy) && set.is_effective(policy))
            .count();
        metrics.policies(kind, PolicyState::Effective, effective);
        metrics.policies(kind, PolicyState::NotEffective, accepted - effective);
        metrics.policies(kind, PolicyState::Invalid, policies.len() - accepted);
    }
}

/// Creates the series of cluster-scoped policies with the value 0, so that `increase()` sees the first burst. The
/// engine creates those of namespaced policies.
pub(super) fn begin(metrics: &Metrics, set: &Set) {
    metrics.in_force(in_force(set));
}

fn in_force(set: &Set) -> InForce {
    let cluster_scoped = set.policies().iter().filter(|policy| policy.namespace.is_none());
    let governing: Vec<_> = cluster_scoped
        .filter(|policy| set.is_effective(policy))
        .filter_map(|policy| Some((policy, policy.outcome.as_ref().as_ref().ok()?.rules.mode)))
        .collect();
    let mut pairs = Vec::new();
    let mut tried = 0;
    for namespace in if governing.is_empty() { Vec::new() } else { set.namespaces() } {
        for (policy, mode) in &governing {
            if pairs.len() == MAX_SCOPES || tried == TRIED {
                return InForce { policies: named(&governing), pairs, complete: false };
            }
            tried += 1;
            if set.applicability(&namespace, &policy.id) == Applicability::Governs {
                pairs.push((namespace.clone(), policy.id.display.clone(), *mode));
            }
        }
    }
    InForce { policies: named(&governing), pairs, complete: true }
}

fn named(governing: &[(&Arc<Policy>, Mode)]) -> Vec<(Arc<str>, Mode)> {
    governing.iter().map(|(policy, mode)| (policy.id.display.clone(), *mode)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::policy::fixtures::{cluster_object, labels, object};
    use crate::policy::{Index, NamespaceSelection, WebhookScope};

    fn cluster(namespaces: usize) -> Index {
        let mut index = Index::default();
        index.apply(&object("ci", "own", json!({"spec": {"match": [{"reasons": ["A"]}]}})));
        index.apply(&cluster_object("all", json!({"spec": {}})));
        index.apply(&cluster_object(
            "some",
            json!({"spec": {"mode": "Observe", "priority": 5, "match": [{"reasons": ["B"]}],
                "namespaceSelector": {"matchLabels": {"team": "a"}}}}),
        ));
        index.apply(&cluster_object("wrong", json!({"spec": {"series": {"idleTimeout": "soon"}}})));
        index.apply_namespace("ci", "1", labels(&[("team", "a")]));
        for number in 1..namespaces {
            index.apply_namespace(&format!("n{number:04}"), "1", labels(&[]));
        }
        index
    }

    fn line(metrics: &Metrics, name: &str) -> String {
        let text = metrics.text();
        let of = text.lines().find(|line| line.starts_with(&format!("{name} ")));
        of.map(|line| line.rsplit(' ').next().unwrap().to_owned()).unwrap_or_default()
    }

    #[test]
    fn a_policy_is_effective_only_while_the_webhook_is_armed() {
        let (metrics, set) = (Metrics::new(), cluster(2).set());
        let named = |names: &[&str]| {
            Ok(WebhookScope::all_in(NamespaceSelection::of(names.iter().map(ToString::to_string).collect())))
        };
        for (armed, effective, not_effective) in [
            (Ok(WebhookScope::all_in(NamespaceSelection::All)), ["2", "1"], ["0", "0"]),
            (Err("It hangs.".into()), ["0", "0"], ["2", "1"]),
            // `all` needs all namespaces.
            (named(&["ci"]), ["1", "1"], ["1", "0"]),
            (named(&["n0001"]), ["0", "0"], ["2", "1"]),
        ] {
            count(&metrics, &set, &armed);
            let of = |state, kind| {
                line(&metrics, &format!("squelch_policies{{kind=\"{kind}\",state=\"{state}\"}}"))
            };
            let kinds = ["ClusterEventPolicy", "EventPolicy"];
            assert_eq!(kinds.map(|kind| of("effective", kind)), effective, "{armed:?}");
            assert_eq!(kinds.map(|kind| of("not_effective", kind)), not_effective, "{armed:?}");
            assert_eq!(kinds.map(|kind| of("invalid", kind)), ["1", "0"]);
        }
    }

    #[test]
    fn cluster_policies_have_series_where_they_govern() {
        let InForce { policies, pairs, complete } = in_force(&cluster(3).set());
        let mut policies: Vec<_> = policies.iter().map(|(policy, mode)| (&**policy, *mode)).collect();
        policies.sort_unstable();
        assert_eq!(policies, [("all", Mode::Enforce), ("some", Mode::Observe)]);
        let mut pairs: Vec<_> =
            pairs.iter().map(|(namespace, policy, _)| (&**namespace, &**policy)).collect();
        pairs.sort_unstable();
        let expected = [("ci", "all"), ("ci", "some"), ("n0001", "all"), ("n0002", "all")];
        assert_eq!((pairs.as_slice(), complete), (&expected[..], true));
    }

    #[test]
    fn the_number_of_series_is_bounded_in_a_large_cluster() {
        let InForce { policies, pairs, complete } = in_force(&cluster(2 * MAX_SCOPES).set());
        assert_eq!((policies.len(), pairs.len(), complete), (2, MAX_SCOPES, false));
    }
}
