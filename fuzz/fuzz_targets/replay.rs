//! Any text as a List, a trace or an audit log: it is replayed, or refused with its position.

#![no_main]

use std::io::Write as _;
use std::path::PathBuf;

use libfuzzer_sys::fuzz_target;
use squelch::output::OutputFormat;
use squelch::replay::{ClientBehavior, Error, Format, Options, replay};

const POLICY: &str = "apiVersion: squelch.dev/v1alpha1\nkind: EventPolicy\nmetadata: {name: p}\n\
                      spec: {aggregation: {maxEvents: 2}, spamFilter: {burst: 3}}\n";

const AGAINST: &str = "apiVersion: squelch.dev/v1alpha1\nkind: EventPolicy\nmetadata: {name: q}\nspec: {}\n";

fuzz_target!(|input: (u8, &str)| {
    let (choice, text) = input;
    let formats = [None, Some(Format::List), Some(Format::Trace), Some(Format::Audit)];
    let options = Options {
        input: file("input", text),
        policies: vec![file("policy", POLICY)],
        against: if choice & 16 == 0 { vec![] } else { vec![file("against", AGAINST)] },
        namespace: "default".to_owned(),
        all_namespaces: true,
        namespaces: None,
        as_enforced: false,
        own_user: "system:serviceaccount:squelch:squelch".to_owned(),
        format: formats[usize::from(choice % 4)],
        clients: if choice & 4 == 0 { ClientBehavior::Recorded } else { ClientBehavior::Adapted },
        skip_bad: choice & 8 == 0,
        output: OutputFormat::Json,
        decisions: None,
    };
    match replay(&options) {
        Ok(report) => drop(serde_json::to_string(&report).expect("a report is JSON")),
        Err(Error::Input(bad)) => {
            let said = bad.to_string();
            assert!(!said.chars().any(char::is_control) && said.len() < 2000, "{said:?}");
        }
        Err(error) => panic!("{error}"),
    }
});

/// A file of this process.
fn file(name: &str, text: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("squelch-fuzz-{}-{name}", std::process::id()));
    std::fs::File::create(&path).and_then(|mut file| file.write_all(text.as_bytes())).expect("a file");
    path
}
