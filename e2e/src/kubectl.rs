//! kubectl.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Result;
use serde_json::Value;

use crate::process::{Process, output_of, run, words_of};
use crate::wait::{GENEROUS, not_yet, wait_for};

/// kubectl with an identity and an optional namespace.
#[derive(Clone)]
pub struct Kubectl {
    arguments: Vec<String>,
}

impl Kubectl {
    /// With the identity of this kubeconfig.
    pub fn new(kubeconfig: &Path) -> Self {
        Self { arguments: vec![format!("--kubeconfig={}", kubeconfig.display())] }
    }

    /// Same identity, in a namespace.
    #[must_use]
    pub fn namespace(&self, namespace: &str) -> Self {
        self.with(format!("--namespace={namespace}"))
    }

    /// Impersonates a user with all permissions (system:masters).
    #[must_use]
    pub fn cluster_admin(&self, user: &str) -> Self {
        self.with(format!("--as={user}")).with("--as-group=system:masters".to_owned())
    }

    /// Impersonates a user with the permissions of that user.
    #[must_use]
    pub fn user(&self, user: &str) -> Self {
        self.with(format!("--as={user}"))
    }

    fn with(&self, argument: String) -> Self {
        let mut arguments = self.arguments.clone();
        arguments.push(argument);
        Self { arguments }
    }

    /// Runs it and returns its standard output.
    ///
    /// # Errors
    /// If the command fails, with its standard error.
    pub async fn run(&self, arguments: &[&str]) -> Result<String> {
        self.run_with(arguments, String::new()).await
    }

    /// Applies an object.
    ///
    /// # Errors
    /// If the command fails, with its standard error.
    pub async fn apply(&self, object: &Value) -> Result<String> {
        self.run_with(&["apply", "-f", "-"], object.to_string()).await
    }

    /// Runs it with this standard input.
    ///
    /// # Errors
    /// If the command fails, with its standard error.
    pub async fn run_with(&self, arguments: &[&str], input: String) -> Result<String> {
        output_of(format!("kubectl {}", arguments.join(" ")), self.command(arguments), input).await
    }

    /// Waits until the API server serves these CustomResourceDefinitions. kubectl fails at once for one that has no
    /// conditions yet.
    ///
    /// # Errors
    /// If the deadline passes, with kubectl's last error.
    pub async fn established(&self, definitions: &[&str]) -> Result<()> {
        let wait = ["wait", "--for=condition=Established", "--timeout=5s"];
        wait_for("definitions to be established", GENEROUS, async || {
            self.run(&[&wait[..], definitions].concat()).await.map(drop).map_err(not_yet)
        })
        .await
    }

    /// Runs it without async, and returns its output, whatever the exit code.
    pub fn say(&self, arguments: &[&str]) -> String {
        words_of(self.command(arguments))
    }

    /// Runs it without async and returns its standard output.
    ///
    /// # Errors
    /// If the command fails, with its standard error.
    pub(crate) fn run_now(&self, arguments: &[&str]) -> Result<String> {
        run(&format!("kubectl {}", arguments.join(" ")), self.command(arguments))
    }

    /// Starts it; its output goes to files in `folder` that are named after it.
    ///
    /// # Errors
    /// If the process cannot be started.
    pub(crate) fn start(&self, name: &str, arguments: &[&str], folder: &Path) -> Result<Process> {
        Process::start(name, &mut self.command(arguments), folder)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("kubectl");
        command.args(&self.arguments).args(arguments).stdin(Stdio::null());
        command
    }
}
