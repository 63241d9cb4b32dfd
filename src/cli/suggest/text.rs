//! The suggestions as YAML: documents that `kubectl apply` and `squelch replay` accept, with comments for people.

use std::fmt::Write as _;

use super::proposal::{ExaminedGroup, Suggestion, Suggestions};
use super::search::PolicyFigures;
use crate::output::RenderError;
use crate::replay::{clean, columns, grouped, notes, plural, wrapped};

/// Maximum characters of a text in a table.
const MAX_CELL: usize = 60;

/// Returns the suggestions as YAML with comments. `command` replays them.
pub(super) fn yaml(suggestions: &Suggestions, command: Option<&str>) -> Result<String, RenderError> {
    if suggestions.policies.is_empty() {
        return Ok(comment(&nothing(suggestions)));
    }
    let mut out = comment(&head(suggestions, command));
    for (at, suggestion) in suggestions.policies.iter().enumerate() {
        if at > 0 {
            out.push_str("---\n");
        } else {
            out.push('\n');
        }
        out.push_str(&comment(&why(suggestion)));
        out.push_str(serde_saphyr::to_string(&suggestion.policy)?.trim_end());
        out.push('\n');
    }
    Ok(out)
}

fn head(suggestions: &Suggestions, command: Option<&str>) -> String {
    let mut out = suggestions.input.clone() + "\n\n" + &table(suggestions) + "\n";
    out.push_str(
        "Try the policies with mode: Observe first. They then count the same and suppress nothing.\n",
    );
    if let Some(command) = command {
        let _ = writeln!(out, "These figures are those of: {command}");
        if let Some(writes) = suggestions.writes_with_recorded_clients {
            let writes = plural(writes, "write", "writes");
            out.push_str(&wrapped(&format!(
                "Without --clients adapted it shows {writes} with the policies: the clients then write as recorded, \
                 whatever the answers."
            )));
        }
    }
    out + &notes(&suggestions.notes)
}

fn table(suggestions: &Suggestions) -> String {
    let head = [
        "POLICY",
        "WRITES TO ETCD",
        "WITH POLICY",
        "STORED EVENTS",
        "WITH POLICY",
        "DROPPED",
        "WARNINGS DROPPED",
    ];
    let row = |name: &str, figures: &PolicyFigures| {
        let PolicyFigures {
            writes_without,
            writes_with,
            events_without,
            events_with,
            dropped,
            dropped_warnings,
        } = *figures;
        let numbers = [writes_without, writes_with, events_without, events_with, dropped, dropped_warnings];
        [name.to_owned()].into_iter().chain(numbers.map(grouped)).collect::<Vec<_>>()
    };
    let mut rows: Vec<_> = { suggestions.policies.iter() }
        .map(|suggestion| row(&suggestion.name, &suggestion.figures))
        .collect();
    rows.push(row("all writes", &suggestions.total));
    columns(&head, &rows, 1)
}

fn why(suggestion: &Suggestion) -> String {
    let figures = &suggestion.figures;
    let mut out: String = suggestion.reasons.iter().map(|reason| wrapped(reason)).collect();
    out += &wrapped(&format!(
        "Writes to etcd: {} without this policy, {} with it. Stored Events: {} without, {} with. Dropped: {}. \
         Warnings dropped: {}.",
        grouped(figures.writes_without),
        grouped(figures.writes_with),
        grouped(figures.events_without),
        grouped(figures.events_with),
        grouped(figures.dropped),
        grouped(figures.dropped_warnings),
    ));
    out
}

/// Says why nothing is suggested.
fn nothing(suggestions: &Suggestions) -> String {
    let mut out = format!(
        "{}\n\nNothing to suggest: no policy saves at least {}, and a tenth of what it governs.\n",
        suggestions.input,
        plural(suggestions.min_saved, "write", "writes")
    );
    if !suggestions.groups.is_empty() {
        let head = ["COMPONENT", "KIND", "TYPE", "REASON", "OBJECTS", "WRITES TO ETCD", "WITH A POLICY"];
        let rows: Vec<_> = suggestions.groups.iter().map(cells).collect();
        out =
            out + "The most frequent Events, with the best policy for them:\n\n" + &columns(&head, &rows, 4);
    }
    out + &notes(&suggestions.notes)
}

fn cells(group: &ExaminedGroup) -> Vec<String> {
    let texts =
        [&group.component, &group.kind, group.event_type, &group.reason].map(|text| clean(text, MAX_CELL));
    let numbers = [group.objects, group.writes_without, group.writes_with].map(grouped);
    texts.into_iter().chain(numbers).collect()
}

/// Returns the lines as comments.
fn comment(text: &str) -> String {
    text.lines().map(|line| if line.is_empty() { "#\n".to_owned() } else { format!("# {line}\n") }).collect()
}
