//! The check finds violations in sample sources, and nothing else.

use super::broken;
use super::names::names;

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
