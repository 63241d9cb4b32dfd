//! The rights that squelch runs with.

use std::fmt;

use serde::Deserialize;

use super::finding::Finding;
use super::seen::{Installation, Seen};

/// What a fresh installation has: the list that there is.
const RBAC: &str = include_str!("../../deploy/rbac.yaml");

/// One thing that squelch has to be allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Right {
    /// The verb.
    pub verb: String,
    /// The API group; of the core API it is empty.
    pub group: String,
    /// The resource, without its subresource.
    pub resource: String,
    /// That, or nothing.
    pub subresource: String,
    /// The object, if it is one only.
    pub name: String,
    /// The namespace, if it is one only.
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
struct Object {
    kind: String,
    #[serde(default)]
    rules: Vec<Rule>,
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

/// The rights that squelch needs as it is installed.
pub fn needed(installation: &Installation) -> Vec<Right> {
    let mut rights = Vec::new();
    for text in RBAC.split("\n---\n") {
        // A test reads the file too: all of it can be read.
        let Ok(object) = serde_saphyr::from_str::<Object>(text) else { continue };
        let namespace = if object.kind == "Role" { installation.namespace.as_str() } else { "" };
        rights.extend(object.rules.iter().flat_map(|rule| rule.rights(namespace, installation)));
    }
    // The file names the role of its own; another name, or none, is what the installation says.
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

pub(super) fn findings(seen: &Seen) -> Vec<Finding> {
    let user = &seen.installation.own_user;
    let rights = match &seen.rights {
        Ok(rights) => rights,
        Err(unseen) => {
            let thing = format!("the rights of {user} (that takes the right to impersonate it)");
            return vec![Finding::unseen("rights", &thing, unseen)];
        }
    };
    let missing: Vec<_> = rights.iter().filter(|(_, may)| !may).map(|(right, _)| right.to_string()).collect();
    if missing.is_empty() {
        return vec![Finding::ok("rights", format!("{user} has the {} rights that it needs", rights.len()))];
    }
    let why = format!("{user} may not {}", missing.join(", nor "));
    vec![Finding::error("rights", why, "upgrade the chart, which brings them, or apply deploy/rbac.yaml")]
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::super::testing::well;
    use super::*;

    #[test]
    fn the_rights_are_those_of_the_file_with_the_names_of_the_installation() {
        let mut installation = well().installation;
        installation.namespace = "platform".to_owned();
        installation.secret = "keys".to_owned();
        installation.owner_role = Some("role".to_owned());
        let told: Vec<_> = needed(&installation).iter().map(ToString::to_string).collect();
        for right in [
            "create events",
            "patch events.events.k8s.io",
            "patch eventpolicies.squelch.dev/status",
            "patch secrets keys in platform",
            "get mutatingwebhookconfigurations.admissionregistration.k8s.io squelch",
            "get clusterroles.rbac.authorization.k8s.io role",
        ] {
            assert!(told.iter().any(|told| told == right), "{right} is not in {told:#?}");
        }
        assert!(!told.iter().any(|told| told.ends_with("rbac.authorization.k8s.io squelch")), "{told:#?}");
        installation.owner_role = None;
        assert!(!needed(&installation).iter().any(|right| right.resource == "clusterroles"));
        // Every rule is read.
        let verbs = RBAC.matches("verbs:").count();
        assert!(verbs > 5 && told.len() > verbs);
    }

    #[test]
    fn a_right_that_is_missing_is_named() {
        let mut seen = well();
        assert_eq!(findings(&seen)[0].level, Level::Ok);
        let Ok(rights) = &mut seen.rights else { panic!("they were seen") };
        rights[0].1 = false;
        let named = rights[0].0.to_string();
        let found = findings(&seen).remove(0);
        assert!(found.level == Level::Error && found.why.contains(&named), "{}", found.why);
    }
}
