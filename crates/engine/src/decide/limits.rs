//! Steps 10 and 11 of a decision: spam filter and budget.

use crate::decide::pipeline::Decision;
use crate::state::names::Carried;
use crate::{Disposition, Observation, Rules, Stage, Verdict};

/// With fewer tokens than this, the limits may refuse the second message of a group.
const FEW_TOKENS: u32 = 4;

impl Decision<'_> {
    /// Returns a verdict if a limit drops the write. `None` for a Warning that the policy never drops. Asks all
    /// buckets before it charges any.
    pub(crate) fn limit(
        &mut self,
        rules: &Rules,
        write: &Observation<'_>,
        carried: &Carried,
    ) -> Option<Verdict> {
        if !rules.may_drop(&write.event) {
            return None;
        }
        let mut of_filter = None;
        if let (Some(filter), Some(key)) = (&rules.spam_filter, self.keys.bucket) {
            of_filter = self.scope.ask_spam_filter(key, &filter.bucket, self.at_capacity.buckets, self.now);
            if of_filter.is_none() {
                let (filtered, stage) = (Disposition::Filtered, Stage::SpamFilter);
                return Some(self.suppressed(filtered, stage, rules, write, carried));
            }
        }
        if let Some(budget) = &rules.budget {
            let Some(charge) = self.scope.budget.ask(budget, self.now) else {
                let (throttled, stage) = (Disposition::Throttled, Stage::Budget);
                return Some(self.suppressed(throttled, stage, rules, write, carried));
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
