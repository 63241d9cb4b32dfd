//! OTLP as JSON.

use serde_json::Value;

/// The elements of an array; none of another value.
pub fn array(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// The records of all scopes of all resources of a request.
pub fn log_records(request: &Value) -> impl Iterator<Item = &Value> {
    let scopes = array(&request["resourceLogs"]).flat_map(|resource| array(&resource["scopeLogs"]));
    scopes.flat_map(|scope| array(&scope["logRecords"]))
}

/// The value of an attribute.
pub fn attribute(of: &Value, key: &str) -> Value {
    let found = array(&of["attributes"]).find(|attribute| attribute["key"] == key);
    found.and_then(|attribute| attribute["value"].as_object()?.values().next().cloned()).unwrap_or_default()
}
