//! Updates the [`Store`] from the cluster.

use std::sync::Arc;
use std::time::Duration;

use futures::future::{Fuse, FusedFuture};
use futures::stream::{BoxStream, select_all};
use futures::{FutureExt, Stream, StreamExt};
use kube::core::{ApiResource, DynamicObject, ObjectMeta};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::{debug, info, warn};

use crate::api::{ClusterEventPolicy, EventPolicy, PAGE, StoredPolicy};
use crate::watching::{WatchBackoff, with_deadlines};

use super::index::{Index, SetChange, WatchSource};
use super::namespace::ListedNamespace;
use super::restrictions::Restrictions;
use super::store::Store;

/// Maximum number of simultaneous changes that are combined into one new set. Computing a set takes time in proportion to
/// the number of policies and namespaces.
const MAX_BATCH: usize = 1000;

/// Minimum time between the starts of two sets. Changes in between are combined, as when a thousand policies are applied:
/// such a set takes 10 to 20 ms of a processor.
const MIN_INTERVAL: Duration = Duration::from_millis(100);

/// Watches policies and namespaces, and updates `store`. Never returns: drop the future to stop it. Failures are logged and
/// retried with exponential backoff. `restrictions` are what other writers have added to the webhook's entry. Calls
/// `responded` with the source for each response from the API server, including bookmarks.
pub async fn run(
    client: Client,
    store: Arc<Store>,
    restrictions: watch::Receiver<Restrictions>,
    responded: impl Fn(WatchSource) + Send + Sync + 'static,
) {
    let responded = Arc::new(responded);
    let client = |source| {
        let responded = responded.clone();
        with_deadlines(&client, move || responded(source))
    };
    let own = Api::all_with(client(WatchSource::EventPolicies), &ApiResource::erase::<EventPolicy>(&()));
    let cluster = Api::all_with(
        client(WatchSource::ClusterEventPolicies),
        &ApiResource::erase::<ClusterEventPolicy>(&()),
    );
    let namespaces: Api<ListedNamespace> = Api::all(client(WatchSource::Namespaces));
    let config = || watcher::Config::default().page_size(PAGE);
    let policy = |StoredPolicy(policy)| WatchedObject::Policy(policy);
    let namespace = |ListedNamespace(metadata)| WatchedObject::Namespace(metadata);
    let events = select_all([
        tagged(WatchSource::EventPolicies, watcher(own, config()).backoff(WatchBackoff::default()), policy),
        tagged(
            WatchSource::ClusterEventPolicies,
            watcher(cluster, config()).backoff(WatchBackoff::default()),
            policy,
        ),
        tagged(
            WatchSource::Namespaces,
            watcher(namespaces, config()).backoff(WatchBackoff::default()),
            namespace,
        ),
    ]);
    follow(events, restrictions, &store).await;
}

/// A watch event or error, with its source.
type SourceEvent = (WatchSource, watcher::Result<Event<WatchedObject>>);

/// An object of one of the sources.
#[derive(Clone, Debug)]
enum WatchedObject {
    Policy(DynamicObject),
    Namespace(ObjectMeta),
}

fn tagged<K: Send + 'static>(
    source: WatchSource,
    events: impl Stream<Item = watcher::Result<Event<K>>> + Send + 'static,
    object: fn(K) -> WatchedObject,
) -> BoxStream<'static, SourceEvent> {
    let event = move |event| match event {
        Event::Apply(it) => Event::Apply(object(it)),
        Event::Delete(it) => Event::Delete(object(it)),
        Event::Init => Event::Init,
        Event::InitApply(it) => Event::InitApply(object(it)),
        Event::InitDone => Event::InitDone,
    };
    events.map(move |result| (source, result.map(event))).boxed()
}

async fn follow(
    events: impl Stream<Item = SourceEvent>,
    mut restrictions: watch::Receiver<Restrictions>,
    store: &Store,
) {
    let mut index = Index::default();
    let mut batches = std::pin::pin!(events.ready_chunks(MAX_BATCH));
    let mut unpublished = SetChange::Nothing;
    let mut pause = std::pin::pin!(Fuse::terminated());
    loop {
        let batch = tokio::select! {
            batch = batches.next() => match batch {
                Some(batch) => batch,
                None => return publish(unpublished, &index, store),
            },
            // The sender may end first, at shutdown.
            Ok(()) = restrictions.changed() => Vec::new(),
            () = &mut pause => Vec::new(),
        };
        let restricted = index.restrict(restrictions.borrow_and_update().clone());
        let changes = batch.into_iter().map(|(source, result)| match result {
            Ok(event) => apply(source, event, &mut index),
            Err(error) => {
                warn!(%error, ?source, hint = hint(source), "watch failed, retrying");
                SetChange::Nothing
            }
        });
        unpublished = changes.fold(unpublished.max(restricted), SetChange::max);
        if unpublished == SetChange::Policies && store.listed() {
            if !pause.is_terminated() {
                continue;
            }
            pause.set(sleep(MIN_INTERVAL).fuse());
        }
        publish(std::mem::replace(&mut unpublished, SetChange::Nothing), &index, store);
    }
}

fn hint(source: WatchSource) -> &'static str {
    match source {
        WatchSource::EventPolicies => {
            "check that the CRDs are installed and that squelch can list and watch eventpolicies.squelch.dev"
        }
        WatchSource::ClusterEventPolicies => {
            "check that the CRDs are installed and that squelch can list and watch clustereventpolicies.squelch.dev"
        }
        WatchSource::Namespaces => "check that squelch can list and watch namespaces",
    }
}

fn apply(source: WatchSource, event: Event<WatchedObject>, index: &mut Index) -> SetChange {
    match event {
        Event::Apply(WatchedObject::Policy(policy)) | Event::InitApply(WatchedObject::Policy(policy)) => {
            index.apply(&policy)
        }
        Event::Apply(WatchedObject::Namespace(namespace))
        | Event::InitApply(WatchedObject::Namespace(namespace)) => {
            let name = namespace.name.unwrap_or_default();
            let uid = namespace.uid.unwrap_or_default();
            index.apply_namespace(&name, &uid, namespace.labels.unwrap_or_default())
        }
        Event::Delete(WatchedObject::Policy(policy)) => index.delete(&policy),
        Event::Delete(WatchedObject::Namespace(namespace)) => {
            index.delete_namespace(&namespace.name.unwrap_or_default())
        }
        Event::Init => {
            index.begin_list(source);
            SetChange::Nothing
        }
        Event::InitDone => index.end_list(source),
    }
}

/// Publishes the current set after a change.
fn publish(change: SetChange, index: &Index, store: &Store) {
    // The precedence of policies is unknown until all first lists are complete.
    if !index.listed() {
        return;
    }
    if !store.listed() {
        // The first list is published also if it is empty.
        info!(
            policies = index.policies().count(),
            "listed EventPolicies, ClusterEventPolicies and namespaces"
        );
        return store.swap(index.set());
    }
    match change {
        SetChange::Nothing => {}
        SetChange::Status => store.refresh(store.load().with_statuses(index.policies())),
        SetChange::Policies => {
            debug!("policies or their namespaces changed");
            store.swap(index.set());
        }
    }
}

#[cfg(test)]
mod tests;
