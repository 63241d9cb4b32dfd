//! What is known in one namespace.

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

/// The uids of the namespaces, by name.
pub type NamespaceUids = BTreeMap<Arc<str>, Arc<str>>;

/// What is known in one namespace: its names, and a scope for each policy.
// In this order in memory: what every decision looks at is where the scopes end and the names begin.
#[repr(C)]
pub(crate) struct Namespace {
    /// Nearly all have one; it stands here, and not behind one more pointer.
    pub(crate) scopes: SmallVec<[Scope; 1]>,
    pub(crate) names: Names,
    pub(crate) name: Arc<str>,
    pub(crate) next_scope: ScopeId,
    pub(crate) gone_policies: GonePolicies,
    /// Which namespace of this name it is, once that is known.
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

    /// Nothing is known here any more that would matter.
    pub(crate) fn is_empty(&self) -> bool {
        self.scopes.is_empty() && self.names.len() == 0 && self.gone_policies.is_empty()
    }

    /// Asks the memory for where everything is: see [`prefetch`].
    pub(crate) fn prefetch_outline(&self) {
        self.names.prefetch_outline();
        self.scopes.first().inspect(|scope| scope.prefetch_outline());
    }

    pub(crate) fn sizes(&self) -> Sizes {
        self.scopes.iter().fold(self.names.sizes(), |sizes, scope| sizes.and(&scope.sizes()))
    }

    /// The place of the scope of these rules, which is made if there is none yet.
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
    /// The uids of the namespaces as they are now. What is kept of a namespace that is gone, or that has another uid
    /// than before, is discarded, and its pending occurrences are lost: nothing of it may be written into another one.
    /// What was counted there stays.
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
            // A large table takes long to free: not under the lock.
            let series: Vec<_> = namespace.scopes.iter_mut().map(Scope::discard_all).collect();
            let names = namespace.names.discard_all();
            self.usage.change(&before, &namespace.sizes());
            if namespace.uid.is_none() {
                // The scope of a namespaced policy goes with its policy.
                namespace.scopes.retain(|scope| {
                    let is_cluster_scoped = scope.policy().is_cluster_scoped();
                    if is_cluster_scoped {
                        self.gone_namespaces.keep(scope);
                        self.forget_dropped(scope);
                    }
                    !is_cluster_scoped
                });
            }
            drop(namespace);
            drop((series, names));
        }
    }

    /// The state of a namespace, locked, and made if there is none yet.
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

    /// The uids of the namespaces, as they were last told.
    pub(crate) fn uids(&self) -> MutexGuard<'_, Arc<NamespaceUids>> {
        // A panic elsewhere leaves what was told whole.
        self.uids.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state of a namespace, locked, if there is any.
    pub(crate) fn locked(&self, name: &str) -> Option<RefMut<'_, Key, Box<Namespace>>> {
        self.namespaces.get_mut(&self.hasher.namespace(name))
    }
}
