//! Dependencies point one way, and pure modules do no I/O, read no clock and log nothing: [`ROWS`] lists the allowed
//! dependencies, and every file of `src/` and of the engine has a row.

#![expect(clippy::unwrap_used, reason = "a test, also in the functions around it")]

#[path = "purity/names.rs"]
mod names;

use std::fmt;
use std::fs;
use std::path::Path;

use names::{Named, names};

/// The allowed dependencies of some files.
struct Row {
    /// Folders, which end with a slash, and files. The first matching row applies.
    files: &'static [&'static str],
    knows: Knows,
    /// Modules of squelch, by path prefix; those of the engine begin with the name of its crate.
    modules: &'static [&'static str],
    crates: Crates,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Knows {
    /// Pure: of std only [`PURE_STD`], no clock, no printing.
    Arguments,
    /// All of std.
    TheWorld,
}

enum Crates {
    Only(&'static [&'static str]),
    AllBut(&'static [&'static str]),
}

/// Errors have their own types; `anyhow` is for `main` and `app`.
const NO_ANYHOW: Crates = Crates::AllBut(&["anyhow"]);
/// Same, for modules that must not depend on Kubernetes.
const NO_KUBERNETES: Crates = Crates::AllBut(&["anyhow", "k8s_openapi", "kube"]);

/// In the order of their dependencies.
const ROWS: &[Row] = &[
    // The API of users.
    Row { files: &["src/api/"], knows: Knows::TheWorld, modules: &["api"], crates: NO_ANYHOW },
    // The engine decides by its arguments only. Cargo keeps Kubernetes, tokio and the rest of squelch out of this
    // crate, but not std.
    Row {
        files: &["crates/engine/src/"],
        knows: Knows::Arguments,
        modules: &[""],
        crates: Crates::AllBut(&[]),
    },
    // Compiles a spec for the engine, and selects the governing policy.
    Row {
        files: &["src/policy/glob.rs", "src/policy/compile/", "src/policy/order.rs", "src/policy/set.rs"],
        knows: Knows::Arguments,
        modules: &[
            "api",
            "squelch_engine",
            "policy::compile",
            "policy::glob",
            "policy::order",
            "policy::set",
        ],
        crates: Crates::Only(&["jiff", "thiserror", "wide"]),
    },
    Row {
        files: &["src/policy/"],
        knows: Knows::TheWorld,
        modules: &["api", "squelch_engine", "policy"],
        crates: NO_ANYHOW,
    },
    // The only module that reads clocks.
    Row {
        files: &["src/clock.rs"],
        knows: Knows::TheWorld,
        modules: &["squelch_engine"],
        crates: NO_KUBERNETES,
    },
    Row {
        files: &["src/metrics/"],
        knows: Knows::TheWorld,
        modules: &["clock", "squelch_engine", "metrics"],
        crates: NO_KUBERNETES,
    },
    // Limits of connections, and which of them are closed for new ones.
    Row { files: &["src/descriptors.rs"], knows: Knows::TheWorld, modules: &[], crates: NO_KUBERNETES },
    Row {
        files: &["src/accept.rs"],
        knows: Knows::TheWorld,
        modules: &["clock", "descriptors", "log_limit"],
        crates: NO_KUBERNETES,
    },
    Row {
        files: &["src/log_limit.rs"],
        knows: Knows::Arguments,
        modules: &["squelch_engine::Moment"],
        crates: Crates::Only(&[]),
    },
    // Schedules of keys.
    Row {
        files: &["src/tls/rotation.rs"],
        knows: Knows::Arguments,
        modules: &["tls::rotation"],
        crates: Crates::Only(&["jiff"]),
    },
    Row { files: &["src/tls/"], knows: Knows::TheWorld, modules: &["tls"], crates: NO_KUBERNETES },
    // Until when a replica is active: the webhook checks it.
    Row {
        files: &["src/leader/lease_deadline.rs"],
        knows: Knows::TheWorld,
        modules: &["clock", "squelch_engine::Moment"],
        crates: NO_KUBERNETES,
    },
    // From bytes to an observation, from a verdict to bytes. (std::io is for the Write of a Vec.)
    Row {
        files: &["src/webhook/review/", "src/webhook/patch.rs", "src/webhook/response.rs"],
        knows: Knows::Arguments,
        modules: &["squelch_engine", "webhook::patch", "webhook::response", "webhook::review"],
        crates: Crates::Only(&[
            "base64",
            "bytes",
            "jiff",
            "memchr",
            "serde_json",
            "simdutf8",
            "thiserror",
            "wide",
        ]),
    },
    Row {
        files: &["src/webhook/"],
        knows: Knows::TheWorld,
        modules: &[
            "PROBE_ANNOTATION",
            "PROBE_SIGNATURE_ANNOTATION",
            "PROBE_PATH",
            "accept",
            "clock",
            "squelch_engine",
            "leader::LeaseDeadline",
            "log_limit",
            "metrics",
            "policy",
            "tls",
            "webhook",
        ],
        crates: NO_KUBERNETES,
    },
    // The Events that a flush reads and writes.
    Row {
        files: &["src/flush/event.rs", "src/flush/stored.rs", "src/flush/valid.rs"],
        knows: Knows::Arguments,
        modules: &["squelch_engine", "flush::stored", "flush::valid"],
        crates: Crates::Only(&["jiff", "serde", "serde_json"]),
    },
    // The validation of the API server.
    Row {
        files: &["src/flush/checks.rs"],
        knows: Knows::Arguments,
        modules: &[],
        crates: Crates::Only(&["k8s_openapi", "serde_json"]),
    },
    // Meaning of the API server's answers, and pauses.
    Row {
        files: &["src/flush/pause.rs", "src/flush/refusal.rs"],
        knows: Knows::Arguments,
        modules: &["squelch_engine", "metrics::FlushResult"],
        crates: Crates::Only(&["serde", "serde_json"]),
    },
    Row {
        files: &["src/flush/"],
        knows: Knows::TheWorld,
        modules: &["FIELD_MANAGER", "clock", "squelch_engine", "flush", "metrics"],
        crates: NO_ANYHOW,
    },
    // Writes squelch's own Events.
    Row { files: &["src/announcer.rs"], knows: Knows::TheWorld, modules: &[], crates: NO_ANYHOW },
    // Leader election, by what was read of the Lease.
    Row {
        files: &["src/leader/election.rs"],
        knows: Knows::Arguments,
        modules: &["squelch_engine::Moment"],
        crates: Crates::Only(&[]),
    },
    Row {
        files: &["src/leader/"],
        knows: Knows::TheWorld,
        modules: &["FIELD_MANAGER", "announcer", "clock", "squelch_engine", "leader", "metrics"],
        crates: NO_ANYHOW,
    },
    // Contents and schedule of a status, and its changes.
    Row {
        files: &["src/status/desired.rs", "src/status/dropped.rs", "src/status/plan.rs"],
        knows: Knows::Arguments,
        modules: &[
            "api",
            "squelch_engine",
            "policy::ExceededLimit",
            "policy::Compiled",
            "policy::Effect",
            "policy::Invalid",
            "policy::Limit",
            "policy::MAX_LABELS",
            "policy::MAX_POLICIES",
            "policy::Policy",
            "policy::Set",
            "status::desired",
            "status::dropped",
            "status::transitions",
            "status::plan",
        ],
        crates: Crates::Only(&["jiff", "k8s_openapi"]),
    },
    Row {
        files: &["src/status/"],
        knows: Knows::TheWorld,
        modules: &["FIELD_MANAGER", "announcer", "api", "clock", "squelch_engine", "policy", "status"],
        crates: NO_ANYHOW,
    },
    // The desired webhook configuration, and what probes show.
    Row {
        files: &[
            "src/arming/client_config.rs",
            "src/arming/conditions.rs",
            "src/arming/configuration.rs",
            "src/arming/probe/reachability.rs",
            "src/arming/state.rs",
            "src/arming/write_limiter.rs",
        ],
        knows: Knows::Arguments,
        modules: &[
            "FIELD_MANAGER",
            "PROBE_PATH",
            "arming::client_config",
            "arming::conditions",
            "arming::configuration",
            "squelch_engine::Moment",
            "squelch_engine::sanitise",
            "metrics::ProbeResult",
        ],
        crates: Crates::Only(&["base64", "serde_json"]),
    },
    Row {
        files: &["src/arming/"],
        knows: Knows::TheWorld,
        modules: &[
            "FIELD_MANAGER",
            "PROBE_ANNOTATION",
            "PROBE_SIGNATURE_ANNOTATION",
            "announcer",
            "arming",
            "clock",
            "squelch_engine::Moment",
            "squelch_engine::sanitise",
            "descriptors",
            "metrics",
            "tls",
        ],
        crates: NO_ANYHOW,
    },
    // Keeps the Secret, the served certificate and the accepted tokens.
    Row {
        files: &["src/keys/"],
        knows: Knows::TheWorld,
        modules: &[
            "FIELD_MANAGER",
            "arming::Address",
            "arming::ClientConfig",
            "arming::Desired",
            "clock",
            "keys",
            "metrics",
            "squelch_engine::Moment",
            "tls",
            "webhook::path",
        ],
        crates: NO_ANYHOW,
    },
    Row { files: &["src/telemetry.rs"], knows: Knows::TheWorld, modules: &[], crates: NO_KUBERNETES },
    Row {
        files: &["src/admin/"],
        knows: Knows::TheWorld,
        modules: &["accept", "admin", "clock", "squelch_engine::Moment", "metrics"],
        crates: NO_KUBERNETES,
    },
    Row {
        files: &["src/config.rs", "src/config/"],
        knows: Knows::TheWorld,
        modules: &["SECRET", "api", "output", "replay", "telemetry"],
        crates: NO_KUBERNETES,
    },
    Row {
        files: &["src/output.rs"],
        knows: Knows::Arguments,
        modules: &[],
        crates: Crates::Only(&["clap", "serde", "serde_json", "serde_saphyr", "thiserror"]),
    },
    // The counts, the report and the simulated time of a replay.
    Row {
        files: &[
            "src/replay/etcd.rs",
            "src/replay/notes.rs",
            "src/replay/flusher.rs",
            "src/replay/report.rs",
            "src/replay/table.rs",
            "src/replay/tally.rs",
            "src/replay/text.rs",
            "src/replay/input/last_seen.rs",
            "src/replay/input/detect.rs",
            "src/replay/input/time.rs",
            "src/replay/input/expand.rs",
        ],
        knows: Knows::Arguments,
        modules: &[
            "squelch_engine",
            "replay::simulation::Finished",
            "replay::etcd",
            "replay::input::Format",
            "replay::input::LeftOut",
            "replay::input::InputStats",
            "replay::name",
            "replay::notes",
            "replay::options",
            "replay::flusher",
            "replay::report",
            "replay::tally",
            "replay::text",
        ],
        crates: Crates::Only(&["hashbrown", "jiff", "serde", "serde_json", "siphasher"]),
    },
    Row {
        files: &["src/replay/"],
        knows: Knows::TheWorld,
        modules: &["api", "output", "squelch_engine", "policy", "replay", "webhook::review"],
        crates: NO_ANYHOW,
    },
    // The checks of a snapshot.
    Row {
        files: &[
            "src/doctor/apiserver.rs",
            "src/doctor/configuration.rs",
            "src/doctor/definitions.rs",
            "src/doctor/finding.rs",
            "src/doctor/keys.rs",
            "src/doctor/policies.rs",
            "src/doctor/replicas.rs",
            "src/doctor/rights.rs",
            "src/doctor/snapshot.rs",
            "src/doctor/watches.rs",
        ],
        knows: Knows::Arguments,
        modules: &[
            "OLDEST_KUBERNETES",
            "PROBE_PATH",
            "SECRET",
            "api",
            "arming::CONFIGURATION",
            "arming::DISARM_ANNOTATION",
            "arming::EVENTS_ENTRY",
            "arming::PROBE_ENTRY",
            "doctor",
            "metrics::WatchedResource",
            "metrics::table",
            "tls::Validity",
            "tls::certificates",
            "tls::encoding",
            "tls::rotation",
            "webhook::path",
        ],
        crates: Crates::Only(&["jiff", "k8s_openapi", "serde", "serde_json", "serde_saphyr"]),
    },
    Row {
        files: &["src/doctor/"],
        knows: Knows::TheWorld,
        modules: &["PROBE_PATH", "api", "arming", "clock", "doctor", "leader::LEASE_NAME", "metrics", "tls"],
        crates: NO_ANYHOW,
    },
    // Wires everything together; only main depends on it.
    Row {
        files: &["src/app/", "src/lib.rs", "src/main.rs"],
        knows: Knows::TheWorld,
        modules: &[""],
        crates: Crates::AllBut(&[]),
    },
];

/// Parts of std that compute and allocate. Of `io` the traits of Vec.
const PURE_STD: &[&str] = &[
    "any",
    "array",
    "ascii",
    "borrow",
    "cell",
    "char",
    "cmp",
    "collections",
    "convert",
    "error",
    "fmt",
    "hash",
    "hint::black_box",
    "io::Result",
    "io::Write",
    "iter",
    "marker",
    "mem",
    "num",
    "ops",
    "option",
    "result",
    "slice",
    "str",
    "string",
    "sync",
    "time::Duration",
    "vec",
];

impl Row {
    fn of(file: &str) -> Option<&'static Self> {
        ROWS.iter().find(|row| {
            row.files.iter().any(|its| file == *its || (its.ends_with('/') && file.starts_with(its)))
        })
    }

    /// Returns the reason why a name is forbidden.
    fn objection(&self, target: &Target) -> Option<String> {
        let pure = self.knows == Knows::Arguments;
        match target {
            Target::Clock if pure => Some("a pure module reads no clock: time is an argument".to_owned()),
            Target::Printing if pure => Some("a pure module prints nothing".to_owned()),
            Target::Std(path) if pure && !begins_with_one_of(path, PURE_STD) => {
                Some(format!("a pure module does no I/O and reads no clock; of std it may use {PURE_STD:?}"))
            }
            Target::Module(path) if !begins_with_one_of(path, self.modules) => {
                Some(format!("its allowed modules are {:?}", self.modules))
            }
            Target::Crate(name) => match self.crates {
                Crates::Only(may) if !may.contains(&name.as_str()) => {
                    Some(format!("a pure module; its allowed crates are {may:?}"))
                }
                Crates::AllBut(may_not) if may_not.contains(&name.as_str()) => {
                    Some(format!("its forbidden crates are {may_not:?}"))
                }
                _ => None,
            },
            _ => None,
        }
    }
}

/// The crate of the engine; rows list its allowed types.
const ENGINE: &str = "squelch_engine";

/// The target of a path.
enum Target {
    /// A module of squelch, from its root.
    Module(String),
    /// A path in std, core or alloc.
    Std(String),
    /// A dependency.
    Crate(String),
    /// `...::now`.
    Clock,
    /// `println!` and similar macros.
    Printing,
    /// An item that the file declares or imports.
    Local,
}

impl Target {
    fn of(named: &Named, file: &str, dependencies: &[String]) -> Self {
        let path: Vec<&str> = named.path.iter().map(String::as_str).collect();
        let here = || [module_of(file), named.inside.clone()].concat();
        match path[..] {
            ["crate", ref rest @ ..] => Self::Module(rest.join("::")),
            ["self" | "super", ..] => {
                let mut module = here();
                let ups = path.iter().filter(|segment| **segment == "super").count();
                module.truncate(module.len().saturating_sub(ups));
                let rest = path.iter().filter(|segment| !["self", "super"].contains(*segment));
                module.extend(rest.map(|segment| (*segment).to_owned()));
                Self::Module(module.join("::"))
            }
            ["std" | "core" | "alloc", ref rest @ ..] => Self::Std(rest.join("::")),
            [_, .., "now"] => Self::Clock,
            [ENGINE, ..] => Self::Module(path.join("::")),
            [first, ..] if dependencies.iter().any(|name| name == first) => Self::Crate(first.to_owned()),
            [only] if only.ends_with('!') => Self::Printing,
            _ => Self::Local,
        }
    }
}

/// A forbidden name.
struct Broken {
    file: String,
    line: usize,
    name: String,
    rule: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{} names {}: {}", self.file, self.line, self.name, self.rule)
    }
}

/// The forbidden names of a file, or the lack of a row.
fn broken(file: &str, source: &str, dependencies: &[String]) -> Vec<Broken> {
    let Some(row) = Row::of(file) else {
        let rule = "no row in tests/purity.rs".to_owned();
        return vec![Broken { file: file.to_owned(), line: 1, name: "something".to_owned(), rule }];
    };
    let objections = names(source).paths.into_iter().filter_map(|named| {
        let rule = row.objection(&Target::of(&named, file, dependencies))?;
        Some(Broken { file: file.to_owned(), line: named.line, name: named.path.join("::"), rule })
    });
    objections.collect()
}

fn begins_with_one_of(path: &str, beginnings: &[&str]) -> bool {
    beginnings.iter().any(|beginning| {
        let rest = path.strip_prefix(beginning);
        rest.is_some_and(|rest| beginning.is_empty() || rest.is_empty() || rest.starts_with("::"))
    })
}

/// `src/policy/set.rs` is `policy::set`, `src/policy/mod.rs` is `policy`.
fn module_of(file: &str) -> Vec<String> {
    let (root, path) = match file.strip_prefix("crates/engine/src/") {
        Some(path) => (ENGINE, path),
        None => ("", file.trim_start_matches("src/")),
    };
    let path = format!("{root}/{}", path.trim_end_matches(".rs").trim_end_matches("mod"));
    let segments = path.split('/').filter(|segment| !["", "lib", "main"].contains(segment));
    segments.map(ToOwned::to_owned).collect()
}

/// The sources by path, without tests.
fn sources() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    let mut folders = vec![root.join("src"), root.join("crates/engine/src")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
                files.push((name, fs::read_to_string(path).unwrap()));
            }
        }
    }
    let tests = files.iter().flat_map(|(file, source)| {
        names(source).test_modules.into_iter().map(|name| [module_of(file), vec![name]].concat())
    });
    let tests: Vec<Vec<String>> = tests.collect();
    files.retain(|(file, _)| !tests.iter().any(|test| module_of(file).starts_with(test)));
    files.sort();
    files
}

/// The dependencies of squelch in `Cargo.toml`, as sources spell them.
fn dependencies() -> Vec<String> {
    let manifest = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml")).unwrap();
    let section =
        manifest.split("\n[dependencies]\n").nth(1).and_then(|rest| rest.split("\n[").next()).unwrap();
    let names = section.lines().filter_map(|line| line.split(['.', ' ', '=']).next());
    names.filter(|name| !name.is_empty()).map(|name| name.replace('-', "_")).collect()
}

#[test]
fn no_module_has_a_forbidden_dependency() {
    let dependencies = dependencies();
    let broken: Vec<String> = sources()
        .iter()
        .flat_map(|(file, source)| broken(file, source, &dependencies))
        .map(|broken| broken.to_string())
        .collect();
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}

#[test]
fn every_row_matches_a_source() {
    let sources = sources();
    for row in ROWS {
        for its in row.files {
            let is_it = |file: &str| file == *its || (its.ends_with('/') && file.starts_with(its));
            assert!(
                sources.iter().any(|(file, _)| is_it(file)),
                "{its} does not exist: remove it from its row"
            );
        }
    }
    assert!(dependencies().iter().any(|name| name == "tokio_util"), "Cargo.toml was parsed");
}

/// The lines and names of violations in a sample source of this file.
fn found(file: &str, source: &str) -> Vec<String> {
    let dependencies = ["kube", "tokio", "tracing", "jiff", "anyhow"].map(ToOwned::to_owned);
    broken(file, source, &dependencies)
        .iter()
        .map(|broken| format!("{}:{}", broken.line, broken.name))
        .collect()
}

#[test]
fn a_forbidden_name_is_found_anywhere() {
    let source = r#"
        use std::{sync::Arc, time::{Duration, Instant}};
        use super::super::super::{api::EventPolicy, clock};
        use kube::Api as Whatever;
        use std::time;
        fn pure(now: Moment) -> impl Sized + use<> {
            tokio::spawn(async { tracing::warn!("{}", crate::clock::now()) });
            let _ = (Timestamp::now(), std::fs::read("x"), Duration::from_secs(1));
            vec![println!("x"), ::std::net::TcpStream::connect("x")]
        }
        #[derive(kube::CustomResource)]
        struct S;
        mod inline { use super::super::super::super::webhook; use super::super::stages; }
    "#;
    assert_eq!(
        found("src/policy/compile/made_up.rs", source),
        [
            "2:std::time::Instant",
            "3:super::super::super::clock",
            "4:kube::Api",
            "5:std::time",
            "7:tokio::spawn",
            "7:tracing::warn",
            "7:crate::clock::now",
            "8:Timestamp::now",
            "8:std::fs::read",
            "9:println!",
            "9:std::net::TcpStream::connect",
            "11:kube::CustomResource",
            "13:super::super::super::super::webhook",
        ]
    );
}

#[test]
fn the_engine_reads_no_clock_and_does_no_io() {
    let source = "use crate::state::scope::Scope;\nuse std::time::Instant;\nfn f() { println!(\"x\"); std::fs::read(\"x\"); }";
    assert_eq!(
        found("crates/engine/src/flush/made_up.rs", source),
        ["2:std::time::Instant", "3:println!", "3:std::fs::read"]
    );
}

#[test]
fn a_module_may_depend_on_a_single_engine_type() {
    let source = "use squelch_engine::{Engine, Moment};";
    assert_eq!(found("src/log_limit.rs", source), ["1:squelch_engine::Engine"]);
    assert_eq!(found("src/tls/token.rs", source), ["1:squelch_engine::Engine", "1:squelch_engine::Moment"]);
}

#[test]
fn comments_strings_and_tests_are_ignored() {
    let source = r##"
        //! tokio::spawn, [`kube::Api`]
        /* use tokio::spawn; */
        use super::{Stage, clauses::Clause};
        use squelch_engine::Moment;
        pub use jiff::Timestamp;
        pub(in crate::webhook) struct S;
        const TEXT: &str = r#"use kube::Api;"#;
        #[cfg(test)]
        use {kube::Api, tokio::spawn};
        #[cfg(test)]
        #[path = "x.rs"]
        mod testing;
        #[cfg(test)]
        mod tests {
            use std::time::Instant;
        }
        fn pure<'a>(at: &'a Moment) -> char { '"' }
    "##;
    assert_eq!(found("src/policy/compile/made_up.rs", source), Vec::<String>::new());
    assert_eq!(names(source).test_modules, ["testing"]);
}

#[test]
fn a_sibling_module_is_a_dependency() {
    let source = "use squelch_engine::Engine;\nuse crate::flush::Writer;\nuse super::configuration;\nuse anyhow::Result;";
    assert_eq!(
        found("src/webhook/handler.rs", source),
        ["2:crate::flush::Writer", "4:anyhow::Result"],
        "its own folder is"
    );
    assert_eq!(found("src/app/parts.rs", source), Vec::<String>::new());
    // Re-exports are listed one by one if the module itself is not pure.
    let source = "use crate::policy::{Set, Store};";
    assert_eq!(found("src/status/plan.rs", source), ["1:crate::policy::Store"]);
}

#[test]
fn errors_name_the_file_and_the_rule() {
    let broken_by = |file, source| broken(file, source, &[])[0].to_string();
    assert_eq!(broken_by("src/leader.rs", ""), "src/leader.rs:1 names something: no row in tests/purity.rs");
    assert_eq!(
        broken_by("src/clock.rs", "\nuse crate::metrics::Metrics;"),
        r#"src/clock.rs:2 names crate::metrics::Metrics: its allowed modules are ["squelch_engine"]"#
    );
}
