//! The reports of 10,000 namespaces under 2,000 policies, over restarts, against an API server in memory.

use std::collections::HashMap;

use super::*;
use crate::api::DropReport;

const NAMESPACES: u64 = 10_000;
const POLICIES: u64 = 2_000;

/// Suppressed occurrences by namespace and policy.
type Occurrences = HashMap<(u64, u64), u64>;

/// The cluster: its reports by namespace, and the time of each write in milliseconds.
#[derive(Default)]
struct StoredReports {
    reports: HashMap<String, Value>,
    writes: Vec<u64>,
}

impl StoredReports {
    /// Responds to a request for a report.
    fn respond(&mut self, head: &http::request::Parts, body: Value, now: u64) -> (u16, Value) {
        let namespace = head.uri.path().split('/').nth(5).expect("a namespace").to_owned();
        if head.method == "GET" {
            return self
                .reports
                .get(&namespace)
                .map_or_else(|| absent("eventdropreports"), |it| (200, it.clone()));
        }
        self.writes.push(now);
        let mut report = body;
        report["metadata"]["uid"] = format!("uid of {namespace}").into();
        self.reports.insert(namespace, report.clone());
        (200, report)
    }

    /// Suppressed occurrences by policy, over all reports.
    fn by_policy(&self) -> HashMap<String, i64> {
        let mut all = HashMap::new();
        for report in self.reports.values() {
            assert!(serde_json::to_vec(report).unwrap().len() <= MAX_REPORT_BYTES + 512, "with its metadata");
            let report: DropReport = serde_json::from_value(report.clone()).unwrap();
            for policy in report.policies {
                *all.entry(policy.policy_name).or_default() += policy.counters.suppressed();
            }
        }
        all
    }
}

/// The writer of one process, with the occurrences that its engine has counted.
struct ReportingProcess {
    writer: ReportWriter,
    server: Handle<Request<Body>, Response<Body>>,
    counted: Arc<Mutex<Occurrences>>,
}

impl ReportingProcess {
    fn start(store: Arc<Store>) -> Self {
        let (service, server) = mock::pair();
        let counted: Arc<Mutex<Occurrences>> = Arc::default();
        let engine = counted.clone();
        let read_counters = move || {
            let counted = engine.lock().unwrap();
            counted
                .iter()
                .map(|((namespace, policy), occurrences)| scope(*namespace, *policy, *occurrences))
                .collect()
        };
        // The replica stays active: the value of a dropped sender remains.
        let (_, active) = watch::channel(true);
        let limits = ReportLimits { interval: Duration::from_secs(30), receipt_interval: None, qps: 5 };
        let client = Client::new(service, "default");
        Self {
            writer: ReportWriter::new(client, store, Box::new(read_counters), active, limits),
            server,
            counted,
        }
    }

    /// Counts occurrences in this many namespaces, from `first` on.
    fn count(&self, first: u64, namespaces: u64, all: &mut Occurrences) {
        let mut counted = self.counted.lock().unwrap();
        for namespace in first..first + namespaces {
            for policy in [namespace % POLICIES, (namespace * 7 + 1) % POLICIES] {
                let occurrences = 1 + namespace % 5;
                *counted.entry((namespace, policy)).or_default() += occurrences;
                *all.entry((namespace, policy)).or_default() += occurrences;
            }
        }
    }

    /// Makes steps until nothing is due for a while. `now` is in milliseconds.
    async fn settle(&mut self, cluster: &mut StoredReports, now: &mut u64) {
        let mut idle = 0;
        while idle < 10 {
            let before = cluster.writes.len();
            let Self { writer, server, .. } = self;
            let step = writer.step(Moment::from_epoch(Duration::from_millis(*now)));
            let pause = answered(step, server, cluster, *now).await;
            *now += u64::try_from(pause.as_millis()).unwrap();
            idle = if cluster.writes.len() == before { idle + 1 } else { 0 };
        }
    }
}

/// Waits for a future while `cluster` responds to its requests.
async fn answered<T>(
    work: impl Future<Output = T>,
    server: &mut Handle<Request<Body>, Response<Body>>,
    cluster: &mut StoredReports,
    now: u64,
) -> T {
    let mut work = std::pin::pin!(work);
    loop {
        tokio::select! {
            biased;
            done = &mut work => return done,
            request = server.next_request() => {
                let (request, send) = request.expect("the client exists");
                let (head, body) = request.into_parts();
                let body = body.collect_bytes().await.unwrap();
                let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
                let (code, response) = cluster.respond(&head, body, now);
                let response = Body::from(serde_json::to_vec(&response).unwrap());
                send.send_response(Response::builder().status(code).body(response).unwrap());
            }
        }
    }
}

fn name(policy: u64) -> String {
    format!("p{policy}")
}

fn scope(namespace: u64, policy: u64, occurrences: u64) -> ScopeCounters {
    let mut counters = Counters::default();
    counters.count(Disposition::Throttled, occurrences);
    let namespace = format!("team-{namespace}").into();
    let policy = id("ci", &name(policy));
    ScopeCounters { namespace, policy, mode: Mode::Enforce, counters, dropped: TopDropped::default() }
}

#[tokio::test]
async fn the_reports_add_up_and_at_most_five_are_written_each_second() {
    let store = Arc::new(Store::default());
    store.swap(Set::new((0..POLICIES).map(|at| policy("ci", &name(at), &json!({}), 0))));
    let (mut cluster, mut all, mut now) = (StoredReports::default(), Occurrences::new(), 0);
    for round in 0..3 {
        // Each round is a new process, which stops before it has written everything.
        let mut replica = ReportingProcess::start(store.clone());
        replica.count(0, if round == 0 { NAMESPACES } else { 500 }, &mut all);
        replica.settle(&mut cluster, &mut now).await;
        replica.count(200, 300, &mut all);
        let ReportingProcess { writer, server, .. } = &mut replica;
        // These last writes have no minimum distance.
        let paced = cluster.writes.len();
        assert_eq!(answered(writer.write_all_now(), server, &mut cluster, now).await, 0);
        cluster.writes.truncate(paced);
    }
    assert_eq!(cluster.reports.len() as u64, NAMESPACES);
    let mut expected: HashMap<String, i64> = HashMap::new();
    for ((_, policy), occurrences) in all {
        *expected.entry(name(policy)).or_default() += i64::try_from(occurrences).unwrap();
    }
    assert_eq!(cluster.by_policy(), expected);
    for writes in cluster.writes.windows(6) {
        assert!(writes[5] - writes[0] >= 1_000, "6 writes within {} ms", writes[5] - writes[0]);
    }
}
