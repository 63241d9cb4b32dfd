use std::future::ready;

use futures::stream;
use serde_json::json;
use tokio::time::sleep;

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
    feed_restricted(store, batches, Restrictions::default());
}

fn feed_restricted(store: &Store, batches: impl IntoIterator<Item = Batch>, restrictions: Restrictions) {
    let streams = batches.into_iter().map(|batch| {
        // Each batch makes a set of its own.
        let pause = stream::once(async { sleep(2 * MIN_INTERVAL).await }).filter_map(|()| ready(None));
        let events =
            batch.into_iter().map(|(source, event)| (source, event.ok_or(watcher::Error::NoResourceVersion)));
        pause.chain(stream::iter(events)).boxed()
    });
    let events = stream::iter(streams.collect::<Vec<_>>()).flatten();
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let (_sender, restrictions) = watch::channel(restrictions);
    runtime.block_on(follow(events, restrictions, store));
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
        of(WatchSource::Namespaces, vec![Event::Apply(namespace("bank")), Event::Apply(namespace("shop"))]),
    ];
    feed(&store, [of(WatchSource::EventPolicies, list([])), nothing_else(), together.concat()]);
    assert!(store.load().governing(&event()).is_some());
    assert_eq!(store.subscribe().borrow().number, 2);
}

/// The first change takes effect at once. While others follow, each minimum interval makes one revision. A status that
/// follows a change does not hide it.
#[tokio::test(start_paused = true)]
async fn changes_within_the_minimum_interval_make_one_revision() {
    let store = Store::default();
    let revision = || store.subscribe().borrow().number;
    let (sender, events) = futures::channel::mpsc::unbounded();
    let (_sender, restrictions) = watch::channel(Restrictions::default());
    let send = |source, event| sender.unbounded_send((source, Ok(event))).unwrap();
    let change = |generation: i64, status: &serde_json::Value| {
        let mut changed = object("ci", "p", json!({"spec": {}, "status": status}));
        changed.metadata.generation = Some(generation);
        send(WatchSource::EventPolicies, Event::Apply(WatchedObject::Policy(changed)));
    };
    let (none, reported) = (json!({}), json!({"observedGeneration": 1}));
    let changes = async {
        for (source, event) in [of(WatchSource::EventPolicies, list([])), nothing_else()].concat() {
            send(source, event.unwrap());
        }
        sleep(2 * MIN_INTERVAL).await;
        change(1, &none);
        sleep(MIN_INTERVAL / 20).await;
        assert_eq!(revision(), 2);
        for generation in 2..50 {
            change(generation, &none);
            sleep(MIN_INTERVAL / 20).await;
        }
        change(49, &reported);
        sleep(MIN_INTERVAL).await;
        assert_eq!((revision(), store.load().policies()[0].generation), (5, 49));
    };
    tokio::select! {
        () = follow(events, restrictions, &store) => unreachable!("the sender lives"),
        () = changes => {}
    }
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

#[test]
fn restrictions_of_other_writers_are_published_with_the_set() {
    let requirement = json!([{"key": "team", "operator": "NotIn", "values": ["shop"]}]);
    let restrictions = Restrictions::new(serde_json::from_value::<Vec<_>>(requirement).unwrap(), &[]);
    let lists = [
        of(WatchSource::EventPolicies, list([policy(json!({"spec": {}}))])),
        of(WatchSource::ClusterEventPolicies, list([])),
        of(WatchSource::Namespaces, list([namespace("shop")])),
    ];
    let store = Store::default();
    feed(&store, lists.clone());
    let is_effective = |store: &Store| store.load().is_effective(&store.load().policies()[0]);
    assert!(is_effective(&store));
    feed_restricted(&store, lists, restrictions);
    assert!(!is_effective(&store) && store.load().governing(&event()).is_some());
}
