//! Failed probes by API server. The number of label values is bounded.

use std::collections::BTreeSet;
use std::sync::Mutex;

use prometheus::{IntCounterVec, Registry};

use super::registration::counters;
use super::{locked, table};

/// Maximum addresses with a series of their own.
pub const MAX_API_SERVERS: usize = 9;

/// The label value for all other addresses.
pub const OTHER_API_SERVERS: &str = "other";

/// Counts failed probes.
pub(super) struct ProbeFailures {
    failures: IntCounterVec,
    /// The addresses with a series.
    known: Mutex<BTreeSet<String>>,
}

impl ProbeFailures {
    pub(super) fn new(registry: &Registry) -> Self {
        let failures = counters(registry, &table::PROBE_FAILURES);
        failures.with_label_values(&[OTHER_API_SERVERS]);
        Self { failures, known: Mutex::default() }
    }

    /// Adds `number` failures of the API server at `address`. The first call starts its series.
    pub(super) fn add(&self, address: &str, number: u64) {
        let mut known = locked(&self.known);
        if known.len() < MAX_API_SERVERS {
            known.insert(address.to_owned());
        }
        let label = if known.contains(address) { address } else { OTHER_API_SERVERS };
        self.failures.with_label_values(&[label]).inc_by(number);
    }
}

#[cfg(test)]
mod tests {
    use super::super::Metrics;
    use super::*;

    #[test]
    fn nine_api_servers_have_series_of_their_own() {
        let metrics = Metrics::new();
        for number in 0..20 {
            let address = format!("10.0.0.{number}:6443");
            metrics.probed_api_server(&address);
            metrics.probe_failure(&address);
        }
        let text = metrics.text();
        let of = |label: &str| {
            let line = format!("squelch_probe_failures_total{{apiserver=\"{label}\"}} ");
            text.lines().find_map(|found| found.strip_prefix(&line)).map(str::to_owned)
        };
        assert_eq!((of("10.0.0.0:6443"), of("10.0.0.8:6443")), (Some("1".to_owned()), Some("1".to_owned())));
        assert_eq!((of("10.0.0.9:6443"), of(OTHER_API_SERVERS)), (None, Some("11".to_owned())));
    }
}
