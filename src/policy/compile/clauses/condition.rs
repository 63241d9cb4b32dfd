//! Clauses as conditions in CEL, on a core/v1 Event of an admission request. Not on the path of a write.
//!
//! A condition holds for every write that the clauses match, and it may hold for more. Its evaluation never fails:
//! `has()` guards fields that the API server omits when they are empty. No glob but `*` alone matches an empty text, and
//! `*` sets no condition.
//!
//! The clauses read the stored Event of an UPDATE. An UPDATE that changes another field than the message and the count
//! passes as an edit, so only the message has to be that of the stored Event.

use crate::api::EventType;
use crate::cel::quoted;
use crate::policy::glob::Glob;

use super::{Clauses, Regarding};

/// The condition that always holds.
pub(in crate::policy) const ALWAYS: &str = "true";

impl Clauses {
    /// Returns the condition, without `||` outside of parentheses.
    pub(in crate::policy::compile) fn condition(&self) -> String {
        let Self { types, reasons, messages, reporting_components, regarding, users } = self;
        let of_type = match **types {
            [EventType::Normal] => Some("has(object.type) && object.type == 'Normal'".to_owned()),
            [EventType::Warning] => Some("!(has(object.type) && object.type == 'Normal')".to_owned()),
            _ => None,
        };
        let component = match (
            of_field("object.reportingComponent", reporting_components),
            of_field("object.source.component", reporting_components),
        ) {
            (Some(reporting), Some(source)) => {
                Some(format!("({reporting} || has(object.source) && {source})"))
            }
            _ => None,
        };
        let conditions = [
            of_type,
            of_field("object.reason", reasons),
            component,
            any_of(regarding.iter().map(Regarding::condition)),
            of_field("request.userInfo.username", users),
            of_message(messages),
        ];
        let conditions: Vec<_> = conditions.into_iter().flatten().collect();
        if conditions.is_empty() { ALWAYS.to_owned() } else { conditions.join(" && ") }
    }
}

impl Regarding {
    fn condition(&self) -> Option<String> {
        let Self { kind, api_group, name } = self;
        let of = |field: &str, glob: &Option<Glob>| {
            let glob = glob.as_ref()?;
            of_field(&format!("object.involvedObject.{field}"), std::slice::from_ref(glob))
        };
        // `v1` has no group, and a pattern may match the empty group.
        let of_group = match api_group {
            Some(Glob::Literal(group)) if !group.is_empty() => {
                let path = "object.involvedObject.apiVersion";
                Some(format!("has({path}) && {path}.startsWith({})", quoted(&format!("{group}/"))))
            }
            _ => None,
        };
        let conditions: Vec<_> =
            [of("kind", kind), of_group, of("name", name)].into_iter().flatten().collect();
        if conditions.is_empty() { None } else { Some(conditions.join(" && ")) }
    }
}

fn of_message(globs: &[Glob]) -> Option<String> {
    let [written, stored] =
        ["object", "oldObject"].map(|object| of_field(&format!("{object}.message"), globs));
    Some(format!("(request.operation == 'UPDATE' ? {} : {})", stored?, written?))
}

/// Returns the condition that a field exists and one of `globs` matches it. `None`: no condition.
fn of_field(path: &str, globs: &[Glob]) -> Option<String> {
    let (literals, patterns): (Vec<_>, Vec<_>) =
        globs.iter().partition(|glob| matches!(glob, Glob::Literal(_)));
    let of_literals = match &literals[..] {
        [] => None,
        [literal] => Some(literal.condition(path)),
        _ => {
            let texts: Option<Vec<_>> = literals.iter().map(|literal| literal.exact()).collect();
            Some(texts.map(|texts| format!("{path} in [{}]", texts.join(", "))))
        }
    };
    let condition =
        any_of(of_literals.into_iter().chain(patterns.into_iter().map(|glob| glob.condition(path))))?;
    Some(format!("has({path}) && {condition}"))
}

/// Returns the condition that one of `conditions` holds. `None`: there are none, or one of them always holds.
fn any_of(conditions: impl Iterator<Item = Option<String>>) -> Option<String> {
    let conditions: Vec<_> = conditions.collect::<Option<_>>()?;
    match &conditions[..] {
        [] => None,
        [condition] => Some(condition.clone()),
        _ => Some(format!("({})", conditions.join(" || "))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn condition(clauses: Value) -> String {
        let list = [serde_json::from_value(clauses).unwrap()];
        Clauses::compile_list(&list, "spec.match").unwrap()[0].condition()
    }

    #[test]
    fn each_clause_is_a_condition() {
        let component = "(has(object.reportingComponent) && object.reportingComponent == 'k' || \
                         has(object.source) && has(object.source.component) && object.source.component == 'k')";
        let user = "has(request.userInfo.username) && request.userInfo.username.startsWith('system:node:')";
        for (clauses, expected) in [
            (json!({"types": ["Normal", "Warning"]}), "true"),
            (json!({"messages": ["a", "bad \u{fffd}"]}), "true"),
            (json!({"types": ["Normal"]}), "has(object.type) && object.type == 'Normal'"),
            (json!({"types": ["Warning"]}), "!(has(object.type) && object.type == 'Normal')"),
            (json!({"reasons": ["Pulled"]}), "has(object.reason) && object.reason == 'Pulled'"),
            (json!({"reasons": ["A", "B"]}), "has(object.reason) && object.reason in ['A', 'B']"),
            (
                json!({"reasons": ["A", "B", "C*"]}),
                "has(object.reason) && (object.reason in ['A', 'B'] || object.reason.startsWith('C'))",
            ),
            (json!({"reasons": ["A", "*"]}), "true"),
            (json!({"reportingComponents": ["k"]}), component),
            (json!({"reportingComponents": ["*"]}), "true"),
            (json!({"users": ["system:node:*"]}), user),
            (
                json!({"messages": ["*refused*"]}),
                "(request.operation == 'UPDATE' ? has(oldObject.message) && \
                 (oldObject.message.size() > 1024 || oldObject.message.contains('refused')) : \
                 has(object.message) && (object.message.size() > 1024 || object.message.contains('refused')))",
            ),
        ] {
            assert_eq!(condition(clauses.clone()), expected, "{clauses}");
        }
    }

    #[test]
    fn objects_are_alternatives_and_their_fields_are_not() {
        let pod = "has(object.involvedObject.kind) && object.involvedObject.kind == 'Pod'";
        let apps =
            "has(object.involvedObject.apiVersion) && object.involvedObject.apiVersion.startsWith('apps/')";
        let regarding = |list: Value| condition(json!({ "types": ["Normal"], "regarding": list }));
        let normal = "has(object.type) && object.type == 'Normal'";
        for (list, expected) in [
            (json!([{"kind": "Pod"}]), format!("{normal} && {pod}")),
            (json!([{"kind": "Pod", "apiGroup": ""}]), format!("{normal} && {pod}")),
            (json!([{"apiGroup": "app*"}, {"kind": "Pod"}]), normal.to_owned()),
            (json!([{"kind": "Pod"}, {"apiGroup": "apps"}]), format!("{normal} && ({pod} || {apps})")),
        ] {
            assert_eq!(regarding(list.clone()), expected, "{list}");
        }
    }
}
