//! The fields of an AdmissionReview that squelch reads.

use std::borrow::Cow;

use super::json::{Raw, Text, object};
use super::reader::{Malformed, Read, Reader};

/// Maximum unknown top-level fields of an Event. The API server drops unknown fields, so only an API server newer than
/// squelch sends any.
const UNKNOWN_FIELDS: usize = 64;

/// `AdmissionReview`.
#[derive(Debug, Default)]
pub(super) struct Envelope<'a> {
    pub(super) api_version: Text<'a>,
    pub(super) request: Option<Request<'a>>,
}
object!(Envelope { "apiVersion" => api_version, "request" => request });

/// `AdmissionReview.request`.
#[derive(Debug, Default)]
pub(super) struct Request<'a> {
    pub(super) uid: Text<'a>,
    pub(super) kind: GroupKind<'a>,
    pub(super) request_kind: GroupKind<'a>,
    pub(super) subresource: Text<'a>,
    pub(super) name: Text<'a>,
    pub(super) namespace: Text<'a>,
    pub(super) operation: Text<'a>,
    pub(super) user: User<'a>,
    pub(super) dry_run: Option<bool>,
    /// Boxed like `old_object`, because a review is moved several times.
    pub(super) object: Option<Box<Event<'a>>>,
    pub(super) old_object: Option<Box<Event<'a>>>,
}
object!(Request {
    "uid" => uid,
    "requestKind" => request_kind,
    "subResource" => subresource,
    "name" => name,
    "namespace" => namespace,
    "operation" => operation,
    "userInfo" => user,
    "dryRun" => dry_run,
    "object" => object,
} else |request, key, reader| {
    match key {
        "kind" => request.read_kinds(reader),
        // A repeat changes few fields.
        "oldObject" => request.old_object.read(Some(&request.object), reader),
        _ => reader.skip(),
    }
});

/// Expands to the group of the API that a client used, and the text that the API server then writes from the value of
/// `kind` to that of `requestResource`.
macro_rules! kinds {
    ($group:literal) => {
        (
            $group,
            concat!(
                r#"{"group":"","version":"v1","kind":"Event"},"#,
                r#""resource":{"group":"","version":"v1","resource":"events"},"#,
                r#""requestKind":{"group":""#,
                $group,
                r#"","version":"v1","kind":"Event"},"#,
                r#""requestResource":{"group":""#,
                $group,
                r#"","version":"v1","resource":"events"}"#,
            ),
        )
    };
}

/// The texts of both APIs.
const KINDS: [(&str, &str); 2] = [kinds!(""), kinds!("events.k8s.io")];

impl<'a> Request<'a> {
    /// Reads `kind`. Also reads the members up to `requestResource` if they are one of [`KINDS`].
    fn read_kinds(&mut self, reader: &mut Reader<'a>) -> Result<(), Malformed> {
        let Some((group, _)) = KINDS.iter().find(|(_, spelling)| reader.take_exact(spelling)) else {
            return self.kind.read(None, reader);
        };
        self.kind = GroupKind::event("");
        self.request_kind = GroupKind::event(group);
        Ok(())
    }
}

/// `metav1.GroupVersionKind` without the version.
#[derive(Debug, Default)]
pub(super) struct GroupKind<'a> {
    pub(super) group: Text<'a>,
    pub(super) kind: Text<'a>,
}
object!(GroupKind { "group" => group, "kind" => kind });

impl GroupKind<'_> {
    fn event(group: &'static str) -> Self {
        Self { group: Text(group.into()), kind: Text("Event".into()) }
    }
}

/// `userInfo`.
#[derive(Debug, Default)]
pub(super) struct User<'a> {
    pub(super) name: Text<'a>,
}
object!(User { "username" => name });

/// A core/v1 Event. Every review of squelch's rule has one, whichever API the client used.
#[derive(Debug, Default)]
pub struct Event<'a> {
    pub(super) metadata: Option<Metadata<'a>>,
    pub(super) involved_object: Raw<'a>,
    pub(super) related: Raw<'a>,
    pub(super) event_type: Raw<'a>,
    pub(super) reason: Raw<'a>,
    pub(super) action: Raw<'a>,
    pub(in crate::webhook) message: Raw<'a>,
    pub(super) source: Raw<'a>,
    pub(super) reporting_component: Raw<'a>,
    pub(super) reporting_instance: Raw<'a>,
    pub(super) first_timestamp: Raw<'a>,
    pub(in crate::webhook) last_timestamp: Raw<'a>,
    pub(super) event_time: Raw<'a>,
    pub(in crate::webhook) count: Raw<'a>,
    pub(in crate::webhook) series: Raw<'a>,
    /// Top-level fields unknown to this version of squelch.
    pub(super) unknown: Vec<(Cow<'a, str>, Raw<'a>)>,
}
object!(Event {
    "metadata" => metadata,
    "involvedObject" => involved_object,
    "related" => related,
    "type" => event_type,
    "reason" => reason,
    "action" => action,
    "message" => message,
    "source" => source,
    "reportingComponent" => reporting_component,
    "reportingInstance" => reporting_instance,
    "firstTimestamp" => first_timestamp,
    "lastTimestamp" => last_timestamp,
    "eventTime" => event_time,
    "count" => count,
    "series" => series,
} else |event, key, reader| {
    if matches!(key, "kind" | "apiVersion") { reader.skip() } else { unknown(&mut event.unknown, key, reader) }
});

/// Stores an unknown field.
pub(super) fn unknown<'a>(
    fields: &mut Vec<(Cow<'a, str>, Raw<'a>)>,
    key: &str,
    reader: &mut Reader<'a>,
) -> Result<(), Malformed> {
    if fields.len() == UNKNOWN_FIELDS {
        return Err(reader.malformed("at most 64 unknown fields of an Event"));
    }
    fields.push((key.to_owned().into(), Raw::from(reader)?));
    Ok(())
}

impl<'a> Event<'a> {
    /// `metadata.name`; empty if absent.
    pub fn name(&self) -> &str {
        self.metadata.as_ref().map_or("", |metadata| metadata.name.as_str())
    }

    /// The namespace: `metadata.namespace`, else that of the involved object, else `default`. The API server requires
    /// `default` for Events about objects without a namespace.
    pub fn namespace(&self) -> Cow<'_, str> {
        let own = self.metadata.as_ref().map_or("", |metadata| metadata.namespace.as_str());
        if !own.is_empty() {
            return own.into();
        }
        let regarding: Reference<'a> = self.involved_object.read();
        if regarding.namespace.as_str().is_empty() { "default".into() } else { regarding.namespace.0 }
    }

    /// Whether its resourceVersion differs from that of `stored`, so that the API server returns a conflict. As the API
    /// server does, this compares numbers and accepts 0 and a missing version. Other texts are not compared.
    pub(super) fn is_stale_over(&self, stored: &Self) -> bool {
        let (Some(written), Some(stored)) = (&self.metadata, &stored.metadata) else { return false };
        if written.resource_version == stored.resource_version {
            return false;
        }
        let number = |metadata: &Metadata<'_>| metadata.resource_version.text().parse::<u64>().ok();
        number(written)
            .filter(|version| *version != 0)
            .is_some_and(|version| number(stored).is_some_and(|stored| stored != version))
    }

    /// `metadata.managedFields`; `None` without metadata.
    pub(in crate::webhook) fn managed_fields(&self) -> Option<Raw<'a>> {
        self.metadata.as_ref().map(|metadata| metadata.managed_fields)
    }
}

/// The Event's `metadata`, without most of the fields that only the API server sets.
#[derive(Debug, Default)]
pub(super) struct Metadata<'a> {
    pub(super) name: Text<'a>,
    pub(super) generate_name: Text<'a>,
    pub(super) namespace: Text<'a>,
    pub(super) labels: Raw<'a>,
    pub(super) annotations: Raw<'a>,
    pub(super) owner_references: Raw<'a>,
    pub(super) finalizers: Raw<'a>,
    pub(super) managed_fields: Raw<'a>,
    pub(super) resource_version: Raw<'a>,
}
object!(Metadata {
    "name" => name,
    "generateName" => generate_name,
    "namespace" => namespace,
    "labels" => labels,
    "annotations" => annotations,
    "ownerReferences" => owner_references,
    "finalizers" => finalizers,
    "managedFields" => managed_fields,
    "resourceVersion" => resource_version,
});

/// `series`.
#[derive(Debug, Default)]
pub(super) struct EventSeries<'a> {
    pub(super) count: Raw<'a>,
    pub(super) last_observed_time: Raw<'a>,
}
object!(EventSeries { "count" => count, "lastObservedTime" => last_observed_time });

/// `source`.
#[derive(Debug, Default)]
pub(super) struct Source<'a> {
    pub(super) component: Text<'a>,
    pub(super) host: Text<'a>,
}
object!(Source { "component" => component, "host" => host });

/// `involvedObject`, `related`.
#[derive(Debug, Default)]
pub(super) struct Reference<'a> {
    pub(super) api_version: Text<'a>,
    pub(super) kind: Text<'a>,
    pub(super) namespace: Text<'a>,
    pub(super) name: Text<'a>,
    pub(super) uid: Text<'a>,
    pub(super) field_path: Text<'a>,
}
object!(Reference {
    "apiVersion" => api_version,
    "kind" => kind,
    "namespace" => namespace,
    "name" => name,
    "uid" => uid,
    "fieldPath" => field_path,
});
