//! Which policy governs, against a model that says only which of two goes first.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::fixtures::{event, policy};
use super::{Policy, Set};
use crate::engine::testing::cases;

/// A policy as somebody may have written it.
#[derive(Clone, Debug)]
struct Written {
    namespace: &'static str,
    name: &'static str,
    priority: i64,
    created: i64,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    MatchesAll,
    /// The write is a Warning.
    MatchesWarnings,
    MatchesOthers,
    Exempts,
    Invalid,
}

impl Written {
    fn policy(&self) -> Arc<Policy> {
        let spec = match self.kind {
            Kind::MatchesAll => json!({}),
            Kind::MatchesWarnings => json!({"match": {"types": ["Warning"]}}),
            Kind::MatchesOthers => json!({"match": {"types": ["Normal"]}}),
            Kind::Exempts => json!({"exempt": [{"types": ["*"]}]}),
            Kind::Invalid => json!({"series": {"idleTimeout": "soon"}}),
        };
        let mut spec: Value = spec;
        spec["priority"] = self.priority.into();
        policy(self.namespace, self.name, &spec, self.created)
    }

    /// Whether it could govern the write, a Warning in namespace ci.
    fn may_govern(&self) -> bool {
        self.namespace == "ci" && !matches!(self.kind, Kind::MatchesOthers | Kind::Invalid)
    }

    /// Higher priority, then older, then name.
    fn goes_before(&self, other: &Self) -> bool {
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
    let kinds = [Kind::MatchesAll, Kind::MatchesWarnings, Kind::MatchesOthers, Kind::Exempts, Kind::Invalid];
    let places: Vec<_> = ["ci", "other"]
        .into_iter()
        .flat_map(|space| ["a", "b", "c", "d"].map(|name| (space, name)))
        .collect();
    let some = prop::sample::subsequence(places, 0..=8).prop_shuffle();
    let rest = prop::collection::vec((-1i64..2, 0i64..3, prop::sample::select(kinds.to_vec())), 8);
    (some, rest).prop_map(|(places, rest)| {
        let of = |((namespace, name), (priority, created, kind))| Written {
            namespace,
            name,
            priority,
            created,
            kind,
        };
        places.into_iter().zip(rest).map(of).collect()
    })
}

proptest! {
    #![proptest_config(cases(1000))]

    #[test]
    fn one_policy_governs_and_no_other_that_could_goes_before_it(written in written()) {
        let set = Set::new(written.iter().map(Written::policy));
        let event = event();
        let governing = set.governing(&event);
        let could: Vec<_> = written.iter().filter(|policy| policy.may_govern()).collect();
        let first = could.iter().find(|one| could.iter().all(|other| !other.goes_before(one)));
        let expected = first.map(|one| (format!("{}/{}", one.namespace, one.name), one.kind == Kind::Exempts));
        let found = governing.map(|found| (found.rules.policy.display.to_string(), found.exempt));
        prop_assert_eq!(found, expected);
    }
}
