//! One Event write as the engine sees it.

use std::borrow::Cow;

use jiff::Timestamp;

/// Whether `text` is a valid namespace name (a DNS label: RFC 1123, at most 63 characters). The namespace of a
/// review comes from its caller, which may not be the API server, and becomes part of a URL.
pub fn is_namespace_name(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty()
        && !text.starts_with('-')
        && !text.ends_with('-')
        && text.len() <= 63
        && text.bytes().all(is_inner)
}

/// An operation on Events. A PATCH is an UPDATE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Creates an Event.
    Create,
    /// Changes a stored Event.
    Update,
}

/// The API that the client used (`requestKind.group`), independent of the version that the webhook receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Api {
    /// core/v1: counts are absolute, and clients read the response.
    Core,
    /// events.k8s.io/v1: counts are in `series`.
    Events,
}

/// A reference to an object. Absent fields are empty.
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
    /// Returns the API group of [`Self::api_version`]; empty for the core group.
    pub fn api_group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }
}

/// The content fields of an Event. Absent fields are empty.
#[derive(Clone, Debug, Default)]
pub struct EventView<'a> {
    /// `involvedObject`: what the Event is about.
    pub regarding: ObjectReference<'a>,
    /// `related`, if present.
    pub related: Option<ObjectReference<'a>>,
    /// `type`: `Normal`, `Warning`, or any other text of the client.
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
    /// `firstTimestamp` as written, RFC 3339; empty if absent.
    pub first_timestamp: Cow<'a, str>,
    /// `eventTime` as written, RFC 3339 with six fraction digits; empty if absent. Set by clients of
    /// events.k8s.io.
    pub event_time: Cow<'a, str>,
    /// `metadata.labels` as JSON text; empty if absent.
    pub labels: &'a str,
    /// `metadata.annotations` as JSON text; empty if absent.
    pub annotations: &'a str,
}

impl EventView<'_> {
    /// Whether it counts as a Warning: every type but `Normal` does. core/v1 accepts any text.
    pub fn is_warning(&self) -> bool {
        self.event_type != "Normal"
    }

    /// Returns component and instance of the reporter: the reporting fields if set, else the source fields.
    pub fn reporter(&self) -> (&str, &str) {
        if self.reporting_component.is_empty() {
            (&self.source_component, &self.source_host)
        } else {
            (&self.reporting_component, &self.reporting_instance)
        }
    }
}

/// One write, reduced to what decisions depend on.
#[derive(Clone, Debug)]
pub struct Observation<'a> {
    /// CREATE or UPDATE.
    pub operation: Operation,
    /// The API that the client used.
    pub api: Api,
    /// `userInfo.username`, authenticated by the API server.
    pub user: &'a str,
    /// Whether squelch's own ServiceAccount wrote it (`userInfo`).
    pub own: bool,
    /// `dryRun`: the API server will not store it.
    pub dry_run: bool,
    /// The namespace of the Event.
    pub namespace: &'a str,
    /// Name of the Event; `None` for a CREATE with `generateName`.
    pub name: Option<Cow<'a, str>>,
    /// `metadata.generateName`; empty if absent.
    pub generate_name: Cow<'a, str>,
    /// The Event's content: `object` of a CREATE, `oldObject` of an UPDATE.
    pub event: EventView<'a>,
    /// Absolute count of the write: `series.count`, else `count`, else 1. Between 1 and `i32::MAX`.
    pub value: i64,
    /// Absolute count of `oldObject`, read the same way; 0 for a CREATE.
    pub old_value: i64,
    /// Whether the written Event has a `series`.
    pub has_series: bool,
    /// Whether an UPDATE changes labels, annotations, ownerReferences, finalizers, or a field other than
    /// `count`, `lastTimestamp`, `message` and `series`.
    pub edited: bool,
    /// Whether an UPDATE leaves `count`, `series` and `lastTimestamp` unchanged.
    pub unchanged: bool,
    /// Whether the resourceVersion of an UPDATE differs from that of `oldObject`: the API server refuses it
    /// with 409 Conflict.
    pub stale: bool,
    /// Time of the first occurrence (`firstTimestamp`, else `eventTime`) of a CREATE, if it can be parsed.
    pub first_seen: Option<Timestamp>,
    /// Time of the last occurrence, if it can be parsed. Limited to at most a day before and 10 s after
    /// squelch received the write, because a client's clock may be wrong and a client may lie.
    pub last_observed: Option<Timestamp>,
    /// Time of the last occurrence (`series.lastObservedTime`, `lastTimestamp`, `eventTime`), else the time of
    /// receipt. The engine stores it and never compares it with a [`Moment`](crate::Moment).
    pub occurred_at: Timestamp,
}

impl Observation<'_> {
    /// Whether it is the first repeat of an old client-go events recorder (up to v0.24, and v0.26.0), which
    /// counts from 1. The API server refuses such a series with 422, which the recorder logs. After a 409 the
    /// recorder silently continues to count. After a 200 it would adopt the returned Event and start at 1
    /// again.
    pub(crate) fn begins_at_one(&self) -> bool {
        self.api == Api::Events && self.has_series && self.value == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_name_is_a_dns_label() {
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
