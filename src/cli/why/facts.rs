//! What `squelch why` has read, and the flags of its user. Pure.

use kube::core::DynamicObject;
use serde::Serialize;
use squelch_engine::sanitise;

use super::object::WhyObject;
use super::stored::ListedEvent;
use crate::api::{DropReport, EventType};
use crate::policy::{KnownFields, Labels};

/// Why a part of the cluster was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unread {
    /// The user may not read it.
    Forbidden,
    /// Its CustomResourceDefinition is not installed.
    NotInstalled,
}

/// A part of the cluster.
pub(super) type Part<T> = Result<T, Unread>;

/// Objects of a list.
#[derive(Clone, Debug)]
pub(super) struct ReadItems<T> {
    /// The objects.
    pub items: Vec<T>,
    /// Whether these are all objects.
    pub complete: bool,
}

/// What the user assumes about the Events.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Assumptions {
    /// Reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Type.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub event_type: Option<EventType>,
    /// Reporting component.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub component: Option<String>,
    /// User who writes them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}

/// Everything that the answer depends on.
#[derive(Clone, Debug)]
pub(super) struct WhyFacts {
    /// The object.
    pub object: WhyObject,
    /// The assumptions.
    pub assumed: Assumptions,
    /// Whether API discovery was read.
    pub discovery: Part<()>,
    /// Stored Events about objects of this name.
    pub events: Part<ReadItems<ListedEvent>>,
    /// EventPolicies of the namespace.
    pub event_policies: Part<ReadItems<DynamicObject>>,
    /// ClusterEventPolicies.
    pub cluster_policies: Part<ReadItems<DynamicObject>>,
    /// Labels of the namespace.
    pub labels: Part<Labels>,
    /// The report of the namespace, if it has one.
    pub report: Part<Option<DropReport>>,
}

impl WhyFacts {
    /// Whether the definitions of the policies are missing.
    pub(super) fn not_installed(&self) -> bool {
        self.event_policies.as_ref().err() == Some(&Unread::NotInstalled)
    }

    /// The known fields of a write about the object.
    pub(super) fn known(&self) -> KnownFields<'_> {
        KnownFields {
            event_type: self.assumed.event_type,
            reason: self.assumed.reason.as_deref(),
            component: self.assumed.component.as_deref(),
            kind: self.object.is_kind.then_some(&*self.object.kind),
            api_group: self.object.api_group.as_deref(),
            name: Some(&self.object.name),
            user: self.assumed.user.as_deref(),
        }
    }

    /// Whether the only right that is missing is to list the policies of the cluster.
    pub(super) fn lacks_only_cluster_policies(&self) -> bool {
        self.cluster_policies.as_ref().err() == Some(&Unread::Forbidden) && self.missing().len() == 1
    }

    /// The rights that the user lacks, and what is missing because of that.
    pub(super) fn missing(&self) -> Vec<String> {
        let namespace = printable(&self.object.namespace);
        let rights = [
            (self.discovery.as_ref().err(), "get /apis".to_owned(), "the kind is compared as it was written"),
            (
                self.events.as_ref().err(),
                format!("list events in namespace {namespace}"),
                "stored Events are not shown",
            ),
            (
                self.event_policies.as_ref().err(),
                format!("list eventpolicies.squelch.dev in namespace {namespace}"),
                "the policies of the namespace are not considered",
            ),
            (
                self.cluster_policies.as_ref().err(),
                "list clustereventpolicies.squelch.dev".to_owned(),
                "one with precedence Override governs before the policies of the namespace, others govern after them",
            ),
            (
                self.labels.as_ref().err(),
                format!("get namespaces in namespace {namespace}"),
                "its labels are unknown, so that it is not known which namespaceSelectors select it",
            ),
            (
                self.report.as_ref().err(),
                format!("get eventdropreports.squelch.dev in namespace {namespace}"),
                "what was suppressed is not shown",
            ),
        ];
        let forbidden = rights.into_iter().filter(|(unread, ..)| *unread == Some(&Unread::Forbidden));
        forbidden.map(|(_, right, consequence)| format!("you may not {right}: {consequence}")).collect()
    }
}

/// Makes a text of a tenant safe for one line: without control characters, and of at most 200 characters.
pub(super) fn printable(text: &str) -> String {
    text.chars().map(sanitise).take(200).collect()
}
