//! Failed probes by API server. The number of label values is bounded, and addresses that are no longer probed have none.

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

    /// Replaces the API servers that are probed. The series of the others end, and new ones start while there is capacity.
    pub(super) fn set_probed(&self, addresses: &BTreeSet<String>) {
        let mut known = locked(&self.known);
        for gone in known.extract_if(.., |address| !addresses.contains(address)) {
            // It has a series.
            let _ = self.failures.remove_label_values(&[gone.as_str()]);
        }
        for address in addresses {
            if known.len() < MAX_API_SERVERS && known.insert(address.clone()) {
                self.failures.with_label_values(&[address.as_str()]);
            }
        }
    }

    /// Counts a failure of the API server at `address`.
    pub(super) fn add(&self, address: &str) {
        let label = if locked(&self.known).contains(address) { address } else { OTHER_API_SERVERS };
        self.failures.with_label_values(&[label]).inc();
    }
}

#[cfg(test)]
mod tests {
    use super::super::Metrics;
    use super::*;

    #[test]
    fn nine_api_servers_have_series_of_their_own() {
        let metrics = Metrics::new();
        // Their order is that of text.
        let addresses: BTreeSet<_> = (10..30).map(|number| format!("10.0.0.{number}:6443")).collect();
        metrics.probed_api_servers(&addresses);
        addresses.iter().for_each(|address| metrics.probe_failure(address));
        assert_eq!(
            (failures(&metrics, "10.0.0.10:6443"), failures(&metrics, "10.0.0.18:6443")),
            (Some(1), Some(1))
        );
        assert_eq!(
            (failures(&metrics, "10.0.0.19:6443"), failures(&metrics, OTHER_API_SERVERS)),
            (None, Some(11))
        );
    }

    #[test]
    fn series_of_replaced_api_servers_end() {
        let metrics = Metrics::new();
        for generation in 0..10 {
            let addresses = (0..3).map(|number| format!("10.0.{generation}.{number}:6443")).collect();
            metrics.probed_api_servers(&addresses);
            addresses.iter().for_each(|address| metrics.probe_failure(address));
        }
        assert_eq!(failures(&metrics, "10.0.9.2:6443"), Some(1));
        assert_eq!(
            (failures(&metrics, "10.0.8.2:6443"), failures(&metrics, OTHER_API_SERVERS)),
            (None, Some(0))
        );
        let of_this = |line: &&str| line.starts_with("squelch_probe_failures_total{");
        assert_eq!(metrics.text().lines().filter(of_this).count(), 4, "three addresses and the others");
    }

    fn failures(metrics: &Metrics, label: &str) -> Option<u64> {
        let line = format!("squelch_probe_failures_total{{apiserver=\"{label}\"}} ");
        metrics.text().lines().find_map(|found| found.strip_prefix(&line)?.parse().ok())
    }
}
