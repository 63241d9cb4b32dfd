//! Updates the [`Store`] from the cluster.

use std::sync::Arc;

use futures::stream::{BoxStream, select_all};
use futures::{Stream, StreamExt};
use kube::core::{ApiResource, DynamicObject, ObjectMeta};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use tracing::{debug, info, warn};

use crate::api::{ClusterEventPolicy, EventPolicy, PAGE, StoredPolicy};

use super::backoff::WatchBackoff;
use super::deadlines::with_deadlines;
use super::index::{Index, SetChange, WatchSource};
use super::namespace::ListedNamespace;
use super::store::Store;

/// Maximum number of simultaneous changes that are combined into one new set. Computing a set takes time in proportion to
/// the number of namespaces.
const MAX_BATCH: usize = 1000;

/// Watches policies and namespaces, and updates `store`. Never returns: drop the future to stop it. Failures are logged and
/// retried with exponential backoff. Calls `responded` with the source for each response from the API server, including
/// bookmarks.
pub async fn run(client: Client, store: Arc<Store>, responded: impl Fn(WatchSource) + Send + Sync + 'static) {
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
    follow(events, &store).await;
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

async fn follow(events: impl Stream<Item = SourceEvent>, store: &Store) {
    let mut index = Index::default();
    let mut batches = std::pin::pin!(events.ready_chunks(MAX_BATCH));
    while let Some(batch) = batches.next().await {
        let changes = batch.into_iter().map(|(source, result)| match result {
            Ok(event) => apply(source, event, &mut index),
            Err(error) => {
                warn!(%error, ?source, hint = hint(source), "watch failed, retrying");
                SetChange::Nothing
            }
        });
        let change = changes.max().unwrap_or(SetChange::Nothing);
        publish(change, &index, store);
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
mod tests {
    use std::future::ready;

    use futures::stream;
    use serde_json::json;

    use super::*;
    use crate::policy::fixtures::{cluster_object, event, labels, object};
    use crate::policy::store::Revision;

    type Events = Vec<Event<WatchedObject>>;

    fn list(objects: impl IntoIterator<Item = WatchedObject>) -> Events {
        let objects = objects.into_iter().map(Event::InitApply);
        [Event::Init].into_iter().chain(objects).chain([Event::InitDone]).collect()
    }

    /// A batch of watch events. `None` is a failed watch.
    type Batch = Vec<(WatchSource, Option<Event<WatchedObject>>)>;

    fn of(source: WatchSource, events: Events) -> Batch {
        events.into_iter().map(|event| (source, Some(event))).collect()
    }

    /// A policy of namespace ci.
    fn policy(data: serde_json::Value) -> WatchedObject {
        WatchedObject::Policy(object("ci", "p", data))
    }

    fn namespace(team: &str) -> WatchedObject {
        let labels = Some(labels(&[("team", team)]));
        WatchedObject::Namespace(ObjectMeta { name: Some("ci".to_owned()), labels, ..ObjectMeta::default() })
    }

    /// Feeds the batches one after the other.
    fn feed(store: &Store, batches: impl IntoIterator<Item = Batch>) {
        let streams = batches.into_iter().map(|batch| {
            // The stream is pending once between two batches.
            let pause = stream::once(tokio::task::yield_now()).filter_map(|()| ready(None));
            let events = batch
                .into_iter()
                .map(|(source, event)| (source, event.ok_or(watcher::Error::NoResourceVersion)));
            pause.chain(stream::iter(events)).boxed()
        });
        let events = stream::iter(streams.collect::<Vec<_>>()).flatten();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(follow(events, store));
    }

    /// Empty lists of the other sources.
    fn nothing_else() -> Batch {
        [of(WatchSource::ClusterEventPolicies, list([])), of(WatchSource::Namespaces, list([]))].concat()
    }

    #[test]
    fn no_policy_is_in_force_before_all_first_lists_are_complete() {
        let first_lists = [
            of(WatchSource::EventPolicies, list([policy(json!({"spec": {}}))])),
            of(WatchSource::ClusterEventPolicies, list([])),
            of(WatchSource::Namespaces, list([namespace("shop")])),
        ];
        for missing in 0..first_lists.len() {
            let store = Store::default();
            let mut lists = first_lists.to_vec();
            // The list is interrupted before its end.
            lists[missing].pop();
            lists.rotate_left(missing);
            feed(&store, lists);
            assert!(!store.listed() && store.load().governing(&event()).is_none());
        }
        let store = Store::default();
        feed(&store, first_lists);
        assert!(store.listed() && store.load().governing(&event()).is_some());
    }

    #[test]
    fn empty_first_lists_are_published() {
        let store = Store::default();
        feed(&store, [of(WatchSource::EventPolicies, list([])), nothing_else()]);
        assert!(store.listed());
    }

    #[test]
    fn only_changed_policies_increase_the_revision() {
        let store = Store::default();
        let fresh = policy(json!({"spec": {}}));
        let reported = policy(json!({"spec": {}, "status": {"observedGeneration": 1}}));
        let mut steps = vec![
            [of(WatchSource::EventPolicies, list([])), nothing_else()].concat(),
            of(WatchSource::EventPolicies, vec![Event::Apply(fresh)]),
            of(WatchSource::EventPolicies, vec![Event::Apply(reported.clone())]),
            of(WatchSource::EventPolicies, list([reported.clone()])),
        ];
        feed(&store, steps.clone());
        assert_eq!(*store.subscribe().borrow(), Revision { listed: true, number: 2 });
        assert_eq!(store.load().policies()[0].reported.as_ref().unwrap().observed_generation, Some(1));
        assert!(store.load().governing(&event()).is_some(), "a new status does not change what is in force");
        steps.push(of(WatchSource::EventPolicies, vec![Event::Delete(reported)]));
        let store = Store::default();
        feed(&store, steps);
        assert!(store.load().policies().is_empty());
        assert_eq!(store.subscribe().borrow().number, 3);
    }

    #[test]
    fn a_batch_of_changes_makes_one_revision() {
        let store = Store::default();
        let shops = json!({"spec": {"namespaceSelector": {"matchLabels": {"team": "shop"}}}});
        let shops = WatchedObject::Policy(cluster_object("shops", shops));
        let together = [
            of(WatchSource::ClusterEventPolicies, vec![Event::Apply(shops)]),
            of(
                WatchSource::Namespaces,
                vec![Event::Apply(namespace("bank")), Event::Apply(namespace("shop"))],
            ),
        ];
        feed(&store, [of(WatchSource::EventPolicies, list([])), nothing_else(), together.concat()]);
        assert!(store.load().governing(&event()).is_some());
        assert_eq!(store.subscribe().borrow().number, 2);
    }

    #[test]
    fn a_policy_is_not_in_force_after_its_label_is_removed() {
        let shops = json!({"spec": {"namespaceSelector": {"matchLabels": {"team": "shop"}}}});
        let shops = WatchedObject::Policy(cluster_object("shops", shops));
        let mut steps = vec![
            of(WatchSource::EventPolicies, list([])),
            of(WatchSource::ClusterEventPolicies, list([shops])),
            of(WatchSource::Namespaces, list([namespace("shop")])),
        ];
        let store = Store::default();
        feed(&store, steps.clone());
        assert!(store.load().governing(&event()).is_some());
        for removal in [Event::Apply(namespace("bank")), Event::Delete(namespace("shop"))] {
            steps.push(of(WatchSource::Namespaces, vec![removal]));
            let store = Store::default();
            feed(&store, steps.clone());
            assert!(store.load().governing(&event()).is_none());
            steps.pop();
        }
    }

    #[test]
    fn a_failed_watch_keeps_the_policies_in_force() {
        for source in WatchSource::ALL {
            let store = Store::default();
            let failed = || vec![(source, Some(Event::Init)), (source, None)];
            let lists = [of(WatchSource::EventPolicies, list([policy(json!({"spec": {}}))])), nothing_else()];
            feed(&store, [failed(), lists.concat(), failed()]);
            assert!(store.load().governing(&event()).is_some());
        }
    }
}
