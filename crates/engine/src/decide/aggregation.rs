//! Step 9 of a decision: aggregation.

use crate::decide::keys::AGGREGATE_PREFIX;
use crate::decide::pipeline::Decision;
use crate::model::content::Content;
use crate::state::groups::ObjectCount;
use crate::state::names::Carried;
use crate::state::series::Series;
use crate::text::truncate;
use crate::{Disposition, EventView, GroupBy, Observation, PolicyId, Rules, Stage, Verdict};

/// Maximum number of occurrences that one write may add to a summary across objects. All users who report
/// with the same component name share that summary, and one of them must not exhaust its count.
pub(crate) const MAX_OCCURRENCES_PER_WRITE: i64 = 1000;

/// The labels of a summary as JSON. A label, because a client can select summaries by it. The policy is an annotation:
/// the `/` between its namespace and name is not valid in the value of a label.
const SUMMARY_LABELS: &str = r#"{"squelch.dev/summary":"true"}"#;

/// Whether a stored Event has the label of summaries.
pub(crate) fn is_summary(event: &EventView<'_>) -> bool {
    event.labels.contains(r#""squelch.dev/summary""#)
}

impl Decision<'_> {
    /// Merges the write into the summary of its group if its message is one too many. `None` if it is not.
    pub(crate) fn aggregate(
        &mut self,
        rules: &Rules,
        write: &Observation<'_>,
        carried: &Carried,
    ) -> Option<Verdict> {
        let (aggregation, group) = (rules.aggregation?, self.keys.group?);
        if aggregation.group_by == GroupBy::Kind && carried.occurrences > MAX_OCCURRENCES_PER_WRITE {
            return None;
        }
        let message = self.hasher.message(write, aggregation.group_by, rules.normalize);
        let object = self.hasher.object(write);
        let objects =
            self.scope.too_many(group, [message, object], &aggregation, self.at_capacity, self.now)?;
        let key = self.hasher.summary(group);
        let found = self.scope.series.find(key).and_then(|summary| self.living(summary));
        if self.refuses_pending(found, carried) {
            return None;
        }
        let summary = match found {
            Some(summary) => summary,
            None if !self.may_open() => return None,
            None => {
                let name = summary_name(&write.event.regarding.name, self.hasher.minted(self.number));
                let summary = self.open(key, &name, &Series::opened_by_merge(write.occurred_at, self.now));
                self.scope.note_witness(summary, group);
                summary
            }
        };
        self.scope.mark_seen(summary, self.now);
        let across = (aggregation.group_by == GroupBy::Kind).then_some(objects);
        let before = self.scope.series.content(summary);
        let content = summary_content(&write.event, before, &rules.policy, across);
        // At the limit on text a summary shows an older occurrence.
        if !self.at_capacity.text || before.is_none_or(|before| content.len() <= before.len()) {
            self.scope.remember(summary, content);
        }
        self.scope.change(summary, self.now, |series| {
            series.add(carried.occurrences);
            series.merge(write.occurred_at, true);
        });
        Some(self.suppressed(Disposition::Aggregated, Stage::Aggregation, rules, write, carried))
    }
}

/// Returns the name of a summary: `<regarding name>.<16 hex digits>`, truncated to a valid DNS subdomain. The
/// digits come from the keyed hash of a number unique to this decision. So no client can take the name in
/// advance, even if it has read the name of a previous summary.
fn summary_name(regarding: &str, bits: u128) -> String {
    let digits = format!("{:016x}", bits as u64);
    let plain: String = truncate(regarding, 253 - 17)
        .chars()
        .map(|character| match character.to_ascii_lowercase() {
            plain @ ('a'..='z' | '0'..='9' | '-' | '.') => plain,
            _ => '-',
        })
        .collect();
    // Each label of a DNS subdomain begins and ends with a letter or digit.
    let labels = plain.split('.').map(|label| label.trim_matches('-')).filter(|label| !label.is_empty());
    let mut name = labels.collect::<Vec<_>>().join(".");
    if !name.is_empty() {
        name.push('.');
    }
    name.push_str(&digits);
    name
}

/// Returns the content of a summary: the newest message behind client-go's prefix. The API's shape and the
/// first time stay those of the first merged write.
fn summary_content(
    event: &EventView<'_>,
    before: Option<&Content>,
    policy: &PolicyId,
    across: Option<ObjectCount>,
) -> Content {
    let before = before.map(Content::view);
    let message = match across {
        None => format!("{AGGREGATE_PREFIX}{}", event.message),
        Some(ObjectCount { number: 1, is_lower_bound: false }) => {
            format!("{AGGREGATE_PREFIX}on 1 object: {}", event.message)
        }
        Some(ObjectCount { number, is_lower_bound }) => {
            let or_more = if is_lower_bound { " or more" } else { "" };
            format!("{AGGREGATE_PREFIX}on {number}{or_more} objects, the last: {}", event.message)
        }
    };
    let annotations = format!(
        r#"{{"squelch.dev/policy":"{}"}}"#,
        policy.display // a namespace and a name: no character of theirs needs an escape
    );
    let times = before.as_ref().unwrap_or(event);
    Content::of(&EventView {
        message: message.into(),
        annotations: &annotations,
        labels: SUMMARY_LABELS,
        first_timestamp: times.first_timestamp.as_ref().into(),
        event_time: times.event_time.as_ref().into(),
        ..event.clone()
    })
}
