//! deploy/rbac.yaml grants the required permissions (as all other tests show) and no others.

use anyhow::{Result, ensure};
use e2e::Test;
use e2e::accounts::SQUELCH;

#[tokio::test]
async fn squelch_has_no_other_permissions() -> Result<()> {
    let test = Test::begin("rights").await?;
    let kubectl = test.kubectl();
    let squelch = format!("--as={}", SQUELCH.user());
    let may = async |arguments: &[&str]| {
        let asked = [&["auth", "can-i", &squelch], arguments].concat();
        // kubectl answers no on standard output and with its exit code.
        kubectl.run(&asked).await.is_ok_and(|answer| answer.trim() == "yes")
    };
    ensure!(may(&["patch", "events"]).await, "the check itself is wrong");
    ensure!(may(&["patch", "mutatingwebhookconfigurations/squelch"]).await, "the check itself is wrong");
    ensure!(may(&["patch", "eventdropreports/squelch"]).await, "the check itself is wrong");
    for forbidden in [
        ["list", "events"],
        ["watch", "events"],
        ["delete", "events"],
        ["get", "secrets"],
        ["get", "pods"],
        ["get", "namespaces"],
        ["patch", "namespaces"],
        ["get", "mutatingwebhookconfigurations/other"],
        ["delete", "mutatingwebhookconfigurations/squelch"],
        ["patch", "eventpolicies"],
        ["update", "eventpolicies"],
        ["delete", "eventpolicies"],
        ["get", "clustereventpolicies"],
        ["patch", "clustereventpolicies"],
        ["update", "clustereventpolicies"],
        ["delete", "clustereventpolicies"],
        ["create", "mutatingwebhookconfigurations"],
        ["create", "mutatingwebhookconfigurations/other"],
        ["patch", "mutatingwebhookconfigurations/other"],
        ["list", "mutatingwebhookconfigurations"],
        ["patch", "validatingwebhookconfigurations/squelch"],
        ["create", "clusterrolebindings"],
        ["list", "eventdropreports"],
        ["patch", "eventdropreports/other"],
        ["delete", "eventdropreports/squelch"],
        ["impersonate", "users"],
    ] {
        ensure!(!may(&forbidden).await, "squelch may {} {}", forbidden[0], forbidden[1]);
    }
    // Of all Secrets only its own.
    let of_squelch = format!("--namespace={}", SQUELCH.namespace);
    let may_there = async |verb: &str, what: &str| may(&[verb, what, &of_squelch]).await;
    ensure!(may_there("patch", "secrets/squelch-webhook").await, "the check itself is wrong");
    for (verb, what) in [
        ("get", "secrets/other"),
        ("patch", "secrets/other"),
        ("create", "secrets"),
        ("list", "secrets"),
        ("watch", "secrets/squelch-webhook"),
        ("delete", "secrets/squelch-webhook"),
    ] {
        ensure!(!may_there(verb, what).await, "squelch may {verb} {what} in its namespace");
    }
    test.passed()
}
