//! Lists and watches of reports and policies.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, bail};
use futures::StreamExt;
use futures::stream::{BoxStream, SelectAll, select_all};
use kube::api::ListParams;
use kube::core::{ApiResource, DynamicObject};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource};
use tower::service_fn;

use crate::api::{ClusterEventPolicy, DROP_REPORT, EventDropReport, EventPolicy, PAGE, StoredPolicy};
use crate::cli::ClusterConnection;
use crate::clock;
use crate::watching::{WatchBackoff, with_deadlines};

use super::snapshot::{TopFailure, TopModel, TopSource};

/// Reports in one page of a list. A report has at most 16 KiB.
const REPORT_PAGE: u32 = 100;

/// An event or an error, with its source.
type TopEvent = (TopSource, watcher::Result<Event<DynamicObject>>);

/// The resources that the user may read.
pub(super) struct TopWatch {
    client: Client,
    sources: Vec<(TopSource, Option<String>)>,
    /// Whether the API server has responded since the last check, by source.
    responded: Arc<[AtomicBool; TopSource::ALL.len()]>,
}

impl TopWatch {
    /// Finds out what the user may list. Without the right to read all namespaces, the selected one is read.
    ///
    /// # Errors
    /// The API server does not answer, squelch is not installed, or the user may read nothing of it.
    pub(super) async fn find(cluster: &ClusterConnection, all_namespaces: bool) -> Result<(Self, TopModel)> {
        let client = with_deadlines(&cluster.client, || ());
        let own = cluster.namespace.as_str();
        let selected = (!all_namespaces).then_some(own);
        let (mut sources, mut missing) = (Vec::new(), Vec::new());
        for source in TopSource::ALL {
            let wanted = selected.filter(|_| source != TopSource::ClusterPolicies);
            if may_list(&client, source, wanted).await? {
                sources.push((source, wanted.map(str::to_owned)));
            } else if source != TopSource::ClusterPolicies
                && wanted.is_none()
                && may_list(&client, source, Some(own)).await?
            {
                missing.push(source.forbidden("list", None, &format!("only the namespace {own} is shown")));
                sources.push((source, Some(own.to_owned())));
            } else {
                let place = wanted.or((source != TopSource::ClusterPolicies).then_some(own));
                missing.push(source.forbidden("list", place, source.loss()));
            }
        }
        if sources.is_empty() {
            bail!(
                "{}; ask for the role view in a namespace, and select it with --namespace",
                missing.join("; ")
            );
        }
        let read: Vec<TopSource> = sources.iter().map(|(source, _)| *source).collect();
        let model = TopModel::new(selected, &read, missing);
        Ok((Self { client, sources, responded: Arc::default() }, model))
    }

    /// Starts the lists and watches.
    pub(super) fn events(&self) -> SelectAll<BoxStream<'static, TopEvent>> {
        select_all(self.sources.iter().map(|(source, namespace)| self.stream(*source, namespace.as_deref())))
    }

    fn stream(&self, source: TopSource, namespace: Option<&str>) -> BoxStream<'static, TopEvent> {
        let responded = self.responded.clone();
        let client =
            noticing(&self.client, move || responded[source as usize].store(true, Ordering::Relaxed));
        if source == TopSource::Reports {
            let events = watcher(api::<DynamicObject>(client, source, namespace), config(source));
            return events.backoff(WatchBackoff::default()).map(move |event| (source, event)).boxed();
        }
        let events = watcher(api::<StoredPolicy>(client, source, namespace), config(source));
        events.backoff(WatchBackoff::default()).map(move |event| (source, event.map(untyped))).boxed()
    }

    /// Removes the failures of the sources that have responded.
    pub(super) fn note_responses(&self, model: &mut TopModel) {
        for source in TopSource::ALL {
            if self.responded[source as usize].swap(false, Ordering::Relaxed) {
                model.responded(source);
            }
        }
    }

    /// Applies an event. A response before it was noticed before.
    pub(super) fn apply(&self, (source, event): TopEvent, model: &mut TopModel) {
        self.note_responses(model);
        match event {
            Ok(event) => model.apply(source, event, clock::wall()),
            Err(error) => {
                if let Some(failure) = failure(&error) {
                    model.failed(source, failure, clock::wall());
                }
            }
        }
    }

    /// Reads everything once.
    ///
    /// # Errors
    /// A list fails.
    pub(super) async fn list(&self, model: &mut TopModel) -> Result<()> {
        let mut events = self.events();
        while !model.is_complete() {
            let Some((source, event)) = events.next().await else { break };
            match &event {
                // Its watch, which is not needed here.
                Err(_) if model.is_listed(source) => {}
                Err(error) => bail!("cannot list {}: {error}", source.kind()),
                Ok(_) => self.apply((source, event), model),
            }
        }
        Ok(())
    }
}

/// Whether the user may list the objects of this resource, in this namespace or in all.
async fn may_list(client: &Client, source: TopSource, namespace: Option<&str>) -> Result<bool> {
    let api = api::<DynamicObject>(client.clone(), source, namespace);
    match api.list_metadata(&ListParams::default().limit(1)).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 403 => Ok(false),
        Err(kube::Error::Api(status)) if status.code == 404 => bail!(source.not_installed()),
        Err(error) => Err(error).with_context(|| format!("cannot list {}", source.kind())),
    }
}

fn api<K>(client: Client, source: TopSource, namespace: Option<&str>) -> Api<K>
where
    K: Resource<DynamicType = ApiResource, Scope = <DynamicObject as Resource>::Scope>,
{
    let resource = match source {
        TopSource::Reports => ApiResource::erase::<EventDropReport>(&()),
        TopSource::Policies => ApiResource::erase::<EventPolicy>(&()),
        TopSource::ClusterPolicies => ApiResource::erase::<ClusterEventPolicy>(&()),
    };
    match namespace {
        Some(namespace) => Api::namespaced_with(client, namespace, &resource),
        None => Api::all_with(client, &resource),
    }
}

fn config(source: TopSource) -> watcher::Config {
    match source {
        TopSource::Reports => {
            watcher::Config::default().page_size(REPORT_PAGE).fields(&format!("metadata.name={DROP_REPORT}"))
        }
        TopSource::Policies | TopSource::ClusterPolicies => watcher::Config::default().page_size(PAGE),
    }
}

fn untyped(event: Event<StoredPolicy>) -> Event<DynamicObject> {
    match event {
        Event::Apply(StoredPolicy(object)) => Event::Apply(object),
        Event::Delete(StoredPolicy(object)) => Event::Delete(object),
        Event::Init => Event::Init,
        Event::InitApply(StoredPolicy(object)) => Event::InitApply(object),
        Event::InitDone => Event::InitDone,
    }
}

/// Returns a client that calls `responded` for each successful response, at its head: a watch without changes has none
/// of the events that a watcher shows.
fn noticing(client: &Client, responded: impl Fn() + Send + Sync + 'static) -> Client {
    let (inner, responded) = (client.clone(), Arc::new(responded));
    let service = service_fn(move |request: http::Request<kube::client::Body>| {
        let (inner, responded) = (inner.clone(), responded.clone());
        async move {
            let response = inner.send(request).await?;
            if response.status().is_success() {
                responded();
            }
            Ok::<_, kube::Error>(response)
        }
    });
    Client::new(service, client.default_namespace())
}

/// Returns what a failure means to the user; `None` for an expired version, after which the watcher lists again.
fn failure(error: &watcher::Error) -> Option<TopFailure> {
    let (verb, status) = match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status)) => ("list", Some(status)),
        watcher::Error::WatchStartFailed(kube::Error::Api(status)) | watcher::Error::WatchError(status) => {
            ("watch", Some(status))
        }
        _ => ("", None),
    };
    match status.map(|status| status.code) {
        Some(403) => Some(TopFailure::Forbidden(verb)),
        Some(404) => Some(TopFailure::NotInstalled),
        Some(410) => None,
        _ => Some(TopFailure::Disconnected(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use kube::client::Body;
    use kube::core::Status;
    use serde_json::json;

    use super::*;

    fn status(code: u16) -> Box<Status> {
        Box::new(Status { code, ..Status::failure("text", "Reason") })
    }

    #[test]
    fn a_failure_is_named_by_its_status() {
        let list = |code| failure(&watcher::Error::InitialListFailed(kube::Error::Api(status(code))));
        let watch = |code| failure(&watcher::Error::WatchStartFailed(kube::Error::Api(status(code))));
        assert_eq!(list(403), Some(TopFailure::Forbidden("list")));
        assert_eq!(watch(403), Some(TopFailure::Forbidden("watch")));
        assert_eq!(list(404), Some(TopFailure::NotInstalled));
        assert_eq!(failure(&watcher::Error::WatchError(status(410))), None);
        assert!(matches!(watch(503), Some(TopFailure::Disconnected(text)) if text.contains("text")));
    }

    #[tokio::test(start_paused = true)]
    async fn a_complete_list_needs_no_watch() {
        let respond = |request: http::Request<Body>| async move {
            let is_watch = request.uri().query().unwrap_or_default().contains("watch=true");
            let answer = if is_watch {
                json!({ "kind": "Status", "status": "Failure", "code": 403, "message": "no" })
            } else {
                json!({ "kind": "List", "apiVersion": "v1", "metadata": { "resourceVersion": "1" }, "items": [] })
            };
            if request.uri().path().ends_with("/eventpolicies") {
                // After the watch of the reports has failed.
                tokio::time::sleep(Duration::from_secs(5)).await;
            }
            let response = http::Response::builder().status(if is_watch { 403 } else { 200 });
            Ok::<_, kube::Error>(response.body(Body::from(answer.to_string().into_bytes())).unwrap())
        };
        let sources = [TopSource::Reports, TopSource::Policies];
        let watch = TopWatch {
            client: Client::new(service_fn(respond), "shop"),
            sources: sources.map(|source| (source, Some("shop".to_owned()))).into(),
            responded: Arc::default(),
        };
        let mut model = TopModel::new(Some("shop"), &sources, Vec::new());
        watch.list(&mut model).await.unwrap();
        assert!(model.is_complete());
        assert_eq!(model.notes(), Vec::<String>::new());
    }
}
