//! Tables of rows. Each row disturbs squelch and returns its measurements.

use std::pin::Pin;
use std::time::Instant;

use anyhow::{Result, ensure};

use crate::Cluster;

/// The name and the function of a row.
pub type Row = (&'static str, fn() -> Pin<Box<dyn Future<Output = Result<String>>>>);

/// Runs the [wanted](Wanted) rows one after the other, and prints the table.
///
/// # Errors
/// If a row failed, or if no row has such a name.
pub async fn run(rows: impl IntoIterator<Item = Row>) -> Result<()> {
    let (wanted, mut table) = (Wanted::asked(), Table::new(""));
    for (name, row) in rows.into_iter().filter(|(name, _)| wanted.is(name)) {
        table.run(name, row()).await;
        // A row may have changed flags of the API server.
        Cluster::connect().await?.as_it_came_up().await?;
    }
    judge(&[table], &wanted)
}

/// Selects the rows whose name contains a line of `SQUELCH_ROWS`; all rows without it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Wanted(Vec<String>);

impl Wanted {
    /// Reads the selection from the environment.
    #[must_use]
    pub fn asked() -> Self {
        let names = std::env::var("SQUELCH_ROWS").unwrap_or_default();
        Self(names.lines().filter(|name| !name.is_empty()).map(ToOwned::to_owned).collect())
    }

    /// Whether this row is selected.
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
    /// An empty table.
    #[must_use]
    pub fn new(title: &'static str) -> Self {
        Self { title, lines: Vec::new() }
    }

    /// Runs a row and prints its result.
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
/// If a row failed, or if no row was selected.
pub fn judge(tables: &[Table], wanted: &Wanted) -> Result<()> {
    for Table { title, lines } in tables.iter().filter(|table| !table.lines.is_empty()) {
        eprintln!("\n{title}\n{}", lines.join("\n"));
    }
    let lines: Vec<_> = tables.iter().flat_map(|table| &table.lines).collect();
    ensure!(!lines.is_empty(), "no row matches {:?}", wanted.0);
    let misses = lines.iter().filter(|line| line.starts_with("MISS")).count();
    ensure!(misses == 0, "{misses} of {} rows failed", lines.len());
    Ok(())
}
