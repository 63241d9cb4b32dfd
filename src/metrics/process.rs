//! The metrics of the process (`process_*`).

use prometheus::Registry;

/// Registers CPU seconds, memory, descriptors, threads and start time, read from /proc. Linux only.
pub(super) fn register(registry: &Registry) {
    #[cfg(target_os = "linux")]
    registry
        .register(Box::new(prometheus::process_collector::ProcessCollector::for_self()))
        .expect("no other metric is named process_*");
    #[cfg(not(target_os = "linux"))]
    let _ = registry;
}
