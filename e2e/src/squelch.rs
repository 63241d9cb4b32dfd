//! The squelch binary, with the permissions of an installation.

use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kube::Client;

use crate::cluster::{anonymous, given};
use crate::conservation::UNEXPLAINED;
use crate::metrics::Samples;
use crate::process::{Process, free_port};
use crate::proxy::FaultProxy;
use crate::test;
use crate::wait::{GENEROUS, not_yet, wait_for};

/// Deadline of a shutdown; flushes take a second or two. Far below `--shutdown-timeout`, which would hide a hanging
/// shutdown.
const END: Duration = Duration::from_secs(20);

/// A running squelch.
pub struct Squelch {
    process: Process,
    /// URL of its webhook, without the path.
    pub webhook: String,
    /// Its metrics and probes.
    pub admin: Admin,
}

/// The plain HTTP port of squelch.
pub struct Admin {
    http: Client,
    /// `http://host:port`.
    pub url: String,
}

/// Options of a start.
#[derive(Clone, Copy, Default)]
pub struct StartOptions<'a> {
    /// Proxies between it and the API server.
    pub proxy: Option<&'a FaultProxy>,
    /// Additional flags of `squelch run`.
    pub flags: &'a [&'a str],
    /// Environment variables.
    pub environment: &'a [(&'a str, &'a str)],
    /// Another replica is active: the start does not wait for this one to become active.
    pub standby: bool,
    /// Keeps the defaults of an installation, instead of status updates every second and debug logs.
    pub as_installed: bool,
    /// Limits of open files, as for `prlimit --nofile=SOFT:HARD`. Default: those of the test.
    pub open_files: Option<&'a str>,
}

impl Squelch {
    /// Starts it with this identity and these options, and waits until it is ready. Its log goes to `folder`.
    ///
    /// # Errors
    /// If it exits, with the end of its log, or if it is not ready in time.
    pub async fn start(
        name: &str,
        kubeconfig: &Path,
        folder: &Path,
        options: StartOptions<'_>,
    ) -> Result<Self> {
        let (webhook_port, http_port) = (free_port()?, free_port()?);
        let webhook = format!("https://127.0.0.1:{webhook_port}");
        let mut kubeconfig = kubeconfig.to_owned();
        let mut found_at = webhook.clone();
        if let Some(proxy) = options.proxy {
            kubeconfig = proxy.kubeconfig(&kubeconfig, folder)?;
            found_at.clone_from(&proxy.webhook_url);
            proxy.leads_to(&webhook);
        }
        let binary = given("SQUELCH_BIN")?;
        let mut command = match options.open_files {
            None => Command::new(binary),
            Some(limits) => {
                // prlimit executes the binary: the process id stays the same.
                let mut command = Command::new("prlimit");
                command.arg(format!("--nofile={limits}")).arg(binary);
                command
            }
        };
        command
            .args(["run", "--kubeconfig"])
            .arg(kubeconfig)
            .args(["--webhook-url", &found_at])
            .args(["--webhook-bind-address", &format!("127.0.0.1:{webhook_port}")])
            .args(["--http-bind-address", &format!("127.0.0.1:{http_port}")])
            .args(options.flags)
            // Tests count Events. Those of this flag ask for them.
            .env("SQUELCH_RECEIPT_INTERVAL", "0s")
            .envs(options.environment.iter().copied())
            // Hides the administrator's credentials.
            .env_remove("KUBECONFIG");
        if !options.as_installed {
            command.args(["--status-interval", "1s", "--report-interval", "1s"]);
            command.args(["--log-level", "info,squelch=debug"]);
        }
        let process = Process::start(name, &mut command, folder)?;
        let admin = Admin::at(format!("http://127.0.0.1:{http_port}"))?;
        let mut squelch = Self { process, webhook, admin };
        squelch.until_ready().await?;
        if !options.standby {
            // Immediate, unless a previous replica was killed.
            squelch.wait_until_active().await?;
        }
        Ok(squelch)
    }

    /// The port of its webhook.
    ///
    /// # Errors
    /// None: its URL has a port.
    pub fn port(&self) -> Result<u16> {
        let port = self.webhook.rsplit(':').next().context("a webhook without a port")?;
        Ok(port.parse()?)
    }

    /// Waits until it is the active replica.
    ///
    /// # Errors
    /// If the deadline passes.
    pub async fn wait_until_active(&self) -> Result<()> {
        wait_for("squelch to be the active replica", GENEROUS, async || {
            let metrics = self.metrics().await.map_err(not_yet)?;
            if metrics.sum("squelch_active", &[]) > 0.0 { Ok(()) } else { Err("a standby".to_owned()) }
        })
        .await
    }

    /// Waits until the webhook is armed, or disarmed.
    ///
    /// # Errors
    /// If the deadline passes, with the results of the probes.
    pub async fn wait_until_armed(&self, armed: bool) -> Result<()> {
        wait_for(&format!("squelch_armed to be {}", u8::from(armed)), GENEROUS, async || {
            let metrics = self.metrics().await.map_err(not_yet)?;
            if metrics.is_armed() == armed { Ok(()) } else { Err(metrics.show("squelch_probes_total")) }
        })
        .await
    }

    /// The exit status, if it has exited.
    ///
    /// # Errors
    /// An error of the operating system.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        self.process.ended()
    }

    /// Its log so far.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub fn log(&self) -> Result<String> {
        Ok(std::fs::read_to_string(&self.process.log)?)
    }

    /// Stops it (SIGSTOP).
    ///
    /// # Errors
    /// If the process does not exist.
    pub fn freeze(&mut self) -> Result<()> {
        test::disturb();
        self.process.signal("STOP")
    }

    /// Continues it (SIGCONT).
    ///
    /// # Errors
    /// If the process does not exist.
    pub fn thaw(&mut self) -> Result<()> {
        self.process.signal("CONT")
    }

    /// Makes the task in `SQUELCH_TEST_PANIC` panic.
    ///
    /// # Errors
    /// If the process does not exist.
    pub fn panic_task(&mut self) -> Result<()> {
        self.process.signal("USR1")
    }

    async fn until_ready(&mut self) -> Result<()> {
        let ended = wait_for("squelch to be ready", GENEROUS, async || {
            if let Some(status) = self.process.ended().map_err(not_yet)? {
                return Ok(Some(status));
            }
            self.get("/readyz").await.map(|_| None).map_err(not_yet)
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
    /// If there is no answer, or no success.
    pub async fn get(&self, path: &str) -> Result<String> {
        self.admin.get(path).await
    }

    /// Posts JSON to its webhook without verifying its certificate.
    ///
    /// # Errors
    /// If there is no answer, or no success.
    pub async fn post(&self, path: &str, body: String) -> Result<String> {
        let request = http::Request::post(path).header("content-type", "application/json");
        Ok(anonymous(&self.webhook)?.request_text(request.body(body.into_bytes())?).await?)
    }

    /// Scrapes its metrics.
    ///
    /// # Errors
    /// If there is no answer.
    pub async fn metrics(&self) -> Result<Samples> {
        self.admin.metrics().await
    }

    /// Waits until nothing is pending and every series is closed.
    ///
    /// # Errors
    /// If the deadline passes, with the remaining counts.
    pub async fn wait_until_idle(&self, deadline: Duration) -> Result<()> {
        self.admin.wait_until_idle(deadline).await
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Stops it with SIGTERM and waits for exit code 0. Its log must not contain errors.
    ///
    /// # Errors
    /// If it does not exit with 0 in time, or logged errors.
    pub async fn stop(self) -> Result<()> {
        self.stop_within(END).await
    }

    /// Same as [`Self::stop`], with a longer deadline for flushes.
    ///
    /// # Errors
    /// As [`Self::stop`].
    pub async fn stop_within(self, deadline: Duration) -> Result<()> {
        self.end(deadline, " ERROR ").await
    }

    /// Same after failed calls: the client library logs each as an error, squelch does not.
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
        ensure!(complaints.is_empty(), "{UNEXPLAINED}: squelch logged errors:\n{}", complaints.join("\n"));
        Ok(())
    }

    /// Detaches it from this process; returns its process id.
    pub fn leave(self) -> u32 {
        let pid = self.process.id();
        // Prevents the kill on drop.
        std::mem::forget(self.process);
        pid
    }

    /// Kills it (SIGKILL) without a final flush.
    ///
    /// # Errors
    /// An error of the operating system.
    pub fn crash(mut self) -> Result<()> {
        test::disturb();
        self.process.kill()
    }
}

impl Admin {
    /// The plain HTTP port at `url`.
    ///
    /// # Errors
    /// That `url` is none.
    pub fn at(url: String) -> Result<Self> {
        Ok(Self { http: anonymous(&url)?, url })
    }

    /// A page.
    ///
    /// # Errors
    /// If there is no answer, or no success.
    pub async fn get(&self, path: &str) -> Result<String> {
        Ok(self.http.request_text(http::Request::get(path).body(Vec::new())?).await?)
    }

    /// Scrapes the metrics.
    ///
    /// # Errors
    /// If there is no answer.
    pub async fn metrics(&self) -> Result<Samples> {
        Ok(Samples::parse(&self.get("/metrics").await?))
    }

    /// Waits until nothing is pending and every series is closed.
    ///
    /// # Errors
    /// If the deadline passes, with the remaining counts.
    pub async fn wait_until_idle(&self, deadline: Duration) -> Result<()> {
        wait_for("every series to be closed", deadline, async || {
            let metrics = self.metrics().await.map_err(not_yet)?;
            let (pending, series) =
                (metrics.sum("squelch_pending_occurrences", &[]), metrics.sum("squelch_series", &[]));
            if pending == 0.0 && series == 0.0 {
                Ok(())
            } else {
                Err(format!("{series} series, {pending} pending"))
            }
        })
        .await
    }
}
