//! The reports of ten thousand namespaces under two thousand policies: they add up to the statuses, over a restart, and
//! at most five of them are written per second.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::policy::Counters;
use e2e::user::Version;
use e2e::wait::{not_yet, pass};
use e2e::{Squelch, Test, User, wait_for};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::{ListParams, PostParams};
use kube::core::{ApiResource, DynamicObject};
use serde::Deserialize as _;
use serde_json::json;
use squelch::api::{ClusterEventPolicy, EventDropReport, EventPolicy};

/// Namespaces per policy, and policies per `ClusterEventPolicy` among them.
const OF_POLICY: usize = 5;
const OF_CLUSTER: usize = 20;
/// The fewest namespaces with a policy of each kind.
const LEAST: usize = OF_POLICY * OF_CLUSTER;
/// Namespaces with later occurrences, and those with some before and some after the restart.
const LATER: usize = 200;
/// The default of `--report-qps`, and the share of the reports that exist before the restart.
const QPS: f64 = 5.0;
const BEFORE_RESTART: f64 = 0.95;
const LABEL: &str = "e2e.example.com/group";
/// Member of a group that has all permissions.
const BUILDER: &str = "builder";
/// Calls to the API server at once.
const AT_ONCE: usize = 16;
/// Interval between two reads of all reports.
const READ_INTERVAL: Duration = Duration::from_secs(5);

/// Kind, and name: a policy of a namespace has the name of its namespace.
type PolicyName = (String, String);

/// The namespaces, and the policy that governs each.
struct Scene {
    test: Test,
    builder: User,
    namespaces: usize,
}

impl Scene {
    async fn set(namespaces: usize) -> Result<Self> {
        ensure!(namespaces >= LEAST, "{namespaces} namespaces: at least {LEAST}");
        let test = Test::begin("reports").await?;
        let builder = User::in_group(&test.cluster, BUILDER, "system:masters").await?;
        let scene = Self { test, builder, namespaces };
        let client = scene.test.client();
        let make = |at: usize| {
            let api: Api<Namespace> = Api::all(client.clone());
            let labels = json!({ LABEL: scene.group(at) });
            let object = json!({ "metadata": { "name": scene.namespace(at), "labels": labels } });
            async move {
                api.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
                anyhow::Ok(())
            }
        };
        each(0..namespaces, make).await?;
        let (of_namespaces, of_cluster) =
            (ApiResource::erase::<EventPolicy>(&()), ApiResource::erase::<ClusterEventPolicy>(&()));
        let spec = json!({ "mute": [{ "types": ["Normal"] }] });
        each(0..scene.policies_of_namespaces(), |at| {
            let name = scene.namespace(at);
            let api = Api::namespaced_with(client.clone(), &name, &of_namespaces);
            let policy = DynamicObject::new(&name, &of_namespaces).data(json!({ "spec": spec }));
            create(api, policy)
        })
        .await?;
        each(0..scene.groups(), |at| {
            let name = scene.group(at);
            let mut spec = spec.clone();
            spec["namespaceSelector"] = json!({ "matchLabels": { LABEL: name } });
            let policy = DynamicObject::new(&name, &of_cluster).data(json!({ "spec": spec }));
            create(Api::all_with(client.clone(), &of_cluster), policy)
        })
        .await?;
        Ok(scene)
    }

    fn policies(&self) -> usize {
        self.namespaces / OF_POLICY
    }

    fn groups(&self) -> usize {
        self.policies() / OF_CLUSTER
    }

    fn policies_of_namespaces(&self) -> usize {
        self.policies() - self.groups()
    }

    fn namespace(&self, at: usize) -> String {
        format!("{}-{at}", self.test.namespace)
    }

    /// The `ClusterEventPolicy` of a namespace, if it has no policy of its own.
    fn group(&self, at: usize) -> String {
        format!("{}-group-{}", self.test.namespace, at % self.groups())
    }

    fn policy(&self, at: usize) -> PolicyName {
        if at < self.policies_of_namespaces() {
            ("EventPolicy".into(), self.namespace(at))
        } else {
            ("ClusterEventPolicy".into(), self.group(at))
        }
    }

    /// Starts squelch and waits until all policies are in force.
    async fn squelch(&self) -> Result<Squelch> {
        let squelch = self.test.squelch().await?;
        wait_for("every policy to be in force", Duration::from_secs(600), async || {
            let metrics = squelch.metrics().await.map_err(not_yet)?;
            let effective = metrics.sum("squelch_policies", &[("state", "effective")]);
            let armed = metrics.is_armed();
            if effective >= self.policies() as f64 && armed {
                Ok(())
            } else {
                Err(format!("{effective}, armed: {armed}"))
            }
        })
        .await?;
        Ok(squelch)
    }

    /// Writes a Warning, which is admitted or compacted, and a few Normal Events, which are muted, in each of these
    /// namespaces. Adds the number that the API server refused to `refused`.
    async fn write(
        &self,
        namespaces: std::ops::Range<usize>,
        refused: &mut BTreeMap<PolicyName, i64>,
    ) -> Result<()> {
        let writes = |at: usize| {
            let (namespace, builder, policy) = (self.namespace(at), self.builder.clone(), self.policy(at));
            async move {
                let mut number = 0;
                for (pod, event_type) in ["Warning", "Normal", "Normal", "Normal"].iter().enumerate() {
                    let now = Timestamp::now();
                    let name = format!("pod.{pod}.{:x}", now.as_nanosecond());
                    let mut event = Version::Core.event(&namespace, &name, "pod", "text", now);
                    event["type"] = (*event_type).into();
                    let answer = builder.create(&event).await?;
                    ensure!(answer.is_success() || answer.is_refused_by_squelch(), "{answer:?}");
                    number += i64::from(answer.is_refused_by_squelch());
                }
                anyhow::Ok((policy, number))
            }
        };
        let mut written = stream::iter(namespaces.map(writes)).buffer_unordered(AT_ONCE);
        while let Some((policy, number)) = written.try_next().await? {
            *refused.entry(policy).or_default() += number;
        }
        Ok(())
    }

    /// Reports that exist.
    async fn reports(&self) -> Result<usize> {
        let one = self.all::<EventDropReport>().list_metadata(&ListParams::default().limit(1)).await?;
        let more = one.metadata.remaining_item_count.unwrap_or_default();
        Ok(one.items.len() + usize::try_from(more)?)
    }

    /// Report writes that the API server has answered.
    async fn report_writes(&self) -> Result<f64> {
        let labels = [("resource", "eventdropreports"), ("verb", "APPLY")];
        Ok(self.test.cluster.metrics().await?.sum("apiserver_request_total", &labels))
    }

    /// The counters of each policy, over all reports.
    async fn reported(&self) -> Result<BTreeMap<PolicyName, Counters>> {
        let mut all: BTreeMap<PolicyName, Counters> = BTreeMap::new();
        for report in self.all::<EventDropReport>().list(&ListParams::default()).await?.items {
            ensure!(report.data["otherPolicies"].is_null(), "{:?}", report.data);
            for entry in report.data["policies"].as_array().into_iter().flatten() {
                let text = |field: &str| entry[field].as_str().unwrap_or_default().to_owned();
                let counters = Counters::deserialize(&entry["counters"])?;
                *all.entry((text("policyKind"), text("policyName"))).or_default() += counters;
            }
        }
        Ok(all)
    }

    /// The counters in the status of each policy.
    async fn statuses(&self) -> Result<BTreeMap<PolicyName, Counters>> {
        let mut all = BTreeMap::new();
        for (kind, api) in [
            ("EventPolicy", self.all::<EventPolicy>()),
            ("ClusterEventPolicy", self.all::<ClusterEventPolicy>()),
        ] {
            for policy in api.list(&ListParams::default()).await?.items {
                let counters = Counters::in_status(&policy)?;
                let name = policy.metadata.name.context("a policy without a name")?;
                all.insert((kind.to_owned(), name), counters);
            }
        }
        Ok(all)
    }

    fn all<K: kube::Resource<DynamicType = ()>>(&self) -> Api<DynamicObject> {
        Api::all_with(self.test.client(), &ApiResource::erase::<K>(&()))
    }

    /// Waits until statuses and reports have the same counters, and have suppressed what the API server refused. If the API
    /// server timed out, the write was stored, and may be counted as suppressed.
    async fn agree(&self, refused: &BTreeMap<PolicyName, i64>, deadline: Duration) -> Result<()> {
        let unanswered = self.test.failed_webhook_calls().await?;
        wait_for("the reports and the statuses to agree", deadline, async || {
            pass(READ_INTERVAL).await;
            let reported = self.reported().await.map_err(not_yet)?;
            let statuses = self.statuses().await.map_err(not_yet)?;
            let differing =
                statuses.iter().filter(|(policy, counters)| reported.get(*policy) != Some(counters));
            let differing: Vec<_> = differing.take(3).collect();
            let above = |policy: &PolicyName, counters: &Counters| {
                counters.muted + counters.compacted - refused.get(policy).copied().unwrap_or_default()
            };
            let above: Vec<_> = reported.iter().map(|(policy, counters)| above(policy, counters)).collect();
            let (least, sum) = (above.iter().min().copied().unwrap_or_default(), above.iter().sum::<i64>());
            if differing.is_empty() && least >= 0 && sum <= unanswered {
                Ok(())
            } else {
                Err(format!(
                    "muted - refused: {sum}, of one policy {least}; not in the reports: {differing:?}"
                ))
            }
        })
        .await
    }
}

async fn create(api: Api<DynamicObject>, object: DynamicObject) -> Result<()> {
    api.create(&PostParams::default(), &object).await?;
    Ok(())
}

/// Makes a call for each number, a few at once.
async fn each<F: Future<Output = Result<()>>>(
    numbers: std::ops::Range<usize>,
    call: impl FnMut(usize) -> F,
) -> Result<()> {
    stream::iter(numbers.map(call)).buffer_unordered(AT_ONCE).try_collect().await
}

#[tokio::test]
#[ignore = "long: just test-reports"]
async fn the_reports_of_ten_thousand_namespaces_add_up_to_the_statuses() -> Result<()> {
    let scene = Scene::set(e2e::cluster::namespaces()?).await?;
    let namespaces = scene.namespaces;
    eprintln!("{namespaces} namespaces, {} policies", scene.policies());
    // Twice what the rate needs: before each write squelch may read the report.
    let deadline = Duration::from_secs_f64(2.0 * namespaces as f64 / QPS + 300.0);
    let mut refused = BTreeMap::new();
    let squelch = scene.squelch().await?;
    let (before, began) = (scene.report_writes().await?, Instant::now());
    scene.write(0..namespaces, &mut refused).await?;
    eprintln!("written in {:.0} s", began.elapsed().as_secs_f64());
    let enough = (namespaces as f64 * BEFORE_RESTART) as usize;
    wait_for(&format!("{enough} reports"), deadline, async || {
        pass(READ_INTERVAL).await;
        let reports = scene.reports().await.map_err(not_yet)?;
        if reports >= enough { Ok(()) } else { Err(format!("{reports} reports")) }
    })
    .await?;
    scene.write(0..LATER.min(namespaces), &mut refused).await?;
    let (written, seconds) = (scene.report_writes().await? - before, began.elapsed().as_secs_f64());
    eprintln!("{written} report writes in {seconds:.0} s, then a restart");
    ensure!(written <= QPS * seconds + 1.0, "{written} report writes in {seconds} s");
    squelch.stop().await?;

    let squelch = scene.squelch().await?;
    let (before, began) = (scene.report_writes().await?, Instant::now());
    scene.write(LATER.min(namespaces) / 2..(LATER * 2).min(namespaces), &mut refused).await?;
    scene.agree(&refused, deadline).await?;
    let (written, seconds) = (scene.report_writes().await? - before, began.elapsed().as_secs_f64());
    eprintln!(
        "{written} report writes in {seconds:.0} s, {} suppressed in all",
        refused.values().sum::<i64>()
    );
    ensure!(written <= QPS * seconds + 1.0, "{written} report writes in {seconds} s");
    assert_eq!(scene.reports().await?, namespaces, "one report per namespace");
    squelch.stop().await?;
    scene.test.passed()
}
