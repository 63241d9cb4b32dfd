//! Parts of a spec that deserialization accepts and the schema does not: fields that this version does not know, and empty
//! lists.

use std::sync::LazyLock;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray,
};
use kube::core::CustomResourceExt;
use serde_json::Value;
use squelch_engine::sanitise;

use super::{ClusterEventPolicy, EventPolicy};

/// Maximum characters of a name in a path.
const MAX_NAME: usize = 63;

/// A part of a spec that the schema does not accept, with its path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SchemaViolation {
    /// A field that the schema lacks. The API server refuses it (the default of kubectl) or drops it, unless its CRDs are
    /// newer than this version.
    UnknownField(String),
    /// A list without an entry that needs one.
    EmptyList(String),
}

/// Returns the first violation.
pub fn schema_violation(cluster_scoped: bool, spec: &Value) -> Option<SchemaViolation> {
    static SCHEMAS: LazyLock<[Option<JSONSchemaProps>; 2]> =
        LazyLock::new(|| [EventPolicy::crd(), ClusterEventPolicy::crd()].map(spec_schema));
    violation_in(SCHEMAS[usize::from(cluster_scoped)].as_ref()?, spec, "spec")
}

/// Removes the members of an object that are null: they mean the default. The API server removes them too.
pub fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let members = members.iter().filter(|(_, member)| !member.is_null());
            members.map(|(name, member)| (name.clone(), without_nulls(member))).collect()
        }
        Value::Array(items) => items.iter().map(without_nulls).collect(),
        other => other.clone(),
    }
}

fn spec_schema(crd: CustomResourceDefinition) -> Option<JSONSchemaProps> {
    let schema = crd.spec.versions.into_iter().next()?.schema?.open_api_v3_schema?;
    schema.properties?.remove("spec")
}

fn violation_in(schema: &JSONSchemaProps, value: &Value, path: &str) -> Option<SchemaViolation> {
    match value {
        Value::Object(members) => members.iter().find_map(|(name, member)| {
            let path = format!("{path}.{}", name.chars().take(MAX_NAME).map(sanitise).collect::<String>());
            match schema.properties.as_ref()?.get(name) {
                Some(property) => violation_in(property, member, &path),
                None => Some(SchemaViolation::UnknownField(path)),
            }
        }),
        Value::Array(items) if items.is_empty() && schema.min_items.is_some_and(|min| min > 0) => {
            Some(SchemaViolation::EmptyList(path.to_owned()))
        }
        Value::Array(items) => {
            let Some(JSONSchemaPropsOrArray::Schema(schema)) = &schema.items else { return None };
            let entries = items.iter().enumerate();
            { entries }.find_map(|(at, item)| violation_in(schema, item, &format!("{path}[{at}]")))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn null_means_the_default() {
        let spec = json!({"budget": null, "exempt": [{"types": ["Normal"], "users": null}], "series": {"mode": null}});
        let expected = json!({"exempt": [{"types": ["Normal"]}], "series": {}});
        assert_eq!(without_nulls(&spec), expected);
    }

    #[test]
    fn an_empty_list_is_named() {
        for (spec, path) in [
            (json!({"match": []}), "spec.match"),
            (json!({"mute": [{"types": ["Normal"]}, {"users": []}]}), "spec.mute[1].users"),
            (json!({"exempt": [{"regarding": []}]}), "spec.exempt[0].regarding"),
        ] {
            assert_eq!(schema_violation(false, &spec), Some(SchemaViolation::EmptyList(path.to_owned())));
        }
    }

    #[test]
    fn the_first_unknown_field_is_named() {
        let unknown_field = |cluster_scoped, spec: &Value| match schema_violation(cluster_scoped, spec) {
            Some(SchemaViolation::UnknownField(path)) => Some(path),
            _ => None,
        };
        for (spec, expected) in [
            (json!({}), None),
            (json!({"series": {"idleTimeout": "1m"}, "exempt": [{"types": ["Normal"]}]}), None),
            (json!({"unmute": []}), Some("spec.unmute")),
            (json!({"series": {"newField": 1}}), Some("spec.series.newField")),
            (json!({"exempt": [{"regarding": [{}, {"uid": "u"}]}]}), Some("spec.exempt[0].regarding[1].uid")),
            (json!({"a\n\u{1b}[31mb": 1}), Some("spec.a  [31mb")),
        ] {
            assert_eq!(unknown_field(false, &spec).as_deref(), expected, "{spec}");
        }
        let selector = json!({"namespaceSelector": {"matchLabels": {"any": "label"}}});
        assert_eq!(unknown_field(true, &selector), None);
        assert_eq!(unknown_field(false, &selector).as_deref(), Some("spec.namespaceSelector"));
    }
}
