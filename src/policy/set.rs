//! A snapshot of all policies, which selects the one that governs a write.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;
use squelch_engine::{Applicability, Governing, NamespaceUids, Observation, PolicyId};

use crate::api::EventPolicyStatus;

use super::compile::{ALWAYS, Compiled, Invalid, Labels};
use super::matched::MatchedWrites;
use super::order::{Limit, Namespaces, Ordered, Overriding, evaluable};
use super::restrictions::{Exclusions, Restrictions};
use super::selection::{NamespaceSelection, WebhookScope};

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

/// Returns the kind of a policy in this namespace.
pub fn kind_of(namespace: Option<&str>) -> &'static str {
    if namespace.is_some() { "EventPolicy" } else { "ClusterEventPolicy" }
}

impl Policy {
    /// Returns its kind.
    pub fn kind(&self) -> &'static str {
        kind_of(self.namespace.as_deref())
    }

    /// Returns kind and name, for messages.
    pub fn title(&self) -> String {
        format!("{} {}", self.kind(), self.name)
    }

    pub(super) fn compiled(&self) -> Option<&Compiled> {
        self.outcome.as_ref().as_ref().ok()
    }

    /// Whether the policy has a namespace selector.
    pub(super) fn has_selector(&self) -> bool {
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
pub(super) type PolicyList = Arc<[Arc<Policy>]>;

/// All policies, and the policies in force in each namespace.
#[derive(Clone, Debug, Default)]
pub struct Set {
    policies: Vec<Arc<Policy>>,
    resolved: Arc<Resolved>,
    uids: Arc<NamespaceUids>,
    exclusions: Arc<Exclusions>,
}

/// The result of combining the policies with the labels of the namespaces.
#[derive(Debug, Default)]
struct Resolved {
    by_namespace: HashMap<Arc<str>, PolicyList>,
    /// For namespaces that are not known yet.
    elsewhere: PolicyList,
    /// Namespaces with policies that are not known yet, if their labels decide whether a policy overrides those.
    unlabelled: HashSet<Arc<str>>,
    /// By policy uid.
    effects: HashMap<Arc<str>, Effect>,
    /// The writes that they can match.
    matched: MatchedWrites,
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
        Self { policies, resolved: Arc::new(resolved), ..Self::default() }
    }

    /// Records what other writers have added to the webhook's entry.
    pub fn restricted(self, restrictions: &Restrictions, namespaces: &Namespaces) -> Self {
        let exclusions = restrictions.exclusions(&self.resolved.by_namespace, namespaces);
        Self { exclusions: Arc::new(exclusions), ..self }
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
        if self.resolved.unlabelled.contains(write.namespace) {
            return None;
        }
        governing(self.resolved.by_namespace.get(write.namespace)?, write)
    }

    /// Returns the known namespaces with a policy in force, in order.
    pub fn namespaces(&self) -> Vec<Arc<str>> {
        let governed = self.resolved.by_namespace.iter().filter(|(_, in_force)| !in_force.is_empty());
        let mut namespaces: Vec<_> = governed.map(|(namespace, _)| namespace.clone()).collect();
        namespaces.sort_unstable();
        namespaces
    }

    /// Returns the namespaces whose Event writes have to be sent to squelch: those with a policy in force, or all if one is
    /// in force in every namespace, including future ones.
    fn selection(&self) -> NamespaceSelection {
        if !self.resolved.elsewhere.is_empty() {
            return NamespaceSelection::All;
        }
        NamespaceSelection::of(self.namespaces().iter().map(ToString::to_string).collect())
    }

    /// Returns the Event writes that have to be sent to squelch.
    pub fn scope(&self) -> WebhookScope {
        WebhookScope { namespaces: self.selection(), writes: self.resolved.matched.clone() }
    }

    /// Returns the policies in force whose writes are not in `scope` yet.
    pub fn awaiting(&self, scope: &WebhookScope) -> Awaiting<'_> {
        let Resolved { by_namespace, elsewhere, matched, .. } = &*self.resolved;
        let missing = matched.without(&scope.writes);
        let misses =
            |policy: &Policy| conditions(policy).iter().any(|condition| missing.has(condition, None));
        // `missing` may say that a condition is missing in all namespaces, where it is missing in some.
        let misses_in = |policy: &Policy, namespace: &str| {
            let is_sent = |condition: &str| scope.writes.has(condition, Some(namespace));
            !is_sent(ALWAYS) && conditions(policy).iter().any(|condition| !is_sent(condition))
        };
        let (mut sent, mut in_part) = (HashSet::new(), HashSet::new());
        // Namespaces share their lists.
        let mut seen = HashSet::new();
        for (namespace, policies) in by_namespace {
            let selected = scope.namespaces.contains(namespace);
            let depends_on_namespace =
                selected && !missing.is_empty() && policies.iter().any(|policy| misses(policy));
            if !depends_on_namespace && !seen.insert((policies.as_ptr(), selected)) {
                continue;
            }
            for policy in policies.iter() {
                let is_sent = selected && !(depends_on_namespace && misses_in(policy, namespace));
                let uids = if is_sent { &mut sent } else { &mut in_part };
                uids.insert(&*policy.id.uid);
            }
        }
        let everywhere = scope.namespaces == NamespaceSelection::All;
        let of_all = elsewhere.iter().filter(|policy| !everywhere || misses(policy));
        let of_all: HashSet<_> = of_all.map(|policy| &*policy.id.uid).collect();
        let wholly = in_part.difference(&sent).chain(&of_all).copied().collect();
        in_part.extend(of_all);
        Awaiting { wholly, in_part }
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
            && self.exclusions.of(policy).is_none_or(|exclusion| !exclusion.all)
    }

    /// What other writers of the webhook configuration exclude.
    pub fn exclusions(&self) -> &Exclusions {
        &self.exclusions
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
    Some(Governing { rules: &governing.rules, treatment: governing.treatment(write) })
}

/// The policies in force whose writes the API server does not send to squelch yet, by uid.
#[derive(Debug, Default)]
pub struct Awaiting<'s> {
    wholly: HashSet<&'s str>,
    in_part: HashSet<&'s str>,
}

impl Awaiting<'_> {
    /// Whether no namespace of the policy is sent. A policy in force in every namespace needs all, including future
    /// ones.
    pub fn wholly(&self, uid: &str) -> bool {
        self.wholly.contains(uid)
    }

    /// Whether a namespace of the policy is not sent.
    pub fn in_part(&self, uid: &str) -> bool {
        self.in_part.contains(uid)
    }
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
        let by_namespace: HashMap<_, _> = by_namespace.collect();
        let elsewhere = resolve("", None, None);
        let matched = matched(&by_namespace, &elsewhere);
        let depends_on_labels = ordered.has_overriding_selector();
        let is_unlabelled = |name: &&Arc<str>| depends_on_labels && !namespaces.contains_key(*name);
        let unlabelled = ordered.namespaces().filter(is_unlabelled).cloned().collect();
        let mut resolved = Self { by_namespace, elsewhere, unlabelled, effects: HashMap::default(), matched };
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
                (false, Some(exceeded)) if !overridden.contains_key(&policy.id.uid) => {
                    Effect::TooMany(exceeded)
                }
                (false, _) => match overridden.remove(&policy.id.uid) {
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

/// Returns the writes that the policies in force can match.
fn matched(by_namespace: &HashMap<Arc<str>, PolicyList>, elsewhere: &PolicyList) -> MatchedWrites {
    let mut matched = MatchedWrites::default();
    let mut add = |policies: &[Arc<Policy>], namespaces: &NamespaceSelection| {
        for condition in policies.iter().flat_map(|policy| conditions(policy)) {
            matched.add(condition, namespaces);
        }
    };
    // Namespaces share their lists.
    let mut sharing: HashMap<_, (&PolicyList, BTreeSet<String>)> = HashMap::new();
    for (namespace, policies) in by_namespace.iter().filter(|(_, policies)| !policies.is_empty()) {
        let (_, names) = sharing.entry(policies.as_ptr()).or_insert_with(|| (policies, BTreeSet::new()));
        names.insert(namespace.to_string());
    }
    for (policies, names) in sharing.into_values() {
        add(policies, &NamespaceSelection::of(names));
    }
    add(elsewhere, &NamespaceSelection::All);
    matched
}

fn conditions(policy: &Policy) -> &[Arc<str>] {
    policy.compiled().map(|compiled| &*compiled.conditions).unwrap_or_default()
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
mod tests;
