//! Steps 6 to 8 of a decision: aggregation, the spam filter, the budget.

use super::content::{Content, cut};
use super::decide::{Deciding, refusal, verdict};
use super::group::Objects;
use super::key::AGGREGATE_PREFIX;
use super::names::Carried;
use super::series::Series;
use super::{Disposition, EventView, GroupBy, Observation, PolicyId, Rules, Stage, Verdict};

/// Limits that hold fewer tokens than this may refuse the second message of a group.
const FEW_TOKENS: u32 = 4;

/// A write that reports more occurrences than this by itself is not added to a summary across objects: that is shared by
/// all users who report with one component name, and one of them must not exhaust its count.
pub(super) const MOST_AT_ONCE: i64 = 1000;

impl Deciding<'_> {
    /// Step 6: one message too many of a group is folded into the summary.
    pub(super) fn aggregate(
        &mut self,
        rules: &Rules,
        write: &Observation<'_>,
        carried: &Carried,
    ) -> Option<Verdict> {
        let (aggregation, group) = (rules.aggregation?, self.keys.group?);
        if aggregation.group_by == GroupBy::Kind && carried.occurrences > MOST_AT_ONCE {
            return None;
        }
        let message = self.hasher.message(write, aggregation.group_by);
        let object = self.hasher.object(write);
        let objects = self.scope.too_many(group, [message, object], &aggregation, self.full, self.now)?;
        let key = self.hasher.summary(group);
        let found = self.scope.series.find(key).and_then(|summary| self.living(summary));
        if self.refuses_debt(found, carried) {
            return None;
        }
        let summary = match found {
            Some(summary) => summary,
            None if !self.may_open() => return None,
            None => {
                let name = summary_name(&write.event.regarding.name, self.hasher.minted(self.number));
                let summary = self.open(key, &name, &Series::opened_by_fold(write.occurred_at, self.now));
                self.scope.note_witness(summary, group);
                summary
            }
        };
        self.scope.see(summary, self.now);
        let across = (aggregation.group_by == GroupBy::Kind).then_some(objects);
        let before = self.scope.series.content(summary);
        let content = summary_content(&write.event, before, &rules.policy, across);
        self.scope.remember(summary, content);
        self.scope.change(summary, self.now, |series| {
            series.add(carried.occurrences);
            series.fold(write.occurred_at, true);
        });
        let occurrences = carried.occurrences;
        Some(verdict(Disposition::Aggregated, Stage::Aggregation, occurrences, refusal(rules, write)))
    }

    /// Steps 7 and 8: every bucket is asked before any is charged.
    pub(super) fn limit(
        &mut self,
        rules: &Rules,
        write: &Observation<'_>,
        carried: &Carried,
    ) -> Option<Verdict> {
        let refused = |disposition, stage| {
            Some(verdict(disposition, stage, carried.occurrences, refusal(rules, write)))
        };
        let mut of_filter = None;
        if let (Some(filter), Some(key)) = (&rules.spam_filter, self.keys.bucket) {
            of_filter = self.scope.ask_spam_filter(key, &filter.bucket, self.full.buckets, self.now);
            if of_filter.is_none() {
                return refused(Disposition::Filtered, Stage::SpamFilter);
            }
        }
        if let Some(budget) = &rules.budget {
            let Some(charge) = self.scope.budget.ask(budget, self.now) else {
                return refused(Disposition::Throttled, Stage::Budget);
            };
            self.few_tokens |= charge.leaves_fewer_than(FEW_TOKENS, budget, self.now);
            self.scope.budget.charge(charge);
        }
        if let (Some(charge), Some(filter)) = (of_filter, &rules.spam_filter) {
            self.few_tokens |= charge.leaves_fewer_than(FEW_TOKENS, &filter.bucket, self.now);
            self.scope.charge_spam_filter(charge);
        }
        None
    }
}

/// The name of a summary: `<regarding name>.<16 hex digits>`, cut to a DNS subdomain. The digits are of the keyed hash of
/// a number that no other decision has: nobody can take the name in advance, not even who has read a former one.
fn summary_name(regarding: &str, bits: u128) -> String {
    let digits = format!("{:016x}", bits as u64);
    let plain: String = cut(regarding, 253 - 17)
        .chars()
        .map(|character| match character.to_ascii_lowercase() {
            plain @ ('a'..='z' | '0'..='9' | '-' | '.') => plain,
            _ => '-',
        })
        .collect();
    // Each label of a subdomain begins and ends with a letter or a digit.
    let labels = plain.split('.').map(|label| label.trim_matches('-')).filter(|label| !label.is_empty());
    let mut name = labels.collect::<Vec<_>>().join(".");
    if !name.is_empty() {
        name.push('.');
    }
    name.push_str(&digits);
    name
}

/// What a summary says: the newest message behind client-go's prefix. Its shape and its first time stay those of
/// the first fold.
fn summary_content(
    event: &EventView<'_>,
    before: Option<&Content>,
    policy: &PolicyId,
    across: Option<Objects>,
) -> Content {
    let before = before.map(Content::view);
    let message = match across {
        None => format!("{AGGREGATE_PREFIX}{}", event.message),
        Some(Objects { number: 1, or_more: false }) => {
            format!("{AGGREGATE_PREFIX}on 1 object: {}", event.message)
        }
        Some(Objects { number, or_more }) => {
            let or_more = if or_more { " or more" } else { "" };
            format!("{AGGREGATE_PREFIX}on {number}{or_more} objects, the last: {}", event.message)
        }
    };
    let annotations = format!(
        r#"{{"squelch.dev/policy":"{}","squelch.dev/summary":"true"}}"#,
        policy.display // a namespace and a name: no character of theirs needs an escape
    );
    let times = before.as_ref().unwrap_or(event);
    Content::of(&EventView {
        message: message.into(),
        annotations: &annotations,
        labels: "",
        first_timestamp: times.first_timestamp.as_ref().into(),
        event_time: times.event_time.as_ref().into(),
        ..event.clone()
    })
}
