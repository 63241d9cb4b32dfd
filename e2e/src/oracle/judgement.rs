//! What was asked, answered, reported and stored, side by side.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Event;

use super::{Counting, Write};
use crate::events;
use crate::policy::Counters;

/// The numbers of one emitter.
#[derive(Clone, Debug, Default)]
pub struct Judgement {
    /// Occurrences that its writes asked the API server to record.
    pub asked: i64,
    /// Its writes.
    pub requests: usize,
    /// Writes with the Event, count and time of an earlier one that came as far as admission.
    pub repeated: usize,
    /// Verb and status to the number of writes.
    pub answers: BTreeMap<(String, u16), usize>,
    /// Writes that were answered with success and a lower count than they sent.
    pub restored: usize,
    /// Writes by squelch in the same namespace.
    pub flushes: usize,
    /// The sum of the counts in the stored Events.
    pub stored: i64,
    /// squelch's report.
    pub reported: Counters,
}

impl Judgement {
    /// Judges the writes of `user` in a namespace, after squelch has flushed everything. `all` are the writes of the
    /// namespace by everybody, in the order of their answers.
    ///
    /// # Errors
    /// If the log and the stored Events contradict each other: then the log is incomplete.
    pub fn of(
        all: &[Write],
        user: &str,
        counting: Counting,
        reported: Counters,
        stored: &[Event],
    ) -> Result<Self> {
        log_leads_to(all, stored)?;
        let own: Vec<Write> = all.iter().filter(|write| write.user == user).cloned().collect();
        let mut judgement = Self {
            asked: counting.occurrences(&own),
            requests: own.len(),
            stored: stored.iter().map(events::value).sum(),
            reported,
            ..Self::default()
        };
        let names: BTreeSet<_> = stored.iter().map(events::name).collect();
        let (mut seen, mut versions) = (BTreeSet::new(), BTreeSet::new());
        for write in all {
            let is_new_version = write.version.is_empty() || versions.insert(&write.version);
            if write.user != user {
                // squelch's Events about policies are not among the stored ones.
                let is_flush = write.succeeded() && is_new_version && names.contains(&*write.name);
                judgement.flushes += usize::from(is_flush);
                continue;
            }
            *judgement.answers.entry((write.verb.clone(), write.code)).or_default() += 1;
            judgement.restored += usize::from(write.is_restored());
            let content = (&write.name, write.sent_count, &write.sent_time);
            let is_known = write.reached_admission() && !write.name.is_empty();
            judgement.repeated += usize::from(is_known && !seen.insert(content));
        }
        Ok(judgement)
    }

    /// Occurrences that squelch reports as dropped.
    pub fn dropped(&self) -> i64 {
        self.reported.dropped()
    }

    /// Occurrences that squelch reports as merged.
    pub fn merged(&self) -> i64 {
        self.reported.compacted + self.reported.aggregated
    }

    /// Checks the law: everything that was asked for was received, and is stored or reported as dropped.
    ///
    /// # Errors
    /// If it is broken, with the numbers.
    pub fn holds(&self) -> Result<()> {
        let Self { asked, stored, reported, .. } = self;
        ensure!(reported.are_conserved(), "the counters do not add up: {self:?}");
        ensure!(*asked == reported.received, "{asked} asked for, {} received: {self:?}", reported.received);
        ensure!(
            asked + reported.recovered == stored + self.dropped(),
            "{asked} asked for and {} recovered, {stored} stored and {} dropped: {self:?}",
            reported.recovered,
            self.dropped()
        );
        Ok(())
    }
}

/// Checks that the last answer about each Event is what is stored: the log then has every write.
fn log_leads_to(all: &[Write], stored: &[Event]) -> Result<()> {
    let mut last: BTreeMap<&str, i64> = BTreeMap::new();
    for write in all.iter().filter(|write| write.succeeded()) {
        match write.returned_count {
            Some(count) if write.verb != "delete" => {
                // Two answers may be logged in the other order than they were stored; counts never fall.
                let known = last.entry(&write.name).or_default();
                *known = count.max(*known);
            }
            _ => _ = last.remove(&*write.name),
        }
    }
    for event in stored {
        let (name, count) = (events::name(event), events::value(event));
        ensure!(
            last.get(name) == Some(&count),
            "{name} ×{count} is stored, the audit log has {:?}",
            last.get(name)
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    fn write(user: &str, verb: &str, count: i64, code: u16, version: &str) -> Write {
        Write {
            user: user.into(),
            verb: verb.into(),
            api: "v1".into(),
            namespace: "shop".into(),
            name: "a".into(),
            sent_count: Some(count),
            sent_time: Some(count.to_string()),
            code,
            returned_count: (code < 300).then_some(count),
            version: version.into(),
            is_reviewed: true,
            ..Write::default()
        }
    }

    fn stored(count: i32) -> Vec<Event> {
        let metadata = ObjectMeta { name: Some("a".into()), ..ObjectMeta::default() };
        vec![Event { metadata, count: Some(count), ..Event::default() }]
    }

    /// Three occurrences, of which squelch merges two and flushes them.
    fn merged() -> [Write; 4] {
        [
            write("u", "create", 1, 201, "1"),
            write("u", "patch", 2, 409, ""),
            write("u", "patch", 3, 409, ""),
            write("squelch", "patch", 3, 200, "2"),
        ]
    }

    fn judge(received: i64, compacted: i64) -> Judgement {
        let reported = Counters { received, admitted: 1, compacted, ..Counters::default() };
        Judgement::of(&merged(), "u", Counting::Own, reported, &stored(3)).unwrap()
    }

    #[test]
    fn the_law_holds_if_everything_is_received_and_stored() {
        let judgement = judge(3, 2);
        assert_eq!((judgement.asked, judgement.flushes, judgement.requests), (3, 1, 3));
        judgement.holds().unwrap();
    }

    #[test]
    fn an_occurrence_that_was_not_received_breaks_the_law() {
        assert!(judge(2, 1).holds().unwrap_err().to_string().starts_with("3 asked for, 2 received"));
    }

    #[test]
    fn an_occurrence_that_is_not_stored_breaks_the_law() {
        let reported = Counters { received: 3, admitted: 1, compacted: 2, ..Counters::default() };
        let judgement = Judgement::of(&merged()[..3], "u", Counting::Own, reported, &stored(1)).unwrap();
        assert!(judgement.holds().unwrap_err().to_string().contains("1 stored and 0 dropped"));
    }

    #[test]
    fn a_log_without_the_last_write_is_refused() {
        let judged = Judgement::of(&merged()[..3], "u", Counting::Own, Counters::default(), &stored(3));
        assert!(judged.unwrap_err().to_string().contains("the audit log has Some(1)"));
    }

    #[test]
    fn retries_and_writes_that_change_nothing_are_counted() {
        let all = [
            write("u", "create", 1, 201, "1"),
            write("u", "patch", 2, 200, "1"),
            write("u", "patch", 2, 200, "1"),
        ];
        let judgement =
            Judgement::of(&all[..1], "u", Counting::Own, Counters::default(), &stored(1)).unwrap();
        assert_eq!((judgement.restored, judgement.repeated), (0, 0));
        let all = all.map(|write| Write { returned_count: Some(1), ..write });
        let judgement = Judgement::of(&all, "u", Counting::Own, Counters::default(), &stored(1)).unwrap();
        assert_eq!((judgement.restored, judgement.repeated), (2, 1));
    }
}
