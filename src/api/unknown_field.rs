//! Fields of a spec that this version does not know.

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

/// Returns the path of the first field that the schema lacks. Deserialization ignores it. The API server refuses it (the
/// default of kubectl) or drops it, unless its CRDs are newer than this version.
pub fn unknown_field(cluster_scoped: bool, spec: &Value) -> Option<String> {
    static SCHEMAS: LazyLock<[Option<JSONSchemaProps>; 2]> =
        LazyLock::new(|| [EventPolicy::crd(), ClusterEventPolicy::crd()].map(spec_schema));
    unknown_in(SCHEMAS[usize::from(cluster_scoped)].as_ref()?, spec, "spec")
}

fn spec_schema(crd: CustomResourceDefinition) -> Option<JSONSchemaProps> {
    let schema = crd.spec.versions.into_iter().next()?.schema?.open_api_v3_schema?;
    schema.properties?.remove("spec")
}

fn unknown_in(schema: &JSONSchemaProps, value: &Value, path: &str) -> Option<String> {
    match value {
        Value::Object(members) => members.iter().find_map(|(name, member)| {
            let path = format!("{path}.{}", name.chars().take(MAX_NAME).map(sanitise).collect::<String>());
            match schema.properties.as_ref()?.get(name) {
                Some(property) => unknown_in(property, member, &path),
                None => Some(path),
            }
        }),
        Value::Array(items) => {
            let Some(JSONSchemaPropsOrArray::Schema(schema)) = &schema.items else { return None };
            let entries = items.iter().enumerate();
            { entries }.find_map(|(at, item)| unknown_in(schema, item, &format!("{path}[{at}]")))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_first_unknown_field_is_named() {
        for (spec, expected) in [
            (json!({}), None),
            (json!({"series": {"idleTimeout": "1m"}, "exempt": [{"types": ["Normal"]}]}), None),
            (json!({"mute": []}), Some("spec.mute")),
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
