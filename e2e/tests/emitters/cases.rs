//! One emitter under one policy.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::accounts::EMITTER;
use e2e::oracle::{AuditLog, Judgement, Write};
use e2e::policy::{self, Counters, series_alone};
use e2e::user::REFUSED;
use e2e::wait::not_yet;
use e2e::{GENEROUS, Test, wait_for};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{ObjectMeta, PostParams};
use serde_json::{Value, json};

use crate::kinds::Kind;

/// Occurrences that each emitter reports.
pub(crate) const OCCURRENCES: i64 = 20;
/// Deadline of an emitter, which takes 5 to 10 s on an idle machine.
const EMISSION: Duration = Duration::from_secs(240);

/// A policy, and what the emitter reports under it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Case {
    /// No policy.
    Free,
    /// The same message each time; repeats are merged.
    Merged,
    /// Another message each time; the spam filter drops all but the first.
    Dropped,
    /// The same with `rejection: Forbidden`.
    Forbidden,
    /// The same message each time, under examples/exempt-emitters.yaml with the emitter among its users.
    Exempt,
}

impl Case {
    /// All cases.
    pub(crate) const ALL: [Self; 5] =
        [Self::Free, Self::Merged, Self::Dropped, Self::Forbidden, Self::Exempt];

    fn policy(self) -> Result<Option<Value>> {
        let off = json!({ "mode": "Disabled" });
        let dropping = |rejection: &str| {
            let filter = json!({ "burst": 1, "refillInterval": "1h" });
            json!({
                "warningPolicy": "Limit", "series": off, "aggregation": off, "spamFilter": filter,
                "rejection": rejection,
            })
        };
        Ok(match self {
            Self::Free => None,
            Self::Exempt => Some(exempting(&EMITTER.user())?),
            Self::Merged => Some(series_alone(&json!({}))),
            Self::Dropped => Some(dropping("AlreadyExists")),
            Self::Forbidden => Some(dropping("Forbidden")),
        })
    }

    /// Whether something is merged or dropped.
    fn suppresses(self) -> bool {
        !matches!(self, Self::Free | Self::Exempt)
    }

    /// The value of the emitters' flag `--messages`.
    pub(crate) fn messages(self) -> &'static str {
        match self {
            Self::Free | Self::Merged | Self::Exempt => "identical",
            Self::Dropped | Self::Forbidden => "distinct",
        }
    }
}

/// The spec of examples/exempt-emitters.yaml, with this user in place of the first one.
fn exempting(user: &str) -> Result<Value> {
    let mut policy = policy::in_file("examples/exempt-emitters.yaml")?;
    let users = policy.pointer_mut("/spec/exempt/0/users/0").context("no user is exempt")?;
    *users = user.into();
    Ok(policy["spec"].take())
}

/// The results of one emitter under one policy.
pub(crate) struct Seen {
    /// Its namespace.
    pub(crate) test: Test,
    /// The library with its version.
    pub(crate) emitter: String,
    /// Occurrences that the program handed to the library.
    pub(crate) occurrences: i64,
    /// What was asked, answered, reported and stored.
    pub(crate) judgement: Judgement,
    /// The emitter's writes.
    pub(crate) writes: Vec<Write>,
    /// Errors that the library gave its caller.
    pub(crate) errors: Vec<String>,
    /// The library's log.
    pub(crate) log: Vec<String>,
}

impl Seen {
    /// Checks the law; and that the policy did suppress something.
    pub(crate) fn holds(&self, case: Case) -> Result<()> {
        let Judgement { asked, stored, reported, .. } = &self.judgement;
        if case.suppresses() {
            self.judgement.holds()?;
        } else {
            ensure!(asked == stored, "{asked} asked for, {stored} stored: {:?}", self.judgement);
        }
        if case == Case::Free {
            return Ok(());
        }
        ensure!(*asked == reported.received, "{asked} asked for, {} received", reported.received);
        ensure!(reported.failed_open == 0, "undecided writes: {reported:?}");
        let suppressed = reported.received - reported.admitted;
        let is_expected = match case {
            Case::Free | Case::Exempt => suppressed == 0,
            // client-go's new recorder writes the second occurrence, and then nothing for half an hour.
            Case::Merged => true,
            Case::Dropped | Case::Forbidden => suppressed > 0,
        };
        ensure!(is_expected, "{suppressed} were suppressed: {:?}", self.judgement);
        Ok(())
    }

    /// The writes that squelch suppressed.
    pub(crate) fn suppressed(&self) -> impl Iterator<Item = &Write> {
        self.writes.iter().filter(|write| write.message.contains(REFUSED) || write.is_restored())
    }
}

/// Runs an emitter in a namespace of its own.
pub(crate) async fn run(test: &Test, kind: &Kind, case: Case) -> Result<Seen> {
    let log = AuditLog::from_now(&test.cluster.folder.join("logs/audit.log"))?;
    let test = test.part().await?;
    let policy = match case.policy()? {
        Some(spec) => Some(test.policy(&spec).await?),
        None => None,
    };
    let maps: Api<ConfigMap> = Api::namespaced(test.client(), &test.namespace);
    let metadata = ObjectMeta { name: Some("cart".to_owned()), ..ObjectMeta::default() };
    let made = maps.create(&PostParams::default(), &ConfigMap { metadata, ..ConfigMap::default() }).await?;
    let uid = made.metadata.uid.context("a ConfigMap without a uid")?;

    let ran = kind.emit(&test, case, &uid, EMISSION).await?;
    let writes = log.writes(&test.client(), &test.namespace).await?;
    let user = EMITTER.user();
    let asked = kind.counting.occurrences(&of_user(&writes, &user));
    let reported = match &policy {
        None => Counters::default(),
        Some(policy) => policy.received(asked).await.with_context(|| format!("{asked} were asked for"))?,
    };
    let expected = if case.suppresses() { asked + reported.recovered - reported.dropped() } else { asked };
    // The closing flush comes after `idleTimeout`.
    let stored = wait_for(&format!("{expected} stored occurrences"), GENEROUS, async || {
        let stored = test.events(None).await.map_err(not_yet)?;
        let sum: i64 = stored.iter().map(e2e::events::value).sum();
        if sum == expected { Ok(stored) } else { Err(e2e::events::list(&stored)) }
    })
    .await?;
    let all = log.writes(&test.client(), &test.namespace).await?;
    let judgement = Judgement::of(&all, &user, kind.counting, reported, &stored)?;
    Ok(Seen {
        test,
        emitter: ran.emitter,
        occurrences: ran.occurrences,
        judgement,
        writes: of_user(&all, &user),
        errors: ran.errors,
        log: ran.log,
    })
}

fn of_user(writes: &[Write], user: &str) -> Vec<Write> {
    writes.iter().filter(|write| write.user == user && write.verb != "delete").cloned().collect()
}
