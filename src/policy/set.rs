//! A snapshot of all policies, which selects the one that governs a write.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;
use squelch_engine::{Applicability, Governing, NamespaceUids, Observation, PolicyId};

use crate::api::EventPolicyStatus;

use super::compile::{Compiled, Invalid, Labels};
use super::order::{Limit, Namespaces, Ordered, Overriding, evaluable};

/// A policy of the cluster, valid or invalid.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// Name and uid.
    pub id: PolicyId,
    /// `metadata.namespace`. `None` for a `ClusterEventPolicy`.
    pub namespace: Option<Arc<str>>,
    /// `metadata.name`.
    pub name: Arc<str>,
    /// `metadata.generation`, the version of the spec.
    pub generation: i64,
    /// `metadata.creationTimestamp`.
    pub created: Option<Timestamp>,
    /// Result of compiling the spec.
    pub outcome: Arc<Result<Compiled, Invalid>>,
    /// `status` in the cluster when the policy was read.
    pub reported: Option<EventPolicyStatus>,
}

impl Policy {
    /// Returns kind and name, for messages.
    pub fn title(&self) -> String {
        let kind = if self.namespace.is_some() { "EventPolicy" } else { "ClusterEventPolicy" };
        format!("{kind} {}", self.name)
    }

    pub(super) fn compiled(&self) -> Option<&Compiled> {
        self.outcome.as_ref().as_ref().ok()
    }

    /// Whether the policy has a namespace selector.
    fn has_selector(&self) -> bool {
        self.namespace.is_none() && self.compiled().is_some_and(|compiled| !compiled.selects_all())
    }

    /// Whether the policy selects a namespace with these labels. With `None`, whether it selects all namespaces.
    pub(super) fn selects(&self, labels: Option<&Labels>) -> bool {
        self.compiled().is_some_and(|compiled| match labels {
            Some(labels) => compiled.selects(labels),
            None => compiled.selects_all(),
        })
    }
}

/// The effect of a valid policy among the other policies.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// It governs the writes that it matches.
    Governs,
    /// It governs writes, and it is not in force in some of the namespaces that it selects.
    GovernsInPart(ExceededLimit),
    /// It is not in force in any namespace: the policies that precede it exhaust a limit.
    TooMany(ExceededLimit),
    /// Policies of higher precedence govern every write that it matches, in each namespace that it selects.
    Overridden {
        /// The last of them in `namespace`.
        by: Arc<Policy>,
        /// Whether it governs every write there by itself.
        governs_all: bool,
        /// The first such namespace by name. `None` if they are the same in every namespace.
        namespace: Option<Arc<str>>,
    },
    /// Its selector selects no namespace.
    NoNamespaces {
        /// The first namespace by name for which the selector is not evaluated. See [`Limit::Labels`].
        unevaluated: Option<Arc<str>>,
    },
}

/// A limit that keeps a policy from being in force in a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExceededLimit {
    /// The first such namespace by name. `None` for namespaces that are not known yet.
    pub namespace: Option<Arc<str>>,
    /// The limit.
    pub limit: Limit,
}

/// Policies in order of precedence.
type PolicyList = Arc<[Arc<Policy>]>;

/// All policies, and the policies in force in each namespace.
#[derive(Clone, Debug, Default)]
pub struct Set {
    policies: Vec<Arc<Policy>>,
    resolved: Arc<Resolved>,
    uids: Arc<NamespaceUids>,
}

/// The result of combining the policies with the labels of the namespaces.
#[derive(Debug, Default)]
struct Resolved {
    by_namespace: HashMap<Arc<str>, PolicyList>,
    /// For namespaces that are not known yet.
    elsewhere: PolicyList,
    /// By policy uid.
    effects: HashMap<Arc<str>, Effect>,
}

impl Set {
    /// Creates a set without known namespaces. See [`Self::in_cluster`].
    pub fn new(policies: impl IntoIterator<Item = Arc<Policy>>) -> Self {
        Self::in_cluster(policies, &Namespaces::new())
    }

    /// Computes the policies in force in each namespace in advance, so that a write only looks them up. Invalid policies
    /// are never in force.
    pub fn in_cluster(policies: impl IntoIterator<Item = Arc<Policy>>, namespaces: &Namespaces) -> Self {
        let policies: Vec<_> = policies.into_iter().collect();
        let resolved = Resolved::new(&policies, namespaces);
        Self { policies, resolved: Arc::new(resolved), uids: Arc::default() }
    }

    /// Sets the uids of the namespaces.
    pub fn with_namespace_uids(self, uids: Arc<NamespaceUids>) -> Self {
        Self { uids, ..self }
    }

    /// Returns this set with the same policies in force. Only the statuses in `policies` can differ.
    pub fn with_statuses(&self, policies: impl IntoIterator<Item = Arc<Policy>>) -> Self {
        Self { policies: policies.into_iter().collect(), ..self.clone() }
    }

    /// Returns the policy that governs `write`.
    pub fn governing(&self, write: &Observation<'_>) -> Option<Governing<'_>> {
        governing(self.in_force(write.namespace), write)
    }

    /// Returns the policy that governs `write` in a known namespace. Called for every write, without allocations.
    pub fn governing_in_known(&self, write: &Observation<'_>) -> Option<Governing<'_>> {
        governing(self.resolved.by_namespace.get(write.namespace)?, write)
    }

    /// Returns the known namespaces with a policy in force, in order.
    pub fn namespaces(&self) -> Vec<Arc<str>> {
        let governed = self.resolved.by_namespace.iter().filter(|(_, in_force)| !in_force.is_empty());
        let mut namespaces: Vec<_> = governed.map(|(namespace, _)| namespace.clone()).collect();
        namespaces.sort_unstable();
        namespaces
    }

    /// Whether a policy is in force in every namespace, including future ones.
    pub fn governs_everywhere(&self) -> bool {
        !self.resolved.elsewhere.is_empty()
    }

    /// All policies, including invalid ones.
    pub fn policies(&self) -> &[Arc<Policy>] {
        &self.policies
    }

    /// Returns the effect of `policy`, or `None` if it is invalid.
    pub fn effect(&self, policy: &Policy) -> Option<&Effect> {
        self.resolved.effects.get(&policy.id.uid)
    }

    /// Whether `policy` is valid and within the limits of a namespace.
    pub fn is_accepted(&self, policy: &Policy) -> bool {
        self.effect(policy).is_some_and(|effect| !matches!(effect, Effect::TooMany(_)))
    }

    /// Whether `policy` governs the writes that it matches in a namespace.
    pub fn is_effective(&self, policy: &Policy) -> bool {
        matches!(self.effect(policy), Some(Effect::Governs | Effect::GovernsInPart(_)))
    }

    /// Returns the applicability of a policy to a namespace.
    pub fn applicability(&self, namespace: &str, policy: &PolicyId) -> Applicability {
        match self.resolved.by_namespace.get(namespace) {
            None => Applicability::Unknown,
            Some(in_force) if in_force.iter().any(|member| member.id.uid == policy.uid) => {
                Applicability::Governs
            }
            Some(_) => Applicability::NotApplicable,
        }
    }

    /// The uids of the namespaces. A namespace with another uid is a new one.
    pub fn namespace_uids(&self) -> &Arc<NamespaceUids> {
        &self.uids
    }

    /// Whether the namespace is known.
    pub fn has_namespace(&self, namespace: &str) -> bool {
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
        let (mut shared, mut exceeded) = (SharedLists::default(), HashMap::new());
        let mut overridden: HashMap<Arc<str>, Effect> = HashMap::new();
        let mut resolve = |name: &str, labels: Option<&Labels>, namespace: Option<&Arc<str>>| {
            let partition = ordered.in_force(name, labels);
            for (policy, limit) in partition.over_limit {
                if !exceeded.contains_key(&policy.id.uid) {
                    let exceeded_limit = ExceededLimit { namespace: namespace.cloned(), limit };
                    exceeded.insert(policy.id.uid.clone(), exceeded_limit);
                }
            }
            for (policy, Overriding { by, governs_all }) in partition.overridden {
                let uid = &policy.id.uid;
                // The first namespace by name, or `None` if the policy is overridden in every namespace.
                if namespace.is_none() || !overridden.contains_key(uid) {
                    let (by, namespace) = (by.clone(), namespace.cloned());
                    overridden.insert(uid.clone(), Effect::Overridden { by, governs_all, namespace });
                }
            }
            shared.list(partition.in_force)
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
        let unevaluated =
            namespaces.iter().find(|(_, labels)| evaluable(labels).is_none()).map(|(name, _)| name);
        let effects = policies.iter().filter_map(|policy| {
            let unevaluated = unevaluated.filter(|_| policy.has_selector());
            // A limit on policies comes before the limit on labels.
            let effect = match (governing.contains(&policy.id.uid), exceeded.remove(&policy.id.uid)) {
                (true, None) => unevaluated.map_or(Effect::Governs, |namespace| {
                    let namespace = Some(namespace.clone());
                    Effect::GovernsInPart(ExceededLimit { namespace, limit: Limit::Labels })
                }),
                (true, Some(exceeded)) => Effect::GovernsInPart(exceeded),
                (false, Some(exceeded)) => Effect::TooMany(exceeded),
                (false, None) => match overridden.remove(&policy.id.uid) {
                    Some(effect) => effect,
                    None => {
                        let unevaluated = unevaluated.cloned();
                        policy.compiled().map(|_| Effect::NoNamespaces { unevaluated })?
                    }
                },
            };
            Some((policy.id.uid.clone(), effect))
        });
        resolved.effects = effects.collect();
        resolved
    }
}

/// Lists shared by namespaces. Most namespaces have no policies of their own, and are selected by the same policies.
#[derive(Default)]
struct SharedLists {
    lists: HashMap<Vec<*const Policy>, PolicyList>,
}

impl SharedLists {
    fn list(&mut self, in_force: Vec<&Arc<Policy>>) -> PolicyList {
        let key = in_force.iter().map(|policy| Arc::as_ptr(policy)).collect();
        self.lists.entry(key).or_insert_with(|| in_force.into_iter().cloned().collect()).clone()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::policy::MAX_LABELS;
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
    fn the_order_is_priority_then_creation_then_name() {
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
    fn the_first_policy_that_matches_governs() {
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
    fn invalid_policies_and_those_of_other_namespaces_do_not_govern() {
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
    fn a_cluster_policy_governs_in_namespaces_with_its_labels() {
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
    fn a_cluster_policy_without_selector_governs_in_unknown_namespaces() {
        let set = Set::in_cluster([cluster_policy("all", &json!({}), 1)], &cluster(&[("bank", "bank")]));
        assert_eq!(governing(&set).as_deref(), Some("all"));
        assert!(set.governs_everywhere() && !set.has_namespace("ci"));
    }

    #[test]
    fn override_precedes_the_namespace_and_default_follows_it() {
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
    fn several_policies_together_can_override_one() {
        let first = |spec: Value| policy("ci", "first", &spec, 1);
        let second = |spec: Value| policy("ci", "second", &spec, 2);
        let of = |clauses: Value| json!({"match": clauses});
        let pods = json!({"kind": "Pod"});
        for (one, other, last, is_overridden) in [
            // core/v1 accepts other types than these two.
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
    fn comparisons_between_policies_are_limited() {
        let reasons = |at: usize| (0..32).map(|entry| format!("{at}-{entry}")).collect::<Vec<_>>();
        let all = (0..64)
            .map(|at| policy("ci", &format!("p{at:02}"), &json!({"match": {"reasons": reasons(at)}}), 0));
        let twin = policy("ci", "twin", &json!({"match": {"reasons": reasons(0)}}), 1);
        let few = Set::new(all.clone().take(3).chain([twin.clone()]));
        assert!(matches!(few.effect(&twin), Some(Effect::Overridden { .. })));
        // Above the limit an overridden policy is reported as effective.
        let many = Set::new(all.take(63).chain([twin.clone()]));
        assert_eq!(many.effect(&twin), Some(&Effect::Governs));
    }

    #[test]
    fn a_policy_after_one_that_governs_all_is_overridden() {
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
    fn a_cluster_policy_is_overridden_if_others_govern_all_in_each_selected_namespace() {
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
    fn a_cluster_policy_that_selects_no_namespace_has_no_effect() {
        let shops = cluster_policy("shops", &shops(&json!({})), 1);
        let set = Set::in_cluster([shops.clone()], &cluster(&[("bank", "bank")]));
        assert_eq!(set.effect(&shops), Some(&Effect::NoNamespaces { unevaluated: None }));
    }

    /// A namespace of team shop with this number of labels.
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
        assert_eq!(governing(&set(MAX_LABELS)).as_deref(), Some("selected"));
        assert_eq!(governing(&set(MAX_LABELS + 1)).as_deref(), Some("all"));
        let own = policy("ci", "own", &json!({}), 1);
        let set = Set::in_cluster([selected, own], &shop_with(MAX_LABELS + 1));
        assert_eq!(governing(&set).as_deref(), Some("ci/own"), "EventPolicies have no selector");
    }

    #[test]
    fn the_effect_of_a_policy_with_selector_names_a_namespace_with_too_many_labels() {
        let selected = cluster_policy("selected", &shops(&json!({})), 1);
        let all =
            cluster_policy("all", &json!({"precedence": "Override", "match": {"types": ["Normal"]}}), 1);
        let own = policy("other", "own", &json!({}), 1);
        let effects = |namespaces: &Namespaces| {
            let set = Set::in_cluster([selected.clone(), all.clone(), own.clone()], namespaces);
            [&selected, &all, &own].map(|policy| set.effect(policy).unwrap().clone())
        };
        let (within, mut above) = (shop_with(MAX_LABELS), shop_with(MAX_LABELS + 1));
        assert_eq!(effects(&within), [Effect::Governs, Effect::Governs, Effect::Governs]);
        let nowhere = Effect::NoNamespaces { unevaluated: Some("ci".into()) };
        assert_eq!(effects(&above), [nowhere, Effect::Governs, Effect::Governs]);
        above.insert("bank".into(), labels(&[("team", "shop")]));
        let in_part = Effect::GovernsInPart(exceeded("ci", Limit::Labels));
        assert_eq!(effects(&above), [in_part, Effect::Governs, Effect::Governs]);
    }

    fn exceeded(namespace: &str, limit: Limit) -> ExceededLimit {
        ExceededLimit { namespace: Some(namespace.into()), limit }
    }

    #[test]
    fn a_policy_that_64_precede_does_not_govern_and_is_not_accepted() {
        let warnings = json!({"match": {"types": ["Normal"]}});
        let before = (0..64).map(|at| policy("ci", &format!("{at:02}"), &warnings, 0));
        let last = policy("ci", "last", &json!({}), 1);
        let all: Vec<_> = before.chain([last.clone()]).collect();
        let set = Set::new(all.clone());
        assert_eq!(governing(&set), None);
        assert_eq!(set.effect(&last), Some(&Effect::TooMany(exceeded("ci", Limit::Policies))));
        assert!(!set.is_accepted(&last) && !set.is_effective(&last) && set.is_accepted(&all[63]));
        let set = Set::new(all[1..].to_vec());
        assert_eq!(governing(&set).as_deref(), Some("ci/last"));
        assert!(set.is_accepted(&last) && set.is_effective(&last));
    }

    #[test]
    fn a_cluster_policy_can_be_over_a_limit_in_only_some_namespaces() {
        let normal = json!({"match": {"types": ["Normal"]}});
        let shop = (0..64).map(|at| cluster_policy(&format!("{at:02}"), &shops(&normal), 0));
        let last = cluster_policy("last", &json!({}), 1);
        let policies: Vec<_> = shop.chain([last.clone()]).collect();
        let set = Set::in_cluster(policies.clone(), &cluster(&[("ci", "shop"), ("bank", "bank")]));
        assert_eq!(governing(&set), None, "ci has 64");
        assert_eq!(set.effect(&last), Some(&Effect::GovernsInPart(exceeded("ci", Limit::Policies))));
        assert!(set.is_accepted(&last) && set.is_effective(&last));
        assert_eq!(set.applicability("bank", &last.id), Applicability::Governs);
        // EventPolicies do not use the limits of ClusterEventPolicies.
        let own = (0..65).map(|at| policy("bank", &format!("{at:02}"), &normal, 0));
        let set =
            Set::in_cluster(policies.into_iter().chain(own), &cluster(&[("ci", "shop"), ("bank", "bank")]));
        assert_eq!(set.applicability("bank", &last.id), Applicability::Governs);
    }

    /// The most expensive policies that a tenant can write. The benchmark `select-worst-globs` of hack/instructions limits
    /// the cost of a unit of weight, so that 3 times 2048 units take less than 100 us.
    #[test]
    fn the_cost_of_selecting_a_policy_is_bounded() {
        let slow = format!("{}y", "*x".repeat(125));
        let mut list = vec![slow.clone(); 31];
        list.push("*".into());
        let entry = json!({"reasons": list, "reportingComponents": list, "regarding": vec![json!({"name": slow}); 16]});
        let one = policy("ci", "p", &json!({"exempt": vec![entry; 16]}), 0);
        assert!(one.compiled().is_none(), "matching it takes 3 ms");

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
    fn applicability_is_unknown_in_an_unknown_namespace() {
        let shops = cluster_policy("shops", &shops(&json!({})), 1);
        let set = Set::in_cluster([shops.clone()], &cluster(&[("ci", "shop"), ("bank", "bank")]));
        let applicability = |namespace| set.applicability(namespace, &shops.id);
        assert_eq!(
            [applicability("ci"), applicability("bank"), applicability("deleted")],
            [Applicability::Governs, Applicability::NotApplicable, Applicability::Unknown]
        );
    }

    #[test]
    fn ten_thousand_namespaces_share_lists_of_two_thousand_policies() {
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
        assert_eq!(lists.len(), 1000 + 90, "one per namespace with policies of its own, and one per shard");
    }
}
