//! Every value of the chart changes what Helm renders.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use e2e::cluster::checkout;
use serde_json::Value;

use crate::scenarios::{OPERATOR, helm};

/// Values on which others depend: without them, these others change nothing.
const BASE: [&str; 7] = [
    r#"image.tag="base""#,
    r#"webhook.clientCA.configMap="base""#,
    r"metrics.dashboard.enabled=true",
    r#"serviceAccount.name="base""#,
    r"networkPolicy.enabled=true",
    r#"networkPolicy.apiServerPeers=[{"ipBlock": {"cidr": "10.0.0.0/28"}}]"#,
    r#"networkPolicy.exportPeers=[{"ipBlock": {"cidr": "10.0.1.0/28"}}]"#,
];

/// A key of a map whose keys the schema leaves open, in paths `*`.
const ALERT: &str = "SquelchApiServerFailing";

/// Each value: its path, a value as YAML, the template that it changes, and a line that it adds (`+`) or removes (`-`).
const VALUES: &[(&str, &str, &str, &str)] = &[
    ("global.imageRegistry", "mirror.example", "deployment", r#"+ image: "mirror.example/squelch:base""#),
    ("global.imagePullSecrets", "[mirror]", "deployment", "+ - name: mirror"),
    ("fullnameOverride", "events", "deployment", "+ name: events"),
    ("nameOverride", "events", "deployment", "+ name: squelch-events"),
    ("image.repository", "other.example/events", "deployment", r#"+ image: "other.example/events:base""#),
    ("image.tag", "other", "deployment", r#"+ image: "registry.example/squelch:other""#),
    (
        "image.digest",
        "sha256:0000000000000000000000000000000000000000000000000000000000000000",
        "deployment",
        r#"+ image: "registry.example/squelch@sha256:0000000000000000000000000000000000000000000000000000000000000000""#,
    ),
    ("image.pullPolicy", "Always", "deployment", "+ imagePullPolicy: Always"),
    ("image.pullSecrets", "[{name: registry}]", "deployment", "+ - name: registry"),
    ("replicas", "7", "deployment", "+ replicas: 7"),
    ("operator.disarm", "true", "deployment", "+ - --disarm"),
    ("operator.logFormat", "text", "deployment", "+ - --log-format=text"),
    ("operator.logLevel", "debug", "deployment", "+ - --log-level=debug"),
    ("operator.statusInterval", "7s", "deployment", "+ - --status-interval=7s"),
    ("operator.statusQps", "7", "deployment", "+ - --status-qps=7"),
    ("operator.reportInterval", "7s", "deployment", "+ - --report-interval=7s"),
    ("operator.receiptInterval", "7m", "deployment", "+ - --receipt-interval=7m"),
    ("operator.reportQps", "7", "deployment", "+ - --report-qps=7"),
    ("operator.flushQps", "7", "deployment", "+ - --flush-qps=7"),
    ("operator.shutdownFlushQps", "7", "deployment", "+ - --shutdown-flush-qps=7"),
    ("operator.shutdownTimeout", "7s", "deployment", "+ - --shutdown-timeout=7s"),
    ("operator.lastTimestamp", "flush", "deployment", "+ - --last-timestamp=flush"),
    ("operator.maxPendingSeries", "7", "deployment", "+ - --max-pending-series=7"),
    ("operator.maxSeries", "7000", "deployment", "+ - --max-series=7000"),
    ("operator.extraArgs", "[--extra]", "deployment", r#"+ - "--extra""#),
    ("export.otlp", "http://collector:4318", "deployment", r#"+ - "--export-otlp=http://collector:4318""#),
    ("export.file", "/export/events", "deployment", r#"+ - "--export-file=/export/events""#),
    ("operator.extraEnv", "[{name: EXTRA, value: x}]", "deployment", "+ - name: EXTRA"),
    ("webhook.port", "7443", "deployment", "+ containerPort: 7443"),
    ("webhook.labels", "{team: a}", "deployment", r#"+ - "--webhook-label=team=a""#),
    ("webhook.annotations", "{owner: a}", "deployment", r#"+ - "--webhook-annotation=owner=a""#),
    ("webhook.clientCA.configMap", "other", "deployment", "+ name: other"),
    ("webhook.clientCA.subjects", "[apiserver]", "deployment", r#"+ - "--client-subject=apiserver""#),
    ("certificate.lifetime", "7h", "deployment", "+ - --certificate-lifetime=7h"),
    ("certificate.tokenLifetime", "7h", "deployment", "+ - --token-lifetime=7h"),
    ("certificate.existingSecret", "issued", "deployment", "+ secretName: issued"),
    ("metrics.port", "7080", "deployment", "+ containerPort: 7080"),
    ("metrics.monitor.kind", "PodMonitor", "monitoring", "+ kind: PodMonitor"),
    ("metrics.monitor.namespace", "other", "monitoring", "+ namespace: other"),
    ("metrics.monitor.labels", "{team: a}", "monitoring", "+ team: a"),
    ("metrics.monitor.interval", "7s", "monitoring", "+ interval: 7s"),
    ("metrics.monitor.scrapeTimeout", "7s", "monitoring", "+ scrapeTimeout: 7s"),
    ("metrics.monitor.relabelings", "[{targetLabel: cluster}]", "monitoring", "+ - targetLabel: cluster"),
    ("metrics.monitor.metricRelabelings", "[{action: drop}]", "monitoring", "+ - action: drop"),
    ("metrics.rules.enabled", "false", "monitoring", "- kind: PrometheusRule"),
    ("metrics.rules.namespace", "other", "monitoring", "+ namespace: other"),
    ("metrics.rules.labels", "{team: a}", "monitoring", "+ team: a"),
    ("metrics.rules.alertLabels", "{team: a}", "monitoring", "+ team: a"),
    ("metrics.rules.alerts.*.enabled", "false", "monitoring", "- - alert: SquelchApiServerFailing"),
    ("metrics.rules.alerts.*.for", "7m", "monitoring", "+ for: 7m"),
    ("metrics.rules.alerts.*.severity", "page", "monitoring", "+ severity: page"),
    (
        "metrics.rules.alerts.*.threshold",
        "7",
        "monitoring",
        "+ expr: max by (apiserver) (increase(squelch_probe_failures_total[5m])) > 7",
    ),
    (
        "metrics.rules.clusterLabel",
        "cluster",
        "monitoring",
        "+ expr: max by (cluster, apiserver) (increase(squelch_probe_failures_total[5m]))",
    ),
    (
        "metrics.rules.runbookUrl",
        "https://runbooks.example",
        "monitoring",
        "+ runbook_url: https://runbooks.example#squelchapiserverfailing",
    ),
    ("metrics.dashboard.enabled", "false", "monitoring", "- kind: ConfigMap"),
    ("metrics.dashboard.namespace", "other", "monitoring", "+ namespace: other"),
    ("metrics.dashboard.labels", "{team: a}", "monitoring", "+ team: a"),
    ("metrics.dashboard.annotations", "{owner: a}", "monitoring", "+ owner: a"),
    ("rbac.aggregate", "false", "people", r#"- rbac.authorization.k8s.io/aggregate-to-view: "true""#),
    ("serviceAccount.create", "false", "serviceaccount", "- kind: ServiceAccount"),
    ("serviceAccount.name", "other", "serviceaccount", "+ name: other"),
    ("serviceAccount.labels", "{team: a}", "serviceaccount", "+ team: a"),
    ("serviceAccount.annotations", "{owner: a}", "serviceaccount", "+ owner: a"),
    ("service.labels", "{team: a}", "services", "+ team: a"),
    ("service.annotations", "{owner: a}", "services", "+ owner: a"),
    ("service.ipFamilyPolicy", "SingleStack", "services", "+ ipFamilyPolicy: SingleStack"),
    ("service.ipFamilies", "[IPv6]", "services", r#"+ ipFamilies: ["IPv6"]"#),
    ("crds.enabled", "false", "crds", "- kind: CustomResourceDefinition"),
    ("crds.keep", "false", "crds", "- helm.sh/resource-policy: keep"),
    ("crds.annotations", "{owner: a}", "crds", "+ owner: a"),
    ("uninstallHook.enabled", "false", "uninstall", "- kind: Job"),
    ("uninstallHook.resources.requests", "{cpu: 7m}", "uninstall", "+ cpu: 7m"),
    ("uninstallHook.resources.limits", "{memory: 7Mi}", "uninstall", "+ memory: 7Mi"),
    ("uninstallHook.resources.claims", "[{name: device}]", "uninstall", "+ - name: device"),
    ("doctor.resources.requests", "{cpu: 7m}", "doctor", "+ cpu: 7m"),
    ("doctor.resources.limits", "{memory: 7Mi}", "doctor", "+ memory: 7Mi"),
    ("doctor.resources.claims", "[{name: device}]", "doctor", "+ - name: device"),
    ("networkPolicy.enabled", "false", "networkpolicy", "- kind: NetworkPolicy"),
    ("networkPolicy.apiServerPeers", "[{podSelector: {}}]", "networkpolicy", "+ - podSelector: {}"),
    ("networkPolicy.apiServerDestinations", "[{podSelector: {}}]", "networkpolicy", "+ - podSelector: {}"),
    ("networkPolicy.apiServerPorts", "[7443]", "networkpolicy", "+ - port: 7443"),
    ("networkPolicy.metricsPeers", "[{podSelector: {}}]", "networkpolicy", "+ - podSelector: {}"),
    ("networkPolicy.nodePeers", "[{podSelector: {}}]", "networkpolicy", "+ - podSelector: {}"),
    ("networkPolicy.exportPeers", "[{podSelector: {}}]", "networkpolicy", "+ - podSelector: {}"),
    ("networkPolicy.exportPorts", "[4319]", "networkpolicy", "+ - port: 4319"),
    ("networkPolicy.dnsPeers", "[{podSelector: {}}]", "networkpolicy", "+ - podSelector: {}"),
    ("podDisruptionBudget.enabled", "false", "availability", "- kind: PodDisruptionBudget"),
    ("podDisruptionBudget.maxUnavailable", "7", "availability", "+ maxUnavailable: 7"),
    (
        "podDisruptionBudget.unhealthyPodEvictionPolicy",
        "IfHealthyBudget",
        "availability",
        "+ unhealthyPodEvictionPolicy: IfHealthyBudget",
    ),
    ("priorityClassName", "other", "deployment", "+ priorityClassName: other"),
    ("resources.requests", "{cpu: 7m}", "deployment", "+ cpu: 7m"),
    ("resources.limits", "{memory: 7Mi}", "deployment", "+ memory: 7Mi"),
    ("resources.claims", "[{name: device}]", "deployment", "+ - name: device"),
    ("podSecurityContext", "{fsGroup: 7}", "deployment", "+ fsGroup: 7"),
    ("containerSecurityContext", "{runAsGroup: 7}", "deployment", "+ runAsGroup: 7"),
    ("livenessProbe", "{failureThreshold: 7}", "deployment", "+ failureThreshold: 7"),
    ("readinessProbe", "{failureThreshold: 7}", "deployment", "+ failureThreshold: 7"),
    ("strategy", "{type: Recreate}", "deployment", "+ type: Recreate"),
    ("revisionHistoryLimit", "7", "deployment", "+ revisionHistoryLimit: 7"),
    ("hostNetwork", "true", "deployment", "+ hostNetwork: true"),
    ("dnsPolicy", "Default", "deployment", "+ dnsPolicy: Default"),
    ("dnsConfig", "{nameservers: [10.0.0.7]}", "deployment", "+ - 10.0.0.7"),
    ("runtimeClassName", "other", "deployment", "+ runtimeClassName: other"),
    ("extraVolumes", "[{name: scratch, emptyDir: {}}]", "deployment", "+ - emptyDir: {}"),
    ("extraVolumeMounts", "[{name: scratch, mountPath: /scratch}]", "deployment", "+ - mountPath: /scratch"),
    ("nodeSelector", "{pool: a}", "deployment", "+ pool: a"),
    ("tolerations", "[{key: pool, operator: Exists}]", "deployment", "+ - key: pool"),
    ("affinity", "{nodeAffinity: {}}", "deployment", "+ nodeAffinity: {}"),
    ("topologySpreadConstraints", "[{maxSkew: 7}]", "deployment", "+ - maxSkew: 7"),
    ("commonLabels", "{team: a}", "deployment", "+ team: a"),
    ("commonAnnotations", "{owner: a}", "deployment", "+ owner: a"),
    ("podLabels", "{team: a}", "deployment", "+ team: a"),
    ("podAnnotations", "{owner: a}", "deployment", "+ owner: a"),
    ("extraObjects", "[{kind: Extra}]", "extraobjects", "+ kind: Extra"),
];

#[test]
fn every_value_changes_what_is_rendered() -> Result<()> {
    let schema = std::fs::read_to_string(checkout("charts/squelch/values.schema.json"))?;
    let mut known = BTreeSet::new();
    leaves(&serde_json::from_str(&schema)?, "", &mut known);
    // For the condition of a parent chart.
    known.remove("enabled");
    let tried: BTreeSet<_> = VALUES.iter().map(|(path, ..)| (*path).to_owned()).collect();
    let untried: Vec<_> = known.symmetric_difference(&tried).collect();
    ensure!(untried.is_empty(), "either in values.schema.json or in the table of this test: {untried:?}");
    let base = lines(&[])?;
    for (path, value, template, change) in VALUES {
        let value: Value = serde_saphyr::from_str(value).context(*path)?;
        let rendered = lines(&["--set-json", &format!("{}={value}", path.replace('*', ALERT))])?;
        let (sign, line) = change.split_at(2);
        let line = (format!("{template}.yaml"), line.to_owned());
        let (with, without) = if sign == "+ " { (&rendered, &base) } else { (&base, &rendered) };
        ensure!(
            with.contains(&line) && !without.contains(&line),
            "{path}={value} does not change {template}.yaml by {change}, but: {:?}",
            rendered.symmetric_difference(&base).collect::<Vec<_>>()
        );
    }
    Ok(())
}

/// Collects the paths of a schema's values. An object whose properties are listed is no value itself.
fn leaves(schema: &Value, path: &str, found: &mut BTreeSet<String>) {
    let entries = &schema["additionalProperties"];
    if let Some(properties) = schema["properties"].as_object() {
        for (key, schema) in properties {
            let separator = if path.is_empty() { "" } else { "." };
            leaves(schema, &format!("{path}{separator}{key}"), found);
        }
    } else if entries["properties"].is_object() {
        leaves(entries, &format!("{path}.*"), found);
    } else {
        found.insert(path.to_owned());
    }
}

/// The lines that are rendered with [`BASE`] and these arguments, without indentation, each with its template.
fn lines(arguments: &[&str]) -> Result<BTreeSet<(String, String)>> {
    let base = BASE.iter().flat_map(|value| ["--set-json", value]);
    let arguments: Vec<_> = OPERATOR.into_iter().chain(base).chain(arguments.iter().copied()).collect();
    let rendered =
        helm(Path::new("helm"), &arguments)?.map_err(anyhow::Error::msg).context(arguments.join(" "))?;
    let mut template = "";
    let mut found = BTreeSet::new();
    for line in rendered.lines() {
        if let Some(source) = line.strip_prefix("# Source: squelch/templates/") {
            template = source;
        }
        found.insert((template.to_owned(), line.trim().to_owned()));
    }
    Ok(found)
}
