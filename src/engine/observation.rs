//! What the engine is told of one write.

use std::borrow::Cow;
use std::time::Duration;

use jiff::Timestamp;

/// A point on the process's monotonic clock: nanoseconds since its one epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

/// In a millisecond.
const NANOSECONDS: u64 = 1_000_000;

impl Moment {
    /// The moment `elapsed` after the epoch; saturates after 584 years.
    pub fn from_epoch(elapsed: Duration) -> Self {
        Self(u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX))
    }

    /// The time from `earlier` to here; zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// The moment `later` after this one; saturates.
    pub fn plus(self, later: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(later.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// Whole milliseconds since the epoch, the rest cut off.
    pub(super) fn milliseconds(self) -> u64 {
        self.0 / NANOSECONDS
    }

    /// So many milliseconds after the epoch; saturates.
    pub(super) fn from_milliseconds(milliseconds: u64) -> Self {
        Self(milliseconds.saturating_mul(NANOSECONDS))
    }
}

/// Whether a namespace can have this name (a DNS label: RFC 1123, at most 63 characters). A review names the namespace,
/// and its caller may not be the API server: another text would lead anywhere in a URL.
pub fn is_namespace_name(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty()
        && !text.starts_with('-')
        && !text.ends_with('-')
        && text.len() <= 63
        && text.bytes().all(is_inner)
}

/// The two operations on Events that the webhook is asked about. A PATCH is an UPDATE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// A new Event.
    Create,
    /// An Event that is stored already.
    Update,
}

/// The API through which the client wrote (`requestKind.group`), whatever shape the webhook is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Api {
    /// core/v1: counts are absolute, clients read the answer.
    Core,
    /// events.k8s.io/v1: counts are in `series`.
    Events,
}

/// A reference to an object, as Events carry it. Absent fields are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectReference<'a> {
    /// `apiVersion`, group and version.
    pub api_version: Cow<'a, str>,
    /// `kind`.
    pub kind: Cow<'a, str>,
    /// `namespace`; empty for cluster-scoped objects.
    pub namespace: Cow<'a, str>,
    /// `name`.
    pub name: Cow<'a, str>,
    /// `uid`.
    pub uid: Cow<'a, str>,
    /// `fieldPath`, such as `spec.containers{app}`.
    pub field_path: Cow<'a, str>,
}

impl ObjectReference<'_> {
    /// The API group of [`Self::api_version`]; empty for the core group.
    pub fn api_group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }
}

/// The fields of an Event that say what it tells. Absent fields are empty.
#[derive(Clone, Debug, Default)]
pub struct EventView<'a> {
    /// `involvedObject`: what the Event is about.
    pub regarding: ObjectReference<'a>,
    /// `related`, if there is one.
    pub related: Option<ObjectReference<'a>>,
    /// `type`: `Normal`, `Warning`, or what the client made up.
    pub event_type: Cow<'a, str>,
    /// `reason`.
    pub reason: Cow<'a, str>,
    /// `action`.
    pub action: Cow<'a, str>,
    /// `message` (`note` in events.k8s.io).
    pub message: Cow<'a, str>,
    /// `reportingComponent` (`reportingController`).
    pub reporting_component: Cow<'a, str>,
    /// `reportingInstance`.
    pub reporting_instance: Cow<'a, str>,
    /// `source.component`.
    pub source_component: Cow<'a, str>,
    /// `source.host`.
    pub source_host: Cow<'a, str>,
    /// `firstTimestamp` as written, RFC 3339; empty where absent.
    pub first_timestamp: Cow<'a, str>,
    /// `eventTime` as written, RFC 3339 with six fraction digits; empty where absent. Set: the new API's shape.
    pub event_time: Cow<'a, str>,
    /// `metadata.labels` as JSON text; empty where absent.
    pub labels: &'a str,
    /// `metadata.annotations` as JSON text; empty where absent.
    pub annotations: &'a str,
}

impl EventView<'_> {
    /// Who reports, by the Event's own fields: reporting component and instance, else source component and host.
    pub fn reporter(&self) -> (&str, &str) {
        if self.reporting_component.is_empty() {
            (&self.source_component, &self.source_host)
        } else {
            (&self.reporting_component, &self.reporting_instance)
        }
    }
}

/// One write, as far as decisions depend on it.
#[derive(Clone, Debug)]
pub struct Observation<'a> {
    /// CREATE or UPDATE.
    pub operation: Operation,
    /// The API that the client used.
    pub api: Api,
    /// `userInfo.username`: what the API server vouches for.
    pub user: &'a str,
    /// The write is squelch's own (its ServiceAccount, from `userInfo`).
    pub own: bool,
    /// `dryRun`: nothing will be stored.
    pub dry_run: bool,
    /// The namespace of the Event.
    pub namespace: &'a str,
    /// The Event's name; `None` for a CREATE by `generateName`, which has none yet.
    pub name: Option<Cow<'a, str>>,
    /// `metadata.generateName`; empty where absent.
    pub generate_name: Cow<'a, str>,
    /// The Event as it says what it tells: `object` of a CREATE, `oldObject` of an UPDATE.
    pub event: EventView<'a>,
    /// The absolute value of the write: `series.count`, else `count`, else 1; at least 1, at most `i32::MAX`.
    pub value: i64,
    /// The absolute value of `oldObject`, read the same way; 0 for a CREATE.
    pub old_value: i64,
    /// The written Event has a `series`.
    pub has_series: bool,
    /// An UPDATE in which labels, annotations, ownerReferences, finalizers, or a field of the Event other than
    /// `count`, `lastTimestamp`, `message`, `series` differ.
    pub edited: bool,
    /// An UPDATE in which `count`, `series` and `lastTimestamp` are as they were.
    pub unchanged: bool,
    /// An UPDATE whose resourceVersion is not that of `oldObject`: the API server refuses it with 409 Conflict.
    pub stale: bool,
    /// When the Event says that it happened first (`firstTimestamp`, else `eventTime`), if it says so legibly.
    pub first_seen: Option<Timestamp>,
    /// When the Event says that it happened last, if it says so legibly: at most a day before and 10 s after squelch
    /// received it, since a client's clock may be wrong and a client may lie.
    pub last_observed: Option<Timestamp>,
    /// When the Event says that it happened last (`series.lastObservedTime`, `lastTimestamp`, `eventTime`), else
    /// the time of receipt. Data only: it is stored, never compared with the engine's moments.
    pub occurred_at: Timestamp,
}

impl Observation<'_> {
    /// A first repeat as client-go's new recorder wrote it up to v0.24 (and in v0.26.0): it counted from 1. The API
    /// server refuses such a series with 422, and the recorder logs that. 409 it takes quietly, and counts on; an
    /// answer of 200 it would take over, and begin at 1 again with the next occurrence.
    pub(super) fn begins_at_one(&self) -> bool {
        self.api == Api::Events && self.has_series && self.value == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_namespace_is_a_dns_label() {
        let longest = "a".repeat(63);
        for name in ["a", "0", "kube-system", "1-2", "xn--4ca", longest.as_str()] {
            assert!(is_namespace_name(name), "{name}");
        }
        let too_long = "a".repeat(64);
        for text in [
            "",
            "-",
            "-a",
            "a-",
            "A",
            "a.b",
            "a_b",
            "ü",
            "a b",
            "..",
            "squelch/pods/POD?a=",
            "a%2fb",
            "a\0",
            too_long.as_str(),
        ] {
            assert!(!is_namespace_name(text), "{text:?}");
        }
    }
}
