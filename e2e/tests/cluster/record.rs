//! `squelch record`: a trace contains each write that the API server has stored, also if the watch is cut.
//! `tests/emitters/record.rs` compares a recording with the audit log.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::proxy::{Fault, Rule};
use e2e::recorder::{RecordedWrite, Recorder};
use e2e::user::Version;
use e2e::wait::not_yet;
use e2e::{Emission, FaultProxy, GENEROUS, STORM, Test, User, wait_for};
use jiff::Timestamp;
use serde_json::Value;

use super::replay::replay;

const POLICY: &str =
    "apiVersion: squelch.dev/v1alpha1\nkind: EventPolicy\nmetadata: {name: quickstart}\nspec: {}\n";

/// What the API server answered to a write.
fn answered(operation: &str, api: &str, answer: &Value, count: i64) -> Result<RecordedWrite> {
    let text = |field: &str| answer["metadata"][field].as_str().context("no metadata in the answer");
    Ok(RecordedWrite {
        version: text("resourceVersion")?.parse()?,
        operation: operation.to_owned(),
        api: api.to_owned(),
        name: text("name")?.to_owned(),
        count,
    })
}

/// Writes an Event through this API: one CREATE, updates by PUT, and updates by PATCH.
async fn write(test: &Test, user: &User, version: Version, name: &str) -> Result<Vec<RecordedWrite>> {
    let event = version.event(&test.namespace, name, name, "a message", Timestamp::now());
    let api = event["apiVersion"].as_str().context("an apiVersion")?.to_owned();
    let mut stored = user.create(&event).await?.object()?;
    let mut writes = vec![answered("CREATE", &api, &stored, 1)?];
    for count in 2..=6 {
        let counted = version.counted(count, Timestamp::now());
        stored = if count % 2 == 0 {
            stored
                .as_object_mut()
                .context("an Event")?
                .extend(counted.as_object().context("fields")?.clone());
            user.replace(&stored).await?.object()?
        } else {
            user.patch(&event, name, &counted).await?.object()?
        };
        writes.push(answered("UPDATE", &api, &stored, count)?);
    }
    Ok(writes)
}

/// Waits until the recording has these writes, and checks that it has no others.
async fn recorded(recorder: &Recorder, mut expected: Vec<RecordedWrite>) -> Result<()> {
    expected.sort();
    wait_for(&format!("{} recorded writes", expected.len()), GENEROUS, async || {
        let written = recorder.writes().map_err(not_yet)?;
        if written.len() >= expected.len() { Ok(()) } else { Err(format!("{}", written.len())) }
    })
    .await?;
    let mut written = recorder.writes()?;
    ensure!(written.is_sorted(), "a watch has the order of the writes: {written:?}");
    written.sort();
    ensure!(written == expected, "recorded {written:?}\nexpected {expected:?}");
    Ok(())
}

/// The number of occurrences that a replay receives in the namespace of the test.
fn received(test: &Test, trace: &str) -> Result<i64> {
    let report = replay(POLICY, trace)?;
    ensure!(report["input"]["leftOut"] == serde_json::json!({}), "{}", report["input"]);
    let rows = report["policies"].as_array().context("rows")?;
    let row = rows.iter().find(|row| row["namespace"] == *test.namespace).context("its namespace")?;
    row["occurrences"]["received"].as_i64().context("a number")
}

#[tokio::test]
async fn each_stored_write_is_recorded_with_its_api() -> Result<()> {
    let test = Test::begin("record").await?;
    let user =
        User::with_rights(&test.cluster, "recorded", &test.namespace, &["get", "create", "update", "patch"]);
    let user = user.await?;
    write(&test, &user, Version::Core, "earlier").await?;
    let kubeconfig = Recorder::kubeconfig(&test).await?;
    let mut recorder = Recorder::start(&test, &kubeconfig).await?;

    let mut expected = write(&test, &user, Version::Core, "core").await?;
    expected.extend(write(&test, &user, Version::New, "new").await?);
    let event = Version::Core.event(&test.namespace, "earlier", "earlier", "a message", Timestamp::now());
    let seventh = Version::Core.counted(7, Timestamp::now());
    let raised = user.patch(&event, "earlier", &seventh).await?.object()?;
    expected.push(answered("UPDATE", "v1", &raised, 7)?);
    // Refused, so not stored.
    ensure!(!user.create(&event).await?.is_success(), "a name is taken");
    recorded(&recorder, expected.clone()).await?;

    let summary = recorder.stop().await?;
    let writes = expected.len();
    ensure!(summary.contains(&format!("Recorded {writes} writes")), "{summary}");
    ensure!(summary.contains("Events at the beginning: 1.") && summary.contains("Gaps: none."), "{summary}");
    // Six of each Event, and the seventh of the one before.
    assert_eq!(received(&test, &recorder.trace()?)?, 6 + 6 + 1);
    test.passed()
}

#[tokio::test]
async fn a_cut_watch_loses_nothing_and_an_expired_one_only_intermediate_writes() -> Result<()> {
    let test = Test::begin("record-cut").await?;
    let proxy = FaultProxy::start(&test.cluster).await?;
    let kubeconfig = proxy.kubeconfig(&Recorder::kubeconfig(&test).await?, test.folder())?;
    let watches = |fault: Fault| [Rule::new(|call| call.watch && call.is_about("events"), 100, [fault])];
    proxy.to_api_server.follow(watches(Fault::BreakOff(Duration::from_millis(500))));
    let mut recorder = Recorder::start(&test, &kubeconfig).await?;
    let writes = test.writes().await?;
    let storms = [
        Emission::legacy().about("pod", 3),
        Emission::kube().about("order", 2),
        Emission::creates_core().about("job", 1),
    ];
    let mut sent = 0;
    for storm in storms {
        sent += test.emit(&storm.count(40).rate(40))?.finish(STORM).await?.sent();
    }
    let stored: Vec<u64> =
        writes.so_far().await?.iter().filter_map(|write| write.resource_version.parse().ok()).collect();
    let versions = |recorder: &Recorder| -> Result<Vec<u64>> {
        Ok(recorder.writes()?.into_iter().map(|write| write.version).collect())
    };
    wait_for("each write to be recorded", GENEROUS, async || {
        let recorded = versions(&recorder).map_err(not_yet)?;
        if recorded == stored { Ok(()) } else { Err(format!("{} of {}", recorded.len(), stored.len())) }
    })
    .await?;
    ensure!(proxy.to_api_server.injected().get("watch cut").is_some_and(|cut| *cut > 1), "no watch was cut");

    // From now on each watch ends with 410.
    proxy.to_api_server.follow(watches(Fault::Expire(Duration::from_millis(500))));
    let storm = Emission::legacy().about("late", 3).count(40).rate(40);
    sent += test.emit(&storm)?.finish(STORM).await?.sent();
    // The second one shows that the recorder has received the first.
    wait_for("two expired watches", GENEROUS, async || {
        let injected = proxy.to_api_server.injected();
        let expired = injected.get("watch gone").copied().unwrap_or_default();
        if expired > 1 { Ok(()) } else { Err(format!("{injected:?}")) }
    })
    .await?;
    proxy.end_all_faults();
    wait_for("the last counts to be recorded", GENEROUS, async || {
        let trace = recorder.trace().map_err(not_yet)?;
        match received(&test, &trace) {
            Ok(received) if received == sent => Ok(()),
            other => Err(format!("{other:?} of {sent}")),
        }
    })
    .await?;
    let summary = recorder.stop().await?;
    ensure!(summary.contains("which no watch can show any more"), "{summary}");
    test.passed()
}

#[tokio::test]
async fn a_missing_right_and_an_existing_file_are_named() -> Result<()> {
    let test = Test::begin("record-rights").await?;
    let kubeconfig = Recorder::kubeconfig(&test).await?;
    let record = |arguments: &[&str]| -> Result<(Option<i32>, String)> {
        let mut command = std::process::Command::new(e2e::cluster::given("SQUELCH_BIN")?);
        command.arg("record").arg("--kubeconfig").arg(&kubeconfig).args(["--for", "1s"]).args(arguments);
        let output = command.output()?;
        Ok((output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned()))
    };
    let (code, error) = record(&["--all-namespaces"])?;
    ensure!(
        code == Some(1) && error.contains("you may not list events in all namespaces"),
        "{code:?} {error}"
    );
    let file = test.folder().join("existing.jsonl");
    std::fs::write(&file, "something else")?;
    let file = file.display().to_string();
    let (code, error) = record(&["--namespace", &test.namespace, "--file", &file])?;
    ensure!(code == Some(1) && error.contains("--force"), "{code:?} {error}");
    ensure!(std::fs::read_to_string(&file)? == "something else", "the file was changed");
    let (code, error) = record(&["--namespace", &test.namespace, "--file", &file, "--force"])?;
    ensure!(code == Some(0) && error.contains("The trace is empty"), "{code:?} {error}");
    test.passed()
}
