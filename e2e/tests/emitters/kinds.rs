//! The emitters.

use std::time::Duration;

use anyhow::Result;
use e2e::oracle::Counting;
use e2e::other_emitters::{OtherEmitter, OtherReport};
use e2e::{Emission, Test};

use crate::cases::{Case, OCCURRENCES};

/// An emitter and its way of counting.
pub(crate) struct Kind {
    /// Its name in the table.
    pub(crate) name: &'static str,
    /// How its writes count.
    pub(crate) counting: Counting,
    program: Program,
}

enum Program {
    /// A library of another language or framework.
    Other(OtherEmitter),
    /// A recorder that the other end-to-end tests use as well.
    Recorder(Emission),
}

/// `v1` has whole seconds, and squelch distinguishes the increments of one Event by their times.
const SLOW: (&str, &str) = ("--interval", "1100");

/// All emitters, in the order of the table.
pub(crate) fn all() -> Vec<Kind> {
    let recorder =
        |name, emission| Kind { name, counting: Counting::Own, program: Program::Recorder(emission) };
    let other = |name, counting, program: &'static str, flags: &[(&str, &str)]| {
        let emitter = OtherEmitter::named(program);
        let emitter = flags.iter().fold(emitter, |emitter, (flag, value)| emitter.with(flag, value));
        Kind { name, counting, program: Program::Other(emitter) }
    };
    let write = |kind: &'static str| ("--write", kind);
    let (own, each, increments) = (Counting::Own, Counting::EventEach, Counting::Increments);
    vec![
        recorder("client-go, `tools/record`", Emission::legacy()),
        recorder(
            "client-go, `tools/events`",
            Emission::new_style_fast().in_turn().linger(Duration::from_secs(8)),
        ),
        recorder("kube-rs, `Recorder`", Emission::kube()),
        other("controller-runtime, `GetEventRecorder`", own, "controller-runtime", &[]),
        other("Flux, `runtime/events`", own, "flux", &[]),
        other("Argo CD, audit logger", each, "argo-cd", &[]),
        other("kwok, `Stage`", own, "kwok", &[]),
        other("kopf, `kopf.event`", each, "kopf", &[]),
        other("Python client, read and replace", increments, "python-client", &[write("replace"), SLOW]),
        other("Python client, read and patch", increments, "python-client", &[write("patch"), SLOW]),
        other("Python client, create", each, "python-client", &[write("create")]),
        other("JavaScript client, create", each, "javascript-client", &[write("create")]),
        other(
            "JavaScript client, read and replace",
            increments,
            "javascript-client",
            &[write("replace"), SLOW],
        ),
        other(
            "JavaScript client, read and replace in `events.k8s.io`",
            increments,
            "javascript-client",
            &[write("replace"), ("--api", "events")],
        ),
        other("fabric8, `edit`", increments, "fabric8", &[write("edit"), SLOW]),
        other("fabric8, `createOrReplace`", increments, "fabric8", &[write("replace"), SLOW]),
        other("fabric8, `serverSideApply`", own, "fabric8", &[write("apply")]),
        other("fabric8, `create`", each, "fabric8", &[write("create")]),
        other("Java operator SDK, `client.patch`", increments, "java-operator-sdk", &[write("patch"), SLOW]),
    ]
}

impl Kind {
    /// Runs it in the namespace of `test`.
    pub(crate) async fn emit(
        &self,
        test: &Test,
        case: Case,
        uid: &str,
        deadline: Duration,
    ) -> Result<OtherReport> {
        // kopf repeats each refused write for 54 s, one after the other.
        let retries_refusals = case == Case::Forbidden && self.name.starts_with("kopf");
        let count = if retries_refusals { 2 } else { OCCURRENCES };
        // An UPDATE through events.k8s.io cannot change the message.
        let messages = if self.name.contains("events.k8s.io") { "identical" } else { case.messages() };
        let count = count.to_string();
        match &self.program {
            Program::Other(emitter) => {
                let emitter = emitter.clone().with("--count", &count).with("--messages", messages);
                test.emit_other(&emitter, ("cart", uid))?.finish(deadline).await
            }
            Program::Recorder(emission) => {
                let emission = emission.clone().about("cart", 1).count(OCCURRENCES).rate(5);
                let report = test.emit(&emission.with("--messages", messages))?.finish(deadline).await?;
                let summary = report.summary.as_ref();
                Ok(OtherReport {
                    emitter: summary.map(|summary| summary.emitter.clone()).unwrap_or_default(),
                    occurrences: summary.map_or(0, |summary| summary.occurrences),
                    // kube's `publish` returns its errors, and logs nothing.
                    errors: Vec::new(),
                    log: report
                        .logs
                        .iter()
                        .map(|log| format!("{}: {}: {}", log.level, log.message, log.error))
                        .collect(),
                })
            }
        }
    }
}
