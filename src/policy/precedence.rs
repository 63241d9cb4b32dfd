//! Which policy governs, against a model that says only which of two goes first.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};
use squelch_engine::testing::cases;

use super::fixtures::{cluster_policy, event, labels, policy};
use super::{Effect, Namespaces, Policy, Set};

/// A policy as somebody may have written it.
#[derive(Clone, Debug)]
struct Written {
    /// Its namespace, or what it is as a cluster policy.
    place: Place,
    name: &'static str,
    priority: i64,
    created: i64,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Place {
    Namespace(&'static str),
    /// For namespaces of this team, or for all; before the namespace's own, or after them.
    Cluster {
        team: Option<&'static str>,
        before: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    MatchesAll,
    /// The write is a Warning.
    MatchesWarnings,
    MatchesOthers,
    Exempts,
    /// It matches everything, though one cannot see it, with clauses of which two fit into a namespace and not three.
    Heavy,
    Invalid,
}

impl Kind {
    /// The weight of its `match`.
    fn weight(self) -> usize {
        match self {
            Self::MatchesWarnings | Self::MatchesOthers => 1,
            Self::Heavy => 7 * (8 + 128) + 8 + 2,
            Self::MatchesAll | Self::Exempts | Self::Invalid => 0,
        }
    }
}

impl Written {
    fn policy(&self) -> Arc<Policy> {
        let spec = match self.kind {
            Kind::MatchesAll => json!({}),
            Kind::MatchesWarnings => json!({"match": {"types": ["Warning"]}}),
            Kind::MatchesOthers => json!({"match": {"types": ["Normal"]}}),
            Kind::Exempts => json!({"exempt": [{"types": ["*"]}]}),
            Kind::Heavy => {
                let mut reasons = vec![format!("*{}*", "x".repeat(126)); 7];
                reasons.push("?*".to_owned());
                json!({"match": {"reasons": reasons}})
            }
            Kind::Invalid => json!({"series": {"idleTimeout": "soon"}}),
        };
        let mut spec: Value = spec;
        spec["priority"] = self.priority.into();
        match self.place {
            Place::Namespace(namespace) => policy(namespace, self.name, &spec, self.created),
            Place::Cluster { team, before } => {
                spec["precedence"] = if before { "Override" } else { "Default" }.into();
                if let Some(team) = team {
                    spec["namespaceSelector"] = json!({"matchLabels": {"team": team}});
                }
                cluster_policy(self.name, &spec, self.created)
            }
        }
    }

    fn display(&self) -> String {
        match self.place {
            Place::Namespace(namespace) => format!("{namespace}/{}", self.name),
            Place::Cluster { .. } => self.name.to_owned(),
        }
    }

    /// Whether it is for namespace ci, which is of team shop where its labels are known.
    fn is_for_ci(&self, known: bool) -> bool {
        match self.place {
            Place::Namespace(namespace) => namespace == "ci",
            Place::Cluster { team: Some(team), .. } => known && team == "shop",
            Place::Cluster { team: None, .. } => true,
        }
    }

    /// Whether it could govern the write, a Warning in namespace ci, among `all`.
    fn may_govern(&self, known: bool, all: &[Self]) -> bool {
        self.is_for_ci(known)
            && !matches!(self.kind, Kind::MatchesOthers | Kind::Invalid)
            && self.is_within_limits(known, all)
    }

    /// Whether those in force that go before it among the policies of namespace ci, or among the cluster policies that
    /// are for it, leave room for its weight.
    fn is_within_limits(&self, known: bool, all: &[Self]) -> bool {
        let same_kind = |other: &&Self| {
            matches!(self.place, Place::Namespace(_)) == matches!(other.place, Place::Namespace(_))
        };
        let before =
            all.iter().filter(same_kind).filter(|other| other.is_for_ci(known) && other.goes_before(self));
        let taken =
            before.filter(|other| other.is_within_limits(known, all)).map(|other| other.kind.weight());
        taken.sum::<usize>() + self.kind.weight() <= 2048
    }

    /// Whether it governs all that the other matches, as one can see.
    fn leaves_nothing_to(&self, other: &Self) -> bool {
        matches!(self.kind, Kind::MatchesAll | Kind::Exempts) || self.kind == other.kind
    }

    fn tier(&self) -> u8 {
        match self.place {
            Place::Cluster { before: true, .. } => 0,
            Place::Namespace(_) => 1,
            Place::Cluster { before: false, .. } => 2,
        }
    }

    /// The earlier tier, then higher priority, then older, then name.
    fn goes_before(&self, other: &Self) -> bool {
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

fn written() -> impl Strategy<Value = Vec<Written>> {
    let kinds = [
        Kind::MatchesAll,
        Kind::MatchesWarnings,
        Kind::MatchesOthers,
        Kind::Exempts,
        Kind::Heavy,
        Kind::Heavy,
        Kind::Heavy,
        Kind::Invalid,
    ];
    let own = ["ci", "other"].map(Place::Namespace);
    let cluster = [None, Some("shop"), Some("bank")]
        .into_iter()
        .flat_map(|team| [true, false].map(|before| Place::Cluster { team, before }));
    // Cluster policies have names of their own: there is one space of them.
    let names = [
        ["a", "b", "c"],
        ["d", "e", "f"],
        ["g", "h", "i"],
        ["j", "k", "l"],
        ["m", "n", "o"],
        ["p", "q", "r"],
    ];
    let of_cluster = cluster.zip(names).flat_map(|(place, names)| names.map(|name| (place, name)));
    let of_namespaces = own.into_iter().flat_map(|place| ["a", "b", "c", "d"].map(|name| (place, name)));
    let places: Vec<_> = of_cluster.chain(of_namespaces).collect();
    let some = prop::sample::subsequence(places, 0..=10).prop_shuffle();
    let rest = prop::collection::vec((-1i64..2, 0i64..3, prop::sample::select(kinds.to_vec())), 10);
    (some, rest).prop_map(|(places, rest)| {
        let of =
            |((place, name), (priority, created, kind))| Written { place, name, priority, created, kind };
        places.into_iter().zip(rest).map(of).collect()
    })
}

proptest! {
    #![proptest_config(cases(1000))]

    #[test]
    fn one_policy_governs_and_no_other_that_could_goes_before_it(written in written(), known: bool) {
        let namespaces =
            if known { Namespaces::from([("ci".into(), labels(&[("team", "shop")]))]) } else { Namespaces::new() };
        let set = Set::in_cluster(written.iter().map(Written::policy), &namespaces);
        let event = event();
        let governing = set.governing(&event);
        // A namespace with policies of its own is there, but its labels may not be known.
        let could: Vec<_> = written.iter().filter(|policy| policy.may_govern(known, &written)).collect();
        let first = could.iter().find(|one| could.iter().all(|other| !other.goes_before(one)));
        let expected = first.map(|one| (one.display(), one.kind == Kind::Exempts));
        let found = governing.map(|found| (found.rules.policy.display.to_string(), found.exempt));
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn what_is_said_to_be_overridden_governs_nothing_and_the_one_that_is_named_goes_before_it(
        written in written(),
    ) {
        let namespaces = Namespaces::from([("ci".into(), labels(&[("team", "shop")]))]);
        let set = Set::in_cluster(written.iter().map(Written::policy), &namespaces);
        for one in written.iter().filter(|one| one.is_for_ci(true) && one.kind != Kind::Invalid) {
            let beside = written.iter().filter(|other| other.is_for_ci(true) && other.goes_before(one));
            let within = beside.clone().filter(|other| other.is_within_limits(true, &written));
            let shadowed = within.clone().any(|other| other.leaves_nothing_to(one));
            match set.effect(&one.policy()) {
                Some(Effect::TooMany(_)) => prop_assert!(!one.is_within_limits(true, &written)),
                Some(Effect::Overridden { by, .. }) => {
                    prop_assert!(shadowed);
                    prop_assert!(beside.clone().any(|other| other.display() == *by.id.display));
                }
                // One for every namespace is effective where only some have others before it, and one of another
                // namespace than ci is not asked for here.
                effect => prop_assert!(
                    one.is_within_limits(true, &written) && !shadowed || matches!(one.place, Place::Cluster { team: None, .. }),
                    "{:?}", effect
                ),
            }
        }
    }
}
