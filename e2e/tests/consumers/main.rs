//! Consumers of Events that nobody here wrote: what each sees of the same storm without a policy, with one, and with
//! `--last-timestamp=flush`. And a collector that gets the exported Events.

mod collector;
mod recordings;
mod storm;

use anyhow::{Result, ensure};
use e2e::Test;
use e2e::documents::replace_block;
use serde_json::json;

use recordings::{Consumer, Recordings};
use storm::Object;

/// The line before the table of docs/consumers.md.
const BEGIN: &str = "<!-- begin: written by `just test-consumers --write` -->\n";

/// A row of the table.
const HEAD: &str = "| consumer | storm | without a policy | with one | with `--last-timestamp=flush` |\n\
                    |---|---|---|---|---|\n";

/// The storm in one setting.
async fn seen(label: &str, is_governed: bool, flags: &[&str]) -> Result<Recordings> {
    let test = Test::begin(label).await?;
    let squelch = test.squelch_with(flags).await?;
    if is_governed {
        // Longer than the filters by age, and short enough for a test.
        let spec = json!({
            "series": { "idleTimeout": "8s" }, "aggregation": { "maxEvents": 5, "idleTimeout": "8s" },
            "spamFilter": { "mode": "Disabled" },
        });
        test.policy(&spec).await?;
    }
    let consumers = recordings::start(&test).await?;
    storm::run(&test).await?;
    squelch.wait_until_idle(e2e::GENEROUS).await?;
    let recordings = consumers.finish(&test).await?;
    squelch.stop().await?;
    test.passed()?;
    Ok(recordings)
}

#[tokio::test]
async fn what_each_consumer_sees_of_a_storm() -> Result<()> {
    let settings = [
        seen("free", false, &[]).await?,
        seen("governed", true, &[]).await?,
        seen("flush-time", true, &["--last-timestamp", "flush"]).await?,
    ];
    let mut table = HEAD.to_owned();
    for consumer in Consumer::ALL {
        for object in Object::ALL {
            for (setting, recorded) in ["without", "with", "flush"].iter().zip(&settings) {
                println!("{consumer}, {object}, {setting}: {}", recorded.counts(consumer, object));
            }
            let cells = settings.iter().map(|recorded| recorded.verdict(consumer, object));
            table += &format!("| {consumer} | {object} | {} |\n", cells.collect::<Vec<_>>().join(" | "));
        }
    }
    println!("\n{table}");
    let [_, governed, flush] = &settings;
    let filter = Consumer::AgeFilter;
    ensure!(
        governed.verdict(filter, Object::Repeats) != "final count",
        "the filter by age saw the closing flush"
    );
    ensure!(
        flush.verdict(filter, Object::Repeats) == "final count",
        "the filter by age missed the closing flush"
    );
    // More than half of it, because a stored count is.
    let last = governed.last(filter, Object::Repeats);
    ensure!(2 * last > storm::OCCURRENCES, "the filter by age saw {last}");
    replace_block("docs/consumers.md", BEGIN, &table, "just test-consumers --write")
}
