//! Keeps the [`Store`] up to date from the cluster.

use std::sync::Arc;

use futures::stream::{BoxStream, select_all};
use futures::{Stream, StreamExt};
use kube::core::{ApiResource, DynamicObject, ObjectMeta};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use tracing::{debug, info, warn};

use crate::api::{ClusterEventPolicy, EventPolicy, PAGE, StoredPolicy};

use super::deadlines::with_deadlines;
use super::index::{Change, Index, Source};
use super::namespace::ListedNamespace;
use super::store::Store;

/// So many changes that came together make one new set: working it out takes a while where many namespaces are.
const TOGETHER: usize = 1000;

/// Watches the policies of both kinds and the labels of the namespaces, and keeps `store` up to date, for ever: to end
/// it, drop it. Failures are logged and tried again with a growing pause. `responded` is called with each source for
/// which the API server has sent anything, a bookmark for example.
pub async fn run(client: Client, store: Arc<Store>, responded: impl Fn(Source) + Send + Sync + 'static) {
    let responded = Arc::new(responded);
    let client = |source| {
        let responded = responded.clone();
        with_deadlines(&client, move || responded(source))
    };
    let own = Api::all_with(client(Source::EventPolicies), &ApiResource::erase::<EventPolicy>(&()));
    let cluster =
        Api::all_with(client(Source::ClusterEventPolicies), &ApiResource::erase::<ClusterEventPolicy>(&()));
    let namespaces: Api<ListedNamespace> = Api::all(client(Source::Namespaces));
    let config = || watcher::Config::default().page_size(PAGE);
    let policy = |StoredPolicy(policy)| Object::Policy(policy);
    let namespace = |ListedNamespace(metadata)| Object::Namespace(metadata);
    let news = select_all([
        told(Source::EventPolicies, watcher(own, config()).default_backoff(), policy),
        told(Source::ClusterEventPolicies, watcher(cluster, config()).default_backoff(), policy),
        told(Source::Namespaces, watcher(namespaces, config()).default_backoff(), namespace),
    ]);
    follow(news, &store).await;
}

/// What a watch tells, and which.
type News = (Source, watcher::Result<Event<Object>>);

/// What the watches tell of.
#[derive(Clone, Debug)]
enum Object {
    Policy(DynamicObject),
    Namespace(ObjectMeta),
}

fn told<K: Send + 'static>(
    source: Source,
    events: impl Stream<Item = watcher::Result<Event<K>>> + Send + 'static,
    object: fn(K) -> Object,
) -> BoxStream<'static, News> {
    let event = move |event| match event {
        Event::Apply(it) => Event::Apply(object(it)),
        Event::Delete(it) => Event::Delete(object(it)),
        Event::Init => Event::Init,
        Event::InitApply(it) => Event::InitApply(object(it)),
        Event::InitDone => Event::InitDone,
    };
    events.map(move |told| (source, told.map(event))).boxed()
}

async fn follow(news: impl Stream<Item = News>, store: &Store) {
    let mut index = Index::default();
    let mut news = std::pin::pin!(news.ready_chunks(TOGETHER));
    while let Some(together) = news.next().await {
        let changes = together.into_iter().map(|(source, told)| match told {
            Ok(event) => take(source, event, &mut index),
            Err(error) => {
                warn!(%error, "watching {source:?} failed; trying again ({})", hint(source));
                Change::Nothing
            }
        });
        let change = changes.max().unwrap_or(Change::Nothing);
        show(change, &index, store);
    }
}

fn hint(source: Source) -> &'static str {
    match source {
        Source::EventPolicies => {
            "are the CRDs installed, and may squelch list and watch eventpolicies.squelch.dev?"
        }
        Source::ClusterEventPolicies => {
            "are the CRDs installed, and may squelch list and watch clustereventpolicies.squelch.dev?"
        }
        Source::Namespaces => "may squelch list and watch namespaces?",
    }
}

fn take(source: Source, event: Event<Object>, index: &mut Index) -> Change {
    match event {
        Event::Apply(Object::Policy(policy)) | Event::InitApply(Object::Policy(policy)) => {
            index.apply(&policy)
        }
        Event::Apply(Object::Namespace(namespace)) | Event::InitApply(Object::Namespace(namespace)) => {
            let name = namespace.name.unwrap_or_default();
            let uid = namespace.uid.unwrap_or_default();
            index.apply_namespace(&name, &uid, namespace.labels.unwrap_or_default())
        }
        Event::Delete(Object::Policy(policy)) => index.delete(&policy),
        Event::Delete(Object::Namespace(namespace)) => {
            index.delete_namespace(&namespace.name.unwrap_or_default())
        }
        Event::Init => {
            index.begin_list(source);
            Change::Nothing
        }
        Event::InitDone => index.end_list(source),
    }
}

/// Swaps the store's set for the current one, if that says anything new.
fn show(change: Change, index: &Index, store: &Store) {
    // Until every first list is complete, precedence is not known.
    if !index.listed() {
        return;
    }
    if !store.listed() {
        // Even of no policies the first list is news.
        info!(
            policies = index.policies().count(),
            "listed EventPolicies, ClusterEventPolicies and namespaces"
        );
        return store.swap(index.set());
    }
    match change {
        Change::Nothing => {}
        Change::Status => store.refresh(store.load().refreshed(index.policies())),
        Change::Policies => {
            debug!("the policies or what they are for have changed");
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

    type Events = Vec<Event<Object>>;

    fn list(objects: impl IntoIterator<Item = Object>) -> Events {
        let shown = objects.into_iter().map(Event::InitApply);
        [Event::Init].into_iter().chain(shown).chain([Event::InitDone]).collect()
    }

    /// What a watch tells, which may be that it failed.
    type Told = Vec<(Source, Option<Event<Object>>)>;

    fn of(source: Source, events: Events) -> Told {
        events.into_iter().map(|event| (source, Some(event))).collect()
    }

    /// A policy of namespace ci as the watch tells of it.
    fn policy(data: serde_json::Value) -> Object {
        Object::Policy(object("ci", "p", data))
    }

    fn namespace(team: &str) -> Object {
        let labels = Some(labels(&[("team", team)]));
        Object::Namespace(ObjectMeta { name: Some("ci".to_owned()), labels, ..ObjectMeta::default() })
    }

    /// Feeds what comes together, one after the other.
    fn feed(store: &Store, together: impl IntoIterator<Item = Told>) {
        let parts = together.into_iter().map(|told| {
            // Between two of these nothing is ready.
            let pause = stream::once(tokio::task::yield_now()).filter_map(|()| ready(None));
            let told = told
                .into_iter()
                .map(|(source, event)| (source, event.ok_or(watcher::Error::NoResourceVersion)));
            pause.chain(stream::iter(told)).boxed()
        });
        let news = stream::iter(parts.collect::<Vec<_>>()).flatten();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(follow(news, store));
    }

    /// What the other sources list is nothing.
    fn nothing_else() -> Told {
        [of(Source::ClusterEventPolicies, list([])), of(Source::Namespaces, list([]))].concat()
    }

    #[test]
    fn nothing_is_decided_by_before_every_first_list_is_complete() {
        let first_lists = [
            of(Source::EventPolicies, list([policy(json!({"spec": {}}))])),
            of(Source::ClusterEventPolicies, list([])),
            of(Source::Namespaces, list([namespace("shop")])),
        ];
        for missing in 0..first_lists.len() {
            let store = Store::default();
            let mut lists = first_lists.to_vec();
            // It breaks off before its end.
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
    fn a_cluster_without_policies_is_listed_too() {
        let store = Store::default();
        feed(&store, [of(Source::EventPolicies, list([])), nothing_else()]);
        assert!(store.listed());
    }

    #[test]
    fn changes_are_told_once_and_a_status_is_not() {
        let store = Store::default();
        let fresh = policy(json!({"spec": {}}));
        let reported = policy(json!({"spec": {}, "status": {"observedGeneration": 1}}));
        let mut steps = vec![
            [of(Source::EventPolicies, list([])), nothing_else()].concat(),
            of(Source::EventPolicies, vec![Event::Apply(fresh)]),
            of(Source::EventPolicies, vec![Event::Apply(reported.clone())]),
            of(Source::EventPolicies, list([reported.clone()])),
        ];
        feed(&store, steps.clone());
        assert_eq!(*store.subscribe().borrow(), Revision { listed: true, number: 2 });
        assert_eq!(store.load().policies()[0].reported.as_ref().unwrap().observed_generation, Some(1));
        assert!(store.load().governing(&event()).is_some(), "a status takes nothing away");
        steps.push(of(Source::EventPolicies, vec![Event::Delete(reported)]));
        let store = Store::default();
        feed(&store, steps);
        assert!(store.load().policies().is_empty());
        assert_eq!(store.subscribe().borrow().number, 3);
    }

    #[test]
    fn what_comes_together_is_told_together() {
        let store = Store::default();
        let shops = json!({"spec": {"namespaceSelector": {"matchLabels": {"team": "shop"}}}});
        let shops = Object::Policy(cluster_object("shops", shops));
        let together = [
            of(Source::ClusterEventPolicies, vec![Event::Apply(shops)]),
            of(Source::Namespaces, vec![Event::Apply(namespace("bank")), Event::Apply(namespace("shop"))]),
        ];
        feed(&store, [of(Source::EventPolicies, list([])), nothing_else(), together.concat()]);
        assert!(store.load().governing(&event()).is_some());
        assert_eq!(store.subscribe().borrow().number, 2);
    }

    #[test]
    fn a_label_that_goes_takes_the_policy_with_it() {
        let shops = json!({"spec": {"namespaceSelector": {"matchLabels": {"team": "shop"}}}});
        let shops = Object::Policy(cluster_object("shops", shops));
        let mut steps = vec![
            of(Source::EventPolicies, list([])),
            of(Source::ClusterEventPolicies, list([shops])),
            of(Source::Namespaces, list([namespace("shop")])),
        ];
        let store = Store::default();
        feed(&store, steps.clone());
        assert!(store.load().governing(&event()).is_some());
        for gone in [Event::Apply(namespace("bank")), Event::Delete(namespace("shop"))] {
            steps.push(of(Source::Namespaces, vec![gone]));
            let store = Store::default();
            feed(&store, steps.clone());
            assert!(store.load().governing(&event()).is_none());
            steps.pop();
        }
    }

    #[test]
    fn a_failure_ends_nothing() {
        for source in Source::ALL {
            let store = Store::default();
            let failed = || vec![(source, Some(Event::Init)), (source, None)];
            let lists = [of(Source::EventPolicies, list([policy(json!({"spec": {}}))])), nothing_else()];
            feed(&store, [failed(), lists.concat(), failed()]);
            assert!(store.load().governing(&event()).is_some());
        }
    }
}
