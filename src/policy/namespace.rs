//! Namespaces as the API server lists them, reduced to the fields that squelch reads.

use std::borrow::Cow;
use std::fmt;

use k8s_openapi::api::core::v1::Namespace;
use kube::Resource;
use kube::core::ObjectMeta;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};

use super::compile::Labels;
use super::order::MAX_LABELS;

/// Name, uid, resource version and labels of a namespace. Of more than [`MAX_LABELS`] labels it keeps [`MAX_LABELS`] + 1,
/// which shows that there are too many. Other fields are skipped and use no memory.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(from = "NamespaceFields")]
pub(super) struct ListedNamespace(pub(super) ObjectMeta);

#[derive(serde::Deserialize)]
struct NamespaceFields {
    #[serde(default)]
    metadata: Metadata,
}

#[derive(Default, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    labels: Option<FirstLabels>,
}

impl From<NamespaceFields> for ListedNamespace {
    fn from(
        NamespaceFields { metadata: Metadata { name, uid, resource_version, labels } }: NamespaceFields,
    ) -> Self {
        let labels = labels.map(|FirstLabels(labels)| labels);
        Self(ObjectMeta { name, uid, resource_version, labels, ..ObjectMeta::default() })
    }
}

struct FirstLabels(Labels);

impl<'de> Deserialize<'de> for FirstLabels {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(FirstLabelsVisitor)
    }
}

struct FirstLabelsVisitor;

impl<'de> Visitor<'de> for FirstLabelsVisitor {
    type Value = FirstLabels;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("labels")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<FirstLabels, A::Error> {
        let mut labels = Labels::new();
        while labels.len() <= MAX_LABELS {
            let Some((key, value)) = map.next_entry()? else { return Ok(FirstLabels(labels)) };
            labels.insert(key, value);
        }
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(FirstLabels(labels))
    }
}

impl Resource for ListedNamespace {
    type DynamicType = ();
    type Scope = <Namespace as Resource>::Scope;

    fn kind(_: &()) -> Cow<'_, str> {
        Namespace::kind(&())
    }

    fn group(_: &()) -> Cow<'_, str> {
        Namespace::group(&())
    }

    fn version(_: &()) -> Cow<'_, str> {
        Namespace::version(&())
    }

    fn plural(_: &()) -> Cow<'_, str> {
        Namespace::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.0
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.0
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn listed(metadata: &Value) -> ObjectMeta {
        // From text, as kube reads it.
        let text = json!({"metadata": metadata, "spec": {"finalizers": ["kubernetes"]}}).to_string();
        let ListedNamespace(metadata) = serde_json::from_str(&text).unwrap();
        metadata
    }

    fn labels(count: usize) -> Labels {
        (0..count).map(|number| (format!("key-{number:04}"), number.to_string())).collect()
    }

    #[test]
    fn a_listed_namespace_keeps_only_the_fields_that_squelch_reads() {
        let expected =
            json!({"name": "ci", "uid": "u", "resourceVersion": "7", "labels": labels(MAX_LABELS)});
        let mut metadata = expected.clone();
        metadata["annotations"] = json!({"a": "b"});
        metadata["managedFields"] = json!([{"manager": "m"}]);
        assert_eq!(serde_json::to_value(listed(&metadata)).unwrap(), expected);
        for none in [json!({"name": "ci"}), json!({"name": "ci", "labels": null})] {
            assert_eq!(listed(&none).labels, None);
        }
    }

    #[test]
    fn at_most_one_label_more_than_the_maximum_is_kept() {
        for count in [MAX_LABELS + 1, MAX_LABELS + 2, 5_000] {
            let metadata = listed(&json!({"labels": labels(count), "uid": "u"}));
            assert_eq!(metadata.labels.unwrap().len(), MAX_LABELS + 1);
            assert_eq!(metadata.uid.as_deref(), Some("u"), "fields after the labels are read");
        }
    }
}
