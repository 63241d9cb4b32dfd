//! Dependencies point one way, and pure modules do no I/O, read no clock and log nothing: [`ROWS`] lists the allowed
//! dependencies, and every file of `src/` and of the engine has a row.

#![expect(clippy::unwrap_used, reason = "a test, also in the functions around it")]

#[path = "purity/command_rows.rs"]
mod command_rows;
#[path = "purity/names.rs"]
mod names;
#[path = "purity/operator_rows.rs"]
mod operator_rows;
#[path = "purity/samples.rs"]
mod samples;
#[path = "purity/type_names.rs"]
mod type_names;

use std::fmt;
use std::fs;
use std::path::Path;

use command_rows::COMMANDS;
use names::{Named, names};
use operator_rows::OPERATOR;

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

/// All rows. The first one that matches a file applies.
const ROWS: [&[Row]; 2] = [OPERATOR, COMMANDS];

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
    "net::Ipv6Addr",
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
        ROWS.into_iter().flatten().find(|row| {
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
    for row in ROWS.into_iter().flatten() {
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
