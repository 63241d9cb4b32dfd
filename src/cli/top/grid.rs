//! Tables that fit a width: cells are cut and columns left out, lines are never wrapped. Pure.

use ratatui::text::Span;

/// A column.
#[derive(Clone, Copy, Debug)]
pub(super) struct GridColumn {
    name: &'static str,
    /// Its name in a narrow table.
    short: &'static str,
    /// The minimum width of a text that may be cut.
    min: Option<usize>,
    is_number: bool,
}

/// A column of texts of any length. They are aligned left, and cut in a narrow table.
pub(super) const fn texts(name: &'static str, short: &'static str, min: usize) -> GridColumn {
    GridColumn { name, short, min: Some(min), is_number: false }
}

/// A column of texts that are never cut. They are aligned left.
pub(super) const fn words(name: &'static str, short: &'static str) -> GridColumn {
    GridColumn { name, short, min: None, is_number: false }
}

/// A column of numbers. They are aligned right, and never cut.
pub(super) const fn numbers(name: &'static str, short: &'static str) -> GridColumn {
    GridColumn { name, short, min: None, is_number: true }
}

/// A cell.
#[derive(Clone, Debug)]
pub(super) struct GridCell {
    full: String,
    /// Its text in a narrow table.
    short: Option<String>,
}

impl GridCell {
    /// A cell that is the same in a narrow table.
    pub(super) fn text(text: impl Into<String>) -> Self {
        Self { full: text.into(), short: None }
    }

    /// A cell with another text in a narrow table.
    pub(super) fn with_short(full: impl Into<String>, short: impl Into<String>) -> Self {
        Self { full: full.into(), short: Some(short.into()) }
    }

    fn of(&self, is_short: bool) -> &str {
        match &self.short {
            Some(short) if is_short => short,
            _ => &self.full,
        }
    }
}

/// A row.
#[derive(Clone, Debug)]
pub(super) struct GridRow {
    /// Identifies the row when the order changes.
    pub(super) key: String,
    pub(super) cells: Vec<GridCell>,
    /// Whether it deserves attention.
    pub(super) is_alarming: bool,
}

/// A table.
#[derive(Clone, Debug)]
pub(super) struct Grid {
    pub(super) columns: Vec<GridColumn>,
    pub(super) rows: Vec<GridRow>,
    /// The number of rows, with those that are not in `rows`.
    pub(super) total: usize,
}

/// The lines of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GridLines {
    pub(super) head: String,
    pub(super) rows: Vec<String>,
    /// The number of columns that do not fit.
    pub(super) omitted: usize,
}

/// The widths of the columns that fit.
struct GridLayout {
    is_short: bool,
    gap: usize,
    widths: Vec<usize>,
}

impl Grid {
    /// Removes a column.
    pub(super) fn leave_out(&mut self, name: &str) {
        let Some(at) = self.columns.iter().position(|column| column.name == name) else { return };
        self.columns.remove(at);
        for row in &mut self.rows {
            row.cells.remove(at);
        }
    }

    /// Draws the table in this width: if needed with shorter texts, then with short names and numbers, then without the
    /// last columns.
    pub(super) fn lines(&self, width: usize) -> GridLines {
        let layout = self.layout(width);
        let name = |column: &GridColumn| if layout.is_short { column.short } else { column.name };
        let row = |row: &GridRow| self.line(&layout, row.cells.iter().map(|cell| cell.of(layout.is_short)));
        GridLines {
            head: self.line(&layout, self.columns.iter().map(name)),
            rows: self.rows.iter().map(row).collect(),
            omitted: self.columns.len() - layout.widths.len(),
        }
    }

    fn line<'c>(&self, layout: &GridLayout, cells: impl Iterator<Item = &'c str>) -> String {
        let mut line = String::new();
        for ((cell, column), width) in cells.zip(&self.columns).zip(&layout.widths) {
            if !line.is_empty() {
                line.push_str(&" ".repeat(layout.gap));
            }
            let cell = cut(cell, *width);
            let padding = " ".repeat(width.saturating_sub(width_of(&cell)));
            line += &if column.is_number { padding + &cell } else { cell + &padding };
        }
        line.trim_end().to_owned()
    }

    fn layout(&self, width: usize) -> GridLayout {
        let fitted = |is_short, gap| {
            let mut layout = GridLayout { is_short, gap, widths: self.widths(is_short) };
            self.shrink(&mut layout, width);
            layout
        };
        let full = fitted(false, 2);
        if full.total() <= width {
            return full;
        }
        let mut short = fitted(true, 1);
        while short.total() > width && short.widths.len() > 1 {
            short.widths.pop();
        }
        short
    }

    /// The widths that show everything.
    fn widths(&self, is_short: bool) -> Vec<usize> {
        let of = |(at, column): (usize, &GridColumn)| {
            let name = width_of(if is_short { column.short } else { column.name });
            let cells = self.rows.iter().filter_map(|row| row.cells.get(at));
            cells.map(|cell| width_of(cell.of(is_short))).fold(name, usize::max)
        };
        self.columns.iter().enumerate().map(of).collect()
    }

    /// Takes the missing width from the widest text, until all are at their minimum.
    fn shrink(&self, layout: &mut GridLayout, width: usize) {
        for _ in width..layout.total() {
            let wide = layout.widths.iter_mut().zip(&self.columns);
            let wide = wide.filter(|(width, column)| column.min.is_some_and(|min| **width > min));
            match wide.max_by_key(|(width, _)| **width) {
                Some((widest, _)) => *widest -= 1,
                None => return,
            }
        }
    }
}

impl GridLayout {
    fn total(&self) -> usize {
        self.widths.iter().sum::<usize>() + self.gap * self.widths.len().saturating_sub(1)
    }
}

/// Cuts a text to a number of terminal columns, and marks the cut.
pub(super) fn cut(text: &str, width: usize) -> String {
    if width_of(text) <= width {
        return text.to_owned();
    }
    let ends = text.char_indices().map(|(at, _)| at);
    let fits = ends.take_while(|end| width_of(&text[..*end]) < width).last().unwrap_or(0);
    if width == 0 { String::new() } else { format!("{}…", &text[..fits]) }
}

/// The number of terminal columns of a text.
pub(super) fn width_of(text: &str) -> usize {
    Span::raw(text).width()
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: &[GridColumn] =
        &[texts("NAMESPACE", "NS", 5), numbers("COUNT", "N"), texts("REASON", "WHY", 3)];

    fn grid() -> Grid {
        let row = |namespace: &str, count: &str, short: &str, reason: &str| GridRow {
            key: namespace.to_owned(),
            cells: vec![
                GridCell::text(namespace),
                GridCell::with_short(count, short),
                GridCell::text(reason),
            ],
            is_alarming: false,
        };
        let rows =
            vec![row("shop", "1,234,567", "1.23M", "BackOff"), row("a-long-namespace", "7", "7", "Pulled")];
        Grid { columns: COLUMNS.to_vec(), rows, total: 2 }
    }

    #[test]
    fn a_table_loses_texts_then_digits_then_columns() {
        let lines = |width| {
            let GridLines { head, rows, omitted } = grid().lines(width);
            (head, rows, omitted)
        };
        let (head, rows, omitted) = lines(80);
        assert_eq!((head.as_str(), omitted), ("NAMESPACE             COUNT  REASON", 0));
        assert_eq!(rows, ["shop              1,234,567  BackOff", "a-long-namespace          7  Pulled"]);
        let (head, rows, _) = lines(24);
        assert_eq!(head, "NAMES…      COUNT  REAS…");
        assert_eq!(rows, ["shop    1,234,567  Back…", "a-lon…          7  Pull…"]);
        let (head, rows, omitted) = lines(15);
        assert_eq!((head.as_str(), omitted), ("NS        N WHY", 0));
        assert_eq!(rows, ["shop  1.23M Ba…", "a-lo…     7 Pu…"]);
        let (head, rows, omitted) = lines(12);
        assert_eq!((head.as_str(), omitted), ("NS        N", 1));
        assert_eq!(rows, ["shop  1.23M", "a-lo…     7"]);
    }

    #[test]
    fn wide_characters_are_counted_as_the_terminal_does() {
        assert_eq!(cut("日本語", 6), "日本語");
        assert_eq!(cut("日本語", 5), "日本…");
        assert_eq!(cut("日本語", 4), "日…");
        assert_eq!((cut("abc", 1), cut("abc", 0)), ("…".to_owned(), String::new()));
    }
}
