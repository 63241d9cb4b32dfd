//! A table of rows, each of which does something to squelch and says what was measured.

use std::pin::Pin;
use std::time::Instant;

use anyhow::{Result, ensure};

use crate::Cluster;

/// What a row is called, and what it does.
pub type Row = (&'static str, fn() -> Pin<Box<dyn Future<Output = Result<String>>>>);

/// Runs those rows of which a name in `SQUELCH_ROWS` is a part, or all, one after the other, and prints the table.
///
/// # Errors
/// How many missed, or that no row is called so.
pub async fn run(rows: impl IntoIterator<Item = Row>) -> Result<()> {
    let wanted = std::env::var("SQUELCH_ROWS").unwrap_or_default();
    let wanted: Vec<_> = wanted.split(',').filter(|name| !name.is_empty()).collect();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|part| name.contains(part));
    let mut table = Vec::new();
    for (name, row) in rows.into_iter().filter(|(name, _)| is_wanted(name)) {
        eprintln!("==> {name}");
        let began = Instant::now();
        let (verdict, measured) = match row().await {
            Ok(measured) => ("ok", measured),
            Err(miss) => ("MISS", format!("{miss:#}")),
        };
        let line = format!("{verdict:<4}  {name:<56} {:>4.0} s  {measured}", began.elapsed().as_secs_f64());
        eprintln!("{line}");
        table.push(line);
        // Whatever a row has had the API server do.
        Cluster::connect().await?.as_it_came_up().await?;
    }
    eprintln!("\n{}", table.join("\n"));
    ensure!(!table.is_empty(), "no row is called so: {wanted:?}");
    let misses = table.iter().filter(|line| line.starts_with("MISS")).count();
    ensure!(misses == 0, "{misses} of {} rows missed", table.len());
    Ok(())
}
