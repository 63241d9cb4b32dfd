//! The table of all metrics: what is registered, documented and tested is made from it.

/// What Prometheus calls the type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// Only rises, and restarts with the process.
    Counter,
    /// Rises and falls.
    Gauge,
    /// Durations in buckets.
    Histogram,
}

/// One metric.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Its full name.
    pub name: &'static str,
    /// Its type.
    pub metric_type: Type,
    /// What it counts, with the unit.
    pub help: &'static str,
    /// The names of its labels.
    pub labels: &'static [&'static str],
}

/// The maximum number of pairs of `event_namespace` and `policy`, without the pair `other`, `other`.
pub const MAX_SCOPES: usize = 500;

/// The maximum number of such pairs with the same `event_namespace`. The last one has the policy [`OTHER`].
pub const MAX_OF_NAMESPACE: usize = 50;

/// The value of `policy`, or of `event_namespace`, or of both, where a scope has no pair of its own.
pub const OTHER: &str = "other";

/// Seconds: a decision takes microseconds, the API server waits for one second.
pub const ADMISSION_BUCKETS: [f64; 15] = [
    0.000_005, 0.000_01, 0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.025, 0.05,
    0.1, 0.5, 1.0,
];

/// Seconds: two handshakes take milliseconds, and after 1.25 s a proof is given up.
pub const PROBE_BUCKETS: [f64; 10] = [0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0];

macro_rules! rows {
    ($($(#[$doc:meta])* $constant:ident = $metric_type:ident $name:literal [$($label:literal),*] $help:literal;)+) => {
        $(
            #[doc = $help]
            pub const $constant: Row =
                Row { name: $name, metric_type: Type::$metric_type, help: $help, labels: &[$($label),*] };
        )+
        /// Every metric of squelch's own, in the order of the reference. (`process_*` come from the library.)
        pub const ALL: &[&Row] = &[$(&$constant),+];
    };
}

rows! {
    EVENTS = Counter "squelch_events_total" ["event_namespace", "policy", "mode", "disposition"]
        "Occurrences by what became of them. Their sum is what was received.";
    RECOVERED = Counter "squelch_recovered_occurrences_total" ["event_namespace", "policy"]
        "Occurrences that a client's absolute count told again and that are therefore stored, though not received anew.";
    LOST = Counter "squelch_lost_occurrences_total" ["event_namespace", "policy"]
        "Occurrences that were held back and could never be added to a stored Event. Losses at the end of a process are seldom scraped: the log has them.";
    DROPPED_WARNINGS = Counter "squelch_dropped_warnings_total" ["event_namespace", "policy"]
        "Occurrences of type Warning that were filtered or throttled. What mode Observe only counts is not in it.";
    WRITES = Counter "squelch_writes_total" ["operation", "api", "outcome"]
        "Reviews of Event writes by how they were answered. A write can carry several occurrences.";
    ADMISSION_DURATION = Histogram "squelch_admission_duration_seconds" []
        "Time from the head of a review to its answer in seconds, without TLS and transport.";
    STRAY_REQUESTS = Counter "squelch_stray_requests_total" []
        "Requests to the webhook on a path without an accepted token. They change nothing.";
    REFUSED_HANDSHAKES = Counter "squelch_refused_handshakes_total" []
        "Callers of the webhook that were turned away because they showed no certificate that --client-ca and --client-subject accept.";
    FLUSHES = Counter "squelch_flushes_total" ["result"]
        "Looks of the operator at stored Events, to add what was held back, by how they ended. A look is a read and at most one write.";
    OWN_REVIEWS = Counter "squelch_own_writes_reviewed_total" []
        "Reviews of the operator's own writes, which pass uncounted. The webhook's rules leave them out: more than 0 says that somebody changed the rules.";
    OWED = Gauge "squelch_owed_occurrences" []
        "Occurrences held back and not yet added to a stored Event.";
    DEBT_REFUSALS = Counter "squelch_debt_refusals_total" ["limit"]
        "Writes that were admitted because a limit on what is pending was reached, by that limit.";
    SERIES = Gauge "squelch_series" []
        "Live series.";
    ENDED_SERIES = Gauge "squelch_ended_series" []
        "Ended series of which a record is kept, because several clients wrote their counts. Limit: one for each 16 of --max-series, and a sixteenth more.";
    TABLE_ENTRIES = Gauge "squelch_table_entries" ["table"]
        "Entries in the tables of the engine.";
    TEXT = Gauge "squelch_text_bytes" []
        "Text kept of stored Events: their names, and what is needed to create them again. Limit: 96 bytes for each of `--max-series`.";
    EVICTIONS = Counter "squelch_evictions_total" ["table"]
        "Entries given up for want of room, by table. A name that was given up is counted by what is stored.";
    POLICIES = Gauge "squelch_policies" ["kind", "condition"]
        "Policies that have the condition True.";
    WATCH_LAST_RESPONSE = Gauge "squelch_watch_last_response_timestamp_seconds" ["resource"]
        "Time of the last response of the API server to the list or watch of this resource, in seconds since the Unix epoch. The API server sends a bookmark each minute.";
    ACTIVE = Gauge "squelch_active" []
        "1 on the replica that decides, else 0.";
    ARMED = Gauge "squelch_armed" []
        "1 while the webhook's rules are in force, else 0.";
    BREAK_GLASS = Gauge "squelch_break_glass" []
        "1 while somebody keeps the webhook disarmed: by the annotation squelch.dev/disarm, by --enforce=false, or by having deleted its configuration; else 0.";
    CONFIGURATION_WRITES = Counter "squelch_webhook_configuration_writes_total" []
        "Writes of the MutatingWebhookConfiguration by this replica that the API server has accepted.";
    FOREIGN_ENTRIES = Gauge "squelch_webhook_foreign_entries" []
        "Entries of squelch's MutatingWebhookConfiguration that squelch has not written. Such an entry can make the API server send any write to any address.";
    PROOFS = Counter "squelch_proofs_total" ["result"]
        "Proofs that the API server reaches the webhook, by how they ended: one a second, and one each 100 ms for up to two seconds after a takeover. Two misses in a row disarm the webhook, three proofs in a row arm it again.";
    PROBE_DURATION = Histogram "squelch_probe_duration_seconds" []
        "Time of a proof in seconds: a new connection to the API server, which dials the webhook anew, until the answer or until it is given up.";
    PROOFS_GIVEN = Counter "squelch_proofs_given_total" []
        "Proofs that this replica's webhook has answered with its mark. They are no reviews of writes and counted nowhere else.";
    CERTIFICATE_NOT_AFTER = Gauge "squelch_serving_certificate_not_after_seconds" []
        "When the served certificate ends, in seconds since the Unix epoch.";
    KEYS_REFUSED = Counter "squelch_keys_refused_total" []
        "Times that the Secret or the mounted files held keys that cannot be used. The former ones were kept.";
    TASK_FAILURES = Counter "squelch_task_failures_total" ["task"]
        "Background tasks that panicked or ended unexpectedly. The process then flushes pending occurrences and exits with an error.";
    BUILD_INFO = Gauge "squelch_build_info" ["version"]
        "Always 1; the version is in the label.";
}
