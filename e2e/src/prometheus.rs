//! A Prometheus that scrapes squelch every second.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use kube::Client;
use serde_json::{Value, json};

use crate::cluster::{anonymous, checkout};
use crate::process::{Process, free_port};
use crate::wait::{GENEROUS, not_yet, wait_for};

/// The rules of the chart.
const RULES: &str = "charts/squelch/files/rules.yaml";

/// The dashboard of the chart.
const DASHBOARD: &str = "charts/squelch/files/dashboard.json";

/// A running Prometheus; killed on drop.
pub struct Prometheus {
    process: Process,
    http: Client,
    /// Its URL.
    pub url: String,
}

impl Prometheus {
    /// Starts a Prometheus that scrapes `target` (`http://host:port`) and evaluates squelch's rules, and waits until
    /// it is ready. Its data goes to `folder`.
    ///
    /// # Errors
    /// If it is not ready in time.
    pub async fn start(name: &str, target: &str, folder: &Path) -> Result<Self> {
        let target = target.strip_prefix("http://").context("a target without TLS")?;
        // JSON is valid YAML.
        let configuration = json!({
            "global": { "scrape_interval": "1s", "evaluation_interval": "1s" },
            "rule_files": [checkout(RULES)],
            "scrape_configs": [{ "job_name": "squelch", "static_configs": [{ "targets": [target] }] }],
        });
        let file = folder.join(format!("{name}.yaml"));
        std::fs::write(&file, configuration.to_string())?;
        let address = format!("127.0.0.1:{}", free_port()?);
        let mut command = Command::new("prometheus");
        command
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", folder.join(name).display()))
            .arg(format!("--web.listen-address={address}"));
        let process = Process::start(name, &mut command, folder)?;
        let url = format!("http://{address}");
        let mut prometheus = Self { process, http: anonymous(&url)?, url };
        prometheus.until_ready().await?;
        Ok(prometheus)
    }

    async fn until_ready(&mut self) -> Result<()> {
        let ended = wait_for("Prometheus to be ready", GENEROUS, async || {
            if let Some(status) = self.process.ended().map_err(not_yet)? {
                return Ok(Some(status));
            }
            self.get("/-/ready").await.map(|_| None).map_err(not_yet)
        })
        .await?;
        if let Some(status) = ended {
            bail!("Prometheus ended with {status} before it was ready");
        }
        Ok(())
    }

    /// The current values of an expression, one per series.
    ///
    /// # Errors
    /// If the expression is invalid.
    pub async fn query(&self, expression: &str) -> Result<Vec<f64>> {
        let path = format!("/api/v1/query?query={}", escaped(expression));
        let result = self.data(&path).await.with_context(|| format!("querying {expression}"))?;
        let values = result["result"].as_array().context("no result")?;
        let value = |entry: &Value| entry["value"][1].as_str()?.parse().ok();
        values.iter().map(|entry| value(entry).with_context(|| format!("no value in {entry}"))).collect()
    }

    /// Waits until the sum of the values of an expression meets the condition, and returns it.
    ///
    /// # Errors
    /// What it is instead.
    pub async fn until(&self, expression: &str, is: impl Fn(f64) -> bool) -> Result<f64> {
        wait_for(expression, GENEROUS, async || {
            let values = self.query(expression).await.map_err(not_yet)?;
            let sum = values.iter().sum();
            if !values.is_empty() && is(sum) { Ok(sum) } else { Err(format!("{values:?}")) }
        })
        .await
    }

    /// Each rule of squelch: its name, and its error (empty after an evaluation).
    ///
    /// # Errors
    /// If Prometheus does not answer.
    pub async fn rules(&self) -> Result<Vec<(String, String)>> {
        let data = self.data("/api/v1/rules").await?;
        let groups = data["groups"].as_array().context("no groups")?;
        let rules = groups.iter().filter_map(|group| group["rules"].as_array()).flatten();
        let word = |rule: &Value, key: &str| rule[key].as_str().unwrap_or_default().to_owned();
        Ok(rules.map(|rule| (word(rule, "name"), word(rule, "health") + &word(rule, "lastError"))).collect())
    }

    async fn data(&self, path: &str) -> Result<Value> {
        let mut answer: Value = serde_json::from_str(&self.get(path).await?)?;
        Ok(answer["data"].take())
    }

    async fn get(&self, path: &str) -> Result<String> {
        Ok(self.http.request_text(http::Request::get(path).body(Vec::new())?).await?)
    }
}

/// Every query of squelch's dashboard with its panel, with Grafana's variables replaced.
///
/// # Errors
/// If the dashboard is invalid.
pub fn dashboard() -> Result<Vec<(String, String)>> {
    let text = std::fs::read_to_string(checkout(DASHBOARD))?;
    let dashboard: Value = serde_json::from_str(&text)?;
    let panels = dashboard["panels"].as_array().context("a dashboard without panels")?;
    let mut queries = Vec::new();
    for panel in panels {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let query = target["expr"].as_str().with_context(|| format!("no query: {target}"))?;
            let mut asked = query.to_owned();
            for (variable, value) in
                [("$__rate_interval", "1m"), ("$__range", "1h"), ("$event_namespace", ".*")]
            {
                asked = asked.replace(variable, value);
            }
            ensure!(!asked.contains('$'), "a variable that the test does not know: {asked}");
            queries.push((panel["title"].to_string(), asked));
        }
    }
    Ok(queries)
}

/// Percent-encodes text for the query of a URL.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}
