//! Errors that prevent a start are reported in one sentence.

use std::process::Command;

use anyhow::Result;
use e2e::Test;
use e2e::cluster::given;
use e2e::process::run_with_input;

/// Runs squelch, which fails; returns its exit code and output.
async fn fails(arguments: &[&str]) -> Result<(Option<i32>, String)> {
    let mut command = Command::new(given("SQUELCH_BIN")?);
    command.args(arguments).env_remove("KUBECONFIG").env("HOME", "/nonexistent");
    let output = tokio::task::spawn_blocking(move || run_with_input(&mut command, "")).await??;
    Ok((output.status.code(), String::from_utf8(output.stderr)?))
}

#[tokio::test]
async fn an_invalid_flag_is_reported() -> Result<()> {
    let test = Test::begin("flags").await?;
    let (code, output) = fails(&["run", "--status-interval", "often"]).await?;
    assert_eq!(code, Some(2));
    assert!(output.contains("--status-interval") && output.contains("such as"), "{output}");
    test.passed()
}

#[tokio::test]
async fn an_unreachable_cluster_is_reported() -> Result<()> {
    let test = Test::begin("unreachable").await?;
    let unreachable = test.kubeconfig_of("https://127.0.0.1:1")?;
    let arguments = ["run", "--kubeconfig", &unreachable, "--webhook-url", "https://127.0.0.1:2"];
    let (code, output) = fails(&arguments).await?;
    assert_eq!(code, Some(1));
    assert!(output.contains("API server cannot be reached"), "{output}");
    let (code, output) = fails(&["run", "--kubeconfig", "/nonexistent/file"]).await?;
    assert_eq!(code, Some(1));
    assert!(output.contains("cannot read the kubeconfig /nonexistent/file"), "{output}");
    test.passed()
}

#[tokio::test]
async fn a_wrong_own_user_is_reported() -> Result<()> {
    let test = Test::begin("own-user").await?;
    let kubeconfig = test.squelch_kubeconfig();
    let wrong_user = ["--own-user", "system:serviceaccount:squelch:somebody"];
    let reaching = ["run", "--kubeconfig", &kubeconfig, "--webhook-url", "https://127.0.0.1:2"];
    let (code, output) = fails(&[&reaching[..], &wrong_user].concat()).await?;
    assert_eq!(code, Some(1));
    let own = e2e::accounts::SQUELCH.user();
    assert!(
        output.contains(&own) && output.contains(wrong_user[1]) && output.contains("remove --own-user"),
        "{output}"
    );

    let squelch = test.squelch_with(&["--own-user", &own]).await?;
    squelch.stop().await?;
    test.passed()
}
