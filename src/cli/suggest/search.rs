//! Finds a treatment for each group: replays try what could save writes, the simplest first, and then leave out every
//! part without an effect.

use serde::Serialize;

use super::groups::{EventGroup, GroupDetails};
use super::treatment::{
    AggregationScope, Drops, GroupTreatment, REFILL_SECONDS, SuggestedPolicy, of_component, selections,
};
use crate::replay::{ClientBehavior, Error, ReplayInput, ReplayReport};

/// The results of a policy. Each is a sum over the namespaces that it governs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PolicyFigures {
    /// Writes to etcd without the policy.
    pub(super) writes_without: u64,
    /// Writes to etcd with it, squelch's own included.
    pub(super) writes_with: u64,
    /// Stored Events without the policy.
    pub(super) events_without: u64,
    /// Stored Events with it.
    pub(super) events_with: u64,
    /// Occurrences that are in no stored Event.
    pub(super) dropped: u64,
    /// Warnings among them.
    pub(super) dropped_warnings: u64,
}

impl PolicyFigures {
    /// The saved writes.
    pub(super) fn saved(&self) -> u64 {
        self.writes_without.saturating_sub(self.writes_with)
    }

    /// Returns those of the same writes without a policy.
    pub(super) fn without_policy(&self) -> Self {
        let Self { writes_without, events_without, .. } = *self;
        Self {
            writes_without,
            writes_with: writes_without,
            events_without,
            events_with: events_without,
            ..Self::default()
        }
    }

    /// What etcd has to do with the policy: a stored Event costs about as much as a write.
    fn cost(&self) -> u64 {
        self.writes_with + self.events_with
    }

    /// The cost without the policy.
    fn cost_without(&self) -> u64 {
        self.writes_without + self.events_without
    }

    /// Whether it costs less than `other` by this part of the cost without a policy, in percent.
    fn is_better(&self, other: &Self, percent: u64) -> bool {
        let gain = other.cost().saturating_sub(self.cost());
        gain > 0 && gain * 100 >= self.cost_without() * percent
    }

    /// Returns those of a policy in a replay.
    pub(super) fn of(report: &ReplayReport, policy: &str) -> Self {
        let mut sum = Self::default();
        for row in report.policies.iter().filter(|row| row.policy == policy) {
            sum.writes_without += row.writes.etcd_without;
            sum.writes_with += row.writes.etcd_with;
            sum.events_without += row.writes.events_without;
            sum.events_with += row.writes.events_with;
            sum.dropped += row.occurrences.dropped();
            sum.dropped_warnings += row.occurrences.dropped_warnings;
        }
        sum
    }
}

/// A group and what is found for it.
#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) group: EventGroup,
    pub(super) details: GroupDetails,
    /// The namespace of its policy; `None` for a cluster-scoped one.
    pub(super) namespace: Option<String>,
    /// `None`: nothing saves enough.
    pub(super) treatment: Option<GroupTreatment>,
    pub(super) figures: PolicyFigures,
}

/// Minimum gain of each further treatment, in percent of the cost of its group.
const MIN_GAIN: u64 = 10;

/// Same, of treatments that hide single objects or drop Events.
const MIN_COSTLY_GAIN: u64 = 50;

impl Candidate {
    /// Takes the first of the treatments that save the most, in steps of the minimum gain.
    fn take_better(&mut self, tried: &[(GroupTreatment, PolicyFigures)]) {
        for (treatment, figures) in tried {
            let is_costly =
                treatment.drops.is_some() || treatment.aggregation == Some(AggregationScope::Kind);
            let percent = if is_costly { MIN_COSTLY_GAIN } else { MIN_GAIN };
            if self.treatment.is_none() {
                // Without a policy every write reaches etcd.
                self.figures = figures.without_policy();
            }
            if figures.is_better(&self.figures, percent) {
                self.treatment = Some(treatment.clone());
                self.figures = *figures;
            }
        }
    }

    /// Takes the first treatment that costs about as little. Returns whether there is one.
    fn take_simpler(&mut self, tried: &[(GroupTreatment, PolicyFigures)]) -> bool {
        let most = self.figures.cost() + self.figures.cost_without() / 100;
        let Some((treatment, figures)) = tried.iter().find(|(_, figures)| figures.cost() <= most) else {
            return false;
        };
        self.treatment = Some(treatment.clone());
        self.figures = *figures;
        true
    }

    fn treatment(&self) -> GroupTreatment {
        self.treatment.clone().unwrap_or_default()
    }
}

/// Returns treatments to try for a candidate.
type Variants<'a> = dyn Fn(&Candidate) -> Vec<GroupTreatment> + 'a;

/// Finds a treatment for each candidate.
pub(super) fn search(
    recording: &ReplayInput,
    candidates: &mut [Candidate],
    clients: ClientBehavior,
    allow_mute: bool,
) -> Result<(), Error> {
    let steps: [&Variants<'_>; 3] = [
        &|candidate| GroupTreatment::compacting(&candidate.details.masks()),
        &|candidate| aggregating(candidate),
        &|candidate| dropping(candidate, allow_mute),
    ];
    for variants in steps {
        let tried = try_all(recording, candidates, clients, variants)?;
        candidates.iter_mut().zip(tried).for_each(|(candidate, tried)| candidate.take_better(&tried));
    }
    let mut changed = vec![true; candidates.len()];
    while changed.contains(&true) {
        let simpler = |candidate: &Candidate| match &candidate.treatment {
            Some(treatment) => treatment.simpler(),
            None => Vec::new(),
        };
        let tried = try_all(recording, candidates, clients, &simpler)?;
        let both = candidates.iter_mut().zip(tried);
        changed = both.map(|(candidate, tried)| candidate.take_simpler(&tried)).collect();
    }
    Ok(())
}

/// Summaries for each object, then for each kind. The latter hide objects, so they are for Warnings, of which squelch
/// drops none.
fn aggregating(candidate: &Candidate) -> Vec<GroupTreatment> {
    let with = |scope| GroupTreatment { aggregation: Some(scope), ..candidate.treatment() };
    let mut variants = vec![with(AggregationScope::Object)];
    if candidate.group.is_warning {
        variants.push(with(AggregationScope::Kind));
    }
    variants
}

fn dropping(candidate: &Candidate, allow_mute: bool) -> Vec<GroupTreatment> {
    if candidate.group.is_warning {
        return Vec::new();
    }
    let with = |drops| GroupTreatment { drops: Some(drops), ..candidate.treatment() };
    let mut variants: Vec<_> = REFILL_SECONDS.map(|seconds| with(Drops::SpamFilter(seconds))).into();
    if allow_mute {
        variants.push(GroupTreatment { drops: Some(Drops::Mute), ..GroupTreatment::default() });
    }
    variants
}

/// Replays the variants of all candidates: the first of each in one replay, then the second, and so on.
fn try_all(
    recording: &ReplayInput,
    candidates: &[Candidate],
    clients: ClientBehavior,
    variants: &Variants<'_>,
) -> Result<Vec<Vec<(GroupTreatment, PolicyFigures)>>, Error> {
    let variants: Vec<Vec<GroupTreatment>> = candidates.iter().map(variants).collect();
    let rounds = variants.iter().map(Vec::len).max().unwrap_or_default();
    let policies = |round: usize| {
        let policies =
            candidates.iter().zip(&variants).enumerate().filter_map(|(at, (candidate, variants))| {
                let treatment = variants.get(round)?;
                let matching = selections(&[&candidate.group]).concat();
                let matching = of_component(matching, &candidate.group.component);
                Some(SuggestedPolicy::new(&name(at), candidate.namespace.as_deref(), &matching, treatment))
            });
        list(&policies.collect::<Vec<_>>())
    };
    let reports = recording.replay(&(0..rounds).map(policies).collect::<Vec<_>>(), clients)?;
    let mut tried = vec![Vec::new(); candidates.len()];
    for (at, (candidate, variants)) in candidates.iter().zip(variants).enumerate() {
        let policy =
            SuggestedPolicy::new(&name(at), candidate.namespace.as_deref(), &[], &GroupTreatment::default());
        let figures = reports.iter().map(|report| PolicyFigures::of(report, &policy.display()));
        tried[at] = variants.into_iter().zip(figures).collect();
    }
    Ok(tried)
}

/// The name of a candidate's policy in a replay.
fn name(at: usize) -> String {
    format!("candidate-{at}")
}

/// Returns policies as one document.
pub(super) fn list(policies: &[SuggestedPolicy]) -> String {
    serde_json::json!({ "kind": "List", "apiVersion": "v1", "items": policies }).to_string()
}

#[cfg(test)]
mod tests {
    use squelch_engine::Mask;

    use super::*;

    fn candidate(is_warning: bool) -> Candidate {
        let text = |text: &str| text.to_owned();
        let group = EventGroup { component: text("c"), kind: text("Pod"), is_warning, reason: text("R") };
        Candidate {
            group,
            details: GroupDetails::default(),
            namespace: None,
            treatment: None,
            figures: PolicyFigures::default(),
        }
    }

    fn figures(writes_with: u64) -> PolicyFigures {
        PolicyFigures { writes_without: 1000, writes_with, ..PolicyFigures::default() }
    }

    fn idle(minutes: u32) -> GroupTreatment {
        GroupTreatment { idle_minutes: Some(minutes), ..GroupTreatment::default() }
    }

    #[test]
    fn each_further_part_saves_a_tenth() {
        let taken = |writes: &[u64]| {
            let mut candidate = candidate(false);
            let tried = writes.iter().enumerate().map(|(at, writes)| (idle(at as u32), figures(*writes)));
            candidate.take_better(&tried.collect::<Vec<_>>());
            candidate.treatment.and_then(|treatment| treatment.idle_minutes)
        };
        assert_eq!(taken(&[]), None);
        assert_eq!(taken(&[1000, 901]), None);
        assert_eq!(taken(&[1000, 900, 801]), Some(1));
        assert_eq!(taken(&[900, 801, 800, 701]), Some(2));
        // More writes than without a policy.
        assert_eq!(taken(&[1200]), None);
    }

    #[test]
    fn what_drops_or_hides_saves_half() {
        let mut candidate = candidate(false);
        let dropping = |drops| GroupTreatment { drops: Some(drops), ..GroupTreatment::default() };
        candidate.take_better(&[(dropping(Drops::SpamFilter(1)), figures(501))]);
        assert_eq!(candidate.treatment, None);
        candidate.take_better(&[
            (dropping(Drops::SpamFilter(1)), figures(500)),
            (dropping(Drops::SpamFilter(10)), figures(1)),
        ]);
        assert_eq!(candidate.treatment, Some(dropping(Drops::SpamFilter(1))));
    }

    #[test]
    fn a_part_without_an_effect_is_left_out() {
        let mut candidate = candidate(true);
        candidate.treatment = Some(GroupTreatment { masks: vec![Mask::Uuids], ..idle(15) });
        candidate.figures = figures(300);
        assert!(!candidate.take_simpler(&[(GroupTreatment::default(), figures(311))]));
        let without_mask = (idle(15), figures(310));
        assert!(candidate.take_simpler(&[(GroupTreatment::default(), figures(311)), without_mask]));
        assert_eq!(candidate.treatment, Some(idle(15)));
    }

    #[test]
    fn only_normal_events_are_dropped_and_muted_only_if_allowed() {
        assert_eq!(dropping(&candidate(true), true), []);
        let drops = |allow_mute| {
            let variants = dropping(&candidate(false), allow_mute);
            variants.iter().filter_map(|variant| variant.drops).collect::<Vec<_>>()
        };
        assert_eq!(drops(false), [Drops::SpamFilter(1), Drops::SpamFilter(10)]);
        assert_eq!(drops(true), [Drops::SpamFilter(1), Drops::SpamFilter(10), Drops::Mute]);
    }
}
