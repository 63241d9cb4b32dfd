//! All policies at one moment, and which of them governs a write.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;
use squelch_engine::{Applicability, Governing, NamespaceUids, Observation, PolicyId};

use crate::api::EventPolicyStatus;

use super::compile::{Compiled, Invalid, Labels};
use super::order::{Limit, Namespaces, Ordered, Overriding, evaluable};

/// One policy as it stands in the cluster, understood or not.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// Its identity.
    pub id: PolicyId,
    /// `metadata.namespace`; `None`: a `ClusterEventPolicy`.
    pub namespace: Option<Arc<str>>,
    /// `metadata.name`.
    pub name: Arc<str>,
    /// `metadata.generation`: which spec this is.
    pub generation: i64,
    /// `metadata.creationTimestamp`.
    pub created: Option<Timestamp>,
    /// What became of its spec.
    pub outcome: Arc<Result<Compiled, Invalid>>,
    /// `status` as it stood in the cluster when the policy was read.
    pub reported: Option<EventPolicyStatus>,
}

impl Policy {
    /// Its kind and name, as one speaks of it within its namespace.
    pub fn title(&self) -> String {
        let kind = if self.namespace.is_some() { "EventPolicy" } else { "ClusterEventPolicy" };
        format!("{kind} {}", self.name)
    }

    pub(super) fn compiled(&self) -> Option<&Compiled> {
        self.outcome.as_ref().as_ref().ok()
    }

    /// Whether labels decide for which namespaces it is.
    fn has_selector(&self) -> bool {
        self.namespace.is_none() && self.compiled().is_some_and(|compiled| !compiled.selects_all())
    }

    /// Whether its selector selects a namespace with these labels; without any, whatever the labels are.
    pub(super) fn selects(&self, labels: Option<&Labels>) -> bool {
        self.compiled().is_some_and(|compiled| match labels {
            Some(labels) => compiled.selects(labels),
            None => compiled.selects_all(),
        })
    }
}

/// What becomes of a policy that is understood.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// There are writes that it would govern.
    Governs,
    /// There are such writes, but in some of the namespaces that it selects it is not in force.
    GovernsInPart(Beyond),
    /// It is in force nowhere: the policies that precede it exhaust a limit.
    TooMany(Beyond),
    /// Policies of higher precedence govern every write that it matches in the namespace, or in each that it selects.
    Overridden {
        /// The last of them in one namespace.
        by: Arc<Policy>,
        /// It governs every write there by itself.
        governs_all: bool,
        /// That namespace; `None`: every one.
        namespace: Option<Arc<str>>,
    },
    /// Its selector selects no namespace.
    NoNamespaces {
        /// The first namespace by name for which the selector is not evaluated; see [`Limit::Labels`].
        unread: Option<Arc<str>>,
    },
}

/// Where and why a policy is not in force beside those that precede it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beyond {
    /// The first such namespace by name; `None`: one whose labels are not known yet.
    pub namespace: Option<Arc<str>>,
    /// What is exhausted there.
    pub limit: Limit,
}

/// Policies in force, in order.
type InForce = Arc<[Arc<Policy>]>;

/// All policies, and those in force in each namespace in order of precedence.
#[derive(Clone, Debug, Default)]
pub struct Set {
    policies: Vec<Arc<Policy>>,
    resolved: Arc<Resolved>,
    uids: Arc<NamespaceUids>,
}

/// What follows from the policies and the labels of the namespaces.
#[derive(Debug, Default)]
struct Resolved {
    by_namespace: HashMap<Arc<str>, InForce>,
    /// In a namespace that is not known yet.
    elsewhere: InForce,
    /// By policy uid.
    effects: HashMap<Arc<str>, Effect>,
}

impl Set {
    /// The policies where no labels of namespaces are known; see [`Self::in_cluster`].
    pub fn new(policies: impl IntoIterator<Item = Arc<Policy>>) -> Self {
        Self::in_cluster(policies, &Namespaces::new())
    }

    /// Works out for each namespace which policies are in force there, so that a write only looks them up. Those
    /// that do not compile govern nothing.
    pub fn in_cluster(policies: impl IntoIterator<Item = Arc<Policy>>, namespaces: &Namespaces) -> Self {
        let policies: Vec<_> = policies.into_iter().collect();
        let resolved = Resolved::new(&policies, namespaces);
        Self { policies, resolved: Arc::new(resolved), uids: Arc::default() }
    }

    /// The same set, where the namespaces have these uids.
    pub fn identified(self, uids: Arc<NamespaceUids>) -> Self {
        Self { uids, ..self }
    }

    /// The same set, where nothing has changed but what some of the policies report.
    pub fn refreshed(&self, policies: impl IntoIterator<Item = Arc<Policy>>) -> Self {
        Self { policies: policies.into_iter().collect(), ..self.clone() }
    }

    /// The one policy that governs `write`, if any.
    pub fn governing(&self, write: &Observation<'_>) -> Option<Governing<'_>> {
        governing(self.in_force(write.namespace), write)
    }

    /// The one policy that governs `write`, if any, in a namespace that is known. On the path of every write: allocates
    /// nothing.
    pub fn governing_in_known(&self, write: &Observation<'_>) -> Option<Governing<'_>> {
        governing(self.resolved.by_namespace.get(write.namespace)?, write)
    }

    /// The known namespaces with a policy that governs something (in Enforce or Observe), in order.
    pub fn namespaces(&self) -> Vec<Arc<str>> {
        let governed = self.resolved.by_namespace.iter().filter(|(_, in_force)| !in_force.is_empty());
        let mut namespaces: Vec<_> = governed.map(|(namespace, _)| namespace.clone()).collect();
        namespaces.sort_unstable();
        namespaces
    }

    /// Whether a policy governs something in every namespace, also in one that is made next.
    pub fn governs_everywhere(&self) -> bool {
        !self.resolved.elsewhere.is_empty()
    }

    /// Every policy, also those that do not compile.
    pub fn policies(&self) -> &[Arc<Policy>] {
        &self.policies
    }

    /// What becomes of `policy`; `None` if it is not understood.
    pub fn effect(&self, policy: &Policy) -> Option<&Effect> {
        self.resolved.effects.get(&policy.id.uid)
    }

    /// Whether `policy` is understood and within the limits of a namespace.
    pub fn is_accepted(&self, policy: &Policy) -> bool {
        self.effect(policy).is_some_and(|effect| !matches!(effect, Effect::TooMany(_)))
    }

    /// Whether there are writes that `policy` would govern.
    pub fn is_effective(&self, policy: &Policy) -> bool {
        matches!(self.effect(policy), Some(Effect::Governs | Effect::GovernsInPart(_)))
    }

    /// What a policy has to do with a namespace.
    pub fn applicability(&self, namespace: &str, policy: &PolicyId) -> Applicability {
        match self.resolved.by_namespace.get(namespace) {
            None => Applicability::Unknown,
            Some(in_force) if in_force.iter().any(|member| member.id.uid == policy.uid) => {
                Applicability::Governs
            }
            Some(_) => Applicability::NotApplicable,
        }
    }

    /// The uids of the namespaces: another one under the same name is another namespace.
    pub fn namespace_uids(&self) -> &Arc<NamespaceUids> {
        &self.uids
    }

    /// Whether there is this namespace, as far as that matters to cluster-scoped policies.
    pub fn knows(&self, namespace: &str) -> bool {
        self.resolved.by_namespace.contains_key(namespace)
    }

    fn in_force(&self, namespace: &str) -> &[Arc<Policy>] {
        self.resolved.by_namespace.get(namespace).unwrap_or(&self.resolved.elsewhere)
    }
}

fn governing<'p>(in_force: &'p [Arc<Policy>], write: &Observation<'_>) -> Option<Governing<'p>> {
    let governing = in_force.iter().filter_map(|policy| policy.compiled()).find(|it| it.governs(write))?;
    Some(Governing { rules: &governing.rules, exempt: governing.exempts(write) })
}

impl Resolved {
    fn new(policies: &[Arc<Policy>], namespaces: &Namespaces) -> Self {
        let ordered = Ordered::new(policies);
        let (mut shared, mut beyond) = (Shared::default(), HashMap::new());
        let mut overridden: HashMap<Arc<str>, Effect> = HashMap::new();
        let mut resolve = |name: &str, labels: Option<&Labels>, namespace: Option<&Arc<str>>| {
            let limited = ordered.in_force(name, labels);
            for (policy, limit) in limited.beyond {
                if !beyond.contains_key(&policy.id.uid) {
                    beyond.insert(policy.id.uid.clone(), Beyond { namespace: namespace.cloned(), limit });
                }
            }
            for (policy, Overriding { by, governs_all }) in limited.overridden {
                let uid = &policy.id.uid;
                // The first namespace by name; but one that is overridden everywhere says so.
                if namespace.is_none() || !overridden.contains_key(uid) {
                    let (by, namespace) = (by.clone(), namespace.cloned());
                    overridden.insert(uid.clone(), Effect::Overridden { by, governs_all, namespace });
                }
            }
            shared.list(limited.within)
        };
        let names: BTreeSet<_> = namespaces.keys().chain(ordered.namespaces()).collect();
        let by_namespace = names.into_iter().map(|name| {
            let in_force = resolve(name, namespaces.get(name).and_then(evaluable), Some(name));
            (name.clone(), in_force)
        });
        let by_namespace = by_namespace.collect();
        let elsewhere = resolve("", None, None);
        let mut resolved = Self { by_namespace, elsewhere, effects: HashMap::default() };
        let governing: HashSet<_> =
            shared.lists.values().flat_map(|list| list.iter()).map(|policy| &policy.id.uid).collect();
        // What a limit of the policies keeps out of a namespace is said first.
        let unread = namespaces.iter().find(|(_, labels)| evaluable(labels).is_none()).map(|(name, _)| name);
        let effects = policies.iter().filter_map(|policy| {
            let unread = unread.filter(|_| policy.has_selector());
            let effect = match (governing.contains(&policy.id.uid), beyond.remove(&policy.id.uid)) {
                (true, None) => unread.map_or(Effect::Governs, |namespace| {
                    Effect::GovernsInPart(Beyond { namespace: Some(namespace.clone()), limit: Limit::Labels })
                }),
                (true, Some(beyond)) => Effect::GovernsInPart(beyond),
                (false, Some(beyond)) => Effect::TooMany(beyond),
                (false, None) => match overridden.remove(&policy.id.uid) {
                    Some(effect) => effect,
                    None => policy.compiled().map(|_| Effect::NoNamespaces { unread: unread.cloned() })?,
                },
            };
            Some((policy.id.uid.clone(), effect))
        });
        resolved.effects = effects.collect();
        resolved
    }
}

/// Most namespaces have no policies of their own, and the same labels as far as selectors ask: their lists are one.
#[derive(Default)]
struct Shared {
    lists: HashMap<Vec<*const Policy>, InForce>,
}

impl Shared {
    fn list(&mut self, in_force: Vec<&Arc<Policy>>) -> InForce {
        let key = in_force.iter().map(|policy| Arc::as_ptr(policy)).collect();
        self.lists.entry(key).or_insert_with(|| in_force.into_iter().cloned().collect()).clone()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::policy::MOST_LABELS;
    use crate::policy::fixtures::{cluster_policy, event, labels, policy};

    fn governing(set: &Set) -> Option<String> {
        set.governing(&event()).map(|governing| governing.rules.policy.display.to_string())
    }

    fn shops(rest: &Value) -> Value {
        let mut spec = json!({"namespaceSelector": {"matchLabels": {"team": "shop"}}});
        spec.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        spec
    }

    fn cluster(teams: &[(&str, &str)]) -> Namespaces {
        teams.iter().map(|(name, team)| ((*name).into(), labels(&[("team", team)]))).collect()
    }

    #[test]
    fn higher_priority_then_older_then_name_governs() {
        let mut policies = vec![
            policy("ci", "young", &json!({}), 200),
            policy("ci", "b-old", &json!({}), 100),
            policy("ci", "a-old", &json!({}), 100),
            policy("ci", "preferred", &json!({"priority": 1}), 300),
            policy("ci", "last", &json!({"priority": -1}), 1),
        ];
        for expected in ["ci/preferred", "ci/a-old", "ci/b-old", "ci/young", "ci/last"] {
            for _ in 0..policies.len() {
                policies.rotate_left(1);
                assert_eq!(governing(&Set::new(policies.clone())).as_deref(), Some(expected));
            }
            policies.retain(|policy| *policy.id.display != *expected);
        }
        assert_eq!(governing(&Set::new(policies)), None);
    }

    #[test]
    fn the_first_whose_match_holds_governs() {
        let set = Set::new([
            policy(
                "ci",
                "warnings",
                &json!({"match": {"types": ["Warning"]}, "exempt": [{"types": ["*"]}]}),
                2,
            ),
            policy("ci", "normal", &json!({"match": {"types": ["Normal"]}, "priority": 5}), 1),
        ]);
        let governing = set.governing(&event()).unwrap();
        assert_eq!(&*governing.rules.policy.display, "ci/warnings");
        assert!(governing.exempt);
    }

    #[test]
    fn other_namespaces_and_invalid_policies_govern_nothing() {
        let set = Set::new([
            policy("other", "p", &json!({}), 1),
            policy("ci", "broken", &json!({"series": {"idleTimeout": "soon"}}), 1),
        ]);
        assert!(set.governing(&event()).is_none());
        assert_eq!(set.namespaces(), ["other".into()]);
        assert_eq!(set.policies().len(), 2);
        assert_eq!(set.effect(&set.policies()[1]), None);
    }

    #[test]
    fn a_cluster_policy_governs_where_its_labels_are() {
        let policies = || [cluster_policy("shops", &shops(&json!({})), 1)];
        let set = Set::in_cluster(policies(), &cluster(&[("ci", "shop"), ("bank", "bank")]));
        assert_eq!(governing(&set).as_deref(), Some("shops"));
        assert_eq!(set.namespaces(), ["ci".into()]);
        assert!(!set.governs_everywhere());
        let set = Set::in_cluster(policies(), &cluster(&[("ci", "bank"), ("bank", "bank")]));
        assert_eq!(governing(&set), None);
        assert!(set.namespaces().is_empty());
    }

    #[test]
    fn a_cluster_policy_without_selector_governs_where_nothing_is_known_yet() {
        let set = Set::in_cluster([cluster_policy("all", &json!({}), 1)], &cluster(&[("bank", "bank")]));
        assert_eq!(governing(&set).as_deref(), Some("all"));
        assert!(set.governs_everywhere() && !set.knows("ci"));
    }

    #[test]
    fn override_beats_and_default_yields() {
        let own = policy("ci", "own", &json!({"priority": -9}), 9);
        let default = cluster_policy("default", &shops(&json!({"priority": 9})), 1);
        let set = Set::in_cluster([own.clone(), default], &cluster(&[("ci", "shop")]));
        assert_eq!(governing(&set).as_deref(), Some("ci/own"));
        let strong = cluster_policy("strong", &shops(&json!({"precedence": "Override"})), 1);
        let set = Set::in_cluster([own, strong], &cluster(&[("ci", "shop")]));
        assert_eq!(governing(&set).as_deref(), Some("strong"));
    }

    fn overridden(by: &Arc<Policy>, namespace: Option<&str>) -> Effect {
        Effect::Overridden { by: by.clone(), governs_all: true, namespace: namespace.map(Into::into) }
    }

    #[test]
    fn a_policy_to_which_others_together_leave_nothing_is_overridden() {
        let first = |spec: Value| policy("ci", "first", &spec, 1);
        let second = |spec: Value| policy("ci", "second", &spec, 2);
        let of = |clauses: Value| json!({"match": clauses});
        let pods = json!({"kind": "Pod"});
        for (one, other, last, is_overridden) in [
            // Core/v1 takes other types than these two.
            (json!({"types": ["Warning"]}), json!({"types": ["Normal"]}), json!({}), false),
            (
                json!({"types": ["Warning"]}),
                json!({"types": ["Normal"]}),
                json!({"types": ["Normal", "Warning"]}),
                true,
            ),
            (
                json!({"types": ["W*"]}),
                json!({"types": ["Normal"]}),
                json!({"types": ["Warning"], "reasons": ["A"]}),
                true,
            ),
            (
                json!({"reasons": ["A*"]}),
                json!({"reasons": ["B"]}),
                json!({"reasons": ["A?", "B", "Ab*"]}),
                true,
            ),
            (json!({"reasons": ["A*"]}), json!({"reasons": ["B"]}), json!({"reasons": ["A", "B*"]}), false),
            (
                json!({"reasons": ["A"], "users": ["u"]}),
                json!({"reasons": ["B"]}),
                json!({"reasons": ["A", "B"]}),
                false,
            ),
            (
                json!({"regarding": [pods]}),
                json!({"users": ["u"]}),
                json!({"regarding": [{"kind": "Pod", "name": "a"}]}),
                true,
            ),
            (
                json!({"regarding": [pods]}),
                json!({"users": ["u"]}),
                json!({"regarding": [{"name": "a"}]}),
                false,
            ),
            (
                json!({"users": ["*"], "reasons": ["x"]}),
                json!({"users": ["u"]}),
                json!({"reasons": ["x"]}),
                false,
            ),
        ] {
            let last = policy("ci", "last", &of(last), 3);
            let (first, second) = (first(of(one)), second(of(other)));
            let set = Set::new([first, second.clone(), last.clone()]);
            let effect = set.effect(&last).unwrap();
            let overridden =
                matches!(effect, Effect::Overridden { by, governs_all: false, .. } if *by == second);
            assert_eq!(overridden, is_overridden, "{:?}: {effect:?}", last.outcome);
            assert!(overridden || *effect == Effect::Governs);
        }
    }

    #[test]
    fn comparing_policies_with_each_other_has_a_bound() {
        let reasons = |at: usize| (0..32).map(|entry| format!("{at}-{entry}")).collect::<Vec<_>>();
        let all = (0..64)
            .map(|at| policy("ci", &format!("p{at:02}"), &json!({"match": {"reasons": reasons(at)}}), 0));
        let twin = policy("ci", "twin", &json!({"match": {"reasons": reasons(0)}}), 1);
        let few = Set::new(all.clone().take(3).chain([twin.clone()]));
        assert!(matches!(few.effect(&twin), Some(Effect::Overridden { .. })));
        // Beyond it a policy is said to govern, as one of which nobody can tell.
        let many = Set::new(all.take(63).chain([twin.clone()]));
        assert_eq!(many.effect(&twin), Some(&Effect::Governs));
    }

    #[test]
    fn a_policy_behind_one_that_governs_all_is_overridden() {
        let first = policy("ci", "first", &json!({"priority": 1, "match": {"reasons": ["*"]}}), 2);
        let partial = policy("ci", "partial", &json!({"priority": 2, "match": {"reasons": ["B*"]}}), 2);
        let behind = policy("ci", "behind", &json!({}), 1);
        let elsewhere = policy("other", "elsewhere", &json!({}), 3);
        let set = Set::new([first.clone(), partial.clone(), behind.clone(), elsewhere.clone()]);
        assert_eq!(set.effect(&behind), Some(&overridden(&first, Some("ci"))));
        for policy in [first, partial, elsewhere] {
            assert_eq!(set.effect(&policy), Some(&Effect::Governs), "{}", policy.name);
        }
    }

    #[test]
    fn a_cluster_policy_is_overridden_where_each_namespace_that_it_selects_has_one_that_governs_all() {
        let own = policy("ci", "own", &json!({}), 1);
        let shops_policy = cluster_policy("shops", &shops(&json!({})), 1);
        let all = cluster_policy("all", &json!({}), 2);
        let policies = [own.clone(), shops_policy.clone(), all.clone()];
        let set = Set::in_cluster(policies.clone(), &cluster(&[("ci", "shop"), ("bank", "bank")]));
        assert_eq!(set.effect(&shops_policy), Some(&overridden(&own, Some("ci"))));
        assert_eq!(set.effect(&all), Some(&Effect::Governs));
        let set = Set::in_cluster(policies.clone(), &cluster(&[("ci", "shop"), ("new", "shop")]));
        assert_eq!(set.effect(&shops_policy), Some(&Effect::Governs));

        let strong = cluster_policy("strong", &json!({"precedence": "Override"}), 9);
        let all_of_them = policies.into_iter().chain([strong.clone()]);
        let set = Set::in_cluster(all_of_them, &cluster(&[("ci", "shop")]));
        assert_eq!(set.effect(&all), Some(&overridden(&strong, None)));
        assert_eq!(set.effect(&own), Some(&overridden(&strong, Some("ci"))));
    }

    #[test]
    fn a_cluster_policy_that_selects_nothing_says_so() {
        let shops = cluster_policy("shops", &shops(&json!({})), 1);
        let set = Set::in_cluster([shops.clone()], &cluster(&[("bank", "bank")]));
        assert_eq!(set.effect(&shops), Some(&Effect::NoNamespaces { unread: None }));
    }

    /// A namespace of team shop that has this number of labels.
    fn shop_with(count: usize) -> Namespaces {
        let mut shop: Labels = (1..count).map(|at| (format!("k{at}"), String::new())).collect();
        shop.insert("team".to_owned(), "shop".to_owned());
        Namespaces::from([("ci".into(), shop)])
    }

    #[test]
    fn selectors_are_not_evaluated_for_a_namespace_with_too_many_labels() {
        let selected = cluster_policy("selected", &shops(&json!({"precedence": "Override"})), 1);
        let requirement = json!({"key": "team", "operator": "NotIn", "values": ["shop"]});
        let others =
            json!({"namespaceSelector": {"matchExpressions": [requirement]}, "precedence": "Override"});
        let others = cluster_policy("others", &others, 1);
        let all = cluster_policy("all", &json!({}), 1);
        let set = |count: usize| {
            Set::in_cluster([selected.clone(), others.clone(), all.clone()], &shop_with(count))
        };
        assert_eq!(governing(&set(MOST_LABELS)).as_deref(), Some("selected"));
        assert_eq!(governing(&set(MOST_LABELS + 1)).as_deref(), Some("all"));
        let own = policy("ci", "own", &json!({}), 1);
        let set = Set::in_cluster([selected, own], &shop_with(MOST_LABELS + 1));
        assert_eq!(governing(&set).as_deref(), Some("ci/own"), "policies of the namespace have no selector");
    }

    #[test]
    fn a_policy_with_a_selector_names_a_namespace_with_too_many_labels() {
        let selected = cluster_policy("selected", &shops(&json!({})), 1);
        let all =
            cluster_policy("all", &json!({"precedence": "Override", "match": {"types": ["Normal"]}}), 1);
        let own = policy("other", "own", &json!({}), 1);
        let effects = |namespaces: &Namespaces| {
            let set = Set::in_cluster([selected.clone(), all.clone(), own.clone()], namespaces);
            [&selected, &all, &own].map(|policy| set.effect(policy).unwrap().clone())
        };
        let (within, mut beyond) = (shop_with(MOST_LABELS), shop_with(MOST_LABELS + 1));
        assert_eq!(effects(&within), [Effect::Governs, Effect::Governs, Effect::Governs]);
        let nowhere = Effect::NoNamespaces { unread: Some("ci".into()) };
        assert_eq!(effects(&beyond), [nowhere, Effect::Governs, Effect::Governs]);
        beyond.insert("bank".into(), labels(&[("team", "shop")]));
        let in_part = Effect::GovernsInPart(self::beyond("ci", Limit::Labels));
        assert_eq!(effects(&beyond), [in_part, Effect::Governs, Effect::Governs]);
    }

    fn beyond(namespace: &str, limit: Limit) -> Beyond {
        Beyond { namespace: Some(namespace.into()), limit }
    }

    #[test]
    fn a_policy_that_64_precede_governs_nothing_and_is_not_accepted() {
        let warnings = json!({"match": {"types": ["Normal"]}});
        let before = (0..64).map(|at| policy("ci", &format!("{at:02}"), &warnings, 0));
        let last = policy("ci", "last", &json!({}), 1);
        let all: Vec<_> = before.chain([last.clone()]).collect();
        let set = Set::new(all.clone());
        assert_eq!(governing(&set), None);
        assert_eq!(set.effect(&last), Some(&Effect::TooMany(beyond("ci", Limit::Policies))));
        assert!(!set.is_accepted(&last) && !set.is_effective(&last) && set.is_accepted(&all[63]));
        let set = Set::new(all[1..].to_vec());
        assert_eq!(governing(&set).as_deref(), Some("ci/last"));
        assert!(set.is_accepted(&last) && set.is_effective(&last));
    }

    #[test]
    fn a_cluster_policy_can_be_beyond_a_limit_in_some_namespaces_alone() {
        let normal = json!({"match": {"types": ["Normal"]}});
        let shop = (0..64).map(|at| cluster_policy(&format!("{at:02}"), &shops(&normal), 0));
        let last = cluster_policy("last", &json!({}), 1);
        let policies: Vec<_> = shop.chain([last.clone()]).collect();
        let set = Set::in_cluster(policies.clone(), &cluster(&[("ci", "shop"), ("bank", "bank")]));
        assert_eq!(governing(&set), None, "ci has 64");
        assert_eq!(set.effect(&last), Some(&Effect::GovernsInPart(beyond("ci", Limit::Policies))));
        assert!(set.is_accepted(&last) && set.is_effective(&last));
        assert_eq!(set.applicability("bank", &last.id), Applicability::Governs);
        // One namespace's own policies take nothing from those of the cluster.
        let own = (0..65).map(|at| policy("bank", &format!("{at:02}"), &normal, 0));
        let set =
            Set::in_cluster(policies.into_iter().chain(own), &cluster(&[("ci", "shop"), ("bank", "bank")]));
        assert_eq!(set.applicability("bank", &last.id), Applicability::Governs);
    }

    /// The worst policies that a tenant can write. What a unit of weight costs is held down by hack/instructions
    /// (`select-worst-globs`): 3 times 2048 of them take less than 100 us.
    #[test]
    fn selecting_a_policy_has_a_bounded_cost_whatever_policies_there_are() {
        let slow = format!("{}y", "*x".repeat(125));
        let mut list = vec![slow.clone(); 31];
        list.push("*".into());
        let entry = json!({"reasons": list, "reportingComponents": list, "regarding": vec![json!({"name": slow}); 16]});
        let one = policy("ci", "p", &json!({"exempt": vec![entry; 16]}), 0);
        assert!(one.compiled().is_none(), "it once took 3 ms of each review");

        let slow = format!("*{}y*", "x".repeat(125));
        let worst = |at: usize| json!({"match": {"reasons": vec![&slow; at % 15 + 1], "users": [format!("x{at}?*")]}});
        let own = (0..1000).map(|at| policy("ci", &format!("{at:04}"), &worst(at), 0));
        let of_cluster = (0..1000).map(|at| cluster_policy(&format!("{at:04}"), &worst(at), 0));
        let set = Set::in_cluster(own.chain(of_cluster), &cluster(&[("ci", "shop")]));
        let in_force = set.in_force("ci");
        let weight: usize = in_force.iter().filter_map(|policy| policy.compiled()).map(|it| it.weight).sum();
        assert!((1900..=2 * 2048).contains(&weight), "{weight}");
        assert!((2..=128).contains(&in_force.len()), "{}", in_force.len());
        let x = "x".repeat(1024);
        let mut write = event();
        write.event.reason = x.into();
        assert!(set.governing(&write).is_none());
    }

    #[test]
    fn footing_is_known_where_the_namespace_is() {
        let shops = cluster_policy("shops", &shops(&json!({})), 1);
        let set = Set::in_cluster([shops.clone()], &cluster(&[("ci", "shop"), ("bank", "bank")]));
        let applicability = |namespace| set.applicability(namespace, &shops.id);
        assert_eq!(
            [applicability("ci"), applicability("bank"), applicability("gone")],
            [Applicability::Governs, Applicability::NotApplicable, Applicability::Unknown]
        );
    }

    #[test]
    fn ten_thousand_namespaces_and_two_thousand_policies_are_worked_out_once() {
        let names: Vec<String> = (0..10_000).map(|at| format!("team-{at}")).collect();
        let namespaces: Namespaces = { names.iter().enumerate() }
            .map(|(at, name)| (name.as_str().into(), labels(&[("shard", &(at % 100).to_string())])))
            .collect();
        let part = json!({"match": {"types": ["Normal"], "users": ["own"]}});
        let own = names.iter().step_by(10).map(|name| policy(name, "own", &part, 1));
        let sharded = (0..1000).map(|at| {
            let shard = (at % 100).to_string();
            let spec = json!({"match": {"types": ["Normal"], "users": [format!("u{at}")]},
                "namespaceSelector": {"matchLabels": {"shard": shard}}});
            cluster_policy(&format!("cluster-{at:04}"), &spec, 1)
        });
        let set = Set::in_cluster(own.chain(sharded), &namespaces);
        let in_force = |namespace: &str| {
            let list = set.in_force(namespace).iter();
            list.map(|policy| policy.id.display.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(in_force("team-10").len(), 11);
        assert_eq!(in_force("team-10")[..2], ["team-10/own", "cluster-0010"]);
        assert_eq!(in_force("team-7")[9], "cluster-0907");
        assert_eq!(set.namespaces().len(), 10_000);
        let lists: HashSet<_> = set.resolved.by_namespace.values().map(Arc::as_ptr).collect();
        assert_eq!(lists.len(), 1000 + 90, "one for each that has its own, else one for each shard");
    }
}
