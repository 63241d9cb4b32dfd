//! The storm: who reports what, how often.

use e2e::Emission;

/// One emitter process.
pub(crate) struct Source {
    /// What it stands for.
    pub(crate) title: &'static str,
    /// What it reports through.
    pub(crate) recorder: &'static str,
    /// The reason of its Events, which no other source has.
    pub(crate) reason: &'static str,
    /// It tells the API server of every occurrence at once. client-go's new recorder does not.
    pub(crate) tells_all: bool,
    emission: fn() -> Emission,
    objects: usize,
    each: i64,
    per_second: u32,
    flags: &'static [(&'static str, &'static str)],
}

/// Each takes 20 s. (One process of the legacy recorder manages about 360 calls a second.)
pub(crate) const SOURCES: [Source; 4] = [
    Source {
        title: "kubelet: BackOff of 20 crash-looping pods",
        recorder: "client-go, legacy",
        reason: "BackOff",
        tells_all: true,
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
        tells_all: true,
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
        title: "hot loop of a controller, 10 Deployments",
        recorder: "client-go, new",
        reason: "RolloutFailed",
        tells_all: false,
        emission: Emission::new_style,
        objects: 10,
        each: 80,
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
        tells_all: true,
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
    /// Occurrences of all its objects together.
    pub(crate) fn occurrences(&self) -> i64 {
        self.each * self.objects as i64
    }

    /// What its process is to do.
    pub(crate) fn emission(&self) -> Emission {
        let emission = (self.emission)()
            .count(self.each)
            .rate(self.per_second)
            .reason(self.reason)
            .with("--objects", &self.objects.to_string());
        self.flags.iter().fold(emission, |emission, (flag, value)| emission.with(flag, value))
    }
}
