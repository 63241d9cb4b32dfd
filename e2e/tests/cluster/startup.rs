//! What keeps squelch from starting is told in a sentence.

use std::process::Command;

use anyhow::Result;
use e2e::Test;
use e2e::cluster::given;
use e2e::process::run_with_input;

/// Runs squelch, which fails; its exit code and what it says.
async fn fails(arguments: &[&str]) -> Result<(Option<i32>, String)> {
    let mut command = Command::new(given("SQUELCH_BIN")?);
    command.args(arguments).env_remove("KUBECONFIG").env("HOME", "/nonexistent");
    let output = tokio::task::spawn_blocking(move || run_with_input(&mut command, "")).await??;
    Ok((output.status.code(), String::from_utf8(output.stderr)?))
}

#[tokio::test]
async fn a_wrong_flag_is_told() -> Result<()> {
    let test = Test::begin("flags").await?;
    let (code, told) = fails(&["run", "--status-interval", "often"]).await?;
    assert_eq!(code, Some(2));
    assert!(told.contains("--status-interval") && told.contains("such as"), "{told}");
    test.passed()
}

#[tokio::test]
async fn a_cluster_that_cannot_be_reached_is_told() -> Result<()> {
    let test = Test::begin("unreachable").await?;
    let nobody = test.kubeconfig_of("https://127.0.0.1:1")?;
    let arguments = ["run", "--kubeconfig", &nobody, "--webhook-url", "https://127.0.0.1:2"];
    let (code, told) = fails(&arguments).await?;
    assert_eq!(code, Some(1));
    assert!(told.contains("API server cannot be reached"), "{told}");
    let (code, told) = fails(&["run", "--kubeconfig", "/nonexistent/file"]).await?;
    assert_eq!(code, Some(1));
    assert!(told.contains("cannot read the kubeconfig /nonexistent/file"), "{told}");
    test.passed()
}

#[tokio::test]
async fn another_user_than_squelchs_own_is_told() -> Result<()> {
    let test = Test::begin("own-user").await?;
    let kubeconfig = test.squelch_kubeconfig();
    let somebody = ["--own-user", "system:serviceaccount:squelch:somebody"];
    let reaching = ["run", "--kubeconfig", &kubeconfig, "--webhook-url", "https://127.0.0.1:2"];
    let (code, told) = fails(&[&reaching[..], &somebody].concat()).await?;
    assert_eq!(code, Some(1));
    let own = e2e::accounts::SQUELCH.user();
    assert!(
        told.contains(&own) && told.contains(somebody[1]) && told.contains("leave --own-user out"),
        "{told}"
    );

    let squelch = test.squelch_with(&["--own-user", &own]).await?;
    squelch.stop().await?;
    test.passed()
}
