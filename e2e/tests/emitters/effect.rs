//! What the user of an emitter sees when its writes are suppressed, in words.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use e2e::user::REFUSED;

use crate::cases::Seen;
use crate::kinds::Kind;

/// The head of the table.
const HEAD: &str = "| emitter | without a policy | repeats are merged | dropped | dropped, `rejection: Forbidden` | exempt |\n\
                    |---|---|---|---|---|---|\n";

/// The table of these rows.
pub(crate) fn table(rows: &[String]) -> String {
    format!("{HEAD}{}\n", rows.join("\n"))
}

/// The row of an emitter, seen without a policy and in the other cases.
pub(crate) fn row(kind: &Kind, free: &Seen, others: &[Seen]) -> String {
    let cells: Vec<_> = others.iter().map(|seen| suppressed(seen, free)).collect();
    format!("| {}: {} | {} | {} |", kind.name, free.emitter, requests(free), cells.join(" | "))
}

/// The requests of an emitter, such as "CREATE, PATCH through `v1`".
fn requests(seen: &Seen) -> String {
    let verbs: BTreeSet<_> = seen.writes.iter().map(|write| write.verb.to_uppercase()).collect();
    let apis: BTreeSet<_> = seen.writes.iter().map(|write| format!("`{}`", write.api)).collect();
    let list = |set: BTreeSet<String>| set.into_iter().collect::<Vec<_>>().join(", ");
    format!("{} through {}", list(verbs), list(apis))
}

/// What a suppressed write was answered, and what of it is in the log and in the caller's hands.
fn suppressed(seen: &Seen, free: &Seen) -> String {
    let answers: BTreeSet<_> = seen
        .suppressed()
        .map(|write| {
            let restored = if write.is_restored() { " (restored)" } else { "" };
            format!("{} {}{restored}", write.verb.to_uppercase(), write.code)
        })
        .collect();
    let number = seen.suppressed().count();
    if number == 0 {
        let is_quiet = about_refusals(&seen.log) == 0 && seen.errors.len() == free.errors.len();
        return if is_quiet { "as without a policy" } else { "log lines or errors" }.to_owned();
    }
    let lines = each(about_refusals(&seen.log), number);
    let errors = seen.errors.len().saturating_sub(free.errors.len());
    let retries = seen.judgement.repeated.saturating_sub(free.judgement.repeated);
    let mut text = answers.into_iter().collect::<Vec<_>>().join(", ");
    let _ = match lines.as_str() {
        "0" => write!(text, "; no log line"),
        lines => write!(text, "; log lines for each: {lines}"),
    };
    text += match errors {
        0 => "",
        _ if each(errors, number) == "0" => "; an error to the caller for the first",
        _ => "; an error to the caller",
    };
    if retries > 0 {
        text.push_str("; retried");
    }
    text
}

/// The lines with squelch's sentence about a refusal.
fn about_refusals(log: &[String]) -> usize {
    log.iter().filter(|line| line.contains(REFUSED)).count()
}

/// A number per suppressed write, rounded: the library may log the last one only.
fn each(number: usize, suppressed: usize) -> String {
    format!("{:.0}", number as f64 / suppressed.max(1) as f64)
}

/// The measured numbers of one case.
pub(crate) fn numbers(name: &str, seen: &Seen) -> String {
    let judgement = &seen.judgement;
    let answers: Vec<_> =
        judgement.answers.iter().map(|((verb, code), number)| format!("{verb} {code} ×{number}")).collect();
    let mut text = format!(
        "{name}: {} occurrences, {} asked, {} received, {} stored, {} merged, {} dropped; {}; {} restored, {} repeated, {} by squelch; {} log lines, {} errors",
        seen.occurrences,
        judgement.asked,
        judgement.reported.received,
        judgement.stored,
        judgement.merged(),
        judgement.dropped(),
        answers.join(", "),
        judgement.restored,
        judgement.repeated,
        judgement.flushes,
        seen.log.len(),
        seen.errors.len(),
    );
    for line in seen.log.iter().chain(&seen.errors).filter(|line| line.contains(REFUSED)).take(2) {
        let _ = write!(text, "\n    {line}");
    }
    text
}
