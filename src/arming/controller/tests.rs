//! Scenarios at the HTTP seam: an in-memory API server with one configuration, which answers probes as a test says.

mod additions;
mod api_server;
mod break_glass;
mod deletion;
mod outages;
mod probes;
mod replicas;
mod writes;

use std::collections::BTreeSet;

use kube::Client;
use serde_json::json;
use tokio::task::JoinHandle;
use tower_test::mock;

use api_server::{add_expression, serve};

use super::*;
use crate::announcer::{AnnouncementReceiver, Announcer};
use crate::arming::{
    Address, ApiServerClients, ClientConfig, ConfigurationMetadata, DISARM_ANNOTATION, NOT_PROBED_YET,
    matched_by_a_policy,
};
use crate::policy::{Armed, MatchedWrites, NamespaceSelection, Restrictions};
use crate::tls::{AcceptedTokens, PathToken};
use crate::{PROBE_ANNOTATION, PROBE_SIGNATURE_ANNOTATION};

/// The state and behaviour of the API server.
struct ApiServerState {
    configuration: Option<Value>,
    role: Option<String>,
    created: u32,
    applied: u32,
    /// The number of refused writes.
    refused: u32,
    /// The status for probes. 201 is signed.
    probe_status: u16,
    /// Replaces each written `objectSelector`, as another webhook may do.
    selector: Option<Value>,
    /// Added to the `namespaceSelector` of each written entry, as GKE Autopilot does.
    added_at_admission: Option<Value>,
    /// The number of reads of the configuration.
    reads: u32,
    /// The number of lists and watches of the configuration.
    watches: u32,
    /// Whether lists and watches are refused with 403.
    unwatchable: bool,
    /// The number of probes.
    probes: u32,
    /// The configuration can be written but not read.
    unreadable: bool,
    /// Latency of probes.
    probe_latency: Duration,
    /// Time between the storage of a write of the configuration and its answer.
    apply_latency: Duration,
    /// Whether a write of the configuration is stored at the end of that time.
    stores_late: bool,
    /// The configuration can be read but not written.
    unwritable: bool,
    /// A proxy answers the next read of the configuration with 404 and a page.
    proxy_404: bool,
    /// Stored by another writer after the next read of the configuration.
    replaced_after_read: Option<Value>,
}

struct Scene {
    state: watch::Sender<ApiServerState>,
    desired: watch::Sender<Desired>,
    reported: watch::Receiver<Armed>,
    restrictions: watch::Receiver<Restrictions>,
    acknowledged: watch::Receiver<Option<ClientConfig>>,
    active: watch::Sender<bool>,
    announced: AnnouncementReceiver,
    metrics: Arc<Metrics>,
    stop: CancellationToken,
    running: JoinHandle<ArmingController>,
}

fn desired(namespaces: NamespaceSelection) -> Desired {
    Desired {
        client: ClientConfig {
            address: Address::Url("https://h".into()),
            path: "/p".into(),
            ca_bundle: "PEM".into(),
        },
        own_user: "system:serviceaccount:squelch:squelch".into(),
        namespace: "squelch".into(),
        scope: WebhookScope::all_in(namespaces),
        metadata: ConfigurationMetadata::default(),
    }
}

fn namespaces(names: &[&str]) -> NamespaceSelection {
    NamespaceSelection::of(names.iter().map(ToString::to_string).collect::<BTreeSet<_>>())
}

fn matching(reason: &str) -> WebhookScope {
    let writes = MatchedWrites::of(&format!("object.reason == '{reason}'"), namespaces(&["shop"]));
    WebhookScope { namespaces: namespaces(&["shop"]), writes }
}

fn condition(state: &ApiServerState) -> Option<&str> {
    matched_by_a_policy(&state.configuration.as_ref().unwrap()["webhooks"][0])
}

impl Scene {
    /// There is no configuration yet, and probes succeed.
    fn new() -> Self {
        Self::with(None)
    }

    /// The webhook is armed for policies in these namespaces.
    async fn armed(names: &[&str]) -> Self {
        let mut scene = Self::new();
        scene.policies(names);
        scene.is_armed(true).await;
        scene
    }

    fn with(configuration: Option<Value>) -> Self {
        Self::of(configuration, true)
    }

    fn of(configuration: Option<Value>, active: bool) -> Self {
        Self::started(configuration, active, false)
    }

    fn started(configuration: Option<Value>, active: bool, disarmed: bool) -> Self {
        let role = Some("role-1".to_owned());
        let state = ApiServerState {
            configuration,
            role,
            created: 0,
            applied: 0,
            refused: 0,
            probe_status: 201,
            selector: None,
            added_at_admission: None,
            reads: 0,
            watches: 0,
            unwatchable: false,
            probes: 0,
            unreadable: false,
            probe_latency: Duration::ZERO,
            apply_latency: Duration::ZERO,
            stores_late: false,
            unwritable: false,
            proxy_404: false,
            replaced_after_read: None,
        };
        let state = watch::Sender::new(state);
        let (service, server) = mock::pair();
        let token = PathToken::generate().unwrap();
        let tokens = Arc::new(AcceptedTokens::new(vec![token.clone()]));
        tokio::spawn(serve(server, state.clone(), token));
        let client = Client::new(service, "default");
        let (announcer, announced) = Announcer::new();
        let (desired, wanted) = watch::channel(desired(NamespaceSelection::None));
        let reported = Arc::new(watch::Sender::new(Err(NOT_PROBED_YET.into())));
        let metrics = Arc::new(Metrics::new());
        let api = ConfigurationApi::new(&client, announcer, Some("squelch".to_owned()));
        let (restrictions, acknowledged) = (api.restrictions(), api.acknowledged());
        let clients = ApiServerClients::only(client);
        let probing = Probing { clients, namespace: "squelch".to_owned(), tokens };
        let (active, follows) = watch::channel(active);
        let (mut controller, prober) =
            ArmingController::new(api, probing, wanted, follows, reported.clone(), disarmed, metrics.clone());
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let running = tokio::spawn(async move {
            tokio::join!(controller.run(stopped.clone()), prober.run(stopped));
            controller
        });
        let reported = reported.subscribe();
        Self {
            state,
            desired,
            reported,
            restrictions,
            acknowledged,
            active,
            announced,
            metrics,
            stop,
            running,
        }
    }

    fn policies(&self, names: &[&str]) {
        self.policies_for(WebhookScope::all_in(namespaces(names)));
    }

    fn policies_for(&self, scope: WebhookScope) {
        self.desired.send_modify(|desired| desired.scope = scope);
    }

    async fn is_armed(&mut self, armed: bool) {
        let hour = Duration::from_secs(3_600);
        tokio::time::timeout(hour, self.reported.wait_for(|reported| reported.is_ok() == armed))
            .await
            .expect("the state changes within an hour")
            .unwrap();
    }

    /// Waits for a state of the API server.
    async fn wait_for(&self, what: impl FnMut(&ApiServerState) -> bool) {
        let mut state = self.state.subscribe();
        let hour = Duration::from_secs(3_600);
        tokio::time::timeout(hour, state.wait_for(what))
            .await
            .expect("the state changes within an hour")
            .unwrap();
    }

    fn rules(&self) -> usize {
        let state = self.state.borrow();
        let rules = state.configuration.as_ref().map(|object| object["webhooks"][0]["rules"].clone());
        rules.and_then(|rules| rules.as_array().map(Vec::len)).unwrap_or_default()
    }

    /// Takes the Events so far: reason, whether it is a warning, and note.
    fn events(&mut self) -> Vec<(&'static str, bool, String)> {
        std::iter::from_fn(|| self.announced.next())
            .map(|events| (events.reason, events.warning, events.note))
            .collect()
    }

    /// The message for the policies.
    fn message(&self) -> String {
        self.reported.borrow().as_ref().err().map(ToString::to_string).unwrap_or_default()
    }

    fn shows_break_glass(&self) -> bool {
        self.metrics.text().contains("squelch_break_glass 1\n")
    }

    async fn end(self) -> ArmingController {
        self.stop.cancel();
        self.running.await.unwrap()
    }
}

fn annotate(reason: Value) -> impl FnOnce(&mut ApiServerState) {
    move |state| state.change(|object| object["metadata"]["annotations"] = json!({DISARM_ANNOTATION: reason}))
}

/// The configuration of an active replica at another address.
fn of_another(namespaces: NamespaceSelection) -> Value {
    let mut written = desired(namespaces);
    written.client.address = Address::Url("https://other".into());
    let mut object =
        written.object(Some(&OwnerRole { name: "squelch".to_owned(), uid: "role-1".to_owned() }));
    object["metadata"]["uid"] = json!("theirs");
    object
}

fn rules_of(state: &ApiServerState) -> usize {
    state.configuration.as_ref().unwrap()["webhooks"][0]["rules"].as_array().map_or(0, Vec::len)
}
