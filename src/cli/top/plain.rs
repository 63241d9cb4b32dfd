//! The output of `--once`: three tables, or one structure for programs. Pure.

use jiff::Timestamp;
use serde::Serialize;

use super::rows::{NamespaceLine, PolicyLine};
use super::snapshot::{Offender, TopModel, TopOrder};
use super::views::TopView;

/// The columns that only the live view can fill.
const LIVE_COLUMN: &str = "RATE/S";

/// What JSON and YAML contain.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TopReport<'a> {
    /// The version of this structure. It rises with each incompatible change.
    schema_version: u32,
    /// What is missing, one line each.
    notes: Vec<String>,
    namespaces: Vec<&'a NamespaceLine>,
    policies: Vec<&'a PolicyLine>,
    offenders: Vec<Offender<'a>>,
}

impl<'a> TopReport<'a> {
    /// The first `limit` rows of each view.
    pub(super) fn of(model: &'a TopModel, order: TopOrder, limit: usize, now: Timestamp) -> Self {
        let (mut namespaces, mut policies) = (model.namespaces(order, now), model.policies(order));
        namespaces.truncate(limit);
        policies.truncate(limit);
        let (offenders, _) = model.offenders(limit);
        Self { schema_version: 1, notes: model.notes(), namespaces, policies, offenders }
    }
}

/// Draws the three views as one text.
pub(super) fn render(model: &TopModel, order: TopOrder, limit: usize, now: Timestamp) -> String {
    let mut out = String::new();
    for view in TopView::ALL {
        let mut grid = view.grid(model, order, limit, now);
        grid.leave_out(LIVE_COLUMN);
        let lines = grid.lines(usize::MAX);
        out += &format!("{}{}\n", if out.is_empty() { "" } else { "\n" }, view.as_str().to_uppercase());
        if lines.rows.is_empty() {
            out += &format!("{}\n", view.empty());
            continue;
        }
        for line in [&lines.head].into_iter().chain(&lines.rows) {
            out += &format!("{line}\n");
        }
        if grid.total > grid.rows.len() {
            out += &format!("({} more; --limit {} shows them)\n", grid.total - grid.rows.len(), grid.total);
        }
    }
    for note in model.notes() {
        out += &format!("\nnote: {note}\n");
    }
    out
}
