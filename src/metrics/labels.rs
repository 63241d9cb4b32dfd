//! Label values: closed sets, each in one table with its meaning.

use squelch_engine::{Api, Denial, Operation};

/// Declares a closed set of label values: the enum, `ALL`, and the value and meaning of each variant.
macro_rules! labels {
    ($(#[$about:meta])* $name:ident { $($value:ident = $word:literal: $meaning:literal,)+ }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name {
            $(#[doc = $meaning] $value,)+
        }
        impl $name {
            /// All variants, in the order of declaration.
            pub const ALL: &'static [Self] = &[$(Self::$value,)+];

            /// The value of the label.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$value => $word,)+ }
            }

            /// The meaning, for the generated reference.
            pub fn meaning(self) -> &'static str {
                match self { $(Self::$value => $meaning,)+ }
            }
        }
    };
}

labels! {
    /// The response to a review: the label `result` of reviews.
    ReviewResult {
        Allowed = "allowed": "Allowed, unchanged.",
        Named = "named": "Allowed, with a name chosen by squelch in place of generateName.",
        AlreadyExists = "already_exists": "Denied with 409 AlreadyExists.",
        Forbidden = "forbidden": "Denied with 403 Forbidden.",
        Restored = "restored": "Allowed, and patched back to the stored Event.",
        FailedOpen = "failed_open": "Allowed without a decision: unreadable review, overload, a caller that stopped waiting, or an internal error.",
        Standby = "standby": "Allowed without a decision: this replica is a standby.",
        NotConcerned = "not_concerned": "Allowed: not a create or update of an Event.",
    }
}

impl ReviewResult {
    /// The result for a denial.
    pub fn of(denial: Denial) -> Self {
        match denial {
            Denial::AlreadyExists => Self::AlreadyExists,
            Denial::Forbidden => Self::Forbidden,
        }
    }
}

labels! {
    /// The labels `operation` and `api` of reviews together.
    ReviewKind {
        CoreCreate = "core_create": "A CREATE through core/v1.",
        CoreUpdate = "core_update": "An UPDATE through core/v1.",
        EventsCreate = "events_create": "A CREATE through events.k8s.io.",
        EventsUpdate = "events_update": "An UPDATE through events.k8s.io.",
        Unknown = "unknown": "Another operation or API, or an unreadable review.",
    }
}

impl ReviewKind {
    /// The kind for an operation and API, or `Unknown` if one of them is unknown.
    pub fn of(operation: Option<Operation>, api: Option<Api>) -> Self {
        match (operation, api) {
            (Some(Operation::Create), Some(Api::Core)) => Self::CoreCreate,
            (Some(Operation::Update), Some(Api::Core)) => Self::CoreUpdate,
            (Some(Operation::Create), Some(Api::Events)) => Self::EventsCreate,
            (Some(Operation::Update), Some(Api::Events)) => Self::EventsUpdate,
            _ => Self::Unknown,
        }
    }

    /// The label `operation`.
    pub fn operation(self) -> &'static str {
        match self {
            Self::CoreCreate | Self::EventsCreate => "create",
            Self::CoreUpdate | Self::EventsUpdate => "update",
            Self::Unknown => "unknown",
        }
    }

    /// The label `api`.
    pub fn api(self) -> &'static str {
        match self {
            Self::CoreCreate | Self::CoreUpdate => "core",
            Self::EventsCreate | Self::EventsUpdate => "events",
            Self::Unknown => "unknown",
        }
    }
}

labels! {
    /// The outcome of a flush: the label `result` of flushes.
    FlushResult {
        Written = "written": "The stored Event was updated.",
        Created = "created": "The stored Event was missing and was created.",
        Confirmed = "confirmed": "The stored Event was read, and nothing had to be written.",
        NotStored = "not_stored": "The Event was never stored (for example, the API server rejected it), or another Event has its name. It is read again for 5 s, then its pending occurrences are counted as lost.",
        Conflict = "conflict": "409: another client wrote in between. The flush is repeated.",
        Gone = "gone": "404: another client deleted the Event in between. The flush is repeated.",
        Terminating = "terminating": "The namespace is terminating or deleted. The pending occurrences are counted as lost.",
        Forbidden = "forbidden": "401 or 403: missing rights, or another admission plugin. Repeated after 30 s or more.",
        Invalid = "invalid": "400, 413 or 422: rejected permanently, or the stored Event is too large for etcd or above 2 MiB of JSON. The pending occurrences are counted as lost.",
        TooManyRequests = "too_many_requests": "429: repeated after the time that the response asks for.",
        ServerError = "server_error": "5xx: repeated after the time that the response asks for.",
        Timeout = "timeout": "No response within 10 s. The write may have been applied, so the stored Event is read again.",
        Disconnected = "disconnected": "No connection, or a broken one. The write may have been applied, so the stored Event is read again.",
        Unexpected = "unexpected": "An unexpected response. The stored Event is read again.",
    }
}

labels! {
    /// The outcome of a probe: the label `result` of probes.
    ProbeResult {
        Succeeded = "succeeded": "Success: the API server's response carries the signature of squelch's webhook.",
        Slow = "slow": "Neither success nor failure: the signature came after more than 500 ms and less than 1.25 s. The API server is slow, and the webhook answers.",
        Timeout = "timeout": "Hang: no response within 500 ms, and none with the signature within 1.25 s. The webhook hangs, or packets to it are dropped.",
        Unsigned = "unsigned": "Fast failure: a response without a signature. The API server could not call the webhook (refused connection, certificate, wrong path); its log has the reason.",
        WrongSignature = "wrong_signature": "Fast failure: the signature was not made with the token of this installation. Another server answers.",
        NoDescriptors = "no_descriptors": "Hang: no file descriptor was left for the connection to the API server, so the webhook may not be able to accept one either. Ignored on a standby.",
        Rejected = "rejected": "Fast failure: the API server rejected the probe's Event (rights, missing namespace, another admission plugin). The log has its message.",
        TooManyRequests = "too_many_requests": "Ignored: 429.",
        ServerError = "server_error": "Ignored: 5xx.",
        ApiserverUnreachable = "apiserver_unreachable": "Ignored: no connection to the API server, or a broken one.",
        ApiserverUnhealthy = "apiserver_unhealthy": "Ignored: a failure while /readyz of the API server fails too.",
        Unexpected = "unexpected": "Ignored: another response that says nothing about the webhook.",
    }
}

labels! {
    /// A change of the armed state: the label `to` of transitions.
    ArmTransition {
        Armed = "armed": "Rules written: at the start, or after a disarming.",
        Disarmed = "disarmed": "Rules removed: because of failed probes, by another writer, or by an administrator.",
    }
}

labels! {
    /// A task that runs until the process exits: the label `task`.
    BackgroundTask {
        Webhook = "webhook": "Serves reviews.",
        Http = "http": "Serves probes and metrics.",
        PolicyWatch = "policy_watch": "Watches policies and namespaces.",
        Policies = "policies": "Passes each change of the policies to the other tasks.",
        Leader = "leader": "Acquires and renews the Lease.",
        Arming = "arming": "Writes the webhook configuration, and probes.",
        Keys = "keys": "Rotates certificate and token.",
        Flush = "flush": "Writes pending occurrences to stored Events.",
        Status = "status": "Writes the statuses of the policies.",
        Reports = "reports": "Writes the EventDropReports and the EventsDropped Events of the namespaces.",
        Announcer = "announcer": "Writes Events about squelch itself.",
        Export = "export": "Exports Event writes.",
    }
}

labels! {
    /// An exporter: the label `exporter`.
    ExporterKind {
        File = "file": "JSON lines: `--export-file`.",
        Otlp = "otlp": "OpenTelemetry logs: `--export-otlp`.",
    }
}

labels! {
    /// Why occurrences were not exported: the label `reason` of lost exports.
    ExportLoss {
        QueueFull = "queue_full": "65,536 records or 64 MiB were pending: the file or the collector is too slow, or fails.",
        Refused = "refused": "The collector refused the records.",
        Shutdown = "shutdown": "The process ended, and they were not delivered within five seconds.",
    }
}

labels! {
    /// A limit on pending series: the label `limit`.
    PendingLimit {
        Series = "series": "The number of pending series: `--max-pending-series`.",
        Text = "text": "The text kept for stored Events: 96 bytes × `--max-series`.",
    }
}

labels! {
    /// A table of the engine without a metric of its own: the label `table` of entries.
    EntryTable {
        Namespaces = "namespaces": "Namespaces with state. An entry is removed with its namespace.",
        Names = "names": "Event names, with the highest count seen under each. Limit: 2 × `--max-series`.",
        Groups = "groups": "Groups of aggregation.",
        Fingerprints = "fingerprints": "Hashes of 8 bytes by which groups count distinct messages and objects.",
        Buckets = "buckets": "Token buckets of spam filters.",
        Dropped = "dropped": "Entries of `status.topDropped` and of EventDropReports, in all namespaces together.",
    }
}

labels! {
    /// A table that evicts entries at capacity: the label `table` of evictions.
    EvictionTable {
        Series = "series": "Series without pending occurrences. The next such Event is stored as a new one.",
        Contents = "contents": "Content kept to create an Event again. Nothing was pending; the next repeat provides it.",
        Names = "names": "Event names. After eviction an Event is counted from its stored count.",
        Ended = "ended": "Records of ended series that several clients wrote. If such a series begins again, its whole stored count is taken as counted before.",
        Groups = "groups": "Groups of aggregation. They start again.",
        Buckets = "buckets": "Full token buckets of spam filters. No decision changes.",
        Dropped = "dropped": "Entries of `status.topDropped`. Their occurrences stay in all counters.",
    }
}

labels! {
    /// The label `kind` of policies.
    PolicyKind {
        EventPolicy = "EventPolicy": "Namespaced policies.",
        ClusterEventPolicy = "ClusterEventPolicy": "Cluster-scoped policies.",
    }
}

labels! {
    /// The label `state` of policies.
    PolicyState {
        Effective = "effective": "The policy governs writes (condition `Effective`).",
        NotEffective = "not_effective": "The policy is valid (condition `Accepted`), and governs no writes: the webhook is not armed, this replica is a standby, or the policy is overridden or selects nothing.",
        Invalid = "invalid": "The policy is not valid: the condition `Accepted` is False.",
    }
}

labels! {
    /// The label `resource` of watches.
    WatchedResource {
        EventPolicies = "eventpolicies": "The EventPolicies of all namespaces.",
        ClusterEventPolicies = "clustereventpolicies": "The ClusterEventPolicies.",
        Namespaces = "namespaces": "The namespaces and their labels.",
        WebhookConfiguration = "mutatingwebhookconfigurations": "squelch's MutatingWebhookConfiguration, and no other.",
    }
}

labels! {
    /// A part of the webhook configuration that was restored: the label `field`.
    RestoredField {
        Rules = "rules": "`rules` of an entry.",
        ClientConfig = "clientConfig": "`clientConfig` of an entry: the address of the webhook and its certificate authority.",
        NamespaceSelector = "namespaceSelector": "`namespaceSelector` of an entry: a requirement of squelch was missing.",
        MatchConditions = "matchConditions": "`matchConditions` of an entry: a condition of squelch was missing or changed.",
        Entry = "entry": "A whole entry was missing.",
        Metadata = "metadata": "Labels, annotations or owner of the configuration.",
        Other = "other": "Another field of an entry, such as `failurePolicy`.",
    }
}

impl RestoredField {
    /// The value for a changed field, such as `events.squelch.dev: rules`.
    pub fn of(field: &str) -> Self {
        match field.split_once(": ") {
            None if field.starts_with("metadata.") => Self::Metadata,
            None => Self::Entry,
            Some((_, name)) => {
                [Self::Rules, Self::ClientConfig, Self::NamespaceSelector, Self::MatchConditions]
                    .into_iter()
                    .find(|field| field.as_str() == name)
                    .unwrap_or(Self::Other)
            }
        }
    }
}
