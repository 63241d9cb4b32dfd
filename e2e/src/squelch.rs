//! The real binary, with the rights that it is installed with.

use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::Duration;

use anyhow::{Result, ensure};
use kube::Client;

use crate::cluster::{anonymous, given};
use crate::metrics::Samples;
use crate::process::{Process, free_port};
use crate::proxy::Detour;
use crate::wait::{GENEROUS, told, wait_for};

/// What is owed is paid in a second or two. Far below `--shutdown-timeout`, which would cut an end that hangs.
const END: Duration = Duration::from_secs(20);

/// A running squelch.
pub struct Squelch {
    process: Process,
    /// Where its webhook answers, without the path.
    pub webhook: String,
    /// Where its metrics and probes are.
    pub admin: Admin,
}

/// The plain HTTP port of a squelch, wherever it runs.
pub struct Admin {
    http: Client,
    /// `http://host:port`.
    pub url: String,
}

/// How it is started other than usually.
#[derive(Clone, Copy, Default)]
pub struct Way<'a> {
    /// What it says to the API server and is asked by it goes through these proxies.
    pub by: Option<&'a Detour>,
    /// More flags of `squelch run`.
    pub flags: &'a [&'a str],
    /// Environment variables.
    pub environment: &'a [(&'a str, &'a str)],
    /// Another is the active one: it is not waited for that this one is.
    pub standby: bool,
    /// It is as quiet as one that was installed, in place of what a test wants to see: statuses each second, and more
    /// in its log.
    pub as_installed: bool,
    /// Its limits of open files, as `prlimit --nofile=SOFT:HARD` takes them; else those of the test.
    pub open_files: Option<&'a str>,
}

impl Squelch {
    /// Starts it with this identity, this way, and waits until it is ready. Its log goes to `folder`.
    ///
    /// # Errors
    /// The end of its log, if it ends before; or that it is not ready in time.
    pub async fn start(name: &str, kubeconfig: &Path, folder: &Path, way: Way<'_>) -> Result<Self> {
        let (webhook_port, http_port) = (free_port()?, free_port()?);
        let webhook = format!("https://127.0.0.1:{webhook_port}");
        let mut kubeconfig = kubeconfig.to_owned();
        let mut found_at = webhook.clone();
        if let Some(detour) = way.by {
            kubeconfig = detour.kubeconfig(&kubeconfig, folder)?;
            found_at.clone_from(&detour.webhook_url);
            detour.leads_to(&webhook);
        }
        let binary = given("SQUELCH_BIN")?;
        let mut command = match way.open_files {
            None => Command::new(binary),
            Some(limits) => {
                // It sets the limits and becomes the binary: the process keeps its number.
                let mut command = Command::new("prlimit");
                command.arg(format!("--nofile={limits}")).arg(binary);
                command
            }
        };
        command
            .args(["run", "--kubeconfig"])
            .arg(kubeconfig)
            .args(["--webhook-url", &found_at])
            .args(["--webhook-bind", &format!("127.0.0.1:{webhook_port}")])
            .args(["--http-bind", &format!("127.0.0.1:{http_port}")])
            .args(way.flags)
            .envs(way.environment.iter().copied())
            // Nothing of the administrator's reaches it.
            .env_remove("KUBECONFIG");
        if !way.as_installed {
            command.args(["--status-interval", "1s", "--log-level", "info,squelch=debug"]);
        }
        let process = Process::start(name, &mut command, folder)?;
        let admin = Admin::at(format!("http://127.0.0.1:{http_port}"))?;
        let mut squelch = Self { process, webhook, admin };
        squelch.until_ready().await?;
        if !way.standby {
            // At once, unless one before it was killed.
            squelch.is_active().await?;
        }
        Ok(squelch)
    }

    /// Waits until it is the active replica.
    ///
    /// # Errors
    /// That it is not in time.
    pub async fn is_active(&self) -> Result<()> {
        wait_for("squelch to be the active replica", GENEROUS, async || {
            let metrics = self.metrics().await.map_err(told)?;
            if metrics.sum("squelch_active", &[]) > 0.0 { Ok(()) } else { Err("a standby".to_owned()) }
        })
        .await
    }

    /// How it ended, if it has.
    ///
    /// # Errors
    /// What the system says.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        self.process.ended()
    }

    /// Its log so far.
    ///
    /// # Errors
    /// That it cannot be read.
    pub fn log(&self) -> Result<String> {
        Ok(std::fs::read_to_string(&self.process.log)?)
    }

    /// Freezes it (SIGSTOP).
    ///
    /// # Errors
    /// That there is nothing to freeze.
    pub fn freeze(&mut self) -> Result<()> {
        self.process.signal("STOP")
    }

    /// Thaws it (SIGCONT).
    ///
    /// # Errors
    /// That there is nothing to thaw.
    pub fn thaw(&mut self) -> Result<()> {
        self.process.signal("CONT")
    }

    /// Has the task panic that `SQUELCH_TEST_PANIC` names.
    ///
    /// # Errors
    /// That there is no process.
    pub fn panic_task(&mut self) -> Result<()> {
        self.process.signal("USR1")
    }

    async fn until_ready(&mut self) -> Result<()> {
        let ended = wait_for("squelch to be ready", GENEROUS, async || {
            if let Some(status) = self.process.ended().map_err(told)? {
                return Ok(Some(status));
            }
            self.get("/readyz").await.map(|_| None).map_err(told)
        })
        .await?;
        if let Some(status) = ended {
            anyhow::bail!("squelch ended with {status} before it was ready");
        }
        Ok(())
    }

    /// A page of its plain HTTP port.
    ///
    /// # Errors
    /// That it does not answer, or not with success.
    pub async fn get(&self, path: &str) -> Result<String> {
        self.admin.get(path).await
    }

    /// Posts JSON to its webhook, whose certificate is not looked at.
    ///
    /// # Errors
    /// That it does not answer, or not with success.
    pub async fn post(&self, path: &str, body: String) -> Result<String> {
        let request = http::Request::post(path).header("content-type", "application/json");
        Ok(anonymous(&self.webhook)?.request_text(request.body(body.into_bytes())?).await?)
    }

    /// A scrape of its metrics.
    ///
    /// # Errors
    /// That it does not answer.
    pub async fn metrics(&self) -> Result<Samples> {
        self.admin.metrics().await
    }

    /// Waits until every debt is paid and every series is closed.
    ///
    /// # Errors
    /// What is still there after `deadline`.
    pub async fn is_quiet(&self, deadline: Duration) -> Result<()> {
        self.admin.is_quiet(deadline).await
    }

    /// Its process number.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Ends it as an operator is ended (SIGTERM), and waits for exit code 0. It has complained of nothing all its
    /// life.
    ///
    /// # Errors
    /// How it ended instead, or that it still runs, or its complaints.
    pub async fn stop(self) -> Result<()> {
        self.stop_within(END).await
    }

    /// The same where there is much to pay first.
    ///
    /// # Errors
    /// As [`Self::stop`].
    pub async fn stop_within(self, deadline: Duration) -> Result<()> {
        self.end(deadline, " ERROR ").await
    }

    /// The same after calls of its failed: the client library calls each of them an error, squelch does not.
    ///
    /// # Errors
    /// As [`Self::stop`].
    pub async fn stop_after_trouble(self) -> Result<()> {
        self.end(END, " ERROR squelch").await
    }

    async fn end(mut self, deadline: Duration, complaint: &str) -> Result<()> {
        self.process.terminate()?;
        self.process.success(deadline).await?;
        let log = std::fs::read_to_string(&self.process.log)?;
        let complaints: Vec<&str> = log.lines().filter(|line| line.contains(complaint)).collect();
        ensure!(complaints.is_empty(), "squelch complained:\n{}", complaints.join("\n"));
        Ok(())
    }

    /// Lets it run on when this process ends; its process number.
    pub fn leave(self) -> u32 {
        let pid = self.process.id();
        // Otherwise it would be killed here.
        std::mem::forget(self.process);
        pid
    }

    /// Ends it without a chance to pay what is owed (SIGKILL).
    ///
    /// # Errors
    /// What the system says.
    pub fn crash(mut self) -> Result<()> {
        self.process.kill()
    }
}

impl Admin {
    /// The one that answers at `url`.
    ///
    /// # Errors
    /// That `url` is none.
    pub fn at(url: String) -> Result<Self> {
        Ok(Self { http: anonymous(&url)?, url })
    }

    /// A page.
    ///
    /// # Errors
    /// That it does not answer, or not with success.
    pub async fn get(&self, path: &str) -> Result<String> {
        Ok(self.http.request_text(http::Request::get(path).body(Vec::new())?).await?)
    }

    /// A scrape.
    ///
    /// # Errors
    /// That it does not answer.
    pub async fn metrics(&self) -> Result<Samples> {
        Ok(Samples::parse(&self.get("/metrics").await?))
    }

    /// Waits until every debt is paid and every series is closed.
    ///
    /// # Errors
    /// What is still there after `deadline`.
    pub async fn is_quiet(&self, deadline: Duration) -> Result<()> {
        wait_for("every series to be closed", deadline, async || {
            let metrics = self.metrics().await.map_err(told)?;
            let (owed, series) =
                (metrics.sum("squelch_owed_occurrences", &[]), metrics.sum("squelch_series", &[]));
            if owed == 0.0 && series == 0.0 { Ok(()) } else { Err(format!("{series} series owe {owed}")) }
        })
        .await
    }
}
