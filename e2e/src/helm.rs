//! The real Helm.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Result;
use serde_json::Value;

use crate::cluster::checkout;
use crate::process::{output_of, words_of};

/// How long Helm waits for what it has installed.
const TIMEOUT: &str = "--timeout=2m";

/// The files of the chart's scenarios, by name.
///
/// # Errors
/// What the system says.
pub fn scenarios() -> Result<BTreeMap<String, PathBuf>> {
    let folder = std::fs::read_dir(checkout("charts/squelch/scenarios"))?;
    let paths: Vec<_> = folder.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    let name = |path: &PathBuf| path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    Ok(paths.into_iter().map(|path| (name(&path), path)).collect())
}

/// One release of a chart.
#[derive(Clone)]
pub struct Helm {
    kubeconfig: PathBuf,
    /// Its name.
    pub release: String,
    /// Where it is installed.
    pub namespace: String,
    /// The chart's folder.
    pub chart: PathBuf,
    /// Settings that every install and upgrade has beside its values (`--set`).
    settings: Vec<String>,
}

impl Helm {
    /// A release that may be there or not.
    pub fn new(kubeconfig: &Path, chart: PathBuf, namespace: &str, release: &str) -> Self {
        Self {
            kubeconfig: kubeconfig.to_owned(),
            release: release.to_owned(),
            namespace: namespace.to_owned(),
            chart,
            settings: Vec::new(),
        }
    }

    /// The same with a setting that no values need to tell.
    #[must_use]
    pub fn set(mut self, key: &str, value: &str) -> Self {
        self.settings.push(format!("--set={key}={value}"));
        self
    }

    /// Installs it with these values and waits until it is ready.
    ///
    /// # Errors
    /// What Helm says.
    pub async fn install(&self, values: &Value) -> Result<String> {
        self.put(&["install", "--create-namespace"], values).await
    }

    /// What a person types in the checkout to install it with its settings alone.
    pub fn typed(&self) -> String {
        let chart = self.chart.strip_prefix(checkout("")).unwrap_or(&self.chart);
        let Self { release, namespace, .. } = self;
        let install = format!("helm install {release} {} --namespace={namespace}", chart.display());
        format!("{install} --create-namespace --wait {}", self.settings.join(" "))
    }

    /// Changes it to these values alone and waits until it is ready.
    ///
    /// # Errors
    /// What Helm says.
    pub async fn upgrade(&self, values: &Value) -> Result<String> {
        self.put(&["upgrade", "--reset-values"], values).await
    }

    async fn put(&self, verb: &[&str], values: &Value) -> Result<String> {
        let chart = self.chart.display().to_string();
        let mut arguments = vec![verb[0], self.release.as_str(), chart.as_str()];
        arguments.extend(&verb[1..]);
        arguments.extend(["--wait", TIMEOUT, "--values=-"]);
        arguments.extend(self.settings.iter().map(String::as_str));
        self.run_with(&arguments, values.to_string()).await
    }

    /// Goes back to what was before the last change, and waits until it is ready.
    ///
    /// # Errors
    /// What Helm says.
    pub async fn rollback(&self) -> Result<String> {
        self.run(&["rollback", &self.release, "--wait", TIMEOUT]).await
    }

    /// Takes it away, if it is there, and waits until its objects are gone.
    ///
    /// # Errors
    /// What Helm says.
    pub async fn uninstall(&self) -> Result<String> {
        self.run(&["uninstall", &self.release, "--ignore-not-found", "--wait", TIMEOUT]).await
    }

    /// The objects with these values, as YAML documents.
    ///
    /// # Errors
    /// What Helm says.
    pub async fn template(&self, values: &Value) -> Result<String> {
        let chart = self.chart.display().to_string();
        let mut arguments = vec!["template", self.release.as_str(), chart.as_str(), "--values=-"];
        arguments.extend(self.settings.iter().map(String::as_str));
        self.run_with(&arguments, values.to_string()).await
    }

    /// Any other command, in the namespace of the release.
    ///
    /// # Errors
    /// Its standard error, if it fails.
    pub async fn run(&self, arguments: &[&str]) -> Result<String> {
        self.run_with(arguments, String::new()).await
    }

    async fn run_with(&self, arguments: &[&str], input: String) -> Result<String> {
        output_of(format!("helm {}", arguments.join(" ")), self.command(arguments), input).await
    }

    /// Runs it where nothing can be awaited; whatever it says.
    pub fn say(&self, arguments: &[&str]) -> String {
        words_of(self.command(arguments))
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("helm");
        command.arg("--kubeconfig").arg(&self.kubeconfig).arg("--namespace").arg(&self.namespace);
        command.args(arguments).stdin(Stdio::null());
        command
    }
}
