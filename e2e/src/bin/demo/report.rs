//! The output of the demo.

use std::fmt::{Display, Write as _};

use anyhow::Result;
use e2e::figures::by_threes;
use serde_json::json;

use crate::checks::Check;
use crate::every_stage::EveryStage;
use crate::samples;
use crate::stage::{IDLE_TIMEOUT, NO_POLICY, POLICY_FILE, ReportedCounters, WITH_POLICY};
use crate::tally::Tally;
use e2e::storm::{SOURCES, Source};

/// Widths of the table's columns.
const LABEL: usize = 62;
const NUMBER: usize = 16;

/// All results.
pub(crate) struct Report {
    pub(crate) without: Tally,
    pub(crate) with: Tally,
    pub(crate) counters: ReportedCounters,
    pub(crate) every_stage: EveryStage,
    pub(crate) checks: Vec<Check>,
    pub(crate) seconds: u64,
}

/// Prints a step on standard error.
pub(crate) fn say(step: &str) {
    eprintln!("==> {step}");
}

/// Prints what the demo does.
pub(crate) fn introduce() {
    eprintln!(
        "
A storm of Events, twice, by real recorders against a real API server: first in a namespace without a
policy, then in one with {POLICY_FILE}. Four processes at once, for 20 s:
"
    );
    for source in &SOURCES {
        let occurrences = number(source.occurrences());
        eprintln!("  {:44}{occurrences:>6} occurrences   {}", source.title, source.recorder);
    }
    eprintln!(
        "
Changed to fit into two minutes:
  - each pod's 200 repeats come within 20 s; a kubelet spreads them over the better part of an hour;
  - the policy's idleTimeout is {IDLE_TIMEOUT}, not 6m, so that the final counts are written soon;
  - squelch writes the policy's status each second (--status-interval 1s), not every 10 s;
  - the spam filter in client-go's legacy recorder (25 per object, then 1 per 5 minutes; it drops the rest and
    does not report it) and its aggregation are disabled, so that every occurrence reaches the API server.
"
    );
}

impl Report {
    /// Whether all checks passed.
    pub(crate) fn adds_up(&self) -> bool {
        self.checks.iter().all(|check| check.ok)
    }

    /// The table of both storms.
    pub(crate) fn table(&self) -> String {
        let mut table = Table { storms: [&self.without, &self.with], text: String::new() };
        table.row("", ["without policy", "with policy"]);
        table.row("", [NO_POLICY, WITH_POLICY].map(|namespace| format!("ns {namespace}")));
        table.line();
        table.numbers("occurrences emitted", Tally::emitted);
        table.numbers("  reported to the API server [1]", Tally::reported);
        table.numbers("requests of the emitters", Tally::requests);
        table.numbers("  successful [2]", Tally::accepted);
        table.numbers("  refused with 409, which client-go ignores", |storm| storm.answered(409));
        table.numbers("requests of squelch for Events [3]", |storm| storm.squelch_requests);
        table.line();
        table.numbers("Event writes in etcd [4]", Tally::etcd_writes);
        for (at, Source { title, recorder, .. }) in SOURCES.iter().enumerate() {
            table.numbers(&format!("  {title} ({recorder})"), |storm| storm.sources[at].etcd_writes);
        }
        table.line();
        table.numbers("Events stored", Tally::stored);
        table.numbers("sum of their counts", Tally::sum_of_counts);
        table.numbers("error lines in the emitters' logs", Tally::error_lines);
        table.text + NOTES
    }

    /// The checks and their verdict.
    pub(crate) fn verdict(&self) -> String {
        let mut text = "\nDo the counts match?\n\n".to_owned();
        for Check { ok, what, seen } in &self.checks {
            let word = if *ok { "yes" } else { "NO " };
            let _ = writeln!(text, "  {word}  {what}: {seen}");
        }
        let (without, with) = (self.without.etcd_writes(), self.with.etcd_writes());
        let verdict = if self.adds_up() {
            let fewer = without as f64 / with.max(1) as f64;
            format!(
                "{} writes were reduced to {}, by a factor of {fewer:.0}; no occurrence was lost.",
                number(without),
                number(with)
            )
        } else {
            "The counts do NOT match: --keep leaves everything running for inspection.".to_owned()
        };
        let _ = writeln!(text, "\n{verdict} ({} s)", self.seconds);
        text
    }

    /// The Event writes in etcd of both storms over time, as CSV.
    pub(crate) fn samples(&self) -> String {
        samples::csv([&self.without, &self.with].map(|storm| storm.etcd_writes_over_time.as_slice()))
    }

    /// All results as JSON.
    pub(crate) fn json(&self) -> Result<String> {
        let object = json!({
            "addsUp": self.adds_up(),
            "seconds": self.seconds,
            "changed": { "idleTimeout": IDLE_TIMEOUT, "statusInterval": "1s", "legacySpamFilter": "open" },
            "storms": [self.without, self.with],
            "etcdWrites": [self.without.etcd_writes(), self.with.etcd_writes()],
            "sumOfCounts": [self.without.sum_of_counts(), self.with.sum_of_counts()],
            "squelch": self.counters,
            "everyStage": self.every_stage,
            "checks": self.checks,
        });
        Ok(serde_json::to_string_pretty(&object)? + "\n")
    }
}

const NOTES: &str = "
[1] client-go's new recorder reports the first and the second occurrence, and then nothing for 30 minutes, with
    and without squelch; occurrences that are not reported cannot be stored.
[2] A suppressed PATCH through events.k8s.io is answered with the stored Event: kube-rs would forget the
    occurrence if it were refused.
[3] Requests for Events by the API server's metrics minus those of the emitters. With --node, they include
    requests of the node's components.
[4] Counted by a watch of the Events; they include squelch's own writes.
";

struct Table<'a> {
    storms: [&'a Tally; 2],
    text: String,
}

impl Table<'_> {
    fn row(&mut self, label: &str, cells: [impl Display; 2]) {
        let [left, right] = cells;
        let _ = writeln!(self.text, "{label:LABEL$}{left:>NUMBER$}{right:>NUMBER$}");
    }

    fn numbers<N: Display>(&mut self, label: &str, of: impl Fn(&Tally) -> N) {
        self.row(label, self.storms.map(|storm| number(of(storm))));
    }

    fn line(&mut self) {
        let _ = writeln!(self.text, "{}", "-".repeat(LABEL + 2 * NUMBER));
    }
}

/// A whole number with thousands separators.
pub(crate) fn number(number: impl Display) -> String {
    by_threes(&number.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_separated() {
        let texts = [0, 7, 999, 1000, 12_345, 1_234_567, -1000].map(|plain: i64| number(plain));
        assert_eq!(texts, ["0", "7", "999", "1,000", "12,345", "1,234,567", "-1,000"]);
    }
}
