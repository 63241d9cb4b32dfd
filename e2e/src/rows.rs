//! Tables of rows, each of which does something to squelch and says what was measured.

use std::pin::Pin;
use std::time::Instant;

use anyhow::{Result, ensure};

use crate::Cluster;

/// What a row is called, and what it does.
pub type Row = (&'static str, fn() -> Pin<Box<dyn Future<Output = Result<String>>>>);

/// Runs those rows that are [wanted](Wanted), one after the other, and prints the table.
///
/// # Errors
/// How many missed, or that no row is called so.
pub async fn run(rows: impl IntoIterator<Item = Row>) -> Result<()> {
    let (wanted, mut table) = (Wanted::asked(), Table::new(""));
    for (name, row) in rows.into_iter().filter(|(name, _)| wanted.is(name)) {
        table.run(name, row()).await;
        // Whatever a row has had the API server do.
        Cluster::connect().await?.as_it_came_up().await?;
    }
    judge(&[table], &wanted)
}

/// Those rows of which a line of `SQUELCH_ROWS` is a part; all, if there is none.
#[derive(Debug)]
pub struct Wanted(Vec<String>);

impl Wanted {
    /// As the environment has it.
    #[must_use]
    pub fn asked() -> Self {
        let names = std::env::var("SQUELCH_ROWS").unwrap_or_default();
        Self(names.lines().filter(|name| !name.is_empty()).map(ToOwned::to_owned).collect())
    }

    /// Whether this row is.
    #[must_use]
    pub fn is(&self, row: &str) -> bool {
        self.0.is_empty() || self.0.iter().any(|part| row.contains(part))
    }
}

/// The lines of one table.
#[derive(Debug)]
pub struct Table {
    title: &'static str,
    lines: Vec<String>,
}

impl Table {
    /// One without lines.
    #[must_use]
    pub fn new(title: &'static str) -> Self {
        Self { title, lines: Vec::new() }
    }

    /// Runs a row, and says at once what came of it.
    pub async fn run(&mut self, name: &str, row: impl Future<Output = Result<String>>) {
        eprintln!("==> {name}");
        let began = Instant::now();
        let (verdict, measured) = match row.await {
            Ok(measured) => ("ok", measured),
            Err(miss) => ("MISS", format!("{miss:#}")),
        };
        let line = format!("{verdict:<4}  {name:<56} {:>4.0} s  {measured}", began.elapsed().as_secs_f64());
        eprintln!("{line}");
        self.lines.push(line);
    }
}

/// Prints the tables.
///
/// # Errors
/// How many rows missed, or that none of them was wanted.
pub fn judge(tables: &[Table], wanted: &Wanted) -> Result<()> {
    for Table { title, lines } in tables.iter().filter(|table| !table.lines.is_empty()) {
        eprintln!("\n{title}\n{}", lines.join("\n"));
    }
    let lines: Vec<_> = tables.iter().flat_map(|table| &table.lines).collect();
    ensure!(!lines.is_empty(), "no row is called so: {:?}", wanted.0);
    let misses = lines.iter().filter(|line| line.starts_with("MISS")).count();
    ensure!(misses == 0, "{misses} of {} rows missed", lines.len());
    Ok(())
}
