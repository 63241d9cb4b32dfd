//! Events of a tenant that the API server refuses after squelch's webhook (an admission policy, a validating webhook,
//! its own validation) are never stored by squelch, and the tenant gets the reason. (A ResourceQuota never refuses an
//! Event: Kubernetes, pkg/quota/v1/install, `ignoredResources`.)

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::kubectl::Kubectl;
use e2e::other_webhook::{OtherWebhook, REFUSAL, WebhookBehavior};
use e2e::policy::idle_after;
use e2e::user::{Answer, Version};
use e2e::wait::not_yet;
use e2e::writes::history;
use e2e::{GENEROUS, Policy, Squelch, Test, User, Writes, wait_for};
use jiff::Timestamp;
use serde_json::{Value, json};

const TENANT: &str = "tenant";
const SENTENCE: &str = "only nodes write for the kubelet";
/// A merged repeat is flushed after two seconds.
const FLUSHED: Duration = Duration::from_secs(15);
/// Repeats until pending ones are lost, and the repeats after that.
const ROUNDS: usize = 3;
/// Nine are admitted before aggregation; the others are for a summary.
const MESSAGES: usize = 14;

/// Cluster-scoped objects that are deleted on drop.
struct Made {
    kubectl: Kubectl,
    objects: Vec<(&'static str, String)>,
}

impl Drop for Made {
    fn drop(&mut self) {
        for (kind, name) in &self.objects {
            self.kubectl.say(&["delete", kind, name, "--ignore-not-found"]);
        }
    }
}

/// A tenant in a namespace with a policy, and squelch.
struct Stage {
    test: Test,
    squelch: Squelch,
    policy: Policy,
    tenant: User,
    writes: Writes,
    version: Version,
    event_type: &'static str,
}

/// The outcome of the tenant's writes.
#[derive(Debug, Default)]
struct Seen {
    /// Refused with the expected message.
    explained: i64,
    /// Refused by squelch, which merged them.
    merged: i64,
    /// Answered otherwise, although the expected message was required.
    unexplained: Vec<String>,
    /// Pending occurrences when none were expected.
    still_pending: Option<String>,
}

impl Stage {
    async fn begin(label: &str) -> Result<Self> {
        let test = Test::begin(label).await?;
        let squelch = test.squelch().await?;
        let policy = test.policy(&idle_after("10m")).await?;
        let verbs = ["get", "create", "patch"];
        let tenant = User::with_rights(&test.cluster, TENANT, &test.namespace, &verbs).await?;
        let writes = test.writes().await?;
        Ok(Self { test, squelch, policy, tenant, writes, version: Version::Core, event_type: "Warning" })
    }

    fn event(&self, name: &str, message: &str) -> Value {
        let mut event = self.version.event(&self.test.namespace, name, "cart", message, Timestamp::now());
        event["type"] = self.event_type.into();
        event
    }

    /// Waits until nothing is pending.
    async fn is_flushed(&self, seen: &mut Seen) {
        if seen.still_pending.is_some() {
            return;
        }
        let flushed = wait_for("nothing to be pending", FLUSHED, async || {
            let metrics = self.squelch.metrics().await.map_err(not_yet)?;
            match metrics.sum("squelch_pending_occurrences", &[]) {
                0.0 => Ok(()),
                pending => Err(format!("{pending}")),
            }
        });
        seen.still_pending = flushed.await.err().map(not_yet);
    }

    /// Repeats one Event. The first one, and each one while nothing is pending, must be refused with `sentence`.
    async fn repeats(&self, sentence: &str, seen: &mut Seen) -> Result<()> {
        for round in 0..ROUNDS {
            self.is_flushed(seen).await;
            seen.due(&self.tenant.create(&self.event(&format!("r.{round}"), "again")).await?, sentence);
            seen.free(
                &self.tenant.create(&self.event(&format!("r.{round}.again"), "again")).await?,
                sentence,
            );
        }
        self.is_flushed(seen).await;
        Ok(())
    }

    /// Distinct messages about one object: some would be aggregated.
    async fn varies(&self, sentence: &str, seen: &mut Seen) -> Result<()> {
        for number in 0..MESSAGES {
            let answer = self.tenant.create(&self.event(&format!("v.{number}"), &number.to_string())).await?;
            if number == 0 {
                seen.due(&answer, sentence);
            } else {
                seen.free(&answer, sentence);
            }
        }
        self.is_flushed(seen).await;
        seen.due(&self.tenant.create(&self.event("v.last", "last")).await?, sentence);
        self.is_flushed(seen).await;
        Ok(())
    }

    /// Checks that nothing is stored, that all merged occurrences are lost, and that the tenant got the message when
    /// required.
    async fn ends(self, seen: Seen) -> Result<()> {
        let writes = self.writes.so_far().await?;
        let namespace = ("event_namespace", self.test.namespace.as_str());
        let lost = self.squelch.metrics().await?.sum("squelch_lost_occurrences_total", &[namespace]) as i64;
        let all = format!("{seen:#?}\n{lost} lost; stored:\n{}", history(&writes));
        ensure!(writes.is_empty(), "squelch stored a refused Event: {all}");
        ensure!(seen.unexplained.is_empty(), "the tenant did not get the expected message: {all}");
        ensure!(seen.still_pending.is_none(), "{all}");
        ensure!(lost == seen.merged, "not all merged occurrences are lost: {all}");
        self.policy.received(seen.explained + seen.merged).await?;
        self.squelch.stop().await?;
        let writes = self.writes.so_far().await?;
        ensure!(writes.is_empty(), "stored at shutdown:\n{}", history(&writes));
        self.test.passed()
    }
}

impl Seen {
    /// An answer that must contain the message.
    fn due(&mut self, answer: &Answer, sentence: &str) {
        if answer.text.contains(sentence) {
            self.explained += 1;
            return;
        }
        self.merged += i64::from(answer.is_refused_by_squelch());
        self.unexplained.push(format!("{} {:.120}", answer.code, answer.text));
    }

    /// An answer by squelch or with the message.
    fn free(&mut self, answer: &Answer, sentence: &str) {
        if answer.is_refused_by_squelch() {
            self.merged += 1;
        } else {
            self.due(answer, sentence);
        }
    }
}

/// An admission policy that refuses only the tenant's Events in the kubelet's name.
async fn admission_policy(stage: &Stage) -> Result<Made> {
    let name = format!("e2e-{}", stage.test.namespace);
    let version = "admissionregistration.k8s.io/v1";
    let rule = json!({ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["events"] });
    let expression =
        format!("request.userInfo.username != '{TENANT}' || object.source.component != 'kubelet'");
    let policy = json!({
        "apiVersion": version, "kind": "ValidatingAdmissionPolicy", "metadata": { "name": name },
        "spec": {
            "matchConstraints": { "resourceRules": [rule] },
            "validations": [{ "expression": expression, "message": SENTENCE }],
        },
    });
    let selector = json!({ "matchLabels": { "kubernetes.io/metadata.name": stage.test.namespace } });
    let binding = json!({
        "apiVersion": version, "kind": "ValidatingAdmissionPolicyBinding", "metadata": { "name": name },
        "spec": { "policyName": name, "validationActions": ["Deny"],
            "matchResources": { "namespaceSelector": selector } },
    });
    let kubectl = stage.test.cluster.kubectl.clone();
    let objects = ["validatingadmissionpolicybinding", "validatingadmissionpolicy"];
    let made = Made { kubectl, objects: objects.map(|kind| (kind, name.clone())).to_vec() };
    for object in [&policy, &binding] {
        stage.test.kubectl().apply(object).await?;
    }
    refuses(stage, SENTENCE).await?;
    Ok(made)
}

/// Waits until a dry run of the tenant, which squelch does not count, is refused with this message.
async fn refuses(stage: &Stage, sentence: &str) -> Result<()> {
    let kubectl = stage.test.kubectl().user(TENANT);
    let event = stage.event("in-force", "in force?").to_string();
    wait_for("the tenant's Events to be refused", GENEROUS, async || {
        match kubectl
            .run_with(&["create", "--dry-run=server", "-f", "-"], event.clone())
            .await
            .map_err(not_yet)
        {
            Err(error) if error.contains(sentence) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await
}

async fn one_refused_by_an_admission_policy(
    label: &str,
    write: impl AsyncFn(&Stage, &str, &mut Seen) -> Result<()>,
) -> Result<()> {
    let stage = Stage::begin(label).await?;
    let made = admission_policy(&stage).await?;
    let mut seen = Seen::default();
    write(&stage, SENTENCE, &mut seen).await?;
    drop(made);
    stage.ends(seen).await
}

#[tokio::test]
async fn repeats_refused_by_an_admission_policy_are_not_stored() -> Result<()> {
    one_refused_by_an_admission_policy("refused-policy", Stage::repeats).await
}

#[tokio::test]
async fn no_summary_is_stored_of_refused_events() -> Result<()> {
    one_refused_by_an_admission_policy("refused-varied", Stage::varies).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_refused_by_a_validating_webhook_are_not_stored() -> Result<()> {
    let stage = Stage::begin("refused-webhook").await?;
    let behavior = WebhookBehavior { delay: Duration::ZERO, annotates: false, refuses_user: Some(TENANT) };
    let webhook = OtherWebhook::begin(&stage.test, "v-refusing", behavior).await?;
    refuses(&stage, REFUSAL).await?;
    let mut seen = Seen::default();
    stage.repeats(REFUSAL, &mut seen).await?;
    stage.varies(REFUSAL, &mut seen).await?;
    drop(webhook);
    stage.ends(seen).await
}

/// events.k8s.io validates more than core/v1, through which squelch writes.
#[tokio::test]
async fn events_invalid_in_events_k8s_io_are_not_stored() -> Result<()> {
    let mut stage = Stage::begin("refused-invalid").await?;
    stage.version = Version::New;
    stage.event_type = "Odd";
    let mut seen = Seen::default();
    let sentence = "has invalid value: Odd";
    stage.repeats(sentence, &mut seen).await?;
    stage.varies(sentence, &mut seen).await?;
    stage.ends(seen).await
}
