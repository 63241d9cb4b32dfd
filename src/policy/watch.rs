//! Keeps the [`Store`] up to date from the cluster.

use std::sync::Arc;

use futures::{Stream, StreamExt};
use kube::core::{ApiResource, DynamicObject};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use tracing::{debug, info, warn};

use crate::api::EventPolicy;

use super::index::{Change, Index};
use super::store::Store;

/// Watches the `EventPolicies` of all namespaces and keeps `store` up to date, for ever: to end it, drop it.
/// Failures are logged and tried again with a growing pause.
pub async fn run(client: Client, store: Arc<Store>) {
    let policies = Api::all_with(client, &ApiResource::erase::<EventPolicy>(&()));
    follow(watcher(policies, watcher::Config::default()).default_backoff(), &store).await;
}

async fn follow(events: impl Stream<Item = watcher::Result<Event<DynamicObject>>>, store: &Store) {
    let mut index = Index::default();
    let mut events = std::pin::pin!(events);
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => take(event, &mut index, store),
            Err(error) => warn!(
                %error,
                "watching EventPolicies failed; trying again (are the CRDs installed, and may squelch list and \
                 watch eventpolicies.squelch.dev?)"
            ),
        }
    }
}

fn take(event: Event<DynamicObject>, index: &mut Index, store: &Store) {
    let first_list = !store.listed();
    let change = match event {
        Event::Apply(object) | Event::InitApply(object) => index.apply(&object),
        Event::Delete(object) => index.delete(&object),
        Event::Init => {
            index.begin_list();
            Change::Nothing
        }
        Event::InitDone => match index.end_list() {
            // Even of no policies the first list is news.
            _ if first_list => {
                info!(policies = index.set().policies().len(), "listed EventPolicies");
                store.swap(index.set());
                return;
            }
            change => change,
        },
    };
    // Until the first list is complete precedence is not known.
    match change {
        _ if first_list => {}
        Change::Nothing => {}
        Change::Status => store.refresh(index.set()),
        Change::Policies => {
            debug!("the policies have changed");
            store.swap(index.set());
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use serde_json::json;

    use super::*;
    use crate::policy::fixtures::{event, object};
    use crate::policy::store::Revision;

    fn feed(store: &Store, events: Vec<Event<DynamicObject>>) {
        let events = futures::stream::iter(events).map(Ok);
        follow(events, store).now_or_never().expect("the stream has ended");
    }

    #[test]
    fn nothing_is_decided_by_before_the_first_list_is_complete() {
        let store = Store::default();
        let policy = object("ci", "p", json!({"spec": {}}));
        feed(&store, vec![Event::Init, Event::InitApply(policy.clone())]);
        assert!(!store.listed() && store.load().governing(&event()).is_none());
        feed(&store, vec![Event::Init, Event::InitApply(policy), Event::InitDone]);
        assert!(store.listed() && store.load().governing(&event()).is_some());
    }

    #[test]
    fn a_cluster_without_policies_is_listed_too() {
        let store = Store::default();
        feed(&store, vec![Event::Init, Event::InitDone]);
        assert!(store.listed());
    }

    #[test]
    fn changes_are_told_once_and_a_status_is_not() {
        let store = Store::default();
        let policy = object("ci", "p", json!({"spec": {}}));
        let reported = object("ci", "p", json!({"spec": {}, "status": {"observedGeneration": 1}}));
        let relist = [Event::Init, Event::InitApply(reported.clone()), Event::InitDone];
        let mut events =
            vec![Event::Init, Event::InitDone, Event::Apply(policy), Event::Apply(reported.clone())];
        events.extend(relist);
        feed(&store, events.clone());
        assert_eq!(*store.subscribe().borrow(), Revision { listed: true, number: 2 });
        assert_eq!(store.load().policies()[0].reported.as_ref().unwrap().observed_generation, Some(1));
        events.push(Event::Delete(reported));
        let store = Store::default();
        feed(&store, events);
        assert!(store.load().policies().is_empty());
        assert_eq!(store.subscribe().borrow().number, 3);
    }

    #[test]
    fn a_failure_ends_nothing() {
        let store = Store::default();
        let policy = object("ci", "p", json!({"spec": {}}));
        let events = futures::stream::iter([
            Ok(Event::Init),
            Err(watcher::Error::NoResourceVersion),
            Ok(Event::Init),
            Ok(Event::InitApply(policy)),
            Ok(Event::InitDone),
        ]);
        follow(events, &store).now_or_never().expect("the stream has ended");
        assert!(store.load().governing(&event()).is_some());
    }
}
