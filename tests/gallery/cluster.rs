//! A random cluster: its objects, the components that report Events, and the Events.

use crate::clients::{Emitter, Millis, Object, Occurrence, Recorder};

/// Deterministic pseudo-random numbers (splitmix64).
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// Letters as in the suffix of a pod's name.
    pub(crate) fn letters(&mut self) -> String {
        const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        (0..5).map(|_| char::from(ALPHABET[self.below(27) as usize])).collect()
    }

    pub(crate) fn uid(&mut self) -> String {
        format!("5f0c2d1e-77aa-4b6e-9c1d-{:012x}", self.next() >> 16)
    }

    pub(crate) fn pod(&mut self, namespace: &str, owner: &str) -> Object {
        let name = format!("{owner}-{}", self.letters());
        object("v1", "Pod", namespace, &name, &self.uid())
    }
}

pub(crate) fn object(
    api_version: &'static str,
    kind: &'static str,
    namespace: &str,
    name: &str,
    uid: &str,
) -> Object {
    Object {
        api_version,
        kind,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        uid: uid.to_owned(),
        field_path: String::new(),
    }
}

pub(crate) fn container(pod: &Object, name: &str) -> Object {
    Object { field_path: format!("spec.containers{{{name}}}"), ..pod.clone() }
}

pub(crate) fn kubelet(node: u64) -> Emitter {
    let node = format!("node-{node:03}");
    Emitter {
        recorder: Recorder::Legacy,
        user: format!("system:node:{node}"),
        component: "kubelet".to_owned(),
        instance: node,
    }
}

pub(crate) fn controller(component: &str) -> Emitter {
    Emitter {
        recorder: Recorder::Legacy,
        user: format!("system:serviceaccount:kube-system:{component}"),
        component: component.to_owned(),
        instance: String::new(),
    }
}

pub(crate) fn scheduler() -> Emitter {
    Emitter {
        recorder: Recorder::New,
        user: "system:kube-scheduler".to_owned(),
        component: "default-scheduler".to_owned(),
        instance: "default-scheduler-control-plane-1".to_owned(),
    }
}

pub(crate) fn occurrence(
    at: Millis,
    by: &Emitter,
    about: &Object,
    event_type: &'static str,
    reason: &'static str,
    message: impl Into<String>,
) -> Occurrence {
    let action = if reason == "Scheduled" { "Binding" } else { "Scheduling" };
    Occurrence {
        at,
        by: by.clone(),
        about: about.clone(),
        event_type,
        reason,
        action,
        message: message.into(),
    }
}

/// A starting container: pulled, created, started.
pub(crate) fn start(at: Millis, node: &Emitter, container: &Object, image: &str) -> Vec<Occurrence> {
    let pulled =
        format!("Container image {image:?} already present on machine and can be accessed by the pod");
    vec![
        occurrence(at, node, container, "Normal", "Pulled", pulled),
        occurrence(at + 60, node, container, "Normal", "Created", "Container created"),
        occurrence(at + 140, node, container, "Normal", "Started", "Container started"),
    ]
}
