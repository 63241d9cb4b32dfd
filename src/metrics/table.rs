//! The table of all metrics, from which they are registered, documented and tested.

/// The Prometheus type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// A value that only increases, and restarts with the process.
    Counter,
    /// A value that can increase and decrease.
    Gauge,
    /// Durations in buckets, in seconds.
    Histogram,
}

/// One metric.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Full name.
    pub name: &'static str,
    /// Type.
    pub metric_type: Type,
    /// Help text, with the unit.
    pub help: &'static str,
    /// Names of the labels.
    pub labels: &'static [&'static str],
}

/// Maximum number of pairs of `event_namespace` and `policy`, without the pair `_other`, `_other`.
pub const MAX_SCOPES: usize = 500;

/// Maximum number of such pairs with the same `event_namespace`. The last one has the policy [`OTHER`].
pub const MAX_OF_NAMESPACE: usize = 50;

/// The label value for all scopes without a pair of their own. No Kubernetes name has an underscore.
pub const OTHER: &str = "_other";

/// Buckets in seconds. A decision takes microseconds, and the API server waits for 1 s.
pub const ADMISSION_BUCKETS: [f64; 15] = [
    0.000_005, 0.000_01, 0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.025, 0.05,
    0.1, 0.5, 1.0,
];

/// Buckets in seconds. Two TLS handshakes take milliseconds, and a probe times out after 1.25 s.
pub const PROBE_BUCKETS: [f64; 10] = [0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0];

macro_rules! rows {
    ($($(#[$doc:meta])* $constant:ident = $metric_type:ident $name:literal [$($label:literal),*] $help:literal;)+) => {
        $(
            #[doc = $help]
            pub const $constant: Row =
                Row { name: $name, metric_type: Type::$metric_type, help: $help, labels: &[$($label),*] };
        )+
        /// All metrics of squelch, in the order of the reference. The library adds `process_*`.
        pub const ALL: &[&Row] = &[$(&$constant),+];
    };
}

rows! {
    OCCURRENCES = Counter "squelch_occurrences_total" ["event_namespace", "policy_kind", "policy", "disposition"]
        "Occurrences received by policies in mode Enforce, by disposition.";
    OBSERVED_OCCURRENCES = Counter "squelch_observed_occurrences_total" ["event_namespace", "policy_kind", "policy", "disposition"]
        "Occurrences received by policies in mode Observe, by the disposition that mode Enforce would have given them. All of them were stored as written.";
    RECOVERED = Counter "squelch_recovered_occurrences_total" ["event_namespace", "policy_kind", "policy"]
        "Occurrences that a client's absolute count reports again. They are stored, and not received a second time.";
    LOST = Counter "squelch_lost_occurrences_total" ["event_namespace", "policy_kind", "policy"]
        "Merged occurrences that could not be written to a stored Event. Losses at process exit are rarely scraped; the log reports them.";
    DROPPED_WARNINGS = Counter "squelch_dropped_warnings_total" ["event_namespace", "policy_kind", "policy"]
        "Occurrences of Warnings that policies in mode Enforce dropped.";
    OBSERVED_DROPPED_WARNINGS = Counter "squelch_observed_dropped_warnings_total" ["event_namespace", "policy_kind", "policy"]
        "Occurrences of Warnings that policies in mode Observe would have dropped.";
    REVIEWS = Counter "squelch_reviews_total" ["operation", "api", "result"]
        "Reviews of Event writes, by answer. One write can carry several occurrences.";
    ADMISSION_DURATION = Histogram "squelch_admission_duration_seconds" []
        "Time from the head of a review to its answer in seconds, without TLS and transport.";
    UNAUTHENTICATED_REQUESTS = Counter "squelch_unauthenticated_requests_total" []
        "Requests to the webhook without an accepted token. They change nothing.";
    TLS_HANDSHAKE_FAILURES = Counter "squelch_tls_handshake_failures_total" []
        "TLS handshakes that failed because the client presented no certificate that --client-ca-file and --client-subject accept.";
    FLUSHES = Counter "squelch_flushes_total" ["result"]
        "Flushes of pending occurrences to stored Events, by result. One flush is one read and at most one write.";
    OWN_REVIEWS = Counter "squelch_own_writes_reviewed_total" []
        "Reviews of squelch's own writes, which pass uncounted. The webhook's rules exclude them: a value above 0 means that the rules were changed.";
    PENDING = Gauge "squelch_pending_occurrences" []
        "Pending occurrences: merged, and not yet written to the stored Event.";
    PENDING_LIMIT_ADMISSIONS = Counter "squelch_pending_limit_admissions_total" ["limit"]
        "Writes that were admitted because a limit on pending series was reached, by limit.";
    SERIES = Gauge "squelch_series" []
        "Live series.";
    ENDED_SERIES = Gauge "squelch_ended_series" []
        "Ended series whose record is kept because several clients wrote their counts. Limit: 17/256 of --max-series.";
    TABLE_ENTRIES = Gauge "squelch_table_entries" ["table"]
        "Entries in the tables of the engine.";
    TEXT = Gauge "squelch_text_bytes" []
        "Bytes of text kept for stored Events: their names, and what is needed to create them again. Limit: 96 bytes × --max-series.";
    EVICTIONS = Counter "squelch_evictions_total" ["table"]
        "Entries evicted because a table was at capacity, by table.";
    POLICIES = Gauge "squelch_policies" ["kind", "state"]
        "Policies by state. Each policy is in exactly one state.";
    REFUSED_STATUS_WRITES = Counter "squelch_refused_status_writes_total" []
        "Writes of a policy's status that the API server refused as invalid. Kubernetes 1.32 and earlier do, if the spec of a stored policy breaks a rule that was added later. An Event about the policy has the message. Repeated after --status-interval, and then ever later, up to 10 min.";
    WATCH_LAST_RESPONSE = Gauge "squelch_watch_last_response_timestamp_seconds" ["resource"]
        "Time of the last response of the API server to the list or watch of this resource, in seconds since the Unix epoch. The API server sends a bookmark each minute.";
    ACTIVE = Gauge "squelch_active" []
        "1 on the active replica, 0 on standbys.";
    ARMED = Gauge "squelch_armed" []
        "1 while the webhook is armed (its MutatingWebhookConfiguration has its rules), else 0.";
    BREAK_GLASS = Gauge "squelch_break_glass" []
        "1 while an administrator keeps the webhook disarmed (annotation squelch.dev/disarm, --disarm, or a deleted configuration), else 0.";
    CONFIGURATION_WRITES = Counter "squelch_webhook_configuration_writes_total" []
        "Writes of the MutatingWebhookConfiguration by this replica that the API server accepted.";
    CONFIGURATION_RESTORES = Counter "squelch_webhook_configuration_restores_total" ["field"]
        "Changed fields of the MutatingWebhookConfiguration that this replica restored after another writer had changed them. The delay between two restores doubles from 5 s to 10 min; rules that are put back while the webhook is disarmed are removed after 1 s. Additions that only restrict are kept, not restored.";
    FOREIGN_ENTRIES = Gauge "squelch_webhook_foreign_entries" []
        "Entries of squelch's MutatingWebhookConfiguration that squelch did not write. Such an entry can make the API server send any write to any address.";
    ARM_TRANSITIONS = Counter "squelch_arm_transitions_total" ["to"]
        "Times that this replica armed or disarmed the webhook. Changes because policies come or go are not counted.";
    PROBES = Counter "squelch_probes_total" ["result"]
        "Probes of the webhook through the API servers, by result: one per second and API server, after 500 ms without an answer a second one while that API server reaches the webhook (five if only one address is known), and one every 100 ms for up to 2 s after a takeover. Two consecutive failures of one API server, one of them a hang, disarm the webhook, as do ten consecutive fast failures if no other API server reaches it.";
    PROBE_FAILURES = Counter "squelch_probe_failures_total" ["apiserver"]
        "Failed probes by the address of the API server: those that hang and fast failures. At most 9 addresses have series of their own, the label of all others is other. The series of an address ends when it is no longer probed.";
    PROBE_DURATION = Histogram "squelch_probe_duration_seconds" []
        "Duration of a probe in seconds. Each probe opens a new connection to the API server, and the API server opens a new connection to the webhook.";
    PROBES_ANSWERED = Counter "squelch_probes_answered_total" []
        "Probes that this replica's webhook signed. Probes are not counted as reviews.";
    CERTIFICATE_EXPIRATION = Gauge "squelch_serving_certificate_expiration_timestamp_seconds" []
        "Expiration of the served certificate, in seconds since the Unix epoch.";
    REJECTED_KEYS = Counter "squelch_rejected_keys_total" []
        "Reads of the Secret or the mounted files that yielded unusable keys. The previous keys stay in use.";
    TASK_FAILURES = Counter "squelch_task_failures_total" ["task"]
        "Background tasks that panicked or ended unexpectedly. The process then flushes pending occurrences and exits with an error.";
    EXPORTED = Counter "squelch_exported_occurrences_total" ["exporter"]
        "Occurrences delivered to an exporter, of the writes that the export of a policy includes.";
    EXPORT_LOST = Counter "squelch_export_lost_occurrences_total" ["exporter", "reason"]
        "Occurrences that the export of a policy includes and that were not delivered, by reason.";
    EXPORT_PENDING = Gauge "squelch_export_pending_occurrences" ["exporter"]
        "Occurrences that wait for their delivery to an exporter.";
    BUILD_INFO = Gauge "squelch_build_info" ["version"]
        "Always 1; the version is in the label.";
}
