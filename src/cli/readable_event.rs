//! Events of a list, also those with times that cannot be read.

use std::borrow::Cow;

use k8s_openapi::api::core::v1::Event;
use kube::Resource;
use kube::core::ObjectMeta;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// The times of an Event that a client chooses, as JSON pointers to their objects.
const TIMES: [(&str, &str); 4] =
    [("", "firstTimestamp"), ("", "lastTimestamp"), ("", "eventTime"), ("/series", "lastObservedTime")];

/// An Event without the times that [`jiff::Timestamp`] cannot hold, and without `metadata.managedFields`, which can have
/// such times too. The API server accepts times until the end of the year 9999, some hours more than a `Timestamp`. A
/// client that writes one must not make a whole list unreadable.
#[derive(Clone, Debug)]
pub(super) struct ReadableEvent(pub(super) Event);

impl<'de> Deserialize<'de> for ReadableEvent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut event = Value::deserialize(deserializer)?;
        if let Some(metadata) = event.pointer_mut("/metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
        for (object, field) in TIMES {
            let Some(members) = event.pointer_mut(object).and_then(Value::as_object_mut) else { continue };
            let is_unreadable =
                |time: &Value| time.as_str().is_some_and(|text| text.parse::<jiff::Timestamp>().is_err());
            if members.get(field).is_some_and(is_unreadable) {
                members.remove(field);
            }
        }
        Event::deserialize(event).map(Self).map_err(D::Error::custom)
    }
}

impl Resource for ReadableEvent {
    type DynamicType = ();
    type Scope = <Event as Resource>::Scope;

    fn kind(of: &()) -> Cow<'_, str> {
        <Event as Resource>::kind(of)
    }

    fn group(of: &()) -> Cow<'_, str> {
        <Event as Resource>::group(of)
    }

    fn version(of: &()) -> Cow<'_, str> {
        <Event as Resource>::version(of)
    }

    fn plural(of: &()) -> Cow<'_, str> {
        <Event as Resource>::plural(of)
    }

    fn meta(&self) -> &ObjectMeta {
        self.0.meta()
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.0.meta_mut()
    }
}
