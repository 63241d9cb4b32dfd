//! The storm of the demo.

pub mod churn;

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use futures::future::try_join_all;

use crate::Emission;
use crate::emitters::{Report, RunningEmitter};

/// One emitter process.
pub struct Source {
    /// The simulated source.
    pub title: &'static str,
    /// The recorder.
    pub recorder: &'static str,
    /// The reason of its Events, unique among the sources.
    pub reason: &'static str,
    /// Whether its recorder reports every occurrence at once. client-go's new recorder does not.
    pub reports_every_occurrence: bool,
    emission: fn() -> Emission,
    objects: usize,
    each: i64,
    per_second: u32,
    flags: &'static [(&'static str, &'static str)],
}

/// Each takes 20 s. One process of the legacy recorder makes about 360 calls per second. The new recorder does not
/// wait for the answer to a CREATE before the PATCH: half a second between occurrences keeps them in order.
pub const SOURCES: [Source; 4] = [
    Source {
        title: "kubelet: BackOff of 20 crash-looping pods",
        recorder: "client-go, legacy",
        reason: "BackOff",
        reports_every_occurrence: true,
        emission: Emission::legacy,
        objects: 20,
        each: 200,
        per_second: 200,
        flags: &[
            ("--component", "kubelet"),
            ("--instance", "node-1"),
            ("--name-prefix", "web"),
            ("--field-path", "spec.containers{app}"),
            ("--message", "Back-off restarting failed container app in pod web"),
        ],
    },
    Source {
        title: "kubelet: Unhealthy of the same 20 pods",
        recorder: "client-go, legacy",
        reason: "Unhealthy",
        reports_every_occurrence: true,
        emission: Emission::legacy,
        objects: 20,
        each: 200,
        per_second: 200,
        flags: &[
            ("--component", "kubelet"),
            ("--instance", "node-1"),
            ("--name-prefix", "web"),
            ("--field-path", "spec.containers{app}"),
            ("--message", "Readiness probe failed: HTTP probe failed with statuscode: 503"),
        ],
    },
    Source {
        title: "hot loop of a controller, 20 Deployments",
        recorder: "client-go, new",
        reason: "RolloutFailed",
        reports_every_occurrence: false,
        emission: Emission::new_style,
        objects: 20,
        each: 40,
        per_second: 40,
        flags: &[
            ("--component", "rollouts.example.com"),
            ("--instance", "rollouts-7d4b9"),
            ("--kind", "Deployment"),
            ("--api-version", "apps/v1"),
            ("--name-prefix", "shop"),
            ("--action", "Reconciling"),
            ("--message", "cannot scale: quota exceeded"),
        ],
    },
    Source {
        title: "hot loop of a controller, 1 ConfigMap",
        recorder: "kube-rs",
        reason: "SyncFailed",
        reports_every_occurrence: true,
        emission: Emission::kube,
        objects: 1,
        each: 1000,
        per_second: 50,
        flags: &[
            ("--component", "sync.example.com"),
            ("--instance", "sync-0"),
            ("--kind", "ConfigMap"),
            ("--name-prefix", "settings"),
            ("--action", "Syncing"),
            ("--message", "upstream answered 502, trying again"),
        ],
    },
];

impl Source {
    /// Occurrences of all its objects.
    pub fn occurrences(&self) -> i64 {
        self.each * self.objects as i64
    }

    /// The emitter of a storm of `length` times 20 s.
    fn emission(&self, length: u32) -> Emission {
        let emission = (self.emission)()
            .count(self.each * i64::from(length))
            .rate(self.per_second)
            .reason(self.reason)
            .with("--objects", &self.objects.to_string());
        self.flags.iter().fold(emission, |emission, (flag, value)| emission.with(flag, value))
    }
}

/// All sources at once.
pub struct Storm {
    emitting: Vec<RunningEmitter>,
}

impl Storm {
    /// Starts it in this namespace, for `length` times 20 s. The emitters' files go to `folder`.
    ///
    /// # Errors
    /// If an emitter cannot be started.
    pub fn start(emitter: &Path, namespace: &str, folder: &Path, length: u32) -> Result<Self> {
        let emitting = SOURCES.iter().map(|source| {
            let name = format!("{namespace}-{}", source.reason);
            source.emission(length).start(&name, emitter, namespace, folder)
        });
        Ok(Self { emitting: emitting.collect::<Result<_>>()? })
    }

    /// Waits until each emitter has all answers; returns their reports in the order of [`SOURCES`].
    ///
    /// # Errors
    /// If the deadline passes, or an emitter fails.
    pub async fn finish(self, deadline: Duration) -> Result<Vec<Report>> {
        try_join_all(self.emitting.into_iter().map(|emitter| emitter.finish(deadline))).await
    }
}
