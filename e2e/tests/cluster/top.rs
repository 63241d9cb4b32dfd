//! `squelch top`: its numbers are those of the reports and statuses, also with the rights of a tenant, and it works in a
//! real terminal.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::accounts::Account;
use e2e::cluster::given;
use e2e::policy::Counters;
use e2e::process::{run_with_input, send};
use e2e::proxy::{Fault, Rule};
use e2e::wait::not_yet;
use e2e::{FaultProxy, GENEROUS, Test, wait_for};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::drop_reports::{grant_view, report};
use crate::top_dropped::{BURST, filtering, storm};

/// A report is written at most every 30 s, and shown when it is.
const NEXT_REPORT: Duration = Duration::from_secs(120);

/// Runs `squelch top`; returns its standard output, or fails with its standard error.
async fn top(kubeconfig: &str, arguments: &[&str]) -> Result<String> {
    let mut command = Command::new(given("SQUELCH_BIN")?);
    command.args(["top", "--kubeconfig", kubeconfig]).args(arguments).env_remove("KUBECONFIG");
    let output = tokio::task::spawn_blocking(move || run_with_input(&mut command, "")).await??;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

async fn top_json(kubeconfig: &str, arguments: &[&str]) -> Result<Value> {
    let output = top(kubeconfig, &[arguments, &["--output=json"]].concat()).await?;
    serde_json::from_str(&output).context(output)
}

/// The entries of a list whose `namespace` is this one.
fn of_namespace<'a>(output: &'a Value, list: &str, namespace: &str) -> Vec<&'a Value> {
    let entries = output[list].as_array().into_iter().flatten();
    entries.filter(|entry| entry["namespace"] == namespace).collect()
}

/// A kubeconfig of the administrator, who impersonates this user.
async fn kubeconfig_of(test: &Test, user: &str) -> Result<String> {
    let view = ["config", "view", "--raw", "--flatten", "--output=json"];
    let mut config: Value = serde_json::from_str(&test.cluster.kubectl.run(&view).await?)?;
    config["users"][0]["user"]["as"] = user.into();
    let path = test.folder().join("tenant.kubeconfig").display().to_string();
    std::fs::write(&path, config.to_string())?;
    Ok(path)
}

/// Two storms of which all beyond the burst is dropped. Returns the report.
async fn dropped(test: &Test) -> Result<Value> {
    storm(test, "loud", "BackOff", "Warning", 100).await?;
    storm(test, "quiet", "Pulled", "Normal", 20).await?;
    report(test, 100 + 20 - 2 * BURST).await
}

#[tokio::test]
async fn the_numbers_are_those_of_the_reports_and_statuses() -> Result<()> {
    let test = Test::begin("top").await?;
    let squelch = test.squelch().await?;
    let policy = test.policy(&filtering()).await?;
    let seen = dropped(&test).await?;
    let status = policy.received(120).await?;

    let admin = test.cluster.kubeconfig.display().to_string();
    let output = top_json(&admin, &["--all-namespaces"]).await?;
    ensure!(output["schemaVersion"] == 1 && output["notes"] == json!([]), "{output}");
    let namespaces = of_namespace(&output, "namespaces", &test.namespace);
    let namespace = namespaces.first().with_context(|| output.to_string())?;
    for field in ["suppressed", "droppedOccurrences", "droppedWarnings", "lastUpdated", "policies"] {
        assert_eq!(namespace[field], seen[field], "{field}");
    }
    let policies = of_namespace(&output, "policies", &test.namespace);
    let shown = policies.first().with_context(|| output.to_string())?;
    assert_eq!(Counters::deserialize(&shown["counters"])?, status);
    assert_eq!([&shown["kind"], &shown["name"], &shown["effective"]], ["EventPolicy", "policy", "True"]);
    let offenders = of_namespace(&output, "offenders", &test.namespace);
    let counts: Vec<_> = offenders.iter().map(|entry| (&entry["reason"], &entry["count"])).collect();
    let listed = seen["dropped"].as_array().context("dropped")?;
    assert_eq!(counts, listed.iter().map(|entry| (&entry["reason"], &entry["count"])).collect::<Vec<_>>());

    let own = top(&admin, &["--once", "--namespace", &test.namespace]).await?;
    let all = top(&admin, &["--once", "-A", "--sort=dropped"]).await?;
    for table in [&own, &all] {
        let row = table.lines().find(|line| line.split(' ').next() == Some(&*test.namespace));
        let cells: Vec<_> = row.with_context(|| table.clone())?.split_whitespace().collect();
        let suppressed = seen["suppressed"].to_string();
        let warnings = (100 - BURST).to_string();
        assert_eq!(cells[1..4], [&*suppressed, "110", &*warnings], "{table}");
        ensure!(table.contains(&format!("{}/policy", test.namespace)), "{table}");
    }
    let yaml = top(&admin, &["--output=yaml", "--namespace", &test.namespace]).await?;
    ensure!(yaml.contains("droppedOccurrences: 110"), "{yaml}");
    let refused = top(&admin, &["--once", "--sort=rate"]).await;
    ensure!(refused.is_err_and(|error| error.to_string().contains("needs the live view")));
    squelch.stop().await?;
    test.passed()
}

#[tokio::test]
async fn a_tenant_sees_their_namespace_and_which_rights_are_missing() -> Result<()> {
    let test = Test::begin("top-tenant").await?;
    let squelch = test.squelch().await?;
    test.policy(&filtering()).await?;
    let neighbour = test.neighbour().await?;
    neighbour.policy(&filtering()).await?;
    storm(&neighbour, "loud", "BackOff", "Warning", 50).await?;
    report(&neighbour, 50 - BURST).await?;
    dropped(&test).await?;

    let tenant = "tenant-of-top";
    grant_view(&test, tenant).await?;
    let kubeconfig = kubeconfig_of(&test, tenant).await?;
    let own = ["--namespace", test.namespace.as_str()];
    let output = wait_for("the tenant to have the role", GENEROUS, async || {
        top_json(&kubeconfig, &own).await.map_err(not_yet)
    })
    .await?;
    let missing = "you may not list clustereventpolicies.squelch.dev: no ClusterEventPolicies are shown";
    assert_eq!(output["notes"], json!([missing]));
    assert_eq!(of_namespace(&output, "namespaces", &test.namespace)[0]["droppedOccurrences"], 110);
    assert_eq!(of_namespace(&output, "policies", &test.namespace).len(), 1);

    let all = top(&kubeconfig, &[&own[..], &["-A"]].concat()).await?;
    ensure!(all.contains(&test.namespace) && !all.contains(&neighbour.namespace), "{all}");
    for resource in ["eventdropreports", "eventpolicies"] {
        let limited = format!(
            "note: you may not list {resource}.squelch.dev in all namespaces: only the namespace {} is shown",
            test.namespace
        );
        ensure!(all.contains(&limited), "{all}");
    }
    let refused = top(&kubeconfig, &["--namespace", &neighbour.namespace]).await;
    let error = refused.err().context("a tenant sees others' reports")?.to_string();
    let expected =
        format!("you may not list eventdropreports.squelch.dev in the namespace {}", neighbour.namespace);
    ensure!(error.contains(&expected), "{error}");
    squelch.stop().await?;
    test.passed()
}

#[tokio::test]
async fn a_cluster_without_squelch_is_named() -> Result<()> {
    let test = Test::begin("top-absent").await?;
    let definition = "crd/eventdropreports.squelch.dev";
    test.kubectl().run(&["delete", definition, "--wait", "--timeout=60s"]).await?;
    let admin = test.cluster.kubeconfig.display().to_string();
    wait_for("the definition to be missed", GENEROUS, async || match top(&admin, &["-A"]).await {
        Ok(output) => Err(output),
        Err(error) => {
            let text = error.to_string();
            let expected = "squelch is not installed in this cluster (no EventDropReport definition)";
            if text.contains(expected) { Ok(()) } else { Err(text) }
        }
    })
    .await?;
    test.cluster.install().await?;
    test.passed()
}

/// A terminal.
struct Tmux {
    socket: String,
}

impl Tmux {
    /// Starts a command in a terminal of 80 columns and 24 lines.
    async fn start(socket: &str, command: &str) -> Result<Self> {
        let tmux = Self { socket: socket.to_owned() };
        tmux.run(&["-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", command]).await?;
        Ok(tmux)
    }

    async fn run(&self, arguments: &[&str]) -> Result<String> {
        let mut command = self.command(arguments);
        let output = tokio::task::spawn_blocking(move || run_with_input(&mut command, "")).await??;
        ensure!(output.status.success(), "tmux: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("tmux");
        command.args(["-u", "-L", &self.socket]).args(arguments).env_remove("TMUX").env("TERM", "xterm");
        command
    }

    /// Waits until the screen contains all these texts.
    async fn shows(&self, texts: &[&str]) -> Result<String> {
        wait_for(&format!("a screen with {texts:?}"), NEXT_REPORT, async || {
            let screen = self.run(&["capture-pane", "-p"]).await.map_err(not_yet)?;
            if texts.iter().all(|text| screen.contains(text)) { Ok(screen) } else { Err(screen) }
        })
        .await
    }

    async fn press(&self, key: &str) -> Result<()> {
        self.run(&["send-keys", key]).await.map(drop)
    }

    /// The process of `squelch top`, a child of the shell in the terminal.
    async fn process(&self) -> Result<u32> {
        let shell = self.run(&["display-message", "-p", "#{pane_pid}"]).await?;
        let shell = shell.trim();
        let children = std::fs::read_to_string(format!("/proc/{shell}/task/{shell}/children"))?;
        Ok(children.split_whitespace().next().context("squelch top does not run")?.parse()?)
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        let _ = self.command(&["kill-server"]).output();
    }
}

/// The command of a terminal: `squelch top`, then its exit code and the settings of the terminal.
fn in_shell(kubeconfig: &Path) -> Result<String> {
    let squelch = given("SQUELCH_BIN")?;
    let (squelch, kubeconfig) = (squelch.display(), kubeconfig.display());
    Ok(format!(
        "'{squelch}' top -A --kubeconfig '{kubeconfig}'; echo \"ended with $?\"; stty -a; exec sleep 600"
    ))
}

#[tokio::test]
async fn the_live_view_follows_the_reports_in_a_terminal() -> Result<()> {
    let test = Test::begin("top-live").await?;
    let squelch = test.squelch().await?;
    test.policy(&filtering()).await?;
    dropped(&test).await?;

    let tmux = Tmux::start(&test.namespace, &in_shell(&test.cluster.kubeconfig)?).await?;
    tmux.shows(&["[1 Namespaces]", &test.namespace, " 110 "]).await?;
    tmux.press("2").await?;
    tmux.shows(&["[2 Policies]", "Enforce", " 120 "]).await?;
    tmux.press("3").await?;
    let narrow = tmux.shows(&["[3 Offenders]", "BackOff", "Pulled", "? help"]).await?;
    ensure!(narrow.lines().all(|line| line.chars().count() <= 80), "{narrow}");
    tmux.run(&["resize-window", "-x", "140", "-y", "40"]).await?;
    tmux.shows(&["DISPOSITION", "filtered"]).await?;

    tmux.press("1").await?;
    storm(&test, "later", "BackOff", "Warning", 50).await?;
    let total = (100 + 20 + 50 - 3 * BURST).to_string();
    tmux.shows(&["[1 Namespaces]", &format!(" {total} ")]).await?;
    tmux.press("Enter").await?;
    tmux.shows(&[&format!("Namespace {}", test.namespace), "BackOff"]).await?;
    tmux.press("q").await?;
    is_restored(&tmux).await?;

    // A signal restores the terminal too.
    let again =
        Tmux::start(&format!("{}-again", test.namespace), &in_shell(&test.cluster.kubeconfig)?).await?;
    again.shows(&["[1 Namespaces]", &test.namespace]).await?;
    send(again.process().await?, "TERM")?;
    is_restored(&again).await?;
    squelch.stop().await?;
    test.passed()
}

/// A ServiceAccount that may read everything that `squelch top` shows.
const READER: Account = Account { namespace: "emitters", name: "top-reader" };

async fn reader(test: &Test) -> Result<PathBuf> {
    let Account { namespace, name } = READER;
    let metadata = json!({ "namespace": namespace, "name": name });
    let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata });
    test.cluster.kubectl.apply(&account).await?;
    let rules = json!([{ "apiGroups": ["squelch.dev"], "verbs": ["list", "watch"],
        "resources": ["eventdropreports", "eventpolicies", "clustereventpolicies"] }]);
    READER.allow(&test.cluster, "e2e-top-reader", &rules).await?;
    READER.kubeconfig(&test.cluster, test.folder()).await
}

#[tokio::test]
async fn the_last_data_stays_while_the_api_server_is_away() -> Result<()> {
    let test = Test::begin("top-away").await?;
    let squelch = test.squelch().await?;
    test.policy(&filtering()).await?;
    dropped(&test).await?;

    let proxy = FaultProxy::start(&test.cluster).await?;
    let kubeconfig = proxy.kubeconfig(&reader(&test).await?, test.folder())?;
    // Only watches that start with this rule end when the API server goes away.
    let watches = || Rule::new(|call| call.watch, 100, [Fault::BreakOff(Duration::from_secs(1))]);
    proxy.to_api_server.follow([watches()]);
    let tmux = Tmux::start(&test.namespace, &in_shell(&kubeconfig)?).await?;
    tmux.shows(&["[1 Namespaces]", &test.namespace, " 110 "]).await?;
    proxy.to_api_server.follow([Rule::new(|_| true, 100, [Fault::CutBefore])]);
    tmux.shows(&["! not connected since ", "retrying: ", &test.namespace, " 110 "]).await?;
    proxy.to_api_server.end();
    wait_for("the line about the connection to disappear", NEXT_REPORT, async || {
        let screen = tmux.shows(&["[1 Namespaces]"]).await.map_err(not_yet)?;
        if screen.contains(" 110 ") && !screen.contains("not connected") { Ok(()) } else { Err(screen) }
    })
    .await?;
    tmux.press("q").await?;
    is_restored(&tmux).await?;
    squelch.stop().await?;
    test.passed()
}

/// Waits until `squelch top` has ended; the terminal then echoes and edits lines again, and shows its main screen.
async fn is_restored(tmux: &Tmux) -> Result<()> {
    let screen = tmux.shows(&["ended with 0", "icanon", "echo"]).await?;
    let settings: Vec<_> = screen.split_whitespace().collect();
    let is_set = |setting: &str| settings.contains(&setting) || settings.contains(&&*format!("{setting};"));
    ensure!(is_set("icanon") && is_set("echo") && is_set("isig"), "{screen}");
    ensure!(!screen.contains("Namespaces]"), "{screen}");
    let flags = tmux.run(&["display-message", "-p", "#{alternate_on} #{cursor_flag}"]).await?;
    ensure!(flags.trim() == "0 1", "alternate screen and cursor: {flags}");
    Ok(())
}
