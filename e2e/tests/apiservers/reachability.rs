//! One of three API servers does not reach the webhook: squelch disarms if Event writes would wait, and reports it if
//! they pass at once.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::api_servers::{ApiServer, PathFault, writes_per_second};
use e2e::cluster::given;
use e2e::policy::idle_after;
use e2e::process::run_with_input;
use e2e::squelch::StartOptions;
use e2e::wait::not_yet;
use e2e::{GENEROUS, Policy, Squelch, Test, Writer, wait_for};
use k8s_openapi::api::core::v1::Event;
use kube::Api;
use kube::api::ListParams;
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// How long a webhook that hangs stays armed.
const DISARMED_WITHIN: Duration = Duration::from_secs(3);
/// How long a webhook stays disarmed after the end of a fault.
const HEALED_WITHIN: Duration = Duration::from_secs(30);

/// squelch, three API servers, and writes through each of them.
struct Scene {
    test: Test,
    squelch: Squelch,
    policy: Policy,
    servers: Vec<ApiServer>,
    writers: Vec<Writer>,
}

impl Scene {
    async fn begin(label: &str) -> Result<Self> {
        let test = Test::begin(label).await?;
        let squelch = test.squelch().await?;
        Self::of(test, squelch).await
    }

    async fn of(test: Test, squelch: Squelch) -> Result<Self> {
        let policy = test.policy(&idle_after("60s")).await?;
        let servers = ApiServer::all(&test.cluster)?;
        let mut writers = Vec::new();
        for server in &servers {
            writers.push(test.writer_through(server, writes_per_second()?).await?);
        }
        Ok(Self { test, squelch, policy, servers, writers })
    }

    fn last(&self) -> Result<&ApiServer> {
        self.servers.last().context("no API server")
    }

    async fn metric(&self, name: &str, labels: &[(&str, &str)]) -> Result<f64> {
        Ok(self.squelch.metrics().await?.sum(name, labels))
    }

    /// Waits until the webhook is armed or disarmed. Returns the time that it took.
    async fn armed(&self, armed: bool) -> Result<Duration> {
        let began = Instant::now();
        wait_for(&format!("squelch_armed to be {}", u8::from(armed)), GENEROUS, async || {
            let metrics = self.squelch.metrics().await.map_err(not_yet)?;
            let is = metrics.sum("squelch_armed", &[]) > 0.0;
            if is == armed { Ok(()) } else { Err(metrics.show("squelch_probe")) }
        })
        .await?;
        Ok(began.elapsed())
    }

    async fn transitions(&self) -> Result<f64> {
        self.metric("squelch_arm_transitions_total", &[]).await
    }

    /// Whether `squelch doctor` names the last API server at this level.
    async fn doctor_names(&self, level: &str) -> Result<()> {
        let address = address(self.last()?);
        let mut command = Command::new(given("SQUELCH_BIN")?);
        command.args(["doctor", "--output=json", "--kubeconfig"]).arg(&self.test.cluster.kubeconfig);
        command.args(["--secret", squelch::SECRET]).env_remove("KUBECONFIG");
        let output = tokio::task::spawn_blocking(move || run_with_input(&mut command, "")).await??;
        let report: Value = serde_json::from_slice(&output.stdout)?;
        let names = |finding: &Value| {
            finding["check"] == "apiservers"
                && finding["level"] == level
                && finding["message"].as_str().is_some_and(|message| message.contains(&address))
        };
        let findings = report["findings"].as_array().context("no findings")?;
        ensure!(findings.iter().any(names), "{report:#}");
        Ok(())
    }

    /// Stops everything. No write has failed.
    async fn end(self) -> Result<()> {
        for writer in self.writers {
            let answers = writer.stop().await;
            ensure!(answers.failed.is_empty(), "{answers}");
        }
        self.squelch.stop().await?;
        self.test.passed()
    }
}

/// The address as squelch names it.
fn address(server: &ApiServer) -> String {
    server.url.trim_start_matches("https://").to_owned()
}

/// Event writes through the last API server would wait.
async fn hangs(label: &str, fault: PathFault) -> Result<()> {
    let scene = Scene::begin(label).await?;
    scene.armed(true).await?;
    let (server, port) = (scene.last()?, scene.squelch.port()?);
    let address = address(server);
    // Failed probes of this API server, and of the others. The first probes of a start may fail.
    let failures = async || -> Result<[f64; 2]> {
        let own = scene.metric("squelch_probe_failures_total", &[("apiserver", &address)]).await?;
        Ok([own, scene.metric("squelch_probe_failures_total", &[]).await? - own])
    };
    let before = failures().await?;
    let path = server.path_fault(port, fault).await?;
    let took = scene.armed(false).await?;
    eprintln!("{label}: disarmed after {took:?}");
    ensure!(took < DISARMED_WITHIN, "disarmed after {took:?}");
    scene.policy.says("Effective", "Unknown", "WebhookNotArmed", &address).await?;
    let after = failures().await?;
    let [own, others] = [after[0] - before[0], after[1] - before[1]];
    ensure!(own >= 2.0 && own > others, "{own} failed probes of this API server, {others} of the others");
    scene.doctor_names("error").await?;
    path.heal().await?;
    let took = scene.armed(true).await?;
    eprintln!("{label}: armed {took:?} after the end");
    ensure!(took < HEALED_WITHIN, "armed {took:?} after the end");
    scene.policy.effective().await?;
    scene.end().await
}

/// Event writes through the last API server pass at once.
async fn fails_fast(label: &str, fault: PathFault) -> Result<()> {
    let scene = Scene::begin(label).await?;
    scene.armed(true).await?;
    let before = scene.transitions().await?;
    let (server, port) = (scene.last()?, scene.squelch.port()?);
    let address = address(server);
    let path = server.path_fault(port, fault).await?;
    scene.policy.says("Effective", "True", "Effective", &address).await?;
    let events: Api<Event> = Api::namespaced(scene.test.client(), "default");
    let failing = ListParams::default().fields("reason=APIServerFailing");
    wait_for("an Event that names the API server", GENEROUS, async || {
        let found = events.list(&failing).await.map_err(not_yet)?.items;
        let named = |event: &Event| event.message.as_ref().is_some_and(|message| message.contains(&address));
        if found.iter().any(named) { Ok(()) } else { Err(e2e::events::list(&found)) }
    })
    .await?;
    ensure!(scene.metric("squelch_probe_failures_total", &[("apiserver", &address)]).await? >= 2.0);
    scene.doctor_names("error").await?;
    path.heal().await?;
    let began = Instant::now();
    wait_for("the end of the report", HEALED_WITHIN, async || {
        let policy = scene.test.kubectl().run(&["get", "eventpolicies", "--output=yaml"]).await;
        let policy = policy.map_err(not_yet)?;
        if policy.contains(&address) { Err(policy) } else { Ok(()) }
    })
    .await?;
    eprintln!("{label}: not reported {:?} after the end", began.elapsed());
    ensure!(scene.transitions().await? == before, "it was disarmed");
    scene.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_packets_disarm() -> Result<()> {
    hangs("reach-dropped", PathFault::Drop).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delay_of_900_ms_disarms() -> Result<()> {
    hangs("reach-delayed", PathFault::Delay(Duration::from_millis(900))).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_connections_are_reported() -> Result<()> {
    fails_fast("reach-refused", PathFault::Refuse).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_reset_during_tls_are_reported() -> Result<()> {
    fails_fast("reach-reset", PathFault::ResetTls).await
}

/// Packets are dropped for 15 s, pass for 15 s, and so on.
async fn comes_and_goes(label: &str, cycles: u32) -> Result<()> {
    let scene = Scene::begin(label).await?;
    scene.armed(true).await?;
    let before = scene.transitions().await?;
    for _ in 0..cycles {
        let path = scene.last()?.path_fault(scene.squelch.port()?, PathFault::Drop).await?;
        sleep(Duration::from_secs(15)).await;
        path.heal().await?;
        sleep(Duration::from_secs(15)).await;
    }
    let transitions = scene.transitions().await? - before;
    eprintln!("{label}: {transitions} transitions in {} s", 30 * cycles);
    ensure!((1.0..=3.0).contains(&transitions), "{transitions} transitions");
    let took = scene.armed(true).await?;
    ensure!(took < HEALED_WITHIN, "armed {took:?} after the end");
    scene.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_that_comes_and_goes_changes_the_rules_seldom() -> Result<()> {
    comes_and_goes("reach-flapping", 3).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes ten minutes"]
async fn a_cut_that_comes_and_goes_for_ten_minutes_changes_the_rules_seldom() -> Result<()> {
    comes_and_goes("reach-ten-minutes", 20).await
}

/// A TCP balancer that sends each connection to the next API server.
struct Balancer {
    url: String,
    serving: JoinHandle<()>,
}

impl Balancer {
    async fn start(servers: &[ApiServer]) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        // A name of the certificate.
        let url = format!("https://localhost:{}", listener.local_addr()?.port());
        let targets: Vec<SocketAddr> =
            servers.iter().map(|server| address(server).parse()).collect::<Result<_, _>>()?;
        let serving = tokio::spawn(async move {
            for target in targets.into_iter().cycle() {
                let Ok((mut client, _)) = listener.accept().await else { return };
                tokio::spawn(async move {
                    let Ok(mut server) = TcpStream::connect(target).await else { return };
                    // A connection that breaks is the business of its two ends.
                    let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                });
            }
        });
        Ok(Self { url, serving })
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// squelch may not list the API servers, and knows one address of three of them.
async fn behind_one_address(label: &str) -> Result<(Scene, Balancer)> {
    let test = Test::begin(label).await?;
    let binding = ["delete", "rolebinding", "squelch-api-servers", "--namespace=default"];
    test.cluster.kubectl.run(&binding).await?;
    let balancer = Balancer::start(&ApiServer::all(&test.cluster)?).await?;
    let kubeconfig = test.kubeconfig_of(&balancer.url)?;
    let squelch = test.squelch_at(&kubeconfig, StartOptions::default()).await?;
    Ok((Scene::of(test, squelch).await?, balancer))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_one_address_dropped_packets_disarm() -> Result<()> {
    let (scene, balancer) = behind_one_address("one-dropped").await?;
    scene.armed(true).await?;
    let path = scene.last()?.path_fault(scene.squelch.port()?, PathFault::Drop).await?;
    let took = scene.armed(false).await?;
    eprintln!("one address: disarmed after {took:?}");
    ensure!(took < Duration::from_secs(20), "disarmed after {took:?}");
    let at = balancer.url.trim_start_matches("https://");
    scene.policy.says("Effective", "Unknown", "WebhookNotArmed", at).await?;
    // It stays disarmed, although most probes succeed.
    let transitions = scene.transitions().await?;
    sleep(Duration::from_secs(30)).await;
    ensure!(scene.transitions().await? == transitions, "armed while an API server hangs");
    path.heal().await?;
    let took = scene.armed(true).await?;
    eprintln!("one address: armed {took:?} after the end");
    ensure!(took < HEALED_WITHIN, "armed {took:?} after the end");
    scene.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_one_address_refused_connections_are_reported() -> Result<()> {
    let (scene, balancer) = behind_one_address("one-refused").await?;
    scene.armed(true).await?;
    let before = scene.transitions().await?;
    let path = scene.last()?.path_fault(scene.squelch.port()?, PathFault::Refuse).await?;
    let at = balancer.url.trim_start_matches("https://");
    scene.policy.says("Effective", "True", "Effective", at).await?;
    path.heal().await?;
    ensure!(scene.transitions().await? == before, "it was disarmed");
    scene.end().await
}
