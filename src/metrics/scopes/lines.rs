//! What the engine's lines have counted since the last scrape.

use std::collections::HashMap;
use std::sync::Arc;

use squelch_engine::{Counters, Mode, ScopeCounters};

use super::Labels;

/// A line as metrics tell lines apart. Policies that had the same name one after the other are one line.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Line {
    pub(super) namespace: Arc<str>,
    pub(super) policy: Arc<str>,
    pub(super) mode: Mode,
}

/// The engine's lines at the last scrape.
#[derive(Default)]
pub(super) struct Lines {
    known: HashMap<Line, Known>,
    /// What cluster-scoped policies have counted in namespaces that are gone, by uid.
    departed: HashMap<Arc<str>, Counters>,
}

/// What was counted since.
#[derive(Default)]
pub(super) struct Step {
    /// By lines that were known before, also if it is nothing.
    pub(super) grown: Vec<(Labels, Mode, Counters)>,
    /// By new lines, in order. Each is to be [assigned](Lines::assign) to a series.
    pub(super) first: Vec<(Line, Counters)>,
    /// By lines that ended before they were scraped again: policy, mode, counts.
    pub(super) departed: Vec<(Arc<str>, Mode, Counters)>,
}

struct Known {
    counted: Counted,
    labels: Option<Labels>,
}

/// A line as it stands in the accounts: what each policy of this name has counted, by uid.
#[derive(Default)]
struct Counted(Vec<(Arc<str>, Counters)>);

impl Lines {
    /// Compares the engine's lines with those of the last call.
    pub(super) fn step(&mut self, accounts: &[ScopeCounters]) -> Step {
        let mut step = Step::default();
        let mut before = std::mem::take(&mut self.known);
        // By uid: what was scraped of lines that have ended.
        let mut ended: HashMap<Arc<str>, Counters> = HashMap::new();
        let mut end = |counted: &Counted| {
            for (uid, counters) in &counted.0 {
                ended.entry(uid.clone()).or_default().add(counters);
            }
        };
        for (line, counted) in living(accounts) {
            let Some(Known { counted: was, labels: Some(labels) }) = before.remove(&line) else {
                step.first.push((line.clone(), counted.sum()));
                self.known.insert(line, Known { counted, labels: None });
                continue;
            };
            let grown = if counted.continues(&was) {
                difference(&counted.sum(), &was.sum())
            } else {
                end(&was);
                counted.sum()
            };
            step.grown.push((labels.clone(), line.mode, grown));
            self.known.insert(line, Known { counted, labels: Some(labels) });
        }
        before.values().for_each(|known| end(&known.counted));
        step.departed = self.step_departed(accounts, &ended);
        // So that the same lines get series of their own wherever there is no room for all.
        step.first.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        step
    }

    /// What lines counted between their last scrape and their end. Their counts were added to those of the namespaces
    /// that are gone.
    fn step_departed(
        &mut self,
        accounts: &[ScopeCounters],
        ended: &HashMap<Arc<str>, Counters>,
    ) -> Vec<(Arc<str>, Mode, Counters)> {
        let before = std::mem::take(&mut self.departed);
        let of_gone = accounts.iter().filter(|account| account.namespace.is_empty());
        let unscraped = of_gone.filter_map(|ScopeCounters { policy, mode, counters, .. }| {
            let none = Counters::default();
            let grown = difference(counters, before.get(&policy.uid).unwrap_or(&none));
            self.departed.insert(policy.uid.clone(), *counters);
            let unscraped = difference(&grown, ended.get(&policy.uid).unwrap_or(&none));
            (unscraped != none).then(|| (policy.display.clone(), *mode, unscraped))
        });
        unscraped.collect()
    }

    /// The line is counted by the series with these labels from now on.
    pub(super) fn assign(&mut self, line: &Line, labels: Labels) {
        if let Some(known) = self.known.get_mut(line) {
            known.labels = Some(labels);
        }
    }

    /// The lines that have no series of their own, and the one that they share, in order.
    pub(super) fn sharing(&self) -> Vec<(Line, Labels)> {
        let known = self.known.iter();
        let sharing = known.filter_map(|(line, known)| {
            let labels = known.labels.clone()?;
            (labels.0 != line.namespace || labels.1 != line.policy).then(|| (line.clone(), labels))
        });
        let mut sharing: Vec<_> = sharing.collect();
        sharing.sort_unstable();
        sharing
    }
}

impl Counted {
    fn sum(&self) -> Counters {
        let mut sum = Counters::default();
        self.0.iter().for_each(|(_, counters)| sum.add(counters));
        sum
    }

    /// Whether `self` is `before` and what was counted since. If not, the line began anew in between.
    fn continues(&self, before: &Self) -> bool {
        let fell = difference(&before.sum(), &self.sum()) != Counters::default();
        let had = |uid| before.0.iter().any(|(before, _)| before == uid);
        !fell && self.0.iter().any(|(uid, _)| had(uid))
    }
}

fn living(accounts: &[ScopeCounters]) -> HashMap<Line, Counted> {
    let mut living: HashMap<Line, Counted> = HashMap::with_capacity(accounts.len());
    for ScopeCounters { namespace, policy, mode, counters, dropped: _ } in accounts {
        // Counts of namespaces that are gone: see `step_departed`.
        if namespace.is_empty() {
            continue;
        }
        let (namespace, display) = (namespace.clone(), policy.display.clone());
        let counted = living.entry(Line { namespace, policy: display, mode: *mode }).or_default();
        counted.0.push((policy.uid.clone(), *counters));
    }
    living
}

/// What `after` has more of; 0 where it has less.
fn difference(after: &Counters, before: &Counters) -> Counters {
    let mut by_disposition = after.by_disposition;
    for (count, before) in by_disposition.iter_mut().zip(before.by_disposition) {
        *count = count.saturating_sub(before);
    }
    Counters {
        by_disposition,
        recovered: after.recovered.saturating_sub(before.recovered),
        lost: after.lost.saturating_sub(before.lost),
        dropped_warnings: after.dropped_warnings.saturating_sub(before.dropped_warnings),
    }
}
