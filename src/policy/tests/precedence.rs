//! Compares the governing policy with a model that only compares pairs of policies.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};
use squelch_engine::Treatment;
use squelch_engine::testing::cases;

use crate::policy::fixtures::{cluster_policy, event, labels, policy};
use crate::policy::{Effect, Namespaces, Policy, Set};

/// A random policy.
#[derive(Clone, Debug)]
struct RandomPolicy {
    scope: Scope,
    name: &'static str,
    priority: i64,
    created: i64,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Scope {
    Namespace(&'static str),
    /// For the namespaces of a team, or for all. `overrides`: with precedence Override.
    Cluster {
        team: Option<&'static str>,
        overrides: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    MatchesAll,
    /// Matches the write, which is a Warning.
    MatchesWarnings,
    /// Matches Normal Events.
    MatchesOthers,
    /// Matches both types by an entry each.
    MatchesEither,
    /// Matches everything and excludes the write.
    ExcludesWarnings,
    /// Matches everything and excludes Normal Events. What such a policy governs is not compared.
    ExcludesOthers,
    Exempts,
    Mutes,
    /// Matches everything, which the comparison of clauses does not detect. Two fit within the limits of a namespace, and
    /// three do not.
    Heavy,
    Invalid,
}

impl Kind {
    /// The weight of its `match`.
    fn weight(self) -> usize {
        match self {
            Self::Heavy => 7 * (8 + 128) + 8 + 2,
            _ => 0,
        }
    }
}

impl RandomPolicy {
    fn policy(&self) -> Arc<Policy> {
        let spec = match self.kind {
            Kind::MatchesAll => json!({}),
            Kind::MatchesWarnings => json!({"match": [{"types": ["Warning"]}]}),
            Kind::MatchesOthers => json!({"match": [{"types": ["Normal"]}]}),
            Kind::MatchesEither => json!({"match": [{"types": ["Normal"]}, {"types": ["Warning"]}]}),
            Kind::ExcludesWarnings => json!({"exclude": [{"types": ["Warning"]}]}),
            Kind::ExcludesOthers => json!({"exclude": [{"types": ["Normal"]}]}),
            Kind::Mutes => json!({"warningPolicy": "Limit", "mute": [{"types": ["Warning"]}]}),
            Kind::Exempts => json!({"exempt": [{"types": ["Normal", "Warning"]}]}),
            Kind::Heavy => {
                let mut reasons = vec![format!("*{}*", "x".repeat(126)); 7];
                reasons.push("?*".to_owned());
                json!({"match": [{"reasons": reasons}]})
            }
            Kind::Invalid => json!({"series": {"idleTimeout": "soon"}}),
        };
        let mut spec: Value = spec;
        spec["priority"] = self.priority.into();
        match self.scope {
            Scope::Namespace(namespace) => policy(namespace, self.name, &spec, self.created),
            Scope::Cluster { team, overrides } => {
                spec["precedence"] = if overrides { "Override" } else { "Default" }.into();
                if let Some(team) = team {
                    spec["namespaceSelector"] = json!({"matchLabels": {"team": team}});
                }
                cluster_policy(self.name, &spec, self.created)
            }
        }
    }

    fn display(&self) -> String {
        match self.scope {
            Scope::Namespace(namespace) => format!("{namespace}/{}", self.name),
            Scope::Cluster { .. } => self.name.to_owned(),
        }
    }

    /// Whether it applies to namespace ci, which has the label of team shop if its labels are known.
    fn applies_to_ci(&self, known: bool) -> bool {
        match self.scope {
            Scope::Namespace(namespace) => namespace == "ci",
            Scope::Cluster { team: Some(team), .. } => known && team == "shop",
            Scope::Cluster { team: None, .. } => true,
        }
    }

    /// Whether it could govern the write, a Warning in namespace ci, apart from precedence.
    fn may_govern(&self, known: bool, all: &[Self]) -> bool {
        self.applies_to_ci(known)
            && !matches!(self.kind, Kind::MatchesOthers | Kind::ExcludesWarnings | Kind::Invalid)
            && self.is_within_limits(known, all)
    }

    /// Whether its weight and that of the policies in force that precede it are within the limit. EventPolicies and
    /// ClusterEventPolicies have separate limits.
    fn is_within_limits(&self, known: bool, all: &[Self]) -> bool {
        let same_kind = |other: &&Self| {
            matches!(self.scope, Scope::Namespace(_)) == matches!(other.scope, Scope::Namespace(_))
        };
        let before =
            all.iter().filter(same_kind).filter(|other| other.applies_to_ci(known) && other.precedes(self));
        let taken =
            before.filter(|other| other.is_within_limits(known, all)).map(|other| other.kind.weight());
        taken.sum::<usize>() + self.kind.weight() <= 2048
    }

    /// Whether it overrides the other one, as far as the comparison of clauses detects.
    fn overrides(&self, other: &Self) -> bool {
        match self.kind {
            Kind::MatchesAll | Kind::MatchesEither | Kind::Exempts | Kind::Mutes => true,
            Kind::ExcludesWarnings | Kind::ExcludesOthers => false,
            _ => self.kind == other.kind,
        }
    }

    fn tier(&self) -> u8 {
        match self.scope {
            Scope::Cluster { overrides: true, .. } => 0,
            Scope::Namespace(_) => 1,
            Scope::Cluster { overrides: false, .. } => 2,
        }
    }

    /// Compares tier, then priority, age and name.
    fn precedes(&self, other: &Self) -> bool {
        if self.tier() != other.tier() {
            return self.tier() < other.tier();
        }
        if self.priority != other.priority {
            return self.priority > other.priority;
        }
        if self.created != other.created {
            return self.created < other.created;
        }
        self.name < other.name
    }
}

fn policies() -> impl Strategy<Value = Vec<RandomPolicy>> {
    let kinds = [
        Kind::MatchesAll,
        Kind::MatchesWarnings,
        Kind::MatchesOthers,
        Kind::MatchesEither,
        Kind::ExcludesWarnings,
        Kind::ExcludesOthers,
        Kind::Exempts,
        Kind::Mutes,
        Kind::Heavy,
        Kind::Heavy,
        Kind::Heavy,
        Kind::Invalid,
    ];
    let own = ["ci", "other"].map(Scope::Namespace);
    let cluster = [None, Some("shop"), Some("bank")]
        .into_iter()
        .flat_map(|team| [true, false].map(|overrides| Scope::Cluster { team, overrides }));
    // The names of cluster policies are unique.
    let names = [
        ["a", "b", "c"],
        ["d", "e", "f"],
        ["g", "h", "i"],
        ["j", "k", "l"],
        ["m", "n", "o"],
        ["p", "q", "r"],
    ];
    let of_cluster = cluster.zip(names).flat_map(|(scope, names)| names.map(|name| (scope, name)));
    let of_namespaces = own.into_iter().flat_map(|scope| ["a", "b", "c", "d"].map(|name| (scope, name)));
    let scopes: Vec<_> = of_cluster.chain(of_namespaces).collect();
    let some = prop::sample::subsequence(scopes, 0..=10).prop_shuffle();
    let rest = prop::collection::vec((-1i64..2, 0i64..3, prop::sample::select(kinds.to_vec())), 10);
    (some, rest).prop_map(|(scopes, rest)| {
        let of = |((scope, name), (priority, created, kind))| RandomPolicy {
            scope,
            name,
            priority,
            created,
            kind,
        };
        scopes.into_iter().zip(rest).map(of).collect()
    })
}

proptest! {
    #![proptest_config(cases(1000))]

    #[test]
    fn the_governing_policy_precedes_all_others_that_could_govern(policies in policies(), known: bool) {
        let namespaces =
            if known { Namespaces::from([("ci".into(), labels(&[("team", "shop")]))]) } else { Namespaces::new() };
        let set = Set::in_cluster(policies.iter().map(RandomPolicy::policy), &namespaces);
        let event = event();
        let governing = set.governing(&event);
        // A namespace with policies of its own is known, but its labels may be unknown.
        let could: Vec<_> = policies.iter().filter(|policy| policy.may_govern(known, &policies)).collect();
        let first = could.iter().find(|one| could.iter().all(|other| !other.precedes(one)));
        let treatment = |kind| match kind {
            Kind::Exempts => Treatment::Exempt,
            Kind::Mutes => Treatment::Mute,
            _ => Treatment::Stages,
        };
        let expected = first.map(|one| (one.display(), treatment(one.kind)));
        let found = governing.map(|found| (found.rules.policy.display.to_string(), found.treatment));
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn an_overridden_policy_does_not_govern_and_the_named_one_precedes_it(policies in policies()) {
        let namespaces = Namespaces::from([("ci".into(), labels(&[("team", "shop")]))]);
        let set = Set::in_cluster(policies.iter().map(RandomPolicy::policy), &namespaces);
        for one in policies.iter().filter(|one| one.applies_to_ci(true) && one.kind != Kind::Invalid) {
            let preceding = policies.iter().filter(|other| other.applies_to_ci(true) && other.precedes(one));
            let in_force = preceding.clone().filter(|other| other.is_within_limits(true, &policies));
            let among = |kind| in_force.clone().any(|other| other.kind == kind);
            let together = among(Kind::MatchesWarnings) && among(Kind::MatchesOthers);
            let overridden = together || in_force.clone().any(|other| other.overrides(one));
            match set.effect(&one.policy()) {
                Some(Effect::TooMany(_)) => prop_assert!(!one.is_within_limits(true, &policies)),
                Some(Effect::Overridden { by, .. }) => {
                    prop_assert!(overridden);
                    prop_assert!(preceding.clone().any(|other| other.display() == *by.id.display));
                }
                // A policy for all namespaces is effective if it is overridden in only some of them.
                effect => prop_assert!(
                    one.is_within_limits(true, &policies) && !overridden || matches!(one.scope, Scope::Cluster { team: None, .. }),
                    "{:?}", effect
                ),
            }
        }
    }
}
