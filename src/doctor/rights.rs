//! The permissions of squelch.

use std::fmt;

use serde::Deserialize;

use super::finding::Finding;
use super::snapshot::{Installation, Snapshot};

/// The permissions of a new installation.
const RBAC: &str = include_str!("../../deploy/rbac.yaml");

/// The namespace of the EndpointSlices of the API servers.
const API_SERVERS_NAMESPACE: &str = "default";

/// A permission.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Right {
    /// The verb.
    pub verb: String,
    /// The API group; empty for the core API.
    pub group: String,
    /// The resource, without its subresource.
    pub resource: String,
    /// The subresource, or empty.
    pub subresource: String,
    /// The name of the object; empty for all.
    pub name: String,
    /// The namespace; empty for all.
    pub namespace: String,
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { verb, group, resource, subresource, name, namespace } = self;
        write!(f, "{verb} {resource}")?;
        for (sign, part) in [('.', group), ('/', subresource), (' ', name)] {
            if !part.is_empty() {
                write!(f, "{sign}{part}")?;
            }
        }
        if namespace.is_empty() { Ok(()) } else { write!(f, " in {namespace}") }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ManifestObject {
    kind: String,
    #[serde(default)]
    metadata: ObjectMeta,
    #[serde(default)]
    rules: Vec<Rule>,
}

#[derive(Default, Deserialize)]
struct ObjectMeta {
    #[serde(default)]
    namespace: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Rule {
    api_groups: Vec<String>,
    resources: Vec<String>,
    #[serde(default)]
    resource_names: Vec<String>,
    verbs: Vec<String>,
}

/// Returns the permissions that this installation needs.
pub fn needed(installation: &Installation) -> Vec<Right> {
    let mut rights = Vec::new();
    for text in RBAC.split("\n---\n") {
        // A test covers that each document of the file can be read.
        let Ok(object) = serde_saphyr::from_str::<ManifestObject>(text) else { continue };
        // A Role is in squelch's own namespace, whose name may differ, or in that of the API servers.
        let namespace = match object.metadata.namespace.as_str() {
            API_SERVERS_NAMESPACE => API_SERVERS_NAMESPACE,
            _ if object.kind == "Role" => installation.namespace.as_str(),
            _ => "",
        };
        rights.extend(object.rules.iter().flat_map(|rule| rule.rights(namespace, installation)));
    }
    // The file has the default name of the ClusterRole; the installation may have another, or none.
    rights.retain(|right| right.resource != "clusterroles");
    if let Some(role) = &installation.owner_role {
        let (verb, group) = ("get".to_owned(), "rbac.authorization.k8s.io".to_owned());
        let (resource, name) = ("clusterroles".to_owned(), role.clone());
        rights.push(Right { verb, group, resource, name, ..Right::default() });
    }
    rights.sort();
    rights.dedup();
    rights
}

impl Rule {
    fn rights(&self, namespace: &str, installation: &Installation) -> Vec<Right> {
        let own =
            |name: &String| if name == crate::SECRET { installation.secret.clone() } else { name.clone() };
        let mut names: Vec<_> = self.resource_names.iter().map(own).collect();
        if names.is_empty() {
            names.push(String::new());
        }
        let mut rights = Vec::new();
        for (group, resource) in
            self.api_groups.iter().flat_map(|group| self.resources.iter().map(move |r| (group, r)))
        {
            let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
            for (name, verb) in names.iter().flat_map(|name| self.verbs.iter().map(move |verb| (name, verb)))
            {
                rights.push(Right {
                    verb: verb.clone(),
                    group: group.clone(),
                    resource: resource.to_owned(),
                    subresource: subresource.to_owned(),
                    name: name.clone(),
                    namespace: namespace.to_owned(),
                });
            }
        }
        rights
    }
}

pub(super) fn findings(snapshot: &Snapshot) -> Vec<Finding> {
    let user = &snapshot.installation.own_user;
    let rights = match &snapshot.rights {
        Ok(rights) => rights,
        Err(unreadable) => {
            let thing =
                format!("the permissions of {user} (this requires the permission to impersonate that user)");
            return vec![Finding::unreadable("rights", &thing, unreadable)];
        }
    };
    let missing: Vec<_> = rights.iter().filter(|(_, may)| !may).map(|(right, _)| right.to_string()).collect();
    if missing.is_empty() {
        return vec![Finding::ok(
            "rights",
            format!("{user} has all {} permissions that squelch needs", rights.len()),
        )];
    }
    let message = format!("{user} lacks the permissions to {}", missing.join(", "));
    vec![Finding::error("rights", message, "upgrade the chart, or apply deploy/rbac.yaml")]
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::super::fixtures::healthy;
    use super::*;

    #[test]
    fn permissions_have_the_names_of_the_installation() {
        let mut installation = healthy().installation;
        installation.namespace = "platform".to_owned();
        installation.secret = "keys".to_owned();
        installation.owner_role = Some("role".to_owned());
        let texts: Vec<_> = needed(&installation).iter().map(ToString::to_string).collect();
        for right in [
            "create events",
            "patch events.events.k8s.io",
            "patch eventpolicies.squelch.dev/status",
            "patch secrets keys in platform",
            "get mutatingwebhookconfigurations.admissionregistration.k8s.io squelch",
            "get clusterroles.rbac.authorization.k8s.io role",
            "list endpointslices.discovery.k8s.io in platform",
            "list endpointslices.discovery.k8s.io in default",
        ] {
            assert!(texts.iter().any(|text| text == right), "{right} is not in {texts:#?}");
        }
        assert!(!texts.iter().any(|text| text.ends_with("rbac.authorization.k8s.io squelch")), "{texts:#?}");
        installation.owner_role = None;
        assert!(!needed(&installation).iter().any(|right| right.resource == "clusterroles"));
        // Every rule is read.
        let verbs = RBAC.matches("verbs:").count();
        assert!(verbs > 5 && texts.len() > verbs);
    }

    #[test]
    fn a_missing_permission_is_named() {
        let mut snapshot = healthy();
        assert_eq!(findings(&snapshot)[0].level, Level::Ok);
        let Ok(rights) = &mut snapshot.rights else { panic!("they were read") };
        rights[0].1 = false;
        let named = rights[0].0.to_string();
        let found = findings(&snapshot).remove(0);
        assert!(found.level == Level::Error && found.message.contains(&named), "{}", found.message);
    }
}
