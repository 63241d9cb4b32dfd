//! Step 9: groups and summaries.

use super::*;

impl NaiveModel {
    /// Step 9.
    pub(super) fn in_summary(
        &mut self,
        write: &Observation<'_>,
        carried: i64,
        refused: &Answer,
        now: Moment,
    ) -> Option<Verdict> {
        let rules = self.rules.aggregation?;
        if rules.group_by == GroupBy::Kind && carried > MAX_OCCURRENCES_PER_WRITE {
            return None;
        }
        if write.operation == Operation::Update || write.event.message.starts_with(AGGREGATE_PREFIX) {
            return None;
        }
        let (key, message) = group_of(write, rules.group_by, self.rules.normalize);
        self.groups.retain(|group| now.since(group.seen) <= rules.idle_timeout);
        let at = self.groups.iter().position(|group| group.key == key).unwrap_or_else(|| {
            self.groups.push(Group { key: key.clone(), messages: Vec::new(), seen: now, witness: None });
            self.groups.len() - 1
        });
        let group = &mut self.groups[at];
        group.seen = now;
        if group.messages.contains(&message) {
            return None;
        }
        if group.messages.len() < rules.max_events as usize - 1 {
            group.messages.push(message);
            return None;
        }
        let witness = group.witness.clone()?;
        let group_key = key.clone();
        let key = [vec!["summary".to_owned()], key].concat();
        let summary = self.living(now, |series| series.key == key).unwrap_or_else(|| {
            let begins = format!("{}.", write.event.regarding.name);
            let number = self.open(key, begins, 0, now);
            if let Some(series) = self.find_series(number) {
                (series.summary, series.base_unknown) = (true, true);
                series.witness = Some((group_key, witness));
            }
            number
        });
        let series = self.find_series(summary)?;
        (series.seen, series.closing, series.merged) = (now, false, true);
        series.total += carried;
        Some(verdict(Disposition::Aggregated, Stage::Aggregation, carried, refused.clone()))
    }

    /// Records the witness of the group, from the second message on.
    pub(super) fn admitted_of_group(&mut self, write: &Observation<'_>, minted: Option<&str>, now: Moment) {
        let Some(rules) = self.rules.aggregation else { return };
        if write.event.message.starts_with(AGGREGATE_PREFIX) {
            return;
        }
        let (key, _) = group_of(write, rules.group_by, self.rules.normalize);
        let few_tokens = self.few_tokens;
        let name = write.name.as_deref().or(minted).unwrap_or_default();
        for group in self.groups.iter_mut().filter(|group| group.key == key) {
            let kept = |(_, at): &Witness| now.since(*at) < Duration::from_secs(300);
            let needed = few_tokens
                || group.messages.len() > 1
                || group.messages.len() + 1 >= rules.max_events as usize;
            if needed && !group.witness.as_ref().is_some_and(kept) {
                group.witness = Some((name.to_owned(), now));
            }
        }
    }
}
