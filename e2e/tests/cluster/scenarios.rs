//! The API server accepts what Helm 3 and Helm 4 render from the chart in every scenario; invalid values are refused
//! with their path. (The node tests install it.)

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use e2e::Test;
use e2e::cluster::{checkout, given};
use e2e::helm::scenarios;
use serde_json::Value;

/// Flags by which the chart finds Prometheus Operator.
pub(crate) const OPERATOR: [&str; 2] = ["--api-versions", "monitoring.coreos.com/v1"];

/// The kinds of Prometheus Operator.
const MONITORING: [&str; 3] = ["podmonitors", "prometheusrules", "servicemonitors"];

/// The objects that Helm renders with these arguments, or why it refuses them.
pub(crate) fn helm(program: &Path, arguments: &[&str]) -> Result<Result<String, String>> {
    let output = Command::new(program)
        .args(["template", "squelch"])
        .arg(checkout("charts/squelch"))
        // `--set` overrides `--set-json`.
        .args(["--kube-version", "1.35.0", "--set-json", r#"image.repository="registry.example/squelch""#])
        .args(arguments)
        .output()
        .with_context(|| program.display().to_string())?;
    Ok(if output.status.success() {
        Ok(String::from_utf8(output.stdout)?)
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    })
}

/// The same for arguments that helm accepts.
fn render(program: &Path, arguments: &[&str]) -> Result<String> {
    helm(program, arguments)?.map_err(anyhow::Error::msg)
}

#[tokio::test]
async fn the_api_server_accepts_every_scenario() -> Result<()> {
    let test = Test::begin("chart").await?;
    let kubectl = test.cluster.kubectl.clone();
    let definitions = given("SQUELCH_MONITORING_CRDS")?;
    for kind in MONITORING {
        let file = definitions.join(format!("monitoring.coreos.com_{kind}.yaml")).display().to_string();
        kubectl.run(&["apply", "--server-side", "-f", &file]).await?;
        let definition = format!("crd/{kind}.monitoring.coreos.com");
        kubectl.established(&[&definition]).await?;
    }
    let (three, four) = (given("SQUELCH_HELM3")?, PathBuf::from("helm"));
    // Pod admission needs the ServiceAccount, which a dry run does not store.
    kubectl.namespace(&test.namespace).run(&["create", "serviceaccount", "squelch"]).await?;
    let version = format!("1.{}.0", test.cluster.minor().await?);
    for (name, path) in scenarios()? {
        let values = path.display().to_string();
        let target = ["--kube-version", &version, "--namespace", &test.namespace, "--values", &values];
        let arguments = [&OPERATOR[..], &target].concat();
        let rendered = render(&four, &arguments).context(name.clone())?;
        let by_three = render(&three, &arguments).context(name.clone())?;
        let sorted = |text: &str| {
            let mut documents: Vec<_> = text.split("---\n").map(|part| part.trim().to_owned()).collect();
            documents.sort();
            documents
        };
        ensure!(sorted(&rendered) == sorted(&by_three), "{name}: Helm 3 renders other objects");
        let disarmed = std::fs::read_to_string(&path)?.contains("disarm: true");
        ensure!(rendered.contains("--disarm") == disarmed, "{name}: a flag overrides SQUELCH_DISARM");
        let is_configuration =
            |line: &str| line.starts_with("kind:") && line.trim_end().ends_with("WebhookConfiguration");
        ensure!(!rendered.contains("caBundle"), "{name}: a certificate authority is rendered");
        ensure!(!rendered.lines().any(is_configuration), "{name}: a webhook configuration is rendered");
        let judged = kubectl
            .run_with(
                &["apply", "--dry-run=server", "--server-side", "--force-conflicts", "-f", "-"],
                rendered,
            )
            .await
            .with_context(|| name.clone())?;
        eprintln!("{name}: {} objects accepted", judged.lines().count());
        ensure!(judged.lines().count() >= 10, "{name}: {judged}");
    }
    for kind in MONITORING {
        kubectl.run(&["delete", &format!("crd/{kind}.monitoring.coreos.com")]).await?;
    }
    test.passed()
}

#[test]
fn without_prometheus_operator_none_of_its_objects_are_rendered() -> Result<()> {
    let values = checkout("charts/squelch/scenarios/prometheus-operator.yaml").display().to_string();
    let rendered = render(Path::new("helm"), &["--values", &values])?;
    ensure!(!rendered.contains("monitoring.coreos.com"), "{rendered}");
    ensure!(rendered.contains("grafana_dashboard"), "the dashboard needs no operator");
    Ok(())
}

/// The API groups of a cluster are those with their kinds; `--api-versions` by hand may name the group alone.
#[test]
fn only_kinds_that_the_cluster_has_are_rendered() -> Result<()> {
    let has = [&OPERATOR[..], &["--api-versions", "monitoring.coreos.com/v1/ServiceMonitor"]].concat();
    for program in [given("SQUELCH_HELM3")?, PathBuf::from("helm")] {
        let rendered = render(&program, &has)?;
        ensure!(rendered.contains("kind: ServiceMonitor"), "{rendered}");
        ensure!(!rendered.contains("kind: PrometheusRule"), "{rendered}");
    }
    Ok(())
}

/// Flux appends the digest or the revision to the version. No label may have a "+".
#[test]
fn a_version_with_a_revision_gives_a_valid_label() -> Result<()> {
    let folder = std::env::temp_dir().join(format!("squelch-chart-{}", std::process::id()));
    let run = |arguments: &[&str]| {
        let output = Command::new("helm").args(arguments).current_dir(&folder).output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?)
    };
    std::fs::create_dir_all(&folder)?;
    let chart = checkout("charts/squelch").display().to_string();
    let rendered = run(&["package", &chart, "--version", "0.1.0+4fda46fd8c4e"]).and_then(|_| {
        let given = ["--kube-version", "1.35.0", "--set", "image.repository=registry.example/squelch"];
        run(&[&["template", "squelch", "squelch-0.1.0+4fda46fd8c4e.tgz"], &given[..]].concat())
    });
    std::fs::remove_dir_all(&folder)?;
    let rendered = rendered?;
    let labels: Vec<_> =
        rendered.lines().filter_map(|line| line.trim().strip_prefix("helm.sh/chart: ")).collect();
    ensure!(
        labels.len() > 20 && labels.iter().all(|label| *label == "squelch-0.1.0_4fda46fd8c4e"),
        "{labels:?}"
    );
    Ok(())
}

#[test]
fn labels_of_an_object_override_common_labels() -> Result<()> {
    let set = [
        "commonLabels.app\\.kubernetes\\.io/component=platform",
        "commonLabels.release=prod",
        "metrics.monitor.labels.release=monitoring",
    ];
    let arguments = [&OPERATOR[..], &set.map(|value| ["--set", value]).concat()].concat();
    let rendered = render(Path::new("helm"), &arguments)?;
    let documents = rendered.split("---\n").filter(|document| document.contains("\nkind:"));
    let objects: Vec<Value> = documents.map(serde_saphyr::from_str).collect::<Result<_, _>>()?;
    let monitor = objects.iter().find(|object| object["kind"] == "ServiceMonitor").context("no monitor")?;
    let wanted = monitor["spec"]["selector"]["matchLabels"].as_object().context("no selector")?;
    let has = |object: &Value| wanted.iter().all(|(key, value)| object["metadata"]["labels"][key] == *value);
    let selected = objects.iter().filter(|object| object["kind"] == "Service" && has(object)).count();
    ensure!(selected == 1, "the monitor selects {selected} Services: {wanted:?}");
    ensure!(monitor["metadata"]["labels"]["release"] == "monitoring", "{monitor}");
    Ok(())
}

/// A YAML parser such as that of Flux refuses a key that is there twice, and server-side apply a pull secret.
#[test]
fn values_that_meet_are_rendered_once() -> Result<()> {
    let arguments = [
        "--set",
        "commonLabels.team=a,podLabels.team=b,podLabels.app\\.kubernetes\\.io/name=x",
        "--set-json",
        r#"image.pullSecrets=[{"name":"s"}],global.imagePullSecrets=["s"]"#,
        "--show-only",
        "templates/deployment.yaml",
    ];
    let rendered = render(Path::new("helm"), &arguments)?;
    let lines = |wanted: &str| rendered.lines().filter(|line| line.trim() == wanted).count();
    // The label of the Deployment itself is `a`.
    ensure!((lines("team: a"), lines("team: b")) == (1, 1), "{rendered}");
    ensure!(lines("app.kubernetes.io/name: x") == 0 && lines("- name: s") == 1, "{rendered}");
    Ok(())
}

#[test]
fn a_parent_chart_can_have_a_condition() -> Result<()> {
    for program in [given("SQUELCH_HELM3")?, PathBuf::from("helm")] {
        render(&program, &["--set", "enabled=true"])?;
    }
    Ok(())
}

#[test]
fn invalid_values_are_refused_by_name() -> Result<()> {
    for (value, expected) in [
        ("image.digst=x", "digst"),
        ("replicas=-1", "replicas"),
        ("podLabels.squelch\\.dev/role=active", "squelch.dev/role"),
        ("operator.shutdownTimeout=30", "shutdownTimeout"),
        ("operator.statusQps=0", "statusQps"),
        ("metrics.monitor.kind=Both", "monitor"),
        ("image.repository=", "image.repository is empty"),
        ("serviceAccount.create=false", "serviceAccount.name is empty"),
        ("readinessProbe.path=/", "readinessProbe"),
        ("image.digest=latest", "digest"),
        ("fullnameOverride=Squelch", "fullnameOverride"),
        ("metrics.rules.alerts.SquelchNone.enabled=false", "there is no alert SquelchNone"),
        ("metrics.rules.alerts.SquelchNoActiveReplica.threshold=3", "SquelchNoActiveReplica.threshold"),
    ] {
        for program in [given("SQUELCH_HELM3")?, PathBuf::from("helm")] {
            let arguments = [&OPERATOR[..], &["--set", value]].concat();
            let Err(refusal) = helm(&program, &arguments)? else {
                anyhow::bail!("{value} is accepted by {}", program.display())
            };
            ensure!(refusal.contains(expected), "{value}: {refusal}");
        }
    }
    let old = helm(Path::new("helm"), &["--kube-version", "1.29.0"])?;
    ensure!(old.is_err_and(|refusal| refusal.contains("1.30")), "Kubernetes 1.29 is accepted");
    Ok(())
}

#[test]
fn common_labels_are_on_all_objects_and_pods() -> Result<()> {
    let common = ["--set", "commonLabels.team=platform", "--set", "commonAnnotations.owner=platform"];
    let rendered = render(Path::new("helm"), &[&OPERATOR[..], &common].concat())?;
    for text in rendered.split("---\n").filter(|text| text.contains("\nkind:")) {
        let object: serde_json::Value = serde_saphyr::from_str(text)?;
        let name = format!("{} {}", object["kind"], object["metadata"]["name"]);
        ensure!(object["metadata"]["labels"]["team"] == "platform", "{name} lacks the label");
        ensure!(object["metadata"]["annotations"]["owner"] == "platform", "{name} lacks the annotation");
        if let Some(pod) = object["spec"].get("template") {
            ensure!(pod["metadata"]["labels"]["team"] == "platform", "the pods of {name} lack the label");
        }
    }
    Ok(())
}

#[test]
fn the_grace_period_is_the_shutdown_timeout_and_45_seconds() -> Result<()> {
    for (timeout, seconds) in [("30s", 75), ("1m30s", 135), ("1h", 3645), ("500ms", 46), ("0s", 45)] {
        let value = format!("operator.shutdownTimeout={timeout}");
        let rendered = render(Path::new("helm"), &["--set", &value])?;
        ensure!(rendered.contains(&format!("terminationGracePeriodSeconds: {seconds}\n")), "{timeout}");
    }
    Ok(())
}

#[test]
fn client_certificates_are_requested_with_a_client_ca() -> Result<()> {
    let set =
        ["--set", "webhook.clientCA.configMap=apiservers", "--set", "webhook.clientCA.subjects={a,b: c}"];
    let rendered = render(Path::new("helm"), &set)?;
    for line in [
        "- --client-ca-file=/client-ca/ca.crt\n",
        "- \"--client-subject=a\"\n",
        "- \"--client-subject=b: c\"\n",
        "mountPath: /client-ca\n",
        "name: apiservers\n",
    ] {
        ensure!(rendered.contains(line), "{line} is not rendered");
    }
    let rendered = render(Path::new("helm"), &[])?;
    ensure!(!rendered.contains("client-ca") && !rendered.contains("volumes:"), "it must be off by default");
    Ok(())
}

#[test]
fn a_network_policy_has_peers_in_every_rule() -> Result<()> {
    let policy = |arguments: &[&str]| -> Result<serde_json::Value> {
        let arguments = [&["--show-only", "templates/networkpolicy.yaml"], arguments].concat();
        let rendered = render(Path::new("helm"), &arguments)?;
        Ok(serde_saphyr::from_str(&rendered)?)
    };
    let without = helm(Path::new("helm"), &["--set", "networkPolicy.enabled=true"])?;
    ensure!(
        without.as_ref().is_err_and(|refusal| refusal.contains("networkPolicy.apiServerPeers")),
        "{without:?}"
    );
    let scenario = checkout("charts/squelch/scenarios/network-policy.yaml").display().to_string();
    let peers = "networkPolicy.apiServerPeers[0].ipBlock.cidr=10.0.0.0/28";
    let least = ["--set", "networkPolicy.enabled=true", "--set", peers];
    for (arguments, ingress, egress) in [(&["--values", scenario.as_str()][..], 3, 3), (&least, 1, 2)] {
        let policy = policy(arguments)?;
        for (direction, peers, number) in [("ingress", "from", ingress), ("egress", "to", egress)] {
            let rules = policy["spec"][direction].as_array().context("no rules")?;
            ensure!(rules.len() == number, "{direction}: {rules:?}");
            for rule in rules {
                ensure!(rule[peers].as_array().is_some_and(|peers| !peers.is_empty()), "{rule}");
                ensure!(rule["ports"].as_array().is_some_and(|ports| !ports.is_empty()), "{rule}");
            }
        }
        ensure!(policy["spec"]["policyTypes"] == serde_json::json!(["Ingress", "Egress"]), "{policy}");
    }
    Ok(())
}
