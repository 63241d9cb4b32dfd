//! The kinds of clients.

use crate::Api;

/// A client.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in super::super) enum Client {
    /// A legacy recorder, by number. Waits for an answer before its next request.
    Legacy(usize),
    /// A Recorder of kube, by number. Waits as well.
    Kube(usize),
    /// The recorder of client-go's `tools/events`. Ignores the answer.
    Tools,
    /// The same recorder when it refreshes its series: it waits and continues from what it reads back.
    ToolsRefresh,
    /// A client that asks once and remembers nothing.
    Passing(Api),
    /// A client that reads the stored Event, adds one and writes it back.
    Reader,
    /// The same with retries: after a 409 it reads again.
    RetryingReader,
    /// A client that replaces or creates, by number: see [`replacers`](super::replacers).
    Replacer(usize),
    /// A client that applies its own count under a fixed name.
    Applier,
    /// A client that CREATEs with `generateName`, and again after a 403.
    Kopf,
    /// A tenant with create permission only, which takes the names of others.
    Tenant,
}

impl Client {
    pub(in super::super) fn user(self) -> &'static str {
        match self {
            Self::Legacy(_) | Self::Passing(_) => "core",
            Self::Kube(_) => "kube",
            Self::Tools | Self::ToolsRefresh => "tools",
            Self::Reader => "reader",
            Self::RetryingReader => "python",
            Self::Replacer(number) => ["flink", "ceph"][number],
            Self::Applier => "applier",
            Self::Kopf => "kopf",
            Self::Tenant => "tenant",
        }
    }

    /// Whether it reads the stored count, adds one and writes it back.
    pub(in super::super) fn reads(self) -> bool {
        matches!(self, Self::Reader | Self::RetryingReader | Self::Replacer(_))
    }

    /// Number of its retries after a 409. For each one it reads again.
    pub(super) fn retries(self) -> u32 {
        match self {
            Self::RetryingReader => 5, // `retry_on_conflict` of kubernetes' Python client
            Self::Replacer(_) => 11,   // the first one follows the CREATE
            _ => 0,
        }
    }

    /// Whether a conflict is final for its request, because that has a resource version.
    pub(in super::super) fn sends_a_version(self) -> bool {
        self.retries() > 0
    }
}

/// The users of all clients. A summary is named after one of them.
pub(in super::super) const USERS: [&str; 10] =
    ["core", "kube", "tools", "reader", "python", "flink", "ceph", "applier", "kopf", "tenant"];
