//! What a bystander writes, and what has to become of it whatever others do: each answer, and each stored count.

use anyhow::{Result, ensure};
use e2e::events::{self, object, value};
use k8s_openapi::api::core::v1::Event;

use crate::tenant::{Said, Tenant, event};

/// Occurrences of one play.
pub(crate) const OCCURRENCES: i64 = REPEATS + MESSAGES + REASONS;

/// Of one series: the first is stored, the others are folded into it.
const REPEATS: i64 = 20;

/// Of one group: nine are stored, the others are folded into its summary.
const MESSAGES: i64 = 20;
const REMEMBERED: i64 = 9;

/// Of one spam bucket: 25 are stored.
const REASONS: i64 = 40;
const BURST: i64 = 25;

/// The objects that the play of this number is about. Others may write about them as well.
pub(crate) fn pods(play: usize) -> [String; 3] {
    ["repeats", "messages", "reasons"].map(|pod| format!("{pod}-{play}"))
}

/// Writes as this user, and looks at every answer.
pub(crate) async fn play(tenant: &Tenant, namespace: &str, user: &str, play: usize) -> Result<()> {
    let pods = pods(play);
    for (pod, most, stored) in
        [(&pods[0], REPEATS, 1), (&pods[1], MESSAGES, REMEMBERED), (&pods[2], REASONS, BURST)]
    {
        for number in 0..most {
            let (reason, message) = match pod.split('-').next() {
                Some("repeats") => ("BackOff".to_owned(), "again".to_owned()),
                Some("messages") => ("BackOff".to_owned(), format!("message {number}")),
                _ => (format!("Reason{number}"), format!("message {number}")),
            };
            let event = event(namespace, &format!("{user}.{pod}.{number}"), pod, &reason, &message);
            let said = tenant.create(namespace, &event).await?;
            let expected = if number < stored { Said::Stored } else { Said::HeldBack };
            ensure!(
                said == expected,
                "{user}'s write {number} about {pod}: {said:?} in place of {expected:?}"
            );
        }
    }
    Ok(())
}

/// What is stored of that play once all is paid. `others`: somebody else's look-alikes may have summaries too.
pub(crate) fn is_stored(stored: &[Event], user: &str, play: usize, others: bool) -> Result<()> {
    let pods = pods(play);
    let own = |pod: &str| {
        let prefix = format!("{user}.{pod}.");
        let own: Vec<_> =
            stored.iter().filter(|event| events::name(event).starts_with(&prefix)).cloned().collect();
        own
    };
    let seen = || events::list(&pods.iter().flat_map(|pod| own(pod)).collect::<Vec<_>>());
    let counts = |pod: &str| own(pod).iter().map(value).collect::<Vec<_>>();
    ensure!(counts(&pods[0]) == [REPEATS], "the repeats: {}", seen());
    ensure!(counts(&pods[1]).len() as i64 == REMEMBERED, "the messages: {}", seen());
    ensure!(counts(&pods[2]).len() as i64 == BURST, "the reasons: {}", seen());
    let summaries: Vec<_> =
        stored.iter().filter(|event| object(event) == pods[1] && is_summary(event)).collect();
    let right = summaries.iter().filter(|event| value(event) == MESSAGES - REMEMBERED).count();
    let seen = events::list(&summaries.into_iter().cloned().collect::<Vec<_>>());
    ensure!(right == 1 || (others && right > 1), "the summary: {seen}");
    Ok(())
}

/// Whether squelch calls it a summary.
pub(crate) fn is_summary(event: &Event) -> bool {
    let annotations = event.metadata.annotations.as_ref();
    annotations.is_some_and(|annotations| annotations.contains_key("squelch.dev/summary"))
}
