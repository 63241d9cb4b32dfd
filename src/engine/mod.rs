//! The pure core: what becomes of a write, what is owed, and when it is to be paid.
//!
//! No I/O, no clock of its own, no logging, no Kubernetes types: the same inputs give the same outputs. Wall
//! time appears only as data ([`Observation::occurred_at`]).

mod accounts;
mod agenda;
mod approach;
#[cfg(test)]
mod bounds;
mod compact;
mod content;
mod debts;
mod decide;
mod departed;
mod dropped;
#[cfg(test)]
mod edges;
mod group;
mod held;
mod hold;
mod key;
mod limit;
mod live;
#[cfg(test)]
mod naive;
mod names;
mod observation;
mod owing;
mod packed;
#[cfg(test)]
mod policy_changes;
mod predecessors;
#[cfg(test)]
mod properties;
mod roster;
mod rules;
#[cfg(test)]
mod scenarios;
mod scope;
mod segments;
mod series;
mod stamp;
mod standby;
mod strings;
mod table;
#[cfg(test)]
pub(crate) mod testing;
mod tick;
mod upcoming;
#[cfg(test)]
mod vectors;
mod verdict;
#[cfg(test)]
mod world;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dashmap::DashMap;
use dashmap::mapref::one::RefMut;
use jiff::Timestamp;
use smallvec::SmallVec;

pub use accounts::{Account, Counters};
pub use content::Content;
pub use debts::{Found, Order, Plan};
pub use dropped::{Dropped, TopDropped, harmless};
pub use key::AGGREGATE_PREFIX;
pub use limit::BucketRules;
pub use observation::{Api, EventView, Moment, ObjectReference, Observation, Operation, is_namespace_name};
pub use owing::{DebtsRefused, PendingLimit};
pub use rules::{
    AggregationRules, Footing, Governing, GroupBy, Mode, Per, PolicyId, Rejection, Rules, SeriesRules,
    SpamFilterRules, Standing, is_cluster_scoped,
};
pub use standby::stand_by;
pub use verdict::{Answer, Denial, Disposition, Stage, Verdict};

use approach::Keys;
use decide::Deciding;
use departed::Departed;
use held::{Held, Sizes};
use key::{ByKey, Hasher, Key};
use names::Names;
use predecessors::Predecessors;
use roster::Roster;
use rules::InForce;
use scope::{Scope, ScopeId};

/// What an engine is made with.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The key of every hash: random per process, so that nobody outside can aim at a collision.
    pub seed: [u64; 2],
    /// How many series may live in all; as many names are remembered beyond them.
    pub max_series: usize,
    /// How many series may owe in all: a write that would make one more owe is admitted.
    pub max_owing: usize,
    /// When this engine began to decide, unless [`Engine::begin`] says another time. A CREATE of something that
    /// happened first before carries one occurrence: a former life has seen the rest.
    pub began: Timestamp,
}

/// Namespaces fall into so many parts, each with a lock of its own: more than threads that decide at one moment.
const SHARDS: usize = 16;

/// So many namespaces are asked for room after a decision that took more than there is.
const ASKED_FOR_ROOM: usize = 4;

/// So many entries of a table are given up for one that another namespace has added.
const GIVEN_UP: usize = 2;

/// So many series of a scope are seen to as soon as their policy changes.
const REVISED_AT_ONCE: usize = 8;

/// Decides every write, and knows what is owed.
pub struct Engine {
    hasher: Hasher,
    settings: Settings,
    /// By a hash of their names: to compare those would be one look more at what is in no cache. In boxes: a map
    /// keeps room for up to twice as many as there are.
    namespaces: DashMap<Key, Box<Namespace>, ByKey>,
    roster: Roster,
    held: Held,
    departed: Departed,
    in_force: InForce,
    numbers: AtomicU64,
    debts_refused: [AtomicU64; 2],
    phase: AtomicU8,
    /// Microseconds of the Unix epoch.
    began: AtomicI64,
    uids: Mutex<Arc<NamespaceUids>>,
}

/// The uids of the namespaces, by name.
pub type NamespaceUids = BTreeMap<Arc<str>, Arc<str>>;

/// What is known in one namespace: its names, and a scope for each policy.
// In this order in memory: what every decision looks at is where the scopes end and the names begin.
#[repr(C)]
struct Namespace {
    /// Nearly all have one; it stands here, and not behind one more pointer.
    scopes: SmallVec<[Scope; 1]>,
    names: Names,
    name: Arc<str>,
    next_scope: ScopeId,
    predecessors: Predecessors,
    /// Which namespace of this name it is, once that is known.
    uid: Option<Arc<str>>,
}

/// How much the engine holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauges {
    /// Namespaces of which something is kept.
    pub namespaces: usize,
    /// Live series.
    pub series: usize,
    /// Remembered Event names.
    pub names: usize,
    /// Groups of look-alikes.
    pub groups: usize,
    /// Buckets of spam filters.
    pub buckets: usize,
    /// Entries of the top dropped.
    pub dropped: usize,
    /// Occurrences folded and not yet written to stored Events.
    pub owed: u64,
    /// Series that owe.
    pub owing: usize,
    /// Writes that were admitted because too many series owe, or there was no room to keep what their Event says,
    /// since the process began.
    pub debts_refused: DebtsRefused,
    /// Bytes of text kept of series: the names of their Events, and what is needed to create those again.
    pub text: usize,
    /// Fingerprints by which groups tell messages and objects apart.
    pub fingerprints: usize,
    /// Records of ended series, kept so that a series that opens again knows what others told of it.
    pub ended: usize,
    /// Records of ended series given up for want of room, since the process began.
    pub ended_evicted: u64,
    /// Series given up for want of room, since the process began.
    pub series_evicted: u64,
    /// Series of which what is needed to create their Event again was given up for want of room, since the process
    /// began. They owed nothing.
    pub contents_evicted: u64,
    /// Names forgotten for want of room, since the process began.
    pub names_evicted: u64,
    /// Groups given up for want of room, since the process began.
    pub groups_evicted: u64,
    /// Buckets given up for want of room, since the process began. They were full: no decision changed.
    pub buckets_evicted: u64,
    /// Entries of the top dropped given up for want of room, since the process began.
    pub dropped_evicted: u64,
}

impl Engine {
    /// An engine that knows nothing yet.
    pub fn new(settings: Settings) -> Self {
        let hasher = Hasher::new(settings.seed);
        Self {
            namespaces: DashMap::with_hasher_and_shard_amount(ByKey, SHARDS),
            hasher,
            settings,
            roster: Roster::default(),
            held: Held::default(),
            departed: Departed::default(),
            in_force: InForce::default(),
            numbers: AtomicU64::new(0),
            debts_refused: Default::default(),
            phase: AtomicU8::new(tick::DECIDING),
            began: AtomicI64::new(settings.began.as_microsecond()),
            uids: Mutex::default(),
        }
    }

    /// It begins to decide now: before its first decision.
    pub fn begin(&self, wall: Timestamp) {
        self.began.store(wall.as_microsecond(), Ordering::Relaxed);
    }

    /// Decides one write. Never blocks on I/O; holds the lock of the write's namespace for some microseconds.
    pub fn decide(&self, governing: Option<Governing<'_>>, write: &Observation<'_>, now: Moment) -> Verdict {
        if write.own {
            return Verdict::passed(Stage::Own);
        }
        let Some(governing) = governing else { return Verdict::passed(Stage::NoPolicy) };
        if write.dry_run {
            return Verdict::passed(Stage::DryRun);
        }
        if write.edited || write.stale {
            return Verdict::passed(Stage::Edit);
        }
        let mut verdict =
            self.with_deciding(governing, write, now, |deciding| deciding.decide(governing, write));
        if governing.rules.mode == Mode::Observe {
            verdict.answer = Answer::Allow;
        }
        verdict
    }

    /// Counts a write that is let through undecided (overload, a panic) and remembers its value.
    pub fn fail_open(&self, governing: Option<Governing<'_>>, write: &Observation<'_>, now: Moment) {
        let Some(governing) = governing else { return };
        if write.own || write.dry_run || write.edited || write.stale {
            return;
        }
        self.with_deciding(governing, write, now, |deciding| deciding.fail_open(write));
    }

    /// The policies as they are now, each of which governs wherever it did: see [`Self::revise_within`].
    pub fn revise(&self, policies: &[Standing], now: Moment) {
        self.revise_within(policies, |_, _| Footing::Governs, now);
    }

    /// The policies as they are now, and what each has to do with a namespace. A scope whose policy is gone, is
    /// invalid, has another mode or no series any more, or governs nothing in the namespace any more, pays what it
    /// owes. One whose policy is gone is forgotten after that; so is one whose namespace nobody has known for a while.
    /// A namespaced policy has its scope from here on, so that its counts are there before the first write.
    pub fn revise_within(
        &self,
        policies: &[Standing],
        footing: impl Fn(&str, &PolicyId) -> Footing,
        now: Moment,
    ) {
        let by_uid = policies.iter().map(|standing| (&standing.policy.uid, standing)).collect();
        for name in self.roster.all() {
            let Some(mut namespace) = self.locked(&name) else { continue };
            for scope in &mut namespace.scopes {
                let before = scope.sizes();
                let footing = footing(&name, scope.policy());
                scope.revise(&by_uid, footing, now);
                // A few at once; the others in [`Self::tick`], or a million would be seen to while writes wait.
                scope.revise_series(REVISED_AT_ONCE, now);
                self.held.change(&before, &scope.sizes());
            }
        }
        self.departed.retain(&by_uid);
        self.in_force.retain(&by_uid);
        for standing in policies {
            if let (Some(namespace), Some(rules)) = (&standing.namespace, &standing.rules) {
                self.namespace(namespace).scope_of(rules, &self.in_force);
            }
        }
    }

    /// The uids of the namespaces as they are now. What is kept of a namespace that is gone, or that has another uid
    /// than before, is discarded, and its pending occurrences are lost: nothing of it may be written into another one.
    /// What was counted there stays.
    pub fn identify_namespaces(&self, uids: &Arc<NamespaceUids>) {
        *self.uids() = uids.clone();
        for name in self.roster.all() {
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
            self.held.change(&before, &namespace.sizes());
            if namespace.uid.is_none() {
                // The scope of a namespaced policy goes with its policy.
                namespace.scopes.retain(|scope| {
                    let is_cluster_scoped = scope.policy().is_cluster_scoped();
                    if is_cluster_scoped {
                        self.departed.keep(scope);
                        self.forget_dropped(scope);
                    }
                    !is_cluster_scoped
                });
            }
            drop(namespace);
            drop((series, names));
        }
    }

    /// Every line of the accounts, in no order. Namespaces are locked one at a time.
    pub fn accounts(&self) -> Vec<Account> {
        let mut accounts = Vec::new();
        for name in self.roster.all() {
            let Some(namespace) = self.locked(&name) else { continue };
            accounts.extend(namespace.scopes.iter().map(|scope| scope.account(&namespace.name)));
            accounts.extend(namespace.predecessors.lines());
        }
        accounts
    }

    /// The same, and what cluster-scoped policies have counted in namespaces that are gone: one more line for each,
    /// whose namespace is empty. The sum of a policy's lines never falls.
    pub fn all_accounts(&self) -> Vec<Account> {
        self.departed.with(|| self.accounts())
    }

    /// How much it holds. Locks nothing.
    pub fn gauges(&self) -> Gauges {
        let sizes = self.held.sizes();
        Gauges {
            namespaces: self.roster.len(),
            series: sizes.series,
            names: sizes.names,
            groups: sizes.groups,
            buckets: sizes.buckets,
            dropped: sizes.dropped,
            text: sizes.text,
            fingerprints: sizes.fingerprints,
            ended: sizes.ended,
            ended_evicted: sizes.ended_evicted as u64,
            owed: sizes.owed as u64,
            owing: sizes.owing,
            debts_refused: DebtsRefused {
                series: self.debts_refused[0].load(Ordering::Relaxed),
                text: self.debts_refused[1].load(Ordering::Relaxed),
            },
            series_evicted: sizes.series_evicted as u64,
            contents_evicted: sizes.contents_evicted as u64,
            names_evicted: sizes.names_evicted as u64,
            groups_evicted: sizes.groups_evicted as u64,
            buckets_evicted: sizes.buckets_evicted as u64,
            dropped_evicted: sizes.dropped_evicted as u64,
        }
    }

    /// The state of a namespace, locked, and made if there is none yet.
    fn namespace(&self, name: &str) -> RefMut<'_, Key, Box<Namespace>> {
        let key = self.hasher.namespace(name);
        if let Some(entry) = self.namespaces.get_mut(&key) {
            return entry;
        }
        self.namespaces.entry(key).or_insert_with(|| {
            let name: Arc<str> = name.into();
            self.held.namespace_opened();
            self.roster.enter(name.clone());
            let uid = self.uids().get(&name).cloned();
            Box::new(Namespace { uid, ..Namespace::new(name) })
        })
    }

    /// The uids of the namespaces, as they were last told.
    fn uids(&self) -> MutexGuard<'_, Arc<NamespaceUids>> {
        // A panic elsewhere leaves what was told whole.
        self.uids.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state of a namespace, locked, if there is any.
    fn locked(&self, name: &str) -> Option<RefMut<'_, Key, Box<Namespace>>> {
        self.namespaces.get_mut(&self.hasher.namespace(name))
    }

    /// Runs `act` on the state of the write's namespace and scope, under the namespace's lock.
    fn with_deciding<T>(
        &self,
        governing: Governing<'_>,
        write: &Observation<'_>,
        now: Moment,
        act: impl FnOnce(&mut Deciding<'_>) -> T,
    ) -> T {
        let answer = self.with_namespace(governing, write, now, act);
        if self.held.is_too_much(self.settings.max_series) {
            self.make_room(write.namespace, now);
        }
        answer
    }

    fn with_namespace<T>(
        &self,
        governing: Governing<'_>,
        write: &Observation<'_>,
        now: Moment,
        act: impl FnOnce(&mut Deciding<'_>) -> T,
    ) -> T {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let mut entry = self.namespace(write.namespace);
        let namespace = &mut **entry;
        namespace.fetch_outline();
        let at = namespace.scope_of(governing.rules, &self.in_force);
        let before = namespace.sizes();
        let full = self.held.full(&before, &self.settings);
        let (earlier, rest) = namespace.scopes.split_at_mut(at);
        let (scope, later) = rest.split_first_mut().expect("the scope was just found or made");
        let mut deciding = Deciding {
            hasher: &self.hasher,
            names: &mut namespace.names,
            scope,
            others: [earlier, later],
            full,
            draining: self.is_draining(),
            began_before: write
                .first_seen
                .is_some_and(|first| first.as_microsecond() < self.began.load(Ordering::Relaxed)),
            number,
            debts_refused: DebtsRefused::default(),
            now,
            keys: Keys::of_name(&self.hasher, write.name.as_deref()),
            few_tokens: false,
        };
        let answer = act(&mut deciding);
        let DebtsRefused { series, text } = deciding.debts_refused;
        for (refused, sum) in [series, text].into_iter().zip(&self.debts_refused) {
            if refused > 0 {
                sum.fetch_add(refused, Ordering::Relaxed);
            }
        }
        self.held.change(&before, &namespace.sizes());
        answer
    }

    /// The tables are full, and a namespace below its fair share has added to them: one above its own gives up twice
    /// as much. Locks one at a time, and few, so that no single decision pays for it all: who has something to give
    /// is found after a quarter as many as there are namespaces at the latest.
    fn make_room(&self, newcomer: &str, now: Moment) {
        for asked in 0..ASKED_FOR_ROOM {
            let Some(name) = self.roster.giving(asked > 0) else { return };
            if &*name == newcomer {
                continue;
            }
            let Some(mut namespace) = self.locked(&name) else { continue };
            let given = (0..GIVEN_UP).filter(|_| self.gives_up_one(&mut namespace, now)).count();
            if given + self.forget_names(&mut namespace, GIVEN_UP, now) > 0 {
                return;
            }
        }
    }

    /// A namespace gives up one entry of what there is too much of, if it has more than its fair share.
    fn gives_up_one(&self, namespace: &mut Namespace, now: Moment) -> bool {
        let before = namespace.sizes();
        let surplus = self.held.surplus(&before, self.settings.max_series);
        let given = namespace.scopes.iter_mut().any(|scope| scope.give_up(&surplus, now));
        self.held.change(&before, &namespace.sizes());
        given
    }

    /// A namespace pays for the room it takes: when too many names are remembered in all, it forgets its own.
    /// Returns how many it has forgotten, of at most so many.
    fn forget_names(&self, namespace: &mut Namespace, at_most: usize, now: Moment) -> usize {
        let Namespace { names, scopes, .. } = namespace;
        let before = names.sizes();
        let room = self.held.room_for_names(before.names, self.settings.max_series);
        let lives = |series| scopes.iter().any(|scope| scope.series.get(series).is_some());
        names.forget(room, at_most, now, lives);
        self.held.change(&before, &names.sizes());
        before.names - names.len()
    }
}

impl Namespace {
    fn new(name: Arc<str>) -> Self {
        Self {
            scopes: SmallVec::new(),
            names: Names::default(),
            name,
            next_scope: 0,
            predecessors: Predecessors::default(),
            uid: None,
        }
    }

    /// Nothing is known here any more that would matter.
    fn is_empty(&self) -> bool {
        self.scopes.is_empty() && self.names.len() == 0 && self.predecessors.is_empty()
    }

    /// Asks the memory for where everything is: see [`approach`].
    fn fetch_outline(&self) {
        self.names.fetch_outline();
        self.scopes.first().inspect(|scope| scope.fetch_outline());
    }

    fn sizes(&self) -> Sizes {
        self.scopes.iter().fold(self.names.sizes(), |sizes, scope| sizes.and(&scope.sizes()))
    }

    /// The place of the scope of these rules, which is made if there is none yet.
    fn scope_of(&mut self, rules: &Rules, in_force: &InForce) -> usize {
        if let Some(at) = self.scopes.iter().position(|scope| scope.belongs_to(rules)) {
            return at;
        }
        self.scopes.push(Scope::new(self.next_scope, in_force.shared(rules)));
        self.next_scope += 1;
        self.scopes.len() - 1
    }
}
