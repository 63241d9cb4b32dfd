//! The object of a command line, and its kind as Events name it. Pure.

use std::str::FromStr;

use serde::Serialize;

/// `KIND/NAME` as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WrittenObject {
    /// A kind, or the name of a resource in one of its forms.
    resource: String,
    /// An API group, or a version and a group.
    group: Option<String>,
    name: String,
}

impl FromStr for WrittenObject {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let fault = || "must be KIND/NAME, such as pod/web-1 or deployments.apps/web".to_owned();
        let (resource, name) = text.split_once('/').ok_or_else(fault)?;
        let (resource, group) =
            resource.split_once('.').map_or((resource, None), |(resource, group)| (resource, Some(group)));
        let is_word =
            |text: &str| !text.is_empty() && !text.contains(|it: char| it.is_control() || it == '/');
        if ![resource, name, group.unwrap_or("core")].into_iter().all(is_word) {
            return Err(fault());
        }
        Ok(Self { resource: resource.to_owned(), group: group.map(str::to_owned), name: name.to_owned() })
    }
}

/// A resource that the API server serves.
#[derive(Clone, Debug)]
pub(super) struct ServedResource {
    /// API group; empty for the core group.
    pub group: String,
    /// Kind, such as Pod.
    pub kind: String,
    /// Plural, singular and short names.
    pub names: Vec<String>,
    /// Whether its objects are in namespaces.
    pub is_namespaced: bool,
}

/// The object that the Events are about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WhyObject {
    /// Kind, or the text that was written for it.
    pub kind: String,
    /// Whether `kind` is a kind. Otherwise it is compared with kinds in any case, as singular and plural.
    pub is_kind: bool,
    /// API group. `None` if it is not known.
    pub api_group: Option<String>,
    /// Name.
    pub name: String,
    /// Namespace of its Events.
    pub namespace: String,
}

/// The namespace of Events about objects without a namespace (client-go tools/record, `makeEvent`).
const CLUSTER_SCOPED: &str = "default";

impl WhyObject {
    /// Finds the kind among the served resources, which are in the order of the API server. The namespace is `namespace` if
    /// it was given, else `current`, or that of cluster-scoped objects.
    pub(super) fn of(
        WrittenObject { resource, group, name }: &WrittenObject,
        served: &[ServedResource],
        (namespace, current): (Option<&str>, &str),
    ) -> Self {
        let lower = resource.to_lowercase();
        let is_it = |text: &String| text.to_lowercase() == lower;
        let is_of_group = |served: &ServedResource| {
            let is_it = |group: &str| group == served.group;
            group
                .as_deref()
                .is_none_or(|group| is_it(group) || group.split_once('.').is_some_and(|(_, it)| is_it(it)))
        };
        let is_named = |served: &&ServedResource| {
            is_of_group(served) && (is_it(&served.kind) || served.names.iter().any(is_it))
        };
        let found = served.iter().find(is_named);
        let is_ambiguous = |found: &ServedResource| {
            served
                .iter()
                .any(|other| is_of_group(other) && other.kind == found.kind && other.group != found.group)
        };
        let cluster_scoped = found.is_some_and(|found| !found.is_namespaced);
        let namespace = namespace.unwrap_or(if cluster_scoped { CLUSTER_SCOPED } else { current });
        Self {
            kind: found.map_or(resource, |found| &found.kind).clone(),
            is_kind: found.is_some() || resource.starts_with(char::is_uppercase),
            api_group: found
                .map_or(group.clone(), |found| (!is_ambiguous(found)).then(|| found.group.clone())),
            name: name.clone(),
            namespace: namespace.to_owned(),
        }
    }

    /// Whether an object of this kind can be the object.
    pub(super) fn is_of(&self, kind: &str) -> bool {
        if self.is_kind {
            return self.kind == kind;
        }
        let (written, kind) = (self.kind.to_lowercase(), kind.to_lowercase());
        let plural_of = |ending: &str, plural: &str| {
            let stem = written.strip_suffix(plural);
            stem.is_some_and(|stem| kind.strip_suffix(ending) == Some(stem))
        };
        written == kind || plural_of("", "s") || plural_of("", "es") || plural_of("y", "ies")
    }

    /// Kind and name.
    pub(super) fn title(&self) -> String {
        format!("{} {}", self.kind, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(group: &str, kind: &str, names: &[&str], is_namespaced: bool) -> ServedResource {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        ServedResource { group: group.to_owned(), kind: kind.to_owned(), names, is_namespaced }
    }

    fn served() -> Vec<ServedResource> {
        vec![
            resource("", "Pod", &["pods", "pod", "po"], true),
            resource("", "Node", &["nodes", "node", "no"], false),
            resource("", "Event", &["events", "event", "ev"], true),
            resource("apps", "Deployment", &["deployments", "deployment", "deploy"], true),
            resource("events.k8s.io", "Event", &["events", "event", "ev"], true),
        ]
    }

    fn object(text: &str) -> WhyObject {
        WhyObject::of(&text.parse().unwrap(), &served(), (None, "shop"))
    }

    #[test]
    fn an_object_is_a_kind_and_a_name() {
        for text in
            ["", "pod", "pod/", "/web", "pod/web/1", "pod./web", ".apps/web", "pod/we\u{1b}b", "po d\n/web"]
        {
            let error = text.parse::<WrittenObject>().unwrap_err();
            assert!(error.contains("pod/web-1"), "{text:?}");
        }
        assert!("ClusterRole/system:node".parse::<WrittenObject>().is_ok());
    }

    #[test]
    fn a_kind_has_the_names_that_kubectl_accepts() {
        for text in ["pod/web", "pods/web", "po/web", "Pod/web", "PODS/web"] {
            let found = object(text);
            assert_eq!((&*found.kind, found.api_group.as_deref()), ("Pod", Some("")), "{text}");
            assert!(found.is_kind && found.is_of("Pod") && !found.is_of("pod"));
            assert_eq!((&*found.title(), &*found.namespace), ("Pod web", "shop"));
        }
        for text in ["deploy/web", "deployments.apps/web", "Deployment.v1.apps/web"] {
            assert_eq!(object(text).api_group.as_deref(), Some("apps"), "{text}");
        }
        let unknown = object("deployments.extensions/web");
        assert_eq!((unknown.is_kind, unknown.api_group.as_deref()), (false, Some("extensions")));
    }

    #[test]
    fn a_kind_of_two_groups_has_no_known_group() {
        assert_eq!(object("ev/x").api_group, None);
        assert_eq!(object("ev.events.k8s.io/x").api_group.as_deref(), Some("events.k8s.io"));
    }

    #[test]
    fn events_about_cluster_scoped_objects_are_in_the_namespace_default() {
        assert_eq!(object("node/n1").namespace, "default");
        let given = WhyObject::of(&"node/n1".parse().unwrap(), &served(), (Some("ops"), "shop"));
        assert_eq!(given.namespace, "ops");
    }

    #[test]
    fn an_unknown_kind_is_compared_as_singular_and_plural() {
        let found = object("policies/web");
        assert!(!found.is_kind && found.is_of("Policy") && !found.is_of("Pod") && !found.is_of("Policies2"));
        assert!(
            object("ingresses/web").is_of("Ingress") && object("kustomization/web").is_of("Kustomization")
        );
        let exact = object("Widget/web");
        assert!(exact.is_kind && exact.is_of("Widget") && !exact.is_of("Widgets"));
    }
}
