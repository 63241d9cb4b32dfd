//! The real kubectl.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Result;
use serde_json::Value;

use crate::process::{output_of, words_of};

/// kubectl with one identity, and perhaps one namespace.
#[derive(Clone)]
pub struct Kubectl {
    arguments: Vec<String>,
}

impl Kubectl {
    /// With the identity of this kubeconfig.
    pub fn new(kubeconfig: &Path) -> Self {
        Self { arguments: vec![format!("--kubeconfig={}", kubeconfig.display())] }
    }

    /// The same in a namespace.
    #[must_use]
    pub fn namespace(&self, namespace: &str) -> Self {
        self.with(format!("--namespace={namespace}"))
    }

    /// The same as another user, with every right: the administrator impersonates.
    #[must_use]
    pub fn person(&self, user: &str) -> Self {
        self.with(format!("--as={user}")).with("--as-group=system:masters".to_owned())
    }

    /// The same as another user, with the rights of that user: the administrator impersonates.
    #[must_use]
    pub fn user(&self, user: &str) -> Self {
        self.with(format!("--as={user}"))
    }

    fn with(&self, argument: String) -> Self {
        let mut arguments = self.arguments.clone();
        arguments.push(argument);
        Self { arguments }
    }

    /// Runs it to its end; its standard output.
    ///
    /// # Errors
    /// Its standard error, if it fails.
    pub async fn run(&self, arguments: &[&str]) -> Result<String> {
        self.run_with(arguments, String::new()).await
    }

    /// Applies an object.
    ///
    /// # Errors
    /// Its standard error, if it fails.
    pub async fn apply(&self, object: &Value) -> Result<String> {
        self.run_with(&["apply", "-f", "-"], object.to_string()).await
    }

    /// Runs it with this standard input.
    ///
    /// # Errors
    /// Its standard error, if it fails.
    pub async fn run_with(&self, arguments: &[&str], input: String) -> Result<String> {
        output_of(format!("kubectl {}", arguments.join(" ")), self.command(arguments), input).await
    }

    /// Runs it where nothing can be awaited; whatever it says.
    pub fn say(&self, arguments: &[&str]) -> String {
        words_of(self.command(arguments))
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("kubectl");
        command.args(&self.arguments).args(arguments).stdin(Stdio::null());
        command
    }
}
