//! The commands in the documents and in the chart's notes are valid as printed.
//!
//! Each shell block is run with stubs of kubectl, helm and similar programs. This shows that a block is complete,
//! that it names only programs that a reader has, that recipes of `./justw` exist, and that squelch has the flags.
//! End-to-end tests check the effects on a cluster.

#![expect(clippy::unwrap_used, reason = "a test, also in the functions around it")]

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser as _};
use squelch::config::Cli;

/// Programs of a reader, besides a POSIX shell and its tools.
const PROGRAMS: &[&str] =
    &["kubectl", "helm", "docker", "cargo", "cosign", "git", "skopeo", "squelch", "./justw"];

/// Blocks that show a syntax.
const NOT_RUN: &[&str] = &["squelch replay --policy policy.yaml ["];

/// A shell block and its position.
struct Block {
    place: String,
    text: String,
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn documents() -> Vec<PathBuf> {
    let docs = fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let mut documents: Vec<PathBuf> =
        docs.filter(|path| path.extension().is_some_and(|it| it == "md")).collect();
    documents.push(root().join("README.md"));
    documents.sort();
    documents
}

/// Every fenced block of `sh` in the documents, and the commands of the chart's notes.
fn blocks() -> Vec<Block> {
    let mut blocks = Vec::new();
    for path in documents() {
        let text = fs::read_to_string(&path).unwrap();
        let name = path.strip_prefix(root()).unwrap().display().to_string();
        let mut line = 1;
        for (at, part) in text.split("```").enumerate() {
            if at % 2 == 1
                && let Some(block) = part.strip_prefix("sh\n")
            {
                blocks.push(Block { place: format!("{name}:{line}"), text: block.to_owned() });
            }
            line += part.matches('\n').count();
        }
    }
    blocks.push(Block { place: "NOTES.txt".to_owned(), text: notes() });
    let run = |block: &Block| !NOT_RUN.iter().any(|start| block.text.starts_with(start));
    blocks.into_iter().filter(run).collect()
}

/// The indented lines of the notes as Helm prints them, with their indentation.
fn notes() -> String {
    let text = fs::read_to_string(root().join("charts/squelch/templates/NOTES.txt")).unwrap();
    let rendered = text
        .replace("{{ .Release.Namespace }}", "squelch")
        .replace("{{ include \"squelch.name\" . }}", "squelch");
    let commands: String = rendered
        .lines()
        .filter(|line| line.starts_with("   ") && is_command(line))
        .map(|line| format!("{line}\n"))
        .collect();
    assert!(!commands.contains("{{") && commands.lines().count() >= 5, "{commands}");
    commands
}

/// Excludes indented prose.
fn is_command(line: &str) -> bool {
    let first = line.split_whitespace().next().unwrap_or_default();
    ["kubectl", "echo", "helm", "POLICY", "apiVersion:", "kind:", "metadata:", "spec:"].contains(&first)
}

/// A folder with stubs that record their arguments.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let folder = std::env::temp_dir().join(format!("squelch-commands-{}", std::process::id()));
        fs::create_dir_all(folder.join("bin")).unwrap();
        for program in PROGRAMS {
            let place = folder.join("bin").join(program.trim_start_matches(['.', '/']));
            // A file per process: the programs of a pipeline run at the same time.
            let script = format!(
                "#!/bin/sh\nprintf '%s\\n' '{program}' \"$@\" > \"$CALLS/$$\"\n[ -t 0 ] || cat > /dev/null\n"
            );
            fs::write(&place, script).unwrap();
            fs::set_permissions(&place, Permissions::from_mode(0o755)).unwrap();
        }
        fs::rename(folder.join("bin/justw"), folder.join("justw")).unwrap();
        Self(folder)
    }

    /// Runs a block; returns the calls of the stubs and the errors of the shell.
    fn run(&self, block: &str) -> (Vec<Vec<String>>, String) {
        let calls = self.0.join("calls");
        fs::create_dir(&calls).unwrap();
        let path = format!("{}:/usr/bin:/bin", self.0.join("bin").display());
        let output = Command::new("bash")
            .args(["-c", block])
            .current_dir(&self.0)
            .env("PATH", path)
            .env("CALLS", &calls)
            .stdin(std::process::Stdio::null())
            .output()
            .unwrap();
        let files = fs::read_dir(&calls).unwrap().map(|file| file.unwrap().path());
        let words =
            files.map(|file| fs::read_to_string(file).unwrap().lines().map(ToOwned::to_owned).collect());
        let words = words.collect();
        fs::remove_dir_all(&calls).unwrap();
        (words, String::from_utf8(output.stderr).unwrap())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn recipes() -> BTreeSet<String> {
    let justfile = fs::read_to_string(root().join("justfile")).unwrap();
    let heads = justfile.lines().filter(|line| line.starts_with(|first: char| first.is_ascii_lowercase()));
    heads.filter_map(|line| line.split([' ', ':']).next()).map(ToOwned::to_owned).collect()
}

/// Whether squelch accepts these arguments, or shows a help.
fn is_taken(words: &[String]) -> Result<(), String> {
    match Cli::try_parse_from(words) {
        Ok(_) => Ok(()),
        Err(error) if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

#[test]
fn every_block_is_complete_and_calls_existing_programs() {
    let (folder, recipes, blocks) = (Folder::new(), recipes(), blocks());
    assert!(blocks.len() >= 20, "only {} blocks", blocks.len());
    let mut called = BTreeSet::new();
    for Block { place, text } in &blocks {
        let (calls, complaints) = folder.run(text);
        assert_eq!(complaints, "", "{place}:\n{text}");
        assert!(!calls.is_empty(), "{place} calls nothing:\n{text}");
        for call in calls {
            called.insert(call[0].clone());
            match call[0].as_str() {
                "squelch" => is_taken(&call).unwrap_or_else(|error| panic!("{place}: {error}")),
                "./justw" => assert!(recipes.contains(&call[1]), "{place}: no recipe {}", call[1]),
                "kubectl" => {
                    // The command in the pod follows two dashes.
                    let inner = call.iter().position(|word| word == "/squelch").map(|at| &call[at..]);
                    inner.map(is_taken).transpose().unwrap_or_else(|error| panic!("{place}: {error}"));
                }
                _ => {}
            }
        }
    }
    for program in ["kubectl", "helm", "squelch", "./justw"] {
        assert!(called.contains(program), "no block calls {program}");
    }
}

#[test]
fn files_named_in_commands_exist() {
    for Block { place, text } in blocks() {
        for word in text.split_whitespace().filter(|word| !word.contains("://")) {
            let word = word.trim_matches(|c: char| "\"'`,;()".contains(c));
            let in_checkout = ["examples/", "charts/", "crds/", "deploy/", "hack/"];
            if in_checkout.iter().any(|folder| word.starts_with(folder)) {
                assert!(root().join(word).exists(), "{place}: {word} does not exist");
            }
        }
    }
}

#[test]
fn the_policy_of_the_notes_is_valid() {
    let notes = notes();
    let policy = notes.split('\'').find(|part| part.contains("EventPolicy")).unwrap_or(&notes);
    let policy: serde_json::Value = serde_saphyr::from_str(policy).unwrap();
    let spec: squelch::api::EventPolicySpec = serde_json::from_value(policy["spec"].clone()).unwrap();
    let id = squelch_engine::PolicyId { display: "notes/quickstart".into(), uid: "uid".into() };
    squelch::policy::compile(id, &spec).unwrap();
    assert!(!notes.contains("namespace: default") && !notes.contains("--namespace default"));
}

/// The long help of a command and of its subcommands.
fn help_of(mut command: clap::Command) -> String {
    let own = command.render_long_help().to_string();
    command.get_subcommands().cloned().map(help_of).fold(own, |all, help| all + &help)
}

#[test]
fn the_help_of_each_command_has_no_retired_word() {
    let list = fs::read_to_string(root().join("hack/vale/retired-words.txt")).unwrap();
    let help = help_of(Cli::command()).to_lowercase();
    let words = help.split(|c: char| !c.is_ascii_alphabetic()).filter(|word| !word.is_empty());
    let words = format!(" {} ", words.collect::<Vec<_>>().join(" "));
    for expected in ["uninstall", "qps", "break glass"] {
        assert!(words.contains(&format!(" {expected} ")), "{expected} is missing in:\n{help}");
    }
    // FORM, FORM... [in FOLDER...] [but PHRASE, PHRASE...]; words of some folders have another meaning elsewhere.
    for line in
        list.lines().filter(|line| !line.is_empty() && !line.starts_with('#') && !line.contains(" in "))
    {
        let (forms, allowed) = line.split_once(" but ").unwrap_or((line, ""));
        let mut rest = words.clone();
        for phrase in allowed.split(", ").filter(|phrase| !phrase.is_empty()) {
            rest = rest.replace(phrase, ".");
        }
        for form in forms.split(", ") {
            assert!(!rest.contains(&format!(" {form} ")), "{form} in:\n{help}");
        }
    }
}
