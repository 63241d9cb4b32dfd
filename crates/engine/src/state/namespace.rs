//! The state of one namespace.

use std::collections::BTreeMap;
use std::sync::{Arc, MutexGuard, PoisonError};

use dashmap::mapref::one::RefMut;
use smallvec::SmallVec;

use crate::decide::keys::Key;
use crate::state::capacity::Sizes;
use crate::state::names::Names;
use crate::state::retained_counters::GonePolicies;
use crate::state::scope::{Scope, ScopeId};
use crate::state::shared_rules::SharedRules;
use crate::{Engine, Rules};

/// Uids of the namespaces, by name.
pub type NamespaceUids = BTreeMap<Arc<str>, Arc<str>>;

/// The state of one namespace: its names, and a scope for each policy.
// The field order matters: what every decision reads lies where the scopes end and the names begin.
#[repr(C)]
pub(crate) struct Namespace {
    /// Nearly all namespaces have one scope, which is stored inline to save a pointer.
    pub(crate) scopes: SmallVec<[Scope; 1]>,
    pub(crate) names: Names,
    pub(crate) name: Arc<str>,
    pub(crate) next_scope: ScopeId,
    pub(crate) gone_policies: GonePolicies,
    /// The uid, once known.
    pub(crate) uid: Option<Arc<str>>,
}

impl Namespace {
    pub(crate) fn new(name: Arc<str>) -> Self {
        Self {
            scopes: SmallVec::new(),
            names: Names::default(),
            name,
            next_scope: 0,
            gone_policies: GonePolicies::default(),
            uid: None,
        }
    }

    /// Whether nothing worth keeping is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.scopes.is_empty() && self.names.len() == 0 && self.gone_policies.is_empty()
    }

    /// Prefetches the metadata of the tables; see [`crate::decide::prefetch`].
    pub(crate) fn prefetch_outline(&self) {
        self.names.prefetch_outline();
        self.scopes.first().inspect(|scope| scope.prefetch_outline());
    }

    pub(crate) fn sizes(&self) -> Sizes {
        self.scopes.iter().fold(self.names.sizes(), |sizes, scope| sizes.and(&scope.sizes()))
    }

    /// Returns the index of the scope of these rules, creating it if needed.
    pub(crate) fn scope_of(&mut self, rules: &Rules, shared_rules: &SharedRules) -> usize {
        if let Some(at) = self.scopes.iter().position(|scope| scope.belongs_to(rules)) {
            return at;
        }
        self.scopes.push(Scope::new(self.next_scope, shared_rules.shared(rules)));
        self.next_scope += 1;
        self.scopes.len() - 1
    }
}

impl Engine {
    /// Sets the current uids of the namespaces. If a namespace is deleted or has a new uid, its state is
    /// discarded and its pending occurrences are lost. Nothing of it may be written into another namespace.
    /// Counters are kept.
    pub fn identify_namespaces(&self, uids: &Arc<NamespaceUids>) {
        *self.uids() = uids.clone();
        for name in self.namespace_list.all() {
            let Some(mut namespace) = self.locked(&name) else { continue };
            let current = uids.get(&name).cloned();
            if namespace.uid == current {
                continue;
            }
            let known = std::mem::replace(&mut namespace.uid, current);
            if known.is_none() {
                continue;
            }
            let before = namespace.sizes();
            // Freeing a large table takes long. It happens after the lock is released.
            let series: Vec<_> = namespace.scopes.iter_mut().map(Scope::discard_all).collect();
            let names = namespace.names.discard_all();
            self.usage.change(&before, &namespace.sizes());
            if namespace.uid.is_none() {
                // The scope of a namespaced policy is removed with its policy.
                namespace.scopes.retain(|scope| {
                    let is_cluster_scoped = scope.policy().is_cluster_scoped();
                    if is_cluster_scoped {
                        self.gone_namespaces.keep(scope);
                        self.forget_sizes(scope);
                    }
                    !is_cluster_scoped
                });
            }
            drop(namespace);
            drop((series, names));
        }
    }

    /// Locks the state of a namespace, creating it if needed.
    pub(crate) fn namespace(&self, name: &str) -> RefMut<'_, Key, Box<Namespace>> {
        let key = self.hasher.namespace(name);
        if let Some(entry) = self.namespaces.get_mut(&key) {
            return entry;
        }
        self.namespaces.entry(key).or_insert_with(|| {
            let name: Arc<str> = name.into();
            self.usage.add_namespace();
            self.namespace_list.add(name.clone());
            let uid = self.uids().get(&name).cloned();
            Box::new(Namespace { uid, ..Namespace::new(name) })
        })
    }

    /// Returns the last reported uids of the namespaces.
    pub(crate) fn uids(&self) -> MutexGuard<'_, Arc<NamespaceUids>> {
        // The map is replaced as a whole, so a panic elsewhere leaves it consistent.
        self.uids.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the state of a namespace, if it has any.
    pub(crate) fn locked(&self, name: &str) -> Option<RefMut<'_, Key, Box<Namespace>>> {
        self.namespaces.get_mut(&self.hasher.namespace(name))
    }
}
