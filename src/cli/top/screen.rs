//! The live screen: its state, its keys, and how it is drawn. Pure.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use jiff::Timestamp;
use ratatui::Frame;
use ratatui::style::{Color, Modifier, Style};

use crate::replay::text::grouped;

use super::grid::{Grid, GridLines, cut, width_of};
use super::snapshot::{TopModel, TopOrder, TopSource};
use super::views::{TopView, namespace_details, policy_details};

/// Maximum lines about missing rights and lost connections.
const MOST_NOTES: usize = 3;

/// Rows per PageUp and PageDown.
const PAGE_ROWS: usize = 10;

const HELP: [&str; 17] = [
    "1 2 3, tab      the three views",
    "j k, arrows     move; PageDown, PageUp: 10 rows; g, G: first and last row",
    "enter           details of a namespace or a policy; esc closes them",
    "s               next order: suppressed, dropped, warnings, rate",
    "q, esc, Ctrl-C  quit",
    "",
    "suppressed      occurrences merged into another Event, and dropped ones",
    "dropped         occurrences in no Event: filtered, throttled and muted ones",
    "warnings        dropped occurrences of Warnings",
    "rate/s          suppressed per second between the last two reports",
    "age, last       time since the report was written; since the last occurrence",
    "accepted        the policy is valid; effective: it governs Event writes",
    "received        occurrences that the policy governs, since squelch has read it",
    "admitted        stored as written; compacted, aggregated: merged",
    "filtered        dropped by spamFilter; throttled: by budget; muted: by mute",
    "",
    "With mode Observe, numbers are those of Enforce, and every Event is stored.",
];

/// What the details are about.
#[derive(Clone, Debug, PartialEq, Eq)]
enum TopDetails {
    Namespace(String),
    Policy(String),
}

/// The selected row of a view.
#[derive(Clone, Debug, Default)]
struct RowCursor {
    /// Follows the row when the order changes. `None` stays at the first row.
    key: Option<String>,
    /// Where it was, in case the row disappears.
    at: usize,
}

impl RowCursor {
    fn at(&self, grid: &Grid) -> usize {
        let found = self.key.as_ref().and_then(|key| grid.rows.iter().position(|row| row.key == *key));
        let at = if self.key.is_some() { found.unwrap_or(self.at) } else { 0 };
        at.min(grid.rows.len().saturating_sub(1))
    }

    fn set(&mut self, at: usize, grid: &Grid) {
        self.at = at.min(grid.rows.len().saturating_sub(1));
        self.key = grid.rows.get(self.at).map(|row| row.key.clone());
    }
}

/// The state of the screen.
#[derive(Clone, Debug)]
pub(super) struct TopScreen {
    view: TopView,
    order: TopOrder,
    limit: usize,
    has_colour: bool,
    cursors: [RowCursor; TopView::ALL.len()],
    details: Option<TopDetails>,
    /// The first line of the details or of the help.
    scroll: usize,
    shows_help: bool,
}

impl TopScreen {
    /// The first view.
    pub(super) fn new(order: TopOrder, limit: usize, has_colour: bool) -> Self {
        Self {
            view: TopView::Namespaces,
            order,
            limit,
            has_colour,
            cursors: Default::default(),
            details: None,
            scroll: 0,
            shows_help: false,
        }
    }

    /// Handles a key. Returns whether the user quits.
    pub(super) fn press(&mut self, key: KeyEvent, model: &TopModel, now: Timestamp) -> bool {
        let has_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if has_control => return true,
            _ if has_control || key.modifiers.contains(KeyModifiers::ALT) => {}
            KeyCode::Char('q') => return true,
            KeyCode::Esc if self.shows_help => self.shows_help = false,
            KeyCode::Esc if self.details.is_some() => self.details = None,
            KeyCode::Esc => return true,
            KeyCode::Char('?') => (self.shows_help, self.scroll) = (!self.shows_help, 0),
            KeyCode::Char('1') => self.show(TopView::Namespaces),
            KeyCode::Char('2') => self.show(TopView::Policies),
            KeyCode::Char('3') => self.show(TopView::Offenders),
            KeyCode::Tab => self.show(self.neighbour(1)),
            KeyCode::BackTab => self.show(self.neighbour(TopView::ALL.len() - 1)),
            KeyCode::Char('s') => self.order = self.order.next(),
            KeyCode::Enter => self.open(model, now),
            code => self.go(code, model, now),
        }
        false
    }

    fn show(&mut self, view: TopView) {
        (self.view, self.details, self.shows_help, self.scroll) = (view, None, false, 0);
    }

    fn neighbour(&self, distance: usize) -> TopView {
        TopView::ALL[(self.view as usize + distance) % TopView::ALL.len()]
    }

    fn go(&mut self, code: KeyCode, model: &TopModel, now: Timestamp) {
        let target = |at: usize| match code {
            KeyCode::Down | KeyCode::Char('j') => Some(at + 1),
            KeyCode::Up | KeyCode::Char('k') => Some(at.saturating_sub(1)),
            KeyCode::PageDown => Some(at + PAGE_ROWS),
            KeyCode::PageUp => Some(at.saturating_sub(PAGE_ROWS)),
            KeyCode::Home | KeyCode::Char('g') => Some(0),
            KeyCode::End | KeyCode::Char('G') => Some(usize::MAX),
            _ => None,
        };
        if self.shows_help || self.details.is_some() {
            self.scroll = target(self.scroll)
                .unwrap_or(self.scroll)
                .min(self.text(model, now, 80).len().saturating_sub(1));
            return;
        }
        let grid = self.grid(model, now);
        let cursor = &mut self.cursors[self.view as usize];
        if let Some(at) = target(cursor.at(&grid)) {
            cursor.set(at, &grid);
        }
    }

    fn open(&mut self, model: &TopModel, now: Timestamp) {
        if self.shows_help || self.details.is_some() {
            return;
        }
        let grid = self.grid(model, now);
        let at = self.cursors[self.view as usize].at(&grid);
        let Some(row) = grid.rows.get(at) else { return };
        self.scroll = 0;
        self.details = Some(match self.view {
            TopView::Namespaces => TopDetails::Namespace(row.key.clone()),
            TopView::Policies => TopDetails::Policy(row.key.clone()),
            TopView::Offenders => {
                TopDetails::Namespace(row.key.lines().next().unwrap_or_default().to_owned())
            }
        });
    }

    fn grid(&self, model: &TopModel, now: Timestamp) -> Grid {
        self.view.grid(model, self.order, self.limit, now)
    }

    /// The lines of the help or of the details.
    fn text(&self, model: &TopModel, now: Timestamp, width: usize) -> Vec<String> {
        if self.shows_help {
            return HELP.map(str::to_owned).into();
        }
        match &self.details {
            Some(TopDetails::Namespace(name)) => match model.namespace(name) {
                Some(row) => namespace_details(row, now, width),
                None => vec![format!("the report of the namespace {name} does not exist any more")],
            },
            Some(TopDetails::Policy(name)) => match model.policy(name) {
                Some(row) => policy_details(row, now, width),
                None => vec![format!("the policy {name} does not exist any more")],
            },
            None => Vec::new(),
        }
    }

    /// Draws everything.
    pub(super) fn draw(&self, frame: &mut Frame<'_>, model: &TopModel, now: Timestamp) {
        let mut page = Page { frame, next: 0 };
        page.line(&title(model, now), Style::new().add_modifier(Modifier::BOLD));
        let grid = self.grid(model, now);
        let lines = grid.lines(page.width().saturating_sub(2));
        page.line(&self.tabs(model, &lines), Style::new());
        for note in model.notes().iter().take(MOST_NOTES) {
            page.line(&format!("! {note}"), self.coloured(Color::Yellow));
        }
        page.line("", Style::new());
        if self.shows_help || self.details.is_some() {
            for line in self.text(model, now, page.width()).iter().skip(self.scroll) {
                page.line(line, Style::new());
            }
        } else {
            self.rows(&mut page, model, &grid, &lines);
        }
        page.last(&self.keys(), Style::new().add_modifier(Modifier::REVERSED));
    }

    fn rows(&self, page: &mut Page<'_, '_>, model: &TopModel, grid: &Grid, lines: &GridLines) {
        if lines.rows.is_empty() {
            let text = if model.is_complete() { self.view.empty() } else { "reading ..." };
            return page.line(text, Style::new());
        }
        page.line(&format!("  {}", lines.head), Style::new().add_modifier(Modifier::BOLD));
        let more = grid.total - grid.rows.len();
        let height = page.free().saturating_sub(usize::from(more > 0));
        let selected = self.cursors[self.view as usize].at(grid);
        let first = (selected + 1).saturating_sub(height);
        for (at, (line, row)) in lines.rows.iter().zip(&grid.rows).enumerate().skip(first).take(height) {
            let style = if row.is_alarming { self.coloured(Color::Yellow) } else { Style::new() };
            if at == selected {
                page.line(&format!("> {line}"), style.add_modifier(Modifier::REVERSED));
            } else {
                page.line(&format!("  {line}"), style);
            }
        }
        if more > 0 && first + height >= lines.rows.len() {
            page.line(&format!("  ({more} more; --limit {} shows them)", grid.total), Style::new());
        }
    }

    fn tabs(&self, model: &TopModel, lines: &GridLines) -> String {
        let mut tabs = String::new();
        for (at, view) in TopView::ALL.into_iter().enumerate() {
            let number = at + 1;
            tabs += &if view == self.view {
                format!("[{number} {}]  ", view.as_str())
            } else {
                format!(" {number} {}   ", view.as_str())
            };
        }
        let order = if self.view == TopView::Offenders { "count" } else { self.order.as_str() };
        tabs += &format!("order: {order}");
        let reading =
            TopSource::ALL.iter().any(|source| model.sources.contains(source) && !model.is_listed(*source));
        if reading {
            tabs += ", reading ...";
        } else if lines.omitted > 0 && self.details.is_none() && !self.shows_help {
            tabs += &format!(", {} columns hidden", lines.omitted);
        }
        tabs
    }

    fn keys(&self) -> String {
        if self.shows_help || self.details.is_some() {
            return "esc back  j/k scroll  1-3 views  ? help  q quit".to_owned();
        }
        "1-3/tab views  j/k move  enter details  s order  ? help  q quit".to_owned()
    }

    fn coloured(&self, colour: Color) -> Style {
        if self.has_colour { Style::new().fg(colour) } else { Style::new() }
    }
}

fn title(model: &TopModel, now: Timestamp) -> String {
    let [suppressed, dropped, warnings] = model.totals().map(|total| grouped(total.unsigned_abs()));
    format!(
        "squelch top, {}: suppressed {suppressed}, dropped {dropped}, Warnings {warnings}, {}",
        model.scope(),
        now.strftime("%H:%M:%S UTC"),
    )
}

/// The lines of a frame, from the top. Lines that do not fit are cut or left out.
struct Page<'f, 'b> {
    frame: &'f mut Frame<'b>,
    next: u16,
}

impl Page<'_, '_> {
    fn width(&self) -> usize {
        self.frame.area().width.into()
    }

    /// The number of lines above the last one that are not drawn yet.
    fn free(&self) -> usize {
        self.frame.area().height.saturating_sub(self.next + 1).into()
    }

    fn line(&mut self, text: &str, style: Style) {
        if self.free() > 0 {
            self.put(self.next, text, style);
            self.next += 1;
        }
    }

    /// Draws the last line, in the whole width.
    fn last(&mut self, text: &str, style: Style) {
        let (width, height) = (self.width(), self.frame.area().height);
        if height > 0 {
            let padding = " ".repeat(width.saturating_sub(width_of(text)));
            self.put(height - 1, &format!("{text}{padding}"), style);
        }
    }

    fn put(&mut self, at: u16, text: &str, style: Style) {
        let text = cut(text, self.width());
        self.frame.buffer_mut().set_string(0, at, text, style);
    }
}

#[cfg(test)]
mod tests;
