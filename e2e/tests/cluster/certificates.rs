//! Certificate, authority and token change while Events are written: every write is reviewed, and none fails.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use e2e::accounts::SQUELCH;
use e2e::cluster::FailedReviews;
use e2e::wait::not_yet;
use e2e::{Emission, GENEROUS, Policy, STORM, Squelch, Test, wait_for};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::Api;
use rustls::pki_types::PrivateKeyDer;
use serde_json::{Value, json};
use squelch::SECRET;
use squelch::tls::Authority;
use squelch::tls::encoding::{self, Keys};
use squelch::tls::rotation::{Lifetimes, Ring};

const RATE: u32 = 50;
/// Deadline: three rotations take half a minute on an idle machine.
const LONG: Duration = Duration::from_secs(180);
const HOUR: Duration = Duration::from_secs(3600);

type Data = BTreeMap<String, String>;

/// The data of the Secret, as text.
async fn secret(test: &Test) -> Result<Data> {
    let secret = secrets(test).get(SECRET).await?;
    let data = secret.data.unwrap_or_default().into_iter();
    data.map(|(name, bytes)| Ok((name, String::from_utf8(bytes.0)?))).collect()
}

fn secrets(test: &Test) -> Api<Secret> {
    Api::namespaced(test.client(), SQUELCH.namespace)
}

/// Patches the Secret as a user would.
async fn patch_secret(test: &Test, data: &Data) -> Result<()> {
    let patch = json!({ "stringData": data }).to_string();
    let namespace = format!("--namespace={}", SQUELCH.namespace);
    let kubectl = &test.cluster.kubectl;
    kubectl.run(&["patch", "secret", SECRET, &namespace, "--type=merge", "--patch", &patch]).await?;
    Ok(())
}

async fn delete_secret(test: &Test) -> Result<()> {
    let namespace = format!("--namespace={}", SQUELCH.namespace);
    test.cluster.kubectl.run(&["delete", "secret", SECRET, &namespace, "--ignore-not-found"]).await?;
    Ok(())
}

/// `clientConfig`: the path with the token, and the CA certificates.
async fn client_config(test: &Test) -> Result<(String, String)> {
    let configuration = "mutatingwebhookconfiguration/squelch";
    let text = test.kubectl().run(&["get", configuration, "--output=json"]).await?;
    let configuration: Value = serde_json::from_str(&text)?;
    let webhooks = configuration["webhooks"].as_array().context("no webhooks")?;
    let webhook = webhooks.iter().find(|webhook| webhook["name"] == "events.squelch.dev");
    let client = &webhook.context("no webhook for Events")?["clientConfig"];
    let url = client["url"].as_str().context("no url")?;
    let bundle = STANDARD.decode(client["caBundle"].as_str().context("no caBundle")?)?;
    Ok((url.to_owned(), String::from_utf8(bundle)?))
}

async fn gauge(squelch: &Squelch, name: &str) -> Result<i64> {
    Ok(squelch.metrics().await?.sum(name, &[]) as i64)
}

async fn served_until(squelch: &Squelch) -> Result<i64> {
    gauge(squelch, "squelch_serving_certificate_expiration_timestamp_seconds").await
}

/// A test in which squelch counts every write of its namespace, and suppresses none.
struct Counting {
    test: Test,
    policy: Policy,
    squelch: Squelch,
    sent: Cell<i64>,
    /// Failed calls of the webhook before.
    failed: FailedReviews,
}

impl Counting {
    async fn begin(label: &str, flags: &[&str]) -> Result<Self> {
        let test = Test::begin(label).await?;
        delete_secret(&test).await?;
        Self::of(test, flags).await
    }

    async fn of(test: Test, flags: &[&str]) -> Result<Self> {
        let squelch = test.squelch_with(flags).await?;
        let policy = test.policy(&json!({ "mode": "Observe", "series": { "idleTimeout": "10m" } })).await?;
        let failed = test.cluster.failed_reviews()?;
        Ok(Self { test, policy, squelch, sent: Cell::new(0), failed })
    }

    /// Writes Events while `meanwhile` runs.
    async fn storm(&self, meanwhile: impl AsyncFnOnce() -> Result<()>) -> Result<()> {
        let over = Cell::new(false);
        let writing = async {
            let mut rounds = 0;
            while !over.get() {
                rounds += 1;
                let writes =
                    Emission::creates_core().about(&format!("round-{rounds}"), 10).count(10).rate(RATE);
                let report = self.test.emit(&writes)?.finish(STORM).await?;
                ensure!(report.refused().is_empty(), "failed writes: {:?}", report.refused());
                self.sent.set(self.sent.get() + report.sent());
            }
            anyhow::Ok(())
        };
        let meanwhile = async {
            let done = meanwhile().await;
            over.set(true);
            done
        };
        let (written, done) = tokio::join!(writing, meanwhile);
        done.and(written)
    }

    /// Checks that every write was reviewed, that no call failed but by a timeout, and that every token was valid.
    async fn end(self) -> Result<Test> {
        let sent = self.sent.get();
        ensure!(sent > 0, "nothing was written");
        let FailedReviews { timeouts: late, others: broken } =
            self.test.cluster.failed_reviews()?.since(&self.failed);
        ensure!(broken == 0, "{broken} calls of the webhook failed, see the log of the API server");
        let metrics = self.squelch.metrics().await?;
        let reviewed = metrics.sum("squelch_reviews_total", &[]) as i64;
        ensure!(
            (sent - late..=sent).contains(&reviewed) && late <= sent / 20,
            "{sent} writes, {reviewed} reviews, {late} calls timed out"
        );
        self.policy.received(reviewed).await?;
        assert_eq!(metrics.sum("squelch_unauthenticated_requests_total", &[]) as i64, 0);
        self.squelch.stop().await?;
        Ok(self.test)
    }
}

#[tokio::test]
async fn every_write_is_reviewed_during_rotations() -> Result<()> {
    // A certificate is renewed after two thirds of it: the rest is for an API server that does not answer meanwhile.
    let flags = ["--secret", SECRET, "--certificate-lifetime", "10s"];
    let counting = Counting::begin("rotation", &flags).await?;
    let (test, squelch) = (&counting.test, &counting.squelch);
    let mut authorities = BTreeSet::new();
    let (mut tokens, mut certificates) = (BTreeSet::new(), BTreeSet::new());
    counting
        .storm(async || {
            wait_for("three authorities and tokens", LONG, async || {
                let data = secret(test).await.map_err(not_yet)?;
                let (url, bundle) = client_config(test).await.map_err(not_yet)?;
                let (authority, token) = (&data["ca.crt"], &data["token"]);
                authorities.insert(authority.clone());
                if url.contains(token.as_str()) && bundle.contains(authority.as_str()) {
                    tokens.insert(token.clone());
                }
                certificates.insert(served_until(squelch).await.map_err(not_yet)?);
                let seen = (authorities.len(), tokens.len(), certificates.len());
                if seen.0 >= 3 && seen.1 >= 3 && seen.2 >= 5 { Ok(()) } else { Err(format!("{seen:?}")) }
            })
            .await
        })
        .await?;
    assert_eq!(gauge(squelch, "squelch_rejected_keys_total").await?, 0);
    counting.end().await?.passed()
}

#[tokio::test]
async fn no_write_fails_when_the_secret_is_deleted_damaged_or_replaced() -> Result<()> {
    let counting = Counting::begin("secret", &["--secret", SECRET]).await?;
    let (test, squelch) = (&counting.test, &counting.squelch);
    let mut kept = secret(test).await?;
    goes_with_the_account(test).await?;
    counting
        .storm(async || {
            delete_secret(test).await?;
            let second = renewed(test, &kept).await?;
            goes_with_the_account(test).await?;

            patch_secret(test, &Data::from([("ca.key".to_owned(), "garbage".to_owned())])).await?;
            kept = renewed(test, &second).await?;
            assert_eq!(gauge(squelch, "squelch_rejected_keys_total").await?, 1);

            let keys = Keys::generate(true, Lifetimes::of(HOUR, HOUR), Timestamp::now())?;
            let other = encoding::encode(&Ring::of(keys));
            patch_secret(test, &other).await?;
            wait_for("only the other keys to be in force", GENEROUS, async || {
                let (url, bundle) = client_config(test).await.map_err(not_yet)?;
                let asked = url.contains(&other["token"]);
                let trusts = |data: &Data| bundle.contains(data["ca.crt"].as_str());
                let seen = (asked, trusts(&other), trusts(&kept));
                if seen == (true, true, false) { Ok(()) } else { Err(format!("{seen:?}")) }
            })
            .await
        })
        .await?;
    counting.end().await?.passed()
}

/// Waits until the Secret holds only new keys, and the API server uses only those.
async fn renewed(test: &Test, old: &Data) -> Result<Data> {
    let what = "a Secret with only new keys in force";
    wait_for(what, LONG, async || {
        let data = secret(test).await.map_err(not_yet)?;
        let (url, bundle) = client_config(test).await.map_err(not_yet)?;
        let of = |name: &str| data.get(name).filter(|value| old.get(name) != Some(value));
        let (token, authority) = (of("token"), of("ca.crt"));
        let seen = (
            token.is_some_and(|token| url.contains(token)),
            authority.is_some_and(|authority| bundle.trim() == authority.trim()),
            data.contains_key("next-token") || data.contains_key("previous-token"),
        );
        if seen == (true, true, false) { Ok(data) } else { Err(format!("{seen:?}")) }
    })
    .await
}

/// Verifies the measurement that the other tests expect to be 0.
#[tokio::test]
async fn failed_webhook_calls_are_counted() -> Result<()> {
    let Counting { test, squelch, .. } = Counting::begin("calls", &["--secret", SECRET]).await?;
    let failed = test.cluster.failed_reviews()?.others;
    squelch.crash()?;
    let report =
        test.emit(&Emission::creates_core().about("pod", 10).count(1).rate(RATE))?.finish(STORM).await?;
    ensure!(report.refused().is_empty(), "failed writes: {:?}", report.refused());
    assert_eq!(test.cluster.failed_reviews()?.others - failed, report.sent());
    // The rules remain after a crash.
    test.squelch().await?.stop().await?;
    test.passed()
}

/// The configuration then belongs to the ServiceAccount, and is deleted with it.
async fn goes_with_the_account(test: &Test) -> Result<()> {
    let accounts: Api<ServiceAccount> = Api::namespaced(test.client(), SQUELCH.namespace);
    let account = accounts.get(SQUELCH.name).await?;
    let owners = secrets(test).get(SECRET).await?.metadata.owner_references.unwrap_or_default();
    let owned = owners.iter().any(|owner| Some(&owner.uid) == account.metadata.uid.as_ref());
    ensure!(owned, "{owners:?}");
    Ok(())
}

#[tokio::test]
async fn a_clock_a_year_off_does_not_invalidate_the_certificate() -> Result<()> {
    let mut test = Test::begin("clock").await?;
    delete_secret(&test).await?;
    let mut authorities = BTreeSet::new();
    for offset in ["--clock-offset=0s", "--clock-offset=9600h", "--clock-offset=-9600h"] {
        let failed = test.cluster.failed_reviews()?;
        let flags = ["--secret", SECRET, "--certificate-lifetime", "1h", offset];
        let counting = Counting::of(test, &flags).await?;
        counting.storm(async || Ok(())).await?;
        let reviewed = gauge(&counting.squelch, "squelch_reviews_total").await?;
        let sent = counting.sent.get();
        let left = served_until(&counting.squelch).await? - Timestamp::now().as_second();
        ensure!((1..=3700).contains(&left), "{offset}: valid for {left} s more");
        counting.squelch.stop().await?;
        test = counting.test;
        // With an invalid certificate every call fails. On a starved machine a call can time out.
        let FailedReviews { timeouts: late, others: broken } = test.cluster.failed_reviews()?.since(&failed);
        ensure!(
            (sent - late..=sent).contains(&reviewed) && late <= sent / 20 && broken == 0,
            "{offset}: {sent} writes, {reviewed} reviews, {late} calls timed out, {broken} failed"
        );
        authorities.insert(secret(&test).await?["ca.crt"].clone());
    }
    assert_eq!(authorities.len(), 1, "the authority must not change");
    test.passed()
}

/// A directory as the kubelet mounts a Secret: the files are in a directory behind a symlink.
struct Volume(PathBuf);

impl Volume {
    fn new(test: &Test) -> Result<Self> {
        let path = std::env::temp_dir().join(format!("squelch-volume-{}", test.namespace));
        std::fs::create_dir_all(&path)?;
        for name in ["tls.crt", "tls.key", "ca.crt"] {
            symlink(format!("..data/{name}"), path.join(name))?;
        }
        Ok(Self(path))
    }

    fn swap(&self, state: &str, [certificate, key, authority]: [&str; 3]) -> Result<()> {
        let folder = self.0.join(state);
        std::fs::create_dir_all(&folder)?;
        for (name, text) in [("tls.crt", certificate), ("tls.key", key), ("ca.crt", authority)] {
            std::fs::write(folder.join(name), text)?;
        }
        let link = self.0.join("..data_tmp");
        symlink(state, &link)?;
        Ok(std::fs::rename(link, self.0.join("..data"))?)
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// An authority and a certificate valid for this many hours, as from cert-manager.
fn issued(hours: u32) -> Result<(String, String, String)> {
    let now = Timestamp::now();
    let authority = Authority::generate(HOUR * 100, now)?;
    let leaf = authority.issue(&["127.0.0.1".to_owned()], HOUR * hours, now)?;
    let PrivateKeyDer::Pkcs8(key) = leaf.key else { anyhow::bail!("another kind of key") };
    let certificate = pem("CERTIFICATE", &leaf.chain[0]);
    Ok((certificate, pem("PRIVATE KEY", key.secret_pkcs8_der()), authority.ca_pem().to_owned()))
}

fn pem(label: &str, bytes: &[u8]) -> String {
    let lines: Vec<String> = STANDARD
        .encode(bytes)
        .as_bytes()
        .chunks(64)
        .map(|line| String::from_utf8_lossy(line).into())
        .collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

#[tokio::test]
async fn mounted_certificates_are_reloaded_and_damaged_ones_are_refused() -> Result<()> {
    let test = Test::begin("mounted").await?;
    delete_secret(&test).await?;
    let volume = Volume::new(&test)?;
    let (one, two) = (issued(10)?, issued(20)?);
    volume.swap("..1", [&one.0, &one.1, &one.2])?;
    let folder = volume.0.display().to_string();
    let flags = ["--secret", SECRET, "--cert-dir", &folder, "--certificate-lifetime", "10s"];
    let counting = Counting::of(test, &flags).await?;
    let (test, squelch) = (&counting.test, &counting.squelch);
    let names: BTreeSet<String> = secret(test).await?.into_keys().collect();
    assert_eq!(names, BTreeSet::from(["since", "token", "version"].map(ToOwned::to_owned)));
    let first = served_until(squelch).await?;
    counting
        .storm(async || {
            volume.swap("..2", [&two.0, &one.1, &two.2])?;
            wait_for("the damaged files to be rejected", GENEROUS, async || {
                let refused = gauge(squelch, "squelch_rejected_keys_total").await.map_err(not_yet)?;
                if refused == 1 { Ok(()) } else { Err(format!("{refused} refusals")) }
            })
            .await?;
            assert_eq!(served_until(squelch).await?, first);
            volume.swap("..3", [&two.0, &two.1, &two.2])?;
            wait_for(
                "the new files to be served, and the old authority to be removed",
                GENEROUS,
                async || {
                    let served = served_until(squelch).await.map_err(not_yet)?;
                    let (_, bundle) = client_config(test).await.map_err(not_yet)?;
                    let trusts = |authority: &str| bundle.contains(authority.trim());
                    let seen = (served > first, trusts(&two.2), trusts(&one.2));
                    if seen == (true, true, false) { Ok(()) } else { Err(format!("{seen:?}")) }
                },
            )
            .await
        })
        .await?;
    counting.end().await?.passed()
}
