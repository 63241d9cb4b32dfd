//! A temporary folder in which tests run squelch.

#![expect(clippy::unwrap_used, reason = "of a test")]

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A temporary folder, removed on drop.
pub(crate) struct CommandFolder(PathBuf);

impl CommandFolder {
    /// A folder with `label` in its name.
    pub(crate) fn new(label: &str) -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("squelch-{label}-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    /// Runs squelch in the folder, without a cluster. Returns exit code, standard output, standard error.
    pub(crate) fn run(&self, arguments: &[&str], input: &str) -> (i32, String, String) {
        self.run_with(&[], arguments, input)
    }

    /// The same, with these environment variables.
    pub(crate) fn run_with(
        &self,
        variables: &[(&str, &str)],
        arguments: &[&str],
        input: &str,
    ) -> (i32, String, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_squelch"));
        command.current_dir(&self.0).args(arguments).env_remove("KUBECONFIG").env("HOME", &self.0);
        command.env_remove("KUBERNETES_SERVICE_HOST");
        command.envs(variables.iter().copied());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // After a usage error the command does not read.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        let output = child.wait_with_output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    }
}

impl Drop for CommandFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
