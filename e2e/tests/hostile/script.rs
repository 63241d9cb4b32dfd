//! The writes of the other user, with the expected answers and stored counts, whatever other users do.

use anyhow::{Result, ensure};
use e2e::events::{self, object, value};
use k8s_openapi::api::core::v1::Event;

use crate::tenant::{Tenant, WriteResult, event};

/// Occurrences per round.
pub(crate) const OCCURRENCES: i64 = REPEATS + MESSAGES + REASONS;

/// Of one series: the first is stored, the others are compacted into it.
const REPEATS: i64 = 20;

/// Of one group: nine are stored, the others are aggregated into its summary.
const MESSAGES: i64 = 20;
const REMEMBERED: i64 = 9;

/// Of one bucket of the spam filter: 25 are stored.
const REASONS: i64 = 40;
const BURST: i64 = 25;

/// The objects of a round. Others may write about them as well.
pub(crate) fn pods(round: usize) -> [String; 3] {
    ["repeats", "messages", "reasons"].map(|pod| format!("{pod}-{round}"))
}

/// Writes as this user, and checks every answer.
pub(crate) async fn run(tenant: &Tenant, namespace: &str, user: &str, round: usize) -> Result<()> {
    let pods = pods(round);
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
            let expected = if number < stored { WriteResult::Stored } else { WriteResult::Refused };
            ensure!(
                said == expected,
                "{user}'s write {number} about {pod}: {said:?} instead of {expected:?}"
            );
        }
    }
    Ok(())
}

/// Checks the stored Events of a round after the last flush. `others`: similar Events of other users may have
/// summaries too.
pub(crate) fn is_stored(stored: &[Event], user: &str, round: usize, others: bool) -> Result<()> {
    let pods = pods(round);
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

/// Whether it is a summary of squelch.
pub(crate) fn is_summary(event: &Event) -> bool {
    event.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key("squelch.dev/summary"))
}
