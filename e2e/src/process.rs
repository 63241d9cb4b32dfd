//! A process that logs to files and is killed on drop.

use std::fs::File;
use std::io::Write as _;
use std::net::TcpListener;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::wait::{not_yet, wait_for};

/// A running program.
pub struct Process {
    name: String,
    child: Child,
    /// Its standard error.
    pub log: PathBuf,
    /// Its standard output.
    pub output: PathBuf,
}

impl Process {
    /// Starts it; its output goes to files in `folder` that are named after it.
    ///
    /// # Errors
    /// If the process cannot be started.
    pub fn start(name: &str, command: &mut Command, folder: &Path) -> Result<Self> {
        let log = folder.join(format!("{name}.log"));
        let output = folder.join(format!("{name}.out"));
        command.stdin(Stdio::null()).stdout(File::create(&output)?).stderr(File::create(&log)?);
        let child =
            command.spawn().with_context(|| format!("starting {}", command.get_program().display()))?;
        Ok(Self { name: name.to_owned(), child, log, output })
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The exit status, if it has exited.
    ///
    /// # Errors
    /// An error of the operating system.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Sends SIGTERM.
    ///
    /// # Errors
    /// If the process has exited.
    pub fn terminate(&mut self) -> Result<()> {
        self.signal("TERM")
    }

    /// Sends it this signal.
    ///
    /// # Errors
    /// If the process has exited.
    pub fn signal(&mut self, signal: &str) -> Result<()> {
        ensure!(self.ended()?.is_none(), "{} has ended by itself", self.name);
        // The child was not waited for, so its id is still valid.
        send(self.child.id(), signal).with_context(|| self.name.clone())
    }

    /// Kills it (SIGKILL).
    ///
    /// # Errors
    /// An error of the operating system.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Waits until it has exited with success.
    ///
    /// # Errors
    /// If it fails, with its status and the end of its log, or if the deadline passes.
    pub async fn success(&mut self, deadline: Duration) -> Result<()> {
        let what = format!("{} to end", self.name);
        let status = wait_for(&what, deadline, async || {
            self.ended().map_err(not_yet)?.ok_or_else(|| "it still runs".to_owned())
        })
        .await?;
        if status.success() {
            return Ok(());
        }
        let how = status.signal().map_or_else(|| status.to_string(), |signal| format!("signal {signal}"));
        bail!("{} ended with {how}:\n{}", self.name, tail(&self.log, 20))
    }
}

/// Sends a process a signal, such as KILL.
///
/// # Errors
/// If the process does not exist.
pub fn send(pid: u32, signal: &str) -> Result<()> {
    let sent = Command::new("sh").args(["-c", "kill -\"$0\" \"$1\"", signal, &pid.to_string()]).status()?;
    ensure!(sent.success(), "cannot send {signal} to {pid}");
    Ok(())
}

/// A currently free port of this machine.
///
/// # Errors
/// An error of the operating system.
pub fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

/// The last lines of a file, truncated if long.
pub fn tail(path: &Path, lines: usize) -> String {
    let text = std::fs::read(path).map_or_else(
        |error| format!("{}: {error}", path.display()),
        |bytes| String::from_utf8_lossy(&bytes).into_owned(),
    );
    let all: Vec<String> = text.lines().map(|line| line.chars().take(400).collect()).collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

/// Runs a short command with this standard input and returns its standard output. `what` names it in errors.
///
/// # Errors
/// If the command fails, with its standard error.
pub(crate) async fn output_of(what: String, mut command: Command, input: String) -> Result<String> {
    let output = tokio::task::spawn_blocking(move || run_with_input(&mut command, &input)).await??;
    standard_output(&what, output)
}

/// Same without async, and without input.
///
/// # Errors
/// If the command fails, with its standard error.
pub(crate) fn run(what: &str, mut command: Command) -> Result<String> {
    standard_output(what, command.output().with_context(|| what.to_owned())?)
}

fn standard_output(what: &str, output: Output) -> Result<String> {
    ensure!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(String::from_utf8(output.stdout)?)
}

/// Runs a short command without async, and returns its output, whatever the exit code.
pub(crate) fn words_of(mut command: Command) -> String {
    match command.output() {
        Ok(output) => String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned(),
        Err(error) => error.to_string(),
    }
}

/// Runs a short command with this standard input to its end.
///
/// # Errors
/// If the process cannot be started.
pub fn run_with_input(command: &mut Command, input: &str) -> Result<Output> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let program = command.get_program().display().to_string();
    let mut child = command.spawn().with_context(|| format!("{program} is missing: run `just test-e2e`"))?;
    if let Some(mut stdin) = child.stdin.take() {
        // If it does not read its input, it reports that itself.
        let _ = stdin.write_all(input.as_bytes());
    }
    Ok(child.wait_with_output()?)
}
