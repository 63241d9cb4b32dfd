//! `docs/limits.md` shows the flags and the constants of the code.
//!
//! A comment after a number in the page names the constant: `4,000<!-- src/webhook/router.rs MAX_REVIEWS -->`.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test, also in the functions around it")]

use std::fs;
use std::path::Path;

use clap::{Arg, CommandFactory as _};
use squelch::config::Cli;

const PAGE: &str = include_str!("../docs/limits.md");

/// Writes a number with a comma after each thousand.
fn with_commas(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Writes a number as the page does, and anything else unchanged.
fn shown(value: &str) -> String {
    value.parse().map_or_else(|_| value.to_owned(), with_commas)
}

/// Returns the flags of `squelch run` under the heading Limits.
fn flags() -> Vec<Arg> {
    let command = Cli::command();
    let run = command.find_subcommand("run").unwrap();
    let limits = run.get_arguments().filter(|flag| flag.get_help_heading() == Some("Limits"));
    limits.cloned().collect()
}

/// Returns the row of the page for a flag: its name, its default, and the range in its help.
fn row(flag: &Arg) -> String {
    let name = flag.get_long().unwrap();
    let default = flag.get_default_values()[0].to_str().unwrap();
    let help = flag.get_help().unwrap().to_string();
    let range = help.split_once("from ").and_then(|(_, rest)| rest.split_once(" to ")).unwrap();
    let end: String = range.1.chars().take_while(char::is_ascii_alphanumeric).collect();
    format!("| `--{name}` | {} | {} to {} |", shown(default), shown(range.0), shown(&end))
}

#[test]
fn the_page_has_the_defaults_and_ranges_of_all_limits() {
    let flags = flags();
    assert!(flags.len() >= 7, "{flags:?}");
    for flag in &flags {
        assert!(PAGE.contains(&row(flag)), "docs/limits.md has no row that begins with {}", row(flag));
    }
    assert_eq!(PAGE.matches("\n| `--").count(), flags.len(), "docs/limits.md has a row without a flag");
}

/// The value of a constant.
#[derive(Debug, PartialEq)]
enum Constant {
    Number(u64),
    Milliseconds(u64),
}

/// Reads a constant from a source file.
fn constant(file: &str, name: &str) -> Constant {
    let source = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).expect(file);
    let declared = source.split_once(&format!("const {name}: "));
    let (_, rest) = declared.unwrap_or_else(|| panic!("{file} has no constant {name}"));
    let (_, value) = rest.split_once(';').unwrap().0.split_once("= ").unwrap();
    evaluate(value).unwrap_or_else(|| panic!("{file}: the value of {name} is unknown: {value}"))
}

fn evaluate(value: &str) -> Option<Constant> {
    let number = |text: &str| text.replace('_', "").trim().parse::<u64>().ok();
    if let Some((_, time)) = value.split_once("Duration::from_") {
        let (unit, amount) = time.trim_end_matches(')').split_once('(')?;
        let milliseconds = match unit {
            "millis" => 1,
            "secs" => 1_000,
            "mins" => 60_000,
            "hours" => 3_600_000,
            _ => return None,
        };
        return Some(Constant::Milliseconds(number(amount)? * milliseconds));
    }
    match value.split_once(" << ") {
        Some((base, by)) => Some(Constant::Number(number(base)? << number(by)?)),
        None => Some(Constant::Number(number(value)?)),
    }
}

/// Returns the ways in which the page can show a value.
fn forms(constant: &Constant) -> Vec<String> {
    let (value, units): (u64, &[(u64, &str)]) = match constant {
        Constant::Number(number) => {
            (*number, &[(1, ""), (1, "th"), (1, " bytes"), (1 << 10, " KiB"), (1 << 20, " MiB")])
        }
        Constant::Milliseconds(time) => {
            (*time, &[(1, " ms"), (1_000, " s"), (60_000, " min"), (3_600_000, " h")])
        }
    };
    let exact = units.iter().filter(|(unit, _)| value.is_multiple_of(*unit));
    exact.map(|(unit, name)| format!(" {}{name}", with_commas(value / unit))).collect()
}

#[test]
fn the_page_has_the_values_of_the_constants() {
    let parts: Vec<&str> = PAGE.split("<!-- ").collect();
    assert!(parts.len() > 30, "the comments are gone");
    for pair in parts.windows(2) {
        let comment = pair[1].split_once(" -->").unwrap().0;
        let (file, name) = comment.split_once(' ').unwrap();
        let value = constant(file, name);
        let is_shown = forms(&value).iter().any(|form| pair[0].ends_with(form.as_str()));
        assert!(is_shown, "docs/limits.md shows another value of {name} in {file}, which is {value:?}");
    }
}

#[test]
fn constants_are_evaluated() {
    assert_eq!(evaluate("4_000"), Some(Constant::Number(4_000)));
    assert_eq!(evaluate("40 << 20"), Some(Constant::Number(41_943_040)));
    assert_eq!(evaluate("Duration::from_millis(900)"), Some(Constant::Milliseconds(900)));
    assert_eq!(evaluate("SignedDuration::from_hours(24)"), Some(Constant::Milliseconds(86_400_000)));
    assert_eq!(evaluate("OTHER"), None);
    assert_eq!(forms(&Constant::Number(2_048)), [" 2,048", " 2,048th", " 2,048 bytes", " 2 KiB"]);
}
