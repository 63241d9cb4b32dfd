//! squelch, three API servers, and writes through each of them, while the way of the last one fails.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::api_servers::{ApiServer, FaultyPath, PathFault, writes_per_second};
use e2e::cluster::given;
use e2e::policy::idle_after;
use e2e::process::run_with_input;
use e2e::squelch::StartOptions;
use e2e::wait::not_yet;
use e2e::{GENEROUS, Policy, Squelch, Test, Writer, wait_for};
use k8s_openapi::api::core::v1::Event;
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use serde_json::Value;
use tokio::time::sleep;

use crate::balancer::Balancer;

/// How long a webhook stays disarmed after the end of a fault.
const HEALED_WITHIN: Duration = Duration::from_secs(30);

/// squelch, three API servers, and writes through each of them.
pub(crate) struct Scene {
    label: String,
    test: Test,
    squelch: Squelch,
    policy: Policy,
    servers: Vec<ApiServer>,
    writers: Vec<Writer>,
    /// The address at which squelch knows the last API server.
    address: String,
    /// If squelch knows only the address of this balancer.
    balancer: Option<Balancer>,
}

impl Scene {
    pub(crate) async fn begin(label: &str) -> Result<Self> {
        let test = Test::begin(label).await?;
        forget_events(&test).await?;
        let squelch = test.squelch().await?;
        Self::of(label, test, squelch, None).await
    }

    /// squelch may not list the API servers, and knows one address of three of them.
    pub(crate) async fn behind_one_address(label: &str) -> Result<Self> {
        let test = Test::begin(label).await?;
        forget_events(&test).await?;
        let binding = ["delete", "rolebinding", "squelch-api-servers", "--namespace=default"];
        test.cluster.kubectl.run(&binding).await?;
        let balancer = Balancer::start(&ApiServer::all(&test.cluster)?).await?;
        let kubeconfig = test.kubeconfig_of(&format!("https://{}", balancer.address))?;
        let squelch = test.squelch_at(&kubeconfig, StartOptions::default()).await?;
        Self::of(label, test, squelch, Some(balancer)).await
    }

    async fn of(label: &str, test: Test, squelch: Squelch, balancer: Option<Balancer>) -> Result<Self> {
        let policy = test.policy(&idle_after("60s")).await?;
        let servers = ApiServer::all(&test.cluster)?;
        let mut writers = Vec::new();
        for server in &servers {
            writers.push(test.writer_through(server, writes_per_second()?).await?);
        }
        let last = servers.last().context("no API server")?.address_and_port();
        let address = balancer.as_ref().map_or(last, |balancer| &balancer.address).to_owned();
        let scene =
            Self { label: label.to_owned(), test, squelch, policy, servers, writers, address, balancer };
        scene.armed(true).await?;
        Ok(scene)
    }

    async fn cut(&self, fault: PathFault) -> Result<FaultyPath> {
        self.servers.last().context("no API server")?.path_fault(self.squelch.port()?, fault).await
    }

    async fn metric(&self, name: &str, labels: &[(&str, &str)]) -> Result<f64> {
        Ok(self.squelch.metrics().await?.sum(name, labels))
    }

    /// Waits until the webhook is armed or disarmed. Returns the time that it took.
    async fn armed(&self, armed: bool) -> Result<Duration> {
        let began = Instant::now();
        self.squelch.wait_until_armed(armed).await?;
        Ok(began.elapsed())
    }

    /// Waits until it is armed after the end of a fault.
    async fn heals(&self) -> Result<()> {
        let took = self.armed(true).await?;
        eprintln!("{}: armed {took:?} after the end", self.label);
        ensure!(took < HEALED_WITHIN, "armed {took:?} after the end");
        self.policy.effective().await
    }

    async fn transitions(&self) -> Result<f64> {
        self.metric("squelch_arm_transitions_total", &[]).await
    }

    /// Failed probes of the API server at the address, and of all others.
    async fn failed_probes(&self) -> Result<[f64; 2]> {
        let name = "squelch_probe_failures_total";
        let own = self.metric(name, &[("apiserver", &self.address)]).await?;
        Ok([own, self.metric(name, &[]).await? - own])
    }

    /// Waits for an Event about the configuration with this reason that names the address.
    async fn event_names_it(&self, reason: &str) -> Result<()> {
        let events: Api<Event> = Api::namespaced(self.test.client(), "default");
        let with_reason = ListParams::default().fields(&format!("reason={reason}"));
        wait_for(&format!("an Event {reason} that names the API server"), GENEROUS, async || {
            let found = events.list(&with_reason).await.map_err(not_yet)?.items;
            let messages: Vec<_> = found.into_iter().filter_map(|event| event.message).collect();
            let named = messages.iter().any(|message| message.contains(&self.address));
            if named { Ok(()) } else { Err(messages.join("\n")) }
        })
        .await
    }

    /// Checks that `squelch doctor` reports an error of this check with these words.
    async fn doctor_reports(&self, check: &str, words: &str) -> Result<()> {
        let mut command = Command::new(given("SQUELCH_BIN")?);
        command.args(["doctor", "--output=json", "--kubeconfig"]).arg(&self.test.cluster.kubeconfig);
        command.args(["--secret", squelch::SECRET]).env_remove("KUBECONFIG");
        let output = tokio::task::spawn_blocking(move || run_with_input(&mut command, "")).await??;
        let report: Value = serde_json::from_slice(&output.stdout)?;
        let reports = |finding: &Value| {
            finding["check"] == check
                && finding["level"] == "error"
                && finding["message"].as_str().is_some_and(|message| message.contains(words))
        };
        let findings = report["findings"].as_array().context("no findings")?;
        ensure!(findings.iter().any(reports), "{report:#}");
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

/// Deletes the Events about the webhook configuration, so that those of this test are found.
async fn forget_events(test: &Test) -> Result<()> {
    let events: Api<Event> = Api::namespaced(test.client(), "default");
    let about = ListParams::default().fields("involvedObject.kind=MutatingWebhookConfiguration");
    events.delete_collection(&DeleteParams::default(), &about).await?;
    Ok(())
}

/// Event writes through the last API server would wait: disarmed within this time, until the end.
pub(crate) async fn hangs(scene: Scene, fault: PathFault, within: Duration) -> Result<()> {
    // The first probes of a start may fail.
    let before = scene.failed_probes().await?;
    let path = scene.cut(fault).await?;
    let took = scene.armed(false).await?;
    eprintln!("{}: disarmed after {took:?}", scene.label);
    ensure!(took < within, "disarmed after {took:?}");
    scene.policy.says("Effective", "False", "WebhookNotArmed", &scene.address).await?;
    let after = scene.failed_probes().await?;
    let [own, others] = [after[0] - before[0], after[1] - before[1]];
    ensure!(own >= 2.0 && own > others, "{own} failed probes of this API server, {others} of the others");
    scene.event_names_it("Disarmed").await?;
    if scene.balancer.is_some() {
        scene.doctor_reports("armed", "the webhook has no rules").await?;
        stays_disarmed(&scene).await?;
    } else {
        scene.doctor_reports("apiservers", &scene.address).await?;
    }
    path.heal().await?;
    scene.heals().await?;
    scene.end().await
}

/// Most probes through the balancer succeed. They must not arm.
async fn stays_disarmed(scene: &Scene) -> Result<()> {
    let succeeded = async || scene.metric("squelch_probes_total", &[("result", "succeeded")]).await;
    let (transitions, before) = (scene.transitions().await?, succeeded().await?);
    wait_for("20 successful probes", GENEROUS, async || {
        let number = succeeded().await.map_err(not_yet)? - before;
        if number >= 20.0 { Ok(()) } else { Err(format!("{number}")) }
    })
    .await?;
    ensure!(scene.transitions().await? == transitions, "armed while an API server hangs");
    Ok(())
}

/// Event writes through the last API server pass at once: armed, and reported until the end.
pub(crate) async fn fails_fast(scene: Scene, fault: PathFault) -> Result<()> {
    let (transitions, before) = (scene.transitions().await?, scene.failed_probes().await?);
    let path = scene.cut(fault).await?;
    let began = Instant::now();
    scene.policy.says("Effective", "True", "Effective", &scene.address).await?;
    eprintln!("{}: reported after {:?}", scene.label, began.elapsed());
    scene.event_names_it("APIServerFailing").await?;
    let failed = scene.failed_probes().await?[0] - before[0];
    ensure!(failed >= 2.0, "{failed} failed probes");
    // The doctor probes each API server that it knows. Through a balancer, its probes reach the others too.
    if scene.balancer.is_none() {
        scene.doctor_reports("apiservers", &scene.address).await?;
    }
    path.heal().await?;
    let began = Instant::now();
    wait_for("the end of the report", HEALED_WITHIN, async || {
        let policy = scene.test.kubectl().run(&["get", "eventpolicies", "--output=yaml"]).await;
        let policy = policy.map_err(not_yet)?;
        if policy.contains(&scene.address) { Err(policy) } else { Ok(()) }
    })
    .await?;
    eprintln!("{}: not reported {:?} after the end", scene.label, began.elapsed());
    ensure!(scene.transitions().await? == transitions, "it was disarmed");
    scene.end().await
}

/// Packets are dropped for 15 s, pass for 15 s, and so on.
pub(crate) async fn comes_and_goes(scene: Scene, cycles: u32) -> Result<()> {
    let before = scene.transitions().await?;
    for _ in 0..cycles {
        let path = scene.cut(PathFault::Drop).await?;
        sleep(Duration::from_secs(15)).await;
        path.heal().await?;
        sleep(Duration::from_secs(15)).await;
    }
    let transitions = scene.transitions().await? - before;
    eprintln!("{}: {transitions} transitions in {} s", scene.label, 30 * cycles);
    ensure!((1.0..=3.0).contains(&transitions), "{transitions} transitions");
    scene.heals().await?;
    scene.end().await
}
