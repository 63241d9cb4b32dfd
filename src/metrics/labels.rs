//! The values that labels can have: closed sets, each in one table with its meaning.

use squelch_engine::{Api, Denial, Operation};

/// Declares a closed set of label values: the enum, `ALL`, the word of each, and its meaning for the docs.
macro_rules! labels {
    ($(#[$about:meta])* $name:ident { $($value:ident = $word:literal: $meaning:literal,)+ }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name {
            $(#[doc = $meaning] $value,)+
        }
        impl $name {
            /// Every value, in the order of declaration.
            pub const ALL: &'static [Self] = &[$(Self::$value,)+];

            /// The label's value.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$value => $word,)+ }
            }

            /// What it means, for the generated reference.
            pub fn meaning(self) -> &'static str {
                match self { $(Self::$value => $meaning,)+ }
            }
        }
    };
}

labels! {
    /// How a review was answered: the label `outcome`.
    WriteOutcome {
        Allowed = "allowed": "Allowed, unchanged.",
        Named = "named": "Allowed, under a name of squelch's in place of generateName.",
        AlreadyExists = "already_exists": "Denied with 409 AlreadyExists.",
        Forbidden = "forbidden": "Denied with 403 Forbidden.",
        Restored = "restored": "Allowed, and patched back to what is stored.",
        FailedOpen = "failed_open": "Allowed undecided: undecodable, overload, a caller that did not wait, or an error of squelch's.",
        Standby = "standby": "Allowed undecided: this replica is not the active one.",
        NotConcerned = "not_concerned": "Allowed: nothing that squelch's rules ask for (a DELETE, another kind).",
    }
}

impl WriteOutcome {
    /// The outcome of a denial.
    pub fn of(denial: Denial) -> Self {
        match denial {
            Denial::AlreadyExists => Self::AlreadyExists,
            Denial::Forbidden => Self::Forbidden,
        }
    }
}

labels! {
    /// What a review was of: the labels `operation` and `api` together.
    WriteKind {
        CoreCreate = "core_create": "A CREATE through core/v1.",
        CoreUpdate = "core_update": "An UPDATE through core/v1.",
        EventsCreate = "events_create": "A CREATE through events.k8s.io.",
        EventsUpdate = "events_update": "An UPDATE through events.k8s.io.",
        Unknown = "unknown": "Neither, or it could not be read.",
    }
}

impl WriteKind {
    /// The kind of what was read; `Unknown` unless both are known.
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
    /// How a look of the operator at a stored Event ended: the label `result`.
    FlushResult {
        Written = "written": "The stored Event was updated.",
        Created = "created": "The Event was missing and has been created.",
        Confirmed = "confirmed": "It was read, and nothing had to be written.",
        NotStored = "not_stored": "The Event was never stored (the API server refused it, say), or another one has its name: read again for 5 s, then its pending occurrences are counted as lost.",
        Conflict = "conflict": "409: someone else wrote in between; it is read again.",
        Gone = "gone": "404: someone deleted it in between; it is read again.",
        Terminating = "terminating": "The namespace ends or has ended: given up, counted as lost.",
        Forbidden = "forbidden": "401 or 403: rights, a quota or another's policy; tried again after 30 s or more.",
        Invalid = "invalid": "400, 413 or 422: refused for good (by another's policy, say); or the stored Event is too large for etcd, or above 2 MiB in JSON: given up, counted as lost.",
        TooManyRequests = "too_many_requests": "429: tried again, after as long as the answer asks for.",
        ServerError = "server_error": "5xx: tried again, after as long as the answer asks for.",
        Timeout = "timeout": "No answer within 10 s; it may have been done: it is read again.",
        Disconnected = "disconnected": "No connection, or it broke; it may have been done: it is read again.",
        Unexpected = "unexpected": "An answer that makes no sense; it is read again.",
    }
}

labels! {
    /// How a proof ended: the label `result` of proofs.
    ProofResult {
        Proven = "proven": "The API server's answer carried the mark of squelch's webhook.",
        Late = "late": "Neither: the mark came after more than 500 ms and less than 1.25 s. The API server is slow, and the webhook answers: it ends a row of misses, and arms nothing.",
        NoAnswer = "no_answer": "A miss: no answer within 500 ms, and none with the mark within 1.25 s. The webhook hangs, or packets to it are dropped.",
        NoMark = "no_mark": "A miss: answered without a mark. The API server could not ask the webhook (refused connection, certificate, wrong path); its log says why.",
        WrongMark = "wrong_mark": "A miss: the mark was not made with the token of this squelch. Somebody else answers.",
        NoDescriptors = "no_descriptors": "A miss: no file descriptor was left for the connection to the API server, so the webhook may accept none either. On a standby it is no miss.",
        Refused = "refused": "A miss: the API server refused the Event of the proof (rights, missing namespace, quota, another's policy). The log has its words.",
        TooManyRequests = "too_many_requests": "No miss: 429.",
        ServerError = "server_error": "No miss: 5xx.",
        Unreachable = "unreachable": "No miss: no connection to the API server, or it broke.",
        NotWell = "not_well": "No miss: it would be one, but the API server says itself that it is not well (/readyz), or does not answer that either.",
        Unexpected = "unexpected": "No miss: another answer that says nothing of the webhook.",
    }
}

labels! {
    /// A part of the operator that runs until the process ends: the label `task`.
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
        Announcer = "announcer": "Writes Events about squelch itself.",
    }
}

labels! {
    /// What there is too little room of for one more series with pending occurrences: the label `limit`.
    PendingLimit {
        Series = "series": "The number of series with pending occurrences: `--max-owing`.",
        Text = "text": "The text kept of stored Events: 96 bytes for each of `--max-series`.",
    }
}

labels! {
    /// A table of the engine, as far as it has no metric of its own: the label `table` of entries.
    EntryTable {
        Namespaces = "namespaces": "Namespaces of which something is kept. They go with the namespace.",
        Names = "names": "Names of Events, with the highest count seen under each. Limit: two for each of `--max-series`.",
        Groups = "groups": "Groups of aggregation.",
        Fingerprints = "fingerprints": "Hashes of 8 bytes by which groups tell messages and objects apart.",
        Buckets = "buckets": "Buckets of the spam filter.",
        Dropped = "dropped": "Entries of `status.topDropped`, in all namespaces together.",
    }
}

labels! {
    /// What gives entries up for want of room: the label `table` of evictions.
    EvictionTable {
        Series = "series": "Series that owed nothing. The next such Event is stored as a new one.",
        Contents = "contents": "What was kept to create an Event again. Nothing was owed; the next repeat brings it along.",
        Names = "names": "Remembered Event names. The next write under such a name is counted by what is stored.",
        Ended = "ended": "Records of ended series that several clients wrote. If such a series begins again, its whole stored count is taken as counted before.",
        Groups = "groups": "Groups of look-alikes. They start anew.",
        Buckets = "buckets": "Buckets of spam filters. They were full: no decision changes.",
        Dropped = "dropped": "Combinations in the top dropped. Their counts stay in all counters.",
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
    /// The label `condition` of policies.
    PolicyCondition {
        Accepted = "Accepted": "The policy is valid.",
        Effective = "Effective": "The policy governs writes, and the webhook is armed. 0 on standbys.",
    }
}

labels! {
    /// The label `resource` of watches.
    WatchedResource {
        EventPolicies = "eventpolicies": "The EventPolicies of all namespaces.",
        ClusterEventPolicies = "clustereventpolicies": "The ClusterEventPolicies.",
        Namespaces = "namespaces": "The namespaces and their labels.",
    }
}
