//! The storm: repeats of one message, similar messages, and a series of the new API.

use std::fmt;
use std::time::Duration;

use anyhow::Result;
use e2e::{Emission, Test};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{ObjectMeta, PostParams};

/// Occurrences about each object.
pub(crate) const OCCURRENCES: i64 = 45;

/// Deadline of an emitter, which takes 5 to 20 s on an idle machine.
const EMISSION: Duration = Duration::from_secs(240);

/// What is reported about an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Object {
    /// One message, through `v1`.
    Repeats,
    /// A new message each time, through `v1`.
    Similar,
    /// One message, through `events.k8s.io`.
    NewApi,
}

impl Object {
    /// All of them.
    pub(crate) const ALL: [Self; 3] = [Self::Repeats, Self::Similar, Self::NewApi];

    /// The name prefix of the object.
    fn prefix(self) -> &'static str {
        match self {
            Self::Repeats => "repeats",
            Self::Similar => "similar",
            Self::NewApi => "new-api",
        }
    }

    /// The object's name.
    pub(crate) fn name(self) -> String {
        format!("{}-0", self.prefix())
    }

    fn emission(self) -> Emission {
        match self {
            Self::Repeats => Emission::legacy().rate(10),
            Self::Similar => Emission::creates_core().rate(10).with("--messages", "distinct"),
            // Its last PATCH comes when its series ends.
            Self::NewApi => Emission::new_style_fast().rate(10).in_turn().linger(Duration::from_secs(10)),
        }
    }
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Repeats => "repeats through `v1`",
            Self::Similar => "similar messages through `v1`",
            Self::NewApi => "repeats through `events.k8s.io`",
        })
    }
}

/// Runs the storm to its end.
pub(crate) async fn run(test: &Test) -> Result<()> {
    let maps: Api<ConfigMap> = Api::namespaced(test.client(), &test.namespace);
    let mut emitters = Vec::new();
    for object in Object::ALL {
        let metadata = ObjectMeta { name: Some(object.name()), ..ObjectMeta::default() };
        let made =
            maps.create(&PostParams::default(), &ConfigMap { metadata, ..ConfigMap::default() }).await?;
        let emission = object.emission().about(object.prefix(), 1).count(OCCURRENCES);
        let uid = made.metadata.uid.unwrap_or_default();
        emitters.push(test.emit(&emission.with("--kind", "ConfigMap").with("--uid", &uid))?);
    }
    for emitter in emitters {
        emitter.finish(EMISSION).await?;
    }
    Ok(())
}
