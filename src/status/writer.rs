//! The task that writes statuses.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::{ListParams, Patch, PatchParams};
use kube::core::ApiResource;
use kube::{Api, Client};
use serde::Deserialize as _;
use serde_json::json;
use squelch_engine::{Moment, ScopeCounters};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::FIELD_MANAGER;
use crate::announcer::{Announcement, Announcer};
use crate::api::{ClusterEventPolicy, EventPolicy, EventPolicyStatus, PAGE, StoredPolicy};
use crate::clock;
use crate::policy::{Policy, Store};

use super::news::{News, Verdict};
use super::plan::{Due, Limits, Plan};

/// How long one write may take.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// Timeout of one page of the list of all policies.
const LIST_TIMEOUT: Duration = Duration::from_secs(10);

/// How often it is looked for changes. Looking costs a pass over all policies.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The same while policies change: somebody may edit one all the time.
const SOONEST_LOOK: Duration = Duration::from_millis(100);

/// How many of the last writes before exit are in flight together.
const LAST_WRITES_IN_FLIGHT: usize = 16;

/// What the statuses depend on beside policies and counts.
pub struct State {
    /// Why Event writes do not reach the webhook, in a sentence; `None` while they do.
    pub unarmed: watch::Receiver<Option<Arc<str>>>,
    /// Whether this replica is the active one: it alone writes.
    pub active: watch::Receiver<bool>,
}

/// Yields every line of the accounts since the process began (`Engine::all_accounts`).
pub type Accounts = Box<dyn Fn() -> Vec<ScopeCounters> + Send + Sync>;

/// Writes the statuses of the policies: the one writer of them in the cluster.
pub struct Writer {
    client: Client,
    store: Arc<Store>,
    accounts: Accounts,
    unarmed: watch::Receiver<Option<Arc<str>>>,
    active: watch::Receiver<bool>,
    announcer: Announcer,
    plan: Plan,
    /// What stood in the statuses was read.
    begun: bool,
    /// What the last look found due, the most outdated last.
    queue: Vec<Due>,
    /// When it was last looked.
    looked: Option<Moment>,
    /// Policies or conditions have changed since.
    outdated: bool,
    /// The least time between two writes, and when the next may be.
    pause: Duration,
    next: Moment,
}

impl Writer {
    /// `announcer` hears what is news of a policy.
    pub fn new(
        client: Client,
        store: Arc<Store>,
        accounts: Accounts,
        state: State,
        announcer: Announcer,
        limits: Limits,
    ) -> Self {
        let State { unarmed, active } = state;
        Self {
            client,
            store,
            accounts,
            unarmed,
            active,
            announcer,
            plan: Plan::new(limits),
            begun: false,
            queue: Vec::new(),
            looked: None,
            outdated: false,
            pause: limits.pause(),
            next: Moment::default(),
        }
    }

    /// Waits until this replica is the active one, then writes what is due until `stop` is cancelled; hands itself back
    /// for [`Self::write_all_now`].
    pub async fn run(mut self, stop: CancellationToken) -> Self {
        if stop.run_until_cancelled(self.begin()).await.is_none() {
            return self;
        }
        let mut revision = self.store.subscribe();
        let mut unarmed = self.unarmed.clone();
        while !stop.is_cancelled() {
            // A write that the stop interrupts is made again by `write_all_now`.
            let Some(pause) = stop.run_until_cancelled(self.step(clock::now(), clock::wall())).await else {
                break;
            };
            tokio::select! {
                () = stop.cancelled() => break,
                () = tokio::time::sleep(pause) => {}
                () = changed(&mut revision) => self.outdated = true,
                () = changed(&mut unarmed) => self.outdated = true,
            }
        }
        self
    }

    /// Reads the counts that this replica's are added to. The watch may not have told yet what the active replica before
    /// this one wrote last.
    async fn begin(&mut self) {
        while !*self.active.borrow_and_update() {
            changed(&mut self.active).await;
        }
        loop {
            match statuses(&self.client).await {
                Ok(statuses) => break self.plan.start_from(statuses),
                Err(error) => warn!(error, "the statuses of the policies cannot be read; trying again"),
            }
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
        self.begun = true;
    }

    /// How many occurrences were received that no status tells of yet.
    pub fn unwritten(&mut self) -> u64 {
        if !self.begun {
            return 0;
        }
        let accounts = (self.accounts)();
        self.plan.unwritten(&self.store.load(), &accounts, self.unarmed.borrow().as_deref(), clock::wall())
    }

    /// Writes everything that changed, heeding no interval: the last thing before exit. Answers how many writes
    /// failed; of a policy that was deleted meanwhile there is nothing to write. The caller sets the deadline.
    pub async fn write_all_now(&mut self) -> usize {
        let (now, wall) = (clock::now(), clock::wall());
        if !self.store.listed() || !self.begun {
            return 0;
        }
        let all =
            self.plan.all(&self.store.load(), &(self.accounts)(), self.unarmed.borrow().as_deref(), wall);
        let client = &self.client;
        let writes = all.into_iter().map(|due| async move { (write(client, &due).await, due) });
        let mut written = futures::stream::iter(writes).buffer_unordered(LAST_WRITES_IN_FLIGHT);
        let mut failed = 0;
        while let Some((outcome, due)) = written.next().await {
            failed += usize::from(outcome == Outcome::Failed);
            attempted(&mut self.plan, &self.announcer, due, outcome, now);
        }
        failed
    }

    /// Makes at most one write; answers after what time the next step has something to do.
    async fn step(&mut self, now: Moment, wall: Timestamp) -> Duration {
        // Nothing can be written before, so nothing is looked for.
        if now < self.next {
            return self.next.since(now);
        }
        if self.until_look(now).is_zero() {
            self.look(now, wall);
        }
        if !*self.active.borrow() {
            // Another one may be by now, whose counts would be lost.
            return LOOK_INTERVAL;
        }
        if let Some(due) = self.queue.pop() {
            // Before the write: the pause holds for one that is interrupted too.
            self.next = now.plus(self.pause);
            let outcome = write(&self.client, &due).await;
            attempted(&mut self.plan, &self.announcer, due, outcome, now);
        }
        if self.queue.is_empty() { self.until_look(now) } else { self.pause }
    }

    fn until_look(&self, now: Moment) -> Duration {
        let interval = if self.outdated { SOONEST_LOOK } else { LOOK_INTERVAL };
        self.looked.map_or(Duration::ZERO, |looked| interval.saturating_sub(now.since(looked)))
    }

    fn look(&mut self, now: Moment, wall: Timestamp) {
        (self.looked, self.outdated) = (Some(now), false);
        // Before the first list nothing is known, and a policy's base would be read from nowhere.
        if !self.store.listed() {
            return;
        }
        self.queue = self.plan.due(
            &self.store.load(),
            &(self.accounts)(),
            self.unarmed.borrow().as_deref(),
            now,
            wall,
        );
        self.queue.reverse();
    }
}

/// The statuses of all policies as they stand, by the policies' uids.
async fn statuses(client: &Client) -> Result<HashMap<Arc<str>, EventPolicyStatus>, String> {
    let kinds = [ApiResource::erase::<EventPolicy>(&()), ApiResource::erase::<ClusterEventPolicy>(&())];
    let mut statuses = HashMap::new();
    for kind in kinds {
        // Untyped, as the watch reads them.
        let policies: Api<StoredPolicy> = Api::all_with(client.clone(), &kind);
        let mut page = ListParams::default().limit(PAGE);
        loop {
            let listed = tokio::time::timeout(LIST_TIMEOUT, policies.list(&page)).await;
            let listed = listed.map_err(|_| format!("no answer within {} s", LIST_TIMEOUT.as_secs()))?;
            let listed = listed.map_err(|error| error.to_string())?;
            for StoredPolicy(policy) in listed.items {
                let status = policy.data.get("status").and_then(|it| EventPolicyStatus::deserialize(it).ok());
                if let (Some(uid), Some(status)) = (policy.metadata.uid, status) {
                    statuses.insert(uid.into(), status);
                }
            }
            page.continue_token = listed.metadata.continue_.filter(|token| !token.is_empty());
            if page.continue_token.is_none() {
                break;
            }
        }
    }
    Ok(statuses)
}

/// Notes what became of a write, and tells what is news in it.
fn attempted(plan: &mut Plan, announcer: &Announcer, due: Due, outcome: Outcome, now: Moment) {
    let policy = due.policy.clone();
    for news in plan.attempted(due, outcome == Outcome::Written, now) {
        announcer.tell(announcement(&policy, news));
    }
}

fn announcement(policy: &Policy, News { what, message }: News) -> Announcement {
    let resource = resource(policy);
    let (warning, reason) = match what {
        Verdict::Accepted => (false, "Accepted"),
        Verdict::Rejected => (true, "Rejected"),
        Verdict::Overridden => (false, "Overridden"),
    };
    Announcement {
        regarding: ObjectReference {
            api_version: Some(resource.api_version),
            kind: Some(resource.kind),
            namespace: policy.namespace.as_deref().map(Into::into),
            name: Some(policy.name.to_string()),
            uid: Some(policy.id.uid.to_string()),
            ..ObjectReference::default()
        },
        warning,
        reason,
        action: "Follow",
        note: message,
    }
}

fn resource(policy: &Policy) -> ApiResource {
    match &policy.namespace {
        Some(_) => ApiResource::erase::<EventPolicy>(&()),
        None => ApiResource::erase::<ClusterEventPolicy>(&()),
    }
}

/// Waits for a change; for ever once nobody can make one.
async fn changed<T>(receiver: &mut watch::Receiver<T>) {
    if receiver.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// The status is there.
    Written,
    /// The policy was deleted a moment ago: the watch will tell.
    Gone,
    /// To be tried again.
    Failed,
}

/// Server-side apply of the whole status. Force: nobody else has a say in it.
async fn write(client: &Client, due: &Due) -> Outcome {
    let policy = &due.policy;
    // Untyped, so that the answer can be read even where the spec cannot.
    let client = client.clone();
    let resource = resource(policy);
    let policies: Api<StoredPolicy> = match &policy.namespace {
        Some(namespace) => Api::namespaced_with(client, namespace, &resource),
        None => Api::all_with(client, &resource),
    };
    // No uid: the API server does not compare it in a write of a subresource (seen on 1.35). A policy re-created
    // under the name this moment would show the old counts until the watch tells of it, which makes it due at once.
    let body = json!({
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": &*policy.name},
        "status": due.status,
    });
    let params = PatchParams::apply(FIELD_MANAGER).force();
    let patch = Patch::Apply(&body);
    let write = policies.patch_status(&policy.name, &params, &patch);
    match tokio::time::timeout(WRITE_TIMEOUT, write).await {
        Ok(Ok(_)) => {
            debug!(policy = %policy.id.display, "status written");
            Outcome::Written
        }
        Ok(Err(kube::Error::Api(answer))) if answer.code == 404 => Outcome::Gone,
        Ok(Err(error)) => {
            warn!(policy = %policy.id.display, %error, "writing the status failed; trying again later");
            Outcome::Failed
        }
        Err(_) => {
            warn!(policy = %policy.id.display, "writing the status took too long; trying again later");
            Outcome::Failed
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::Value;
    use squelch_engine::{Counters, Disposition, Mode, TopDropped};
    use tower_test::mock::{self, Handle};

    use super::*;
    use crate::announcer::Announced;
    use crate::policy::Set;
    use crate::policy::fixtures::{cluster_policy, id, policy};

    type ApiServer = Handle<Request<Body>, Response<Body>>;

    /// A writer, the API server that it talks to, and what the engine has counted for `ci/p`.
    struct Scene {
        writer: Writer,
        server: ApiServer,
        compacted: Arc<Mutex<u64>>,
        unarmed: watch::Sender<Option<Arc<str>>>,
        active: watch::Sender<bool>,
        announced: Announced,
    }

    impl Scene {
        fn new(names: &[&str]) -> Self {
            let (service, server) = mock::pair();
            let store = Arc::new(Store::default());
            store.swap(Set::new(names.iter().map(|name| policy("ci", name, &json!({}), 0))));
            let compacted = Arc::new(Mutex::new(0));
            let counted = compacted.clone();
            let accounts = move || {
                let mut counters = Counters::default();
                counters.count(Disposition::Compacted, *counted.lock().unwrap());
                let (policy, dropped) = (id("ci", "p"), TopDropped::default());
                vec![ScopeCounters { namespace: "ci".into(), policy, mode: Mode::Enforce, counters, dropped }]
            };
            let (unarmed, unarmed_now) = watch::channel(None);
            let (active, active_now) = watch::channel(true);
            let state = State { unarmed: unarmed_now, active: active_now };
            let limits = Limits { interval: Duration::from_secs(10), qps: 5 };
            let client = Client::new(service, "default");
            let (announcer, announced) = Announcer::new();
            let mut writer = Writer::new(client, store, Box::new(accounts), state, announcer, limits);
            writer.begun = true;
            Self { writer, server, compacted, unarmed, active, announced }
        }

        /// One step at this millisecond; what it asked of the API server, which answers with `code`.
        async fn step(&mut self, millisecond: u64, code: u16) -> (Duration, Option<(String, Value)>) {
            let now = Moment::from_epoch(Duration::from_millis(millisecond));
            let step = self.writer.step(now, Timestamp::from_second(1_800_000_000).unwrap());
            let mut step = std::pin::pin!(step);
            tokio::select! {
                biased;
                pause = &mut step => (pause, None),
                asked = answer(&mut self.server, code) => (step.await, Some(asked)),
            }
        }

        async fn asked(&mut self, millisecond: u64) -> Option<String> {
            self.step(millisecond, 200).await.1.map(|(request, _)| request)
        }
    }

    /// Takes one request and answers it.
    async fn answer(server: &mut ApiServer, code: u16) -> (String, Value) {
        let (request, send) = server.next_request().await.expect("the client lives");
        let (head, body) = request.into_parts();
        let body: Value = serde_json::from_slice(&body.collect_bytes().await.unwrap()).unwrap();
        let answer = match code {
            200 => body.clone(),
            _ => {
                json!({"kind": "Status", "status": "Failure", "message": "no", "reason": "No", "code": code})
            }
        };
        let answer = Body::from(serde_json::to_vec(&answer).unwrap());
        send.send_response(Response::builder().status(code).body(answer).unwrap());
        (format!("{} {}", head.method, head.uri), body)
    }

    #[tokio::test]
    async fn a_status_is_applied_whole_under_its_own_field_manager() {
        let mut scene = Scene::new(&["p"]);
        *scene.compacted.lock().unwrap() = 3;
        let (_, asked) = scene.step(0, 200).await;
        let (request, body) = asked.unwrap();
        assert_eq!(
            request,
            "PATCH /apis/squelch.dev/v1alpha1/namespaces/ci/eventpolicies/p/status?&force=true&fieldManager=squelch"
        );
        assert_eq!(body["apiVersion"], "squelch.dev/v1alpha1");
        assert_eq!(body["kind"], "EventPolicy");
        assert_eq!(body["metadata"], json!({"name": "p"}));
        assert!(body.get("spec").is_none());
        assert_eq!(body["status"]["counters"]["received"], 3);
        assert_eq!(body["status"]["conditions"][1]["reason"], "Effective");
        assert_eq!(body["status"]["lastUpdated"], "2027-01-15T08:00:00Z");
    }

    #[tokio::test]
    async fn the_status_of_a_cluster_policy_is_no_namespaces() {
        let mut scene = Scene::new(&[]);
        scene.writer.store.swap(Set::new([cluster_policy("all", &json!({}), 0)]));
        let (_, asked) = scene.step(0, 200).await;
        let (request, body) = asked.unwrap();
        assert_eq!(
            request,
            "PATCH /apis/squelch.dev/v1alpha1/clustereventpolicies/all/status?&force=true&fieldManager=squelch"
        );
        assert_eq!(
            (&body["kind"], &body["metadata"]),
            (&json!("ClusterEventPolicy"), &json!({"name": "all"}))
        );
    }

    #[tokio::test]
    async fn counters_are_written_once_an_interval_and_only_if_they_changed() {
        let mut scene = Scene::new(&["p"]);
        assert!(scene.asked(0).await.is_some());
        assert!(scene.asked(20_000).await.is_none(), "nothing has changed");
        *scene.compacted.lock().unwrap() = 1;
        assert!(scene.asked(21_000).await.is_some());
        for millisecond in (22_000..31_000).step_by(100) {
            *scene.compacted.lock().unwrap() += 1;
            assert!(scene.asked(millisecond).await.is_none(), "at {millisecond} ms");
        }
        assert!(scene.asked(31_000).await.is_some());
    }

    #[tokio::test]
    async fn writes_keep_their_distance() {
        let names = ["a", "b", "c", "d"];
        let mut scene = Scene::new(&names);
        let mut written = Vec::new();
        let mut millisecond = 0;
        while written.len() < names.len() {
            let (pause, asked) = scene.step(millisecond, 200).await;
            written.extend(asked.map(|_| millisecond));
            millisecond += u64::try_from(pause.as_millis()).unwrap();
        }
        assert_eq!(written, [0, 200, 400, 600]);
        assert!(scene.step(650, 200).await.0 <= Duration::from_millis(150));
    }

    #[tokio::test]
    async fn a_refused_write_is_tried_again_and_holds_up_no_other() {
        let mut scene = Scene::new(&["a", "b"]);
        let (_, refused) = scene.step(0, 500).await;
        assert!(refused.unwrap().0.contains("/a/"));
        assert!(scene.asked(200).await.unwrap().contains("/b/"));
        assert!(scene.asked(9_000).await.is_none());
        assert!(scene.asked(10_000).await.unwrap().contains("/a/"));
    }

    #[tokio::test]
    async fn a_webhook_that_is_not_armed_is_told_after_a_second() {
        let mut scene = Scene::new(&["p"]);
        assert!(scene.asked(0).await.is_some());
        scene.unarmed.send_replace(Some("It hangs.".into()));
        let (_, asked) = scene.step(1_000, 200).await;
        assert_eq!(asked.unwrap().1["status"]["conditions"][1]["reason"], "WebhookNotArmed");
    }

    #[tokio::test]
    async fn what_is_news_is_announced_once_it_is_written() {
        let mut scene = Scene::new(&[]);
        let wrong = policy("ci", "wrong", &json!({"series": {"idleTimeout": "soon"}}), 0);
        let all = cluster_policy("all", &json!({}), 0);
        scene.writer.store.swap(Set::new([wrong, all]));
        assert!(scene.step(0, 500).await.1.unwrap().0.contains("/wrong/"));
        for millisecond in [200, 10_000, 20_000] {
            scene.asked(millisecond).await;
        }
        let mut told = Vec::new();
        while let Some(announcement) = scene.announced.next() {
            let about = announcement.regarding;
            told.push((about.namespace, about.name, announcement.reason, announcement.warning));
        }
        let ci = Some("ci".to_owned());
        let expected = [(None, "all", "Accepted", false), (ci, "wrong", "Rejected", true)];
        assert_eq!(
            told,
            expected.map(|(space, name, reason, bad)| (space, Some(name.to_owned()), reason, bad))
        );
    }

    #[tokio::test]
    async fn nothing_is_written_before_the_policies_are_listed() {
        let mut scene = Scene::new(&[]);
        scene.writer.store = Arc::new(Store::default());
        assert!(scene.asked(0).await.is_none());
        assert_eq!(scene.writer.write_all_now().await, 0);
    }

    #[tokio::test]
    async fn only_the_active_replica_writes() {
        let mut scene = Scene::new(&["p"]);
        scene.active.send_replace(false);
        assert!(scene.asked(0).await.is_none());
        scene.active.send_replace(true);
        assert!(scene.asked(1_000).await.is_some());
    }

    /// What the active replica before this one wrote last, the watch may not have told of.
    #[tokio::test]
    async fn it_adds_to_what_stands_there_as_it_becomes_active() {
        let mut scene = Scene::new(&["p"]);
        scene.writer.begun = false;
        *scene.compacted.lock().unwrap() = 3;
        let written = json!({"counters": {
            "received": 40, "admitted": 0, "compacted": 40, "aggregated": 0, "filtered": 0, "throttled": 0,
            "failedOpen": 0, "recovered": 0,
        }});
        let mut items = vec![json!({
            "apiVersion": "squelch.dev/v1alpha1", "kind": "EventPolicy", "spec": {}, "status": written,
            "metadata": {"name": "p", "namespace": "ci", "uid": id("ci", "p").uid.to_string()},
        })];
        let serve = async {
            for _ in 0..2 {
                let (_, send) = scene.server.next_request().await.expect("the client lives");
                let list = json!({"metadata": {}, "items": std::mem::take(&mut items)});
                send.send_response(Response::new(Body::from(serde_json::to_vec(&list).unwrap())));
            }
        };
        tokio::join!(scene.writer.begin(), serve);
        assert_eq!(scene.writer.unwritten(), 3);
        let (_, asked) = scene.step(0, 200).await;
        assert_eq!(asked.unwrap().1["status"]["counters"]["received"], 43);
        assert_eq!(scene.writer.unwritten(), 0);
    }

    #[tokio::test]
    async fn statuses_are_read_from_every_page_of_a_list() {
        let (service, mut server): (_, ApiServer) = mock::pair();
        let client = Client::new(service, "default");
        let page = |uid: &str, next: &str| {
            let policy = json!({"metadata": {"uid": uid}, "status": {"observedGeneration": 1}});
            json!({"metadata": {"continue": next}, "items": [policy]})
        };
        let serve = async {
            let mut requests = Vec::new();
            for answer in [page("a", "b%"), page("b", ""), page("c", "")] {
                let (request, send) = server.next_request().await.expect("the client lives");
                requests.push(request.uri().path_and_query().unwrap().to_string());
                send.send_response(Response::new(Body::from(serde_json::to_vec(&answer).unwrap())));
            }
            requests
        };
        let (read, requests) = tokio::join!(statuses(&client), serve);
        let read = read.unwrap();
        assert!(["a", "b", "c"].iter().all(|uid| read.contains_key(*uid)), "{read:?}");
        let own = "/apis/squelch.dev/v1alpha1/eventpolicies?&limit=10";
        let cluster = "/apis/squelch.dev/v1alpha1/clustereventpolicies?&limit=10";
        assert_eq!(requests, [own, &format!("{own}&continue=b%25"), cluster]);
    }

    #[tokio::test]
    async fn at_the_end_everything_is_written_heeding_no_interval() {
        let mut scene = Scene::new(&["p", "q"]);
        assert!(scene.asked(0).await.is_some());
        *scene.compacted.lock().unwrap() = 9;
        let Scene { mut writer, mut server, .. } = scene;
        let serve = async {
            let (p, q) = (answer(&mut server, 200).await, answer(&mut server, 500).await);
            (p.1["status"]["counters"]["received"].clone(), q.0.contains("/q/"))
        };
        let (failed, (received, q)) = tokio::join!(writer.write_all_now(), serve);
        assert_eq!((failed, received, q), (1, json!(9), true));
    }

    #[tokio::test]
    async fn at_the_end_nothing_is_missed_of_a_policy_that_is_gone() {
        let Scene { mut writer, mut server, .. } = Scene::new(&["p"]);
        let (failed, _) = tokio::join!(writer.write_all_now(), answer(&mut server, 404));
        assert_eq!(failed, 0);
    }
}
