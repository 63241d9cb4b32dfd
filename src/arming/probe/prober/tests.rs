//! The prober at the HTTP seam: API servers that answer as a test says.

use std::sync::Mutex;

use http::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};
use tower_test::mock::{self, Handle};

use super::*;
use crate::tls::PathToken;
use crate::{PROBE_ANNOTATION, PROBE_SIGNATURE_ANNOTATION};

type ApiServer = Handle<Request<Body>, Response<Body>>;

/// How an API server answers probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Signed,
    Unsigned,
    /// Unsigned after the second that an API server waits for a webhook.
    Hanging,
    /// The first of each three probes as `Hanging`, the others `Signed`: a balancer of three API servers.
    OneOfThreeHangs,
    /// Signed after more than 500 ms.
    Slow,
    /// Refused at this time, as by an API server that starts.
    RefusedAt(Moment),
    /// Nothing answers at the address.
    Unreachable,
}

/// How an API server answers, and the times of its probes.
type Asked = (Answer, Vec<Moment>);

/// The API servers by address, and what each has been asked.
#[derive(Clone, Default)]
struct Cluster {
    servers: Arc<Mutex<BTreeMap<String, Asked>>>,
    tokens: Option<Arc<AcceptedTokens>>,
    token: Option<PathToken>,
    listed: Arc<Mutex<Vec<String>>>,
}

impl Cluster {
    fn new() -> Self {
        let token = PathToken::generate().unwrap();
        let tokens = Some(Arc::new(AcceptedTokens::new(vec![token.clone()])));
        Self { tokens, token: Some(token), ..Self::default() }
    }

    fn set(&self, address: &str, answer: Answer) {
        self.servers.lock().unwrap().entry(address.to_owned()).or_insert((answer, Vec::new())).0 = answer;
    }

    fn list(&self, addresses: &[&str]) {
        *self.listed.lock().unwrap() = addresses.iter().map(ToString::to_string).collect();
    }

    /// The times of the probes of an API server.
    fn probes(&self, address: &str) -> Vec<Moment> {
        self.servers.lock().unwrap().get(address).map(|(_, asked)| asked.clone()).unwrap_or_default()
    }

    fn client(&self, address: &str) -> Client {
        let (service, server) = mock::pair();
        tokio::spawn(self.clone().serve(address.to_owned(), server));
        Client::new(service, "default")
    }

    async fn serve(self, address: String, mut server: ApiServer) {
        while let Some((request, send)) = server.next_request().await {
            let this = self.clone();
            let address = address.clone();
            tokio::spawn(async move {
                let (head, body) = request.into_parts();
                let body = body.collect_bytes().await.unwrap();
                let mut event: Value = serde_json::from_slice(&body).unwrap_or_default();
                let (code, text) = match (head.method, head.uri.path()) {
                    (Method::POST, _) => this.answer(&address, &mut event).await,
                    (_, "/readyz") => (200, String::new()),
                    (_, path) => {
                        assert!(path.ends_with("/namespaces/default/endpointslices"), "{path}");
                        (200, this.slices())
                    }
                };
                if code == 0 {
                    return send.send_error(std::io::Error::other("connection refused"));
                }
                send.send_response(
                    Response::builder().status(code).body(Body::from(text.into_bytes())).unwrap(),
                );
            });
        }
    }

    async fn answer(&self, address: &str, event: &mut Value) -> (u16, String) {
        let answer = {
            let mut servers = self.servers.lock().unwrap();
            let Some((answer, asked)) = servers.get_mut(address) else { return (0, String::new()) };
            asked.push(clock::now());
            match *answer {
                Answer::OneOfThreeHangs if asked.len() % 3 == 1 => Answer::Hanging,
                Answer::OneOfThreeHangs => Answer::Signed,
                answer => answer,
            }
        };
        if answer == Answer::Slow {
            sleep(Duration::from_millis(600)).await;
        }
        match answer {
            Answer::Signed | Answer::Slow => {
                let nonce = event["metadata"]["annotations"][PROBE_ANNOTATION].as_str().unwrap();
                let (tokens, token) = (self.tokens.as_ref().unwrap(), self.token.as_ref().unwrap());
                let signature = tokens.sign(token.reveal(), nonce).unwrap();
                event["metadata"]["annotations"][PROBE_SIGNATURE_ANNOTATION] = json!(signature);
            }
            Answer::Unsigned => {}
            Answer::Hanging => sleep(Duration::from_millis(1_005)).await,
            Answer::RefusedAt(at) => {
                sleep(at.since(clock::now())).await;
                return (403, json!({ "message": "events is forbidden" }).to_string());
            }
            Answer::OneOfThreeHangs | Answer::Unreachable => return (0, String::new()),
        }
        (201, event.to_string())
    }

    fn slices(&self) -> String {
        let listed = self.listed.lock().unwrap();
        let endpoints: Vec<_> = listed.iter().map(|address| json!({ "addresses": [address] })).collect();
        let slice = json!({ "metadata": {}, "addressType": "IPv4", "endpoints": endpoints,
            "ports": [{ "port": 6443 }] });
        json!({ "kind": "EndpointSliceList", "apiVersion": "discovery.k8s.io/v1", "metadata": {},
            "items": [slice] })
        .to_string()
    }

    fn start(&self) -> Running {
        let connecting = self.clone();
        let clients =
            ApiServerClients::of(self.client("usual:443"), move |address| Ok(connecting.client(address)));
        self.start_with(clients)
    }

    fn start_with(&self, clients: ApiServerClients) -> Running {
        let tokens = self.tokens.clone().unwrap();
        let probing = Probing { clients, namespace: "squelch".to_owned(), tokens };
        let (exists, entry_exists) = watch::channel(true);
        let (is_active, active) = watch::channel(true);
        let metrics = Arc::new(Metrics::new());
        let (prober, status) = Prober::new(probing, entry_exists, active, metrics.clone());
        let (exposed, stop) = (prober.exposed(), CancellationToken::new());
        let running = tokio::spawn(prober.run(stop.clone()));
        Running { status, exists, is_active, exposed, metrics, stop, running }
    }
}

struct Running {
    status: ProbeStatus,
    exists: watch::Sender<bool>,
    is_active: watch::Sender<bool>,
    exposed: watch::Receiver<Option<Moment>>,
    metrics: Arc<Metrics>,
    stop: CancellationToken,
    running: tokio::task::JoinHandle<()>,
}

impl Running {
    /// Waits until the webhook may be armed, or may not. Returns the time that it took.
    async fn confirmed(&mut self, confirmed: bool) -> Duration {
        let began = clock::now();
        let changes = self.status.unreachable.wait_for(|unreachable| unreachable.is_none() == confirmed);
        timeout(Duration::from_secs(600), changes).await.expect("it changes in time").unwrap();
        clock::now().since(began)
    }

    async fn end(self) {
        self.stop.cancel();
        self.running.await.unwrap();
    }
}

const A: &str = "10.0.0.1:6443";
const B: &str = "10.0.0.2:6443";

fn two_servers() -> Cluster {
    let cluster = Cluster::new();
    cluster.list(&["10.0.0.1", "10.0.0.2"]);
    [A, B, "usual:443"].iter().for_each(|address| cluster.set(address, Answer::Signed));
    cluster
}

#[tokio::test(start_paused = true)]
async fn each_api_server_is_probed_and_one_that_hangs_disarms() {
    let cluster = two_servers();
    let mut running = cluster.start();
    assert!(running.confirmed(true).await < Duration::from_millis(500), "the first probes are quick");
    sleep(Duration::from_secs(10)).await;
    assert_eq!(cluster.probes("usual:443"), [], "the usual address leads to one of them");
    for address in [A, B] {
        assert!((11..=14).contains(&cluster.probes(address).len()), "{address}");
    }
    // Just after a probe.
    let number = cluster.probes(B).len();
    while cluster.probes(B).len() == number {
        sleep(Duration::from_millis(1)).await;
    }
    cluster.set(B, Answer::Hanging);
    let took = running.confirmed(false).await;
    assert!((Duration::from_secs(2)..Duration::from_millis(2_800)).contains(&took), "{took:?}");
    assert!(*running.status.failing.borrow());
    let failures = running.status.unreachable().unwrap();
    assert_eq!(failures.api_servers, [B]);
    assert!(failures.message.contains(B) && !failures.message.contains(A), "{failures:?}");
    // The other one is probed each second meanwhile.
    let gaps: Vec<_> = cluster.probes(A).windows(2).map(|two| two[1].since(two[0])).collect();
    assert!(gaps.iter().all(|gap| *gap <= Duration::from_millis(1_010)), "{gaps:?}");
    let text = running.metrics.text();
    assert!(text.contains(&format!("squelch_probe_failures_total{{apiserver=\"{B}\"}} 2\n")), "{text}");
    assert!(text.contains(&format!("squelch_probe_failures_total{{apiserver=\"{A}\"}} 0\n")), "{text}");
    cluster.set(B, Answer::Signed);
    let took = running.confirmed(true).await;
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert!(!*running.status.failing.borrow());
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn two_probes_that_wait_together_are_one_failure_unless_the_webhook_hangs() {
    let cluster = two_servers();
    cluster.list(&["10.0.0.1"]);
    let mut running = cluster.start();
    running.confirmed(true).await;
    sleep(Duration::from_secs(5)).await;
    let number = cluster.probes(A).len();
    while cluster.probes(A).len() == number {
        sleep(Duration::from_millis(1)).await;
    }
    cluster.set(A, Answer::RefusedAt(clock::now().plus(Duration::from_millis(1_700))));
    while cluster.probes(A).len() < number + 3 {
        sleep(Duration::from_millis(1)).await;
    }
    cluster.set(A, Answer::Signed);
    let disarms = running.status.unreachable.wait_for(Option::is_some);
    assert!(timeout(Duration::from_secs(20), disarms).await.is_err(), "one cause is one failure");
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_fails_fast_is_reported() {
    let cluster = two_servers();
    let mut running = cluster.start();
    running.confirmed(true).await;
    cluster.set(B, Answer::Unsigned);
    let failures = running.status.tolerated.wait_for(Option::is_some).await.unwrap().clone().unwrap();
    assert_eq!(failures.api_servers, [B]);
    assert!(running.status.unreachable().is_none() && !*running.status.failing.borrow());
    cluster.set(A, Answer::Unsigned);
    running.confirmed(false).await;
    assert_eq!(running.status.unreachable().unwrap().api_servers, [A, B]);
    assert!(running.status.tolerated.borrow().is_none());
    cluster.set(A, Answer::Signed);
    running.confirmed(true).await;
    assert!(running.status.tolerated.borrow().is_some());
    cluster.set(B, Answer::Signed);
    running.status.tolerated.wait_for(Option::is_none).await.unwrap();
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_removed_api_server_is_no_longer_probed_and_a_new_one_is() {
    let cluster = two_servers();
    let mut running = cluster.start();
    running.confirmed(true).await;
    cluster.set(B, Answer::Hanging);
    running.confirmed(false).await;
    cluster.list(&["10.0.0.1", "10.0.0.3"]);
    cluster.set("10.0.0.3:6443", Answer::Signed);
    let took = running.confirmed(true).await;
    assert!(took < Duration::from_secs(15), "{took:?}");
    let before = cluster.probes(B).len();
    sleep(Duration::from_secs(10)).await;
    assert_eq!(cluster.probes(B).len(), before);
    assert!(cluster.probes("10.0.0.3:6443").len() > 9);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn the_usual_address_is_probed_while_no_listed_api_server_can_be_reached() {
    let cluster = two_servers();
    [A, B].iter().for_each(|address| cluster.set(address, Answer::Unreachable));
    let mut running = cluster.start();
    assert!(running.confirmed(true).await < Duration::from_secs(1));
    assert!(!cluster.probes("usual:443").is_empty());
    // It leads to one of several API servers: one that hangs is found by the number of failures.
    for _ in 0..20 {
        for answer in [Answer::Signed, Answer::Signed, Answer::Hanging] {
            cluster.set("usual:443", answer);
            sleep(Duration::from_secs(1)).await;
        }
    }
    assert_eq!(running.status.unreachable().unwrap().api_servers, ["usual:443"]);
    cluster.set("usual:443", Answer::Signed);
    let took = running.confirmed(true).await;
    assert!((Duration::from_secs(15)..Duration::from_secs(23)).contains(&took), "{took:?}");
    // A listed one can be reached again.
    cluster.set(A, Answer::Signed);
    sleep(Duration::from_secs(3)).await;
    let before = cluster.probes("usual:443").len();
    sleep(Duration::from_secs(10)).await;
    assert_eq!(cluster.probes("usual:443").len(), before);
    assert!(running.status.unreachable().is_none());
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn one_of_three_api_servers_behind_one_address_that_hangs_disarms_once() {
    let cluster = Cluster::new();
    cluster.set("usual:443", Answer::Signed);
    for _ in 0..3 {
        let mut running = cluster.start();
        running.confirmed(true).await;
        sleep(Duration::from_secs(10)).await;
        // Just after a probe.
        let number = cluster.probes("usual:443").len();
        while cluster.probes("usual:443").len() == number {
            sleep(Duration::from_millis(1)).await;
        }
        cluster.set("usual:443", Answer::OneOfThreeHangs);
        let took = running.confirmed(false).await;
        // Each third probe, 500 ms until the further probes, and the second for which the API server waits.
        assert!((Duration::from_secs(2)..Duration::from_millis(4_800)).contains(&took), "{took:?}");
        let armed = running.status.unreachable.wait_for(Option::is_none);
        assert!(timeout(Duration::from_secs(120), armed).await.is_err(), "armed while an API server hangs");
        cluster.set("usual:443", Answer::Signed);
        let took = running.confirmed(true).await;
        assert!((Duration::from_secs(15)..Duration::from_secs(23)).contains(&took), "{took:?}");
        running.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_api_server_gets_few_further_probes() {
    let cluster = Cluster::new();
    cluster.set("usual:443", Answer::Signed);
    let mut running = cluster.start();
    running.confirmed(true).await;
    sleep(Duration::from_secs(5)).await;
    cluster.set("usual:443", Answer::Slow);
    let before = cluster.probes("usual:443").len();
    sleep(Duration::from_secs(60)).await;
    let number = cluster.probes("usual:443").len() - before;
    // Five further ones the first time, then two probes a second.
    assert!((100..=126).contains(&number), "{number}");
    assert!(running.status.unreachable().is_none(), "the webhook answers");
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn after_a_reset_each_api_server_needs_three_new_successes() {
    let cluster = two_servers();
    let mut running = cluster.start();
    running.confirmed(true).await;
    running.status.reset();
    assert!(running.status.unreachable().is_some());
    let before = [A, B].map(|address| cluster.probes(address).len());
    running.confirmed(false).await;
    running.confirmed(true).await;
    for (address, before) in [A, B].iter().zip(before) {
        assert!(cluster.probes(address).len() >= before + 3, "{address}");
    }
    assert!(running.status.unreachable().is_none());
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn without_a_probe_entry_nothing_is_probed() {
    let cluster = two_servers();
    let mut running = cluster.start();
    running.confirmed(true).await;
    running.exists.send_replace(false);
    running.confirmed(false).await;
    sleep(Duration::from_secs(2)).await;
    let before = cluster.probes(A).len();
    sleep(Duration::from_secs(60)).await;
    assert_eq!(cluster.probes(A).len(), before);
    running.exists.send_replace(true);
    running.confirmed(true).await;
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_exposed_token_is_reported_once_probes_succeed() {
    let cluster = Cluster::new();
    cluster.set("usual:443", Answer::Unsigned);
    let mut running = cluster.start_with(ApiServerClients::only(cluster.client("usual:443")));
    sleep(Duration::from_secs(5)).await;
    assert_eq!(*running.exposed.borrow(), None, "not before a probe succeeds");
    cluster.set("usual:443", Answer::Signed);
    let seen =
        timeout(INTERVAL, running.exposed.wait_for(Option::is_some)).await.is_ok_and(|seen| seen.is_ok());
    assert!(seen);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn the_prober_ends_when_the_sender_of_the_active_state_is_dropped() {
    let cluster = two_servers();
    let mut running = cluster.start();
    running.confirmed(true).await;
    drop(running.is_active);
    running.running.await.unwrap();
}

fn report(result: ProbeResult) -> ProbeReport {
    ProbeReport { result, message: result.as_str().to_owned() }
}

fn history(active: bool) -> History {
    let (service, _server) = mock::pair::<Request<Body>, Response<Body>>();
    let tokens = Arc::new(AcceptedTokens::new(Vec::new()));
    let probe = Probe::new(Client::new(service, "default"), "squelch".to_owned(), tokens);
    let mut history = History { active, ..History::default() };
    history.targets.insert(A.to_owned(), ProbeTarget::new(probe));
    history.reachability.set_servers(&BTreeSet::from([A.to_owned()]));
    history
}

#[tokio::test]
async fn without_descriptors_the_active_replica_disarms_and_a_standby_does_not() {
    for (active, disarms) in [(true, true), (false, false)] {
        let mut history = history(active);
        for _ in 0..10 {
            history.record(A, &report(ProbeResult::NoDescriptors));
        }
        assert_eq!(history.reachability.must_disarm(), disarms);
    }
}

#[tokio::test]
async fn the_first_probes_of_the_active_replica_are_quick() {
    let pauses = |mut history: History, result, number: u32| {
        let pauses = (0..number).map(|_| {
            history.record(A, &report(result));
            history.interval(&history.targets[A])
        });
        pauses.collect::<Vec<_>>()
    };
    let failing = pauses(history(true), ProbeResult::Unsigned, QUICK_PROBES);
    assert_eq!((failing[0], failing.last()), (QUICK_INTERVAL, Some(&INTERVAL)));
    let succeeding = pauses(history(true), ProbeResult::Succeeded, 3);
    assert_eq!(succeeding, [QUICK_INTERVAL, QUICK_INTERVAL, INTERVAL]);
    assert_eq!(pauses(history(false), ProbeResult::Succeeded, 1), [INTERVAL]);
    let mut taken_over = history(false);
    [ProbeResult::Unsigned; 30].iter().for_each(|result| {
        taken_over.record(A, &report(*result));
    });
    taken_over.active = true;
    taken_over.take_over();
    assert_eq!(taken_over.interval(&taken_over.targets[A]), QUICK_INTERVAL);
    assert!(!taken_over.reachability.must_disarm());
}
