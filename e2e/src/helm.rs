//! Helm.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Result;
use serde_json::Value;

use crate::cluster::checkout;
use crate::process::{output_of, words_of};

/// Timeout of Helm for an installation.
const TIMEOUT: &str = "--timeout=2m";

/// The files of the chart's scenarios, by name.
///
/// # Errors
/// An error of the operating system.
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
    /// The name of the release.
    pub release: String,
    /// The namespace of the release.
    pub namespace: String,
    /// The chart's folder.
    pub chart: PathBuf,
    /// Options of every install and upgrade, such as settings (`--set`).
    options: Vec<String>,
}

impl Helm {
    /// A release, installed or not.
    pub fn new(kubeconfig: &Path, chart: PathBuf, namespace: &str, release: &str) -> Self {
        Self {
            kubeconfig: kubeconfig.to_owned(),
            release: release.to_owned(),
            namespace: namespace.to_owned(),
            chart,
            options: Vec::new(),
        }
    }

    /// Adds a setting.
    #[must_use]
    pub fn set(self, key: &str, value: &str) -> Self {
        self.option(&format!("--set={key}={value}"))
    }

    /// Adds an option.
    #[must_use]
    pub fn option(mut self, option: &str) -> Self {
        self.options.push(option.to_owned());
        self
    }

    /// Installs it with these values and waits until it is ready.
    ///
    /// # Errors
    /// If Helm fails, with its standard error.
    pub async fn install(&self, values: &Value) -> Result<String> {
        self.put(&["install", "--create-namespace"], values).await
    }

    /// The install command with its options alone, as typed in the checkout.
    pub fn typed(&self) -> String {
        let chart = self.chart.strip_prefix(checkout("")).unwrap_or(&self.chart);
        let Self { release, namespace, .. } = self;
        let install = format!("helm install {release} {} --namespace={namespace}", chart.display());
        format!("{install} --create-namespace --wait {}", self.options.join(" "))
    }

    /// Upgrades it to these values alone and waits until it is ready.
    ///
    /// # Errors
    /// If Helm fails, with its standard error.
    pub async fn upgrade(&self, values: &Value) -> Result<String> {
        self.put(&["upgrade", "--reset-values"], values).await
    }

    async fn put(&self, verb: &[&str], values: &Value) -> Result<String> {
        let chart = self.chart.display().to_string();
        let mut arguments = vec![verb[0], self.release.as_str(), chart.as_str()];
        arguments.extend(&verb[1..]);
        arguments.extend(["--wait", TIMEOUT, "--values=-"]);
        arguments.extend(self.options.iter().map(String::as_str));
        self.run_with(&arguments, values.to_string()).await
    }

    /// Rolls back the last change and waits until it is ready.
    ///
    /// # Errors
    /// If Helm fails, with its standard error.
    pub async fn rollback(&self) -> Result<String> {
        self.run(&["rollback", &self.release, "--wait", TIMEOUT]).await
    }

    /// Uninstalls it, if installed, and waits until its objects are deleted.
    ///
    /// # Errors
    /// If Helm fails, with its standard error.
    pub async fn uninstall(&self) -> Result<String> {
        self.run(&["uninstall", &self.release, "--ignore-not-found", "--wait", TIMEOUT]).await
    }

    /// The objects with these values, as YAML documents.
    ///
    /// # Errors
    /// If Helm fails, with its standard error.
    pub async fn template(&self, values: &Value) -> Result<String> {
        let chart = self.chart.display().to_string();
        let mut arguments = vec!["template", self.release.as_str(), chart.as_str(), "--values=-"];
        arguments.extend(self.options.iter().map(String::as_str));
        self.run_with(&arguments, values.to_string()).await
    }

    /// Runs any other command in the namespace of the release.
    ///
    /// # Errors
    /// If the command fails, with its standard error.
    pub async fn run(&self, arguments: &[&str]) -> Result<String> {
        self.run_with(arguments, String::new()).await
    }

    async fn run_with(&self, arguments: &[&str], input: String) -> Result<String> {
        output_of(format!("helm {}", arguments.join(" ")), self.command(arguments), input).await
    }

    /// Runs it without async, and returns its output, whatever the exit code.
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
