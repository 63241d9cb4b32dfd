//! Time of one decision, by the number of live series.

use divan::Bencher;
use mimalloc::MiMalloc;
use squelch_engine::{Disposition, Observation};

#[allow(dead_code, reason = "other programs need more of it")]
mod load;

use load::Load;

/// The allocator of `squelch`.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Numbers of live series.
const LIVE: [usize; 3] = [1_000, 100_000, 1_000_000];

/// Maximum number of flush tasks per tick.
const ORDERS: usize = 512;

fn main() {
    // Many short samples: the median then excludes other work of the machine. Options go first.
    divan::Divan::default().sample_count(500).sample_size(20).config_with_args().main();
}

/// A repeat of a stored Event (UPDATE), merged.
#[divan::bench(args = LIVE)]
fn merge(bencher: Bencher<'_, '_>, live: usize) {
    decide(bencher, &Load::merged(live), Load::repeat, Some(Disposition::Compacted));
}

/// A repeat of one of the thousand series of a storm (UPDATE), merged.
#[divan::bench(args = LIVE)]
fn merge_in_storm(bencher: Bencher<'_, '_>, live: usize) {
    decide(bencher, &Load::merged(live), Load::repeat_in_storm, Some(Disposition::Compacted));
}

/// A repeat under a new name (CREATE), merged: the name is remembered, and the oldest name is evicted.
#[divan::bench(args = LIVE)]
fn merge_create(bencher: Bencher<'_, '_>, live: usize) {
    let load = Load::repeated(live);
    decide(bencher, &load, Load::repeat_by_create, Some(Disposition::Compacted));
}

/// A new series (CREATE), admitted by every stage; it evicts the oldest series of its namespace.
#[divan::bench(args = LIVE)]
fn new_series(bencher: Bencher<'_, '_>, live: usize) {
    decide(bencher, &Load::full(live), Load::newcomer, Some(Disposition::Admitted));
}

/// A message beyond `maxEvents` about an object (CREATE), aggregated into its summary.
#[divan::bench(args = LIVE)]
fn aggregate(bencher: Bencher<'_, '_>, live: usize) {
    decide(bencher, &Load::aggregated(live), Load::similar_write, Some(Disposition::Aggregated));
}

/// An Event beyond the burst of an object (CREATE), dropped by the spam filter.
#[divan::bench(args = LIVE)]
fn filter(bencher: Bencher<'_, '_>, live: usize) {
    decide(bencher, &Load::filtered(live), Load::similar_write, Some(Disposition::Filtered));
}

/// An Event beyond the budget of a namespace (CREATE), dropped.
#[divan::bench(args = LIVE)]
fn throttle(bencher: Bencher<'_, '_>, live: usize) {
    decide(bencher, &Load::throttled(live), Load::similar_write, Some(Disposition::Throttled));
}

/// An edit (UPDATE) that reports no occurrence.
#[divan::bench(args = LIVE)]
fn edit(bencher: Bencher<'_, '_>, live: usize) {
    decide(bencher, &Load::merged(live), Load::edit, None);
}

/// A tick with nothing due; squelch calls it ten times per second.
#[divan::bench(args = LIVE, sample_count = 100, sample_size = 1)]
fn tick(bencher: Bencher<'_, '_>, live: usize) {
    let load = Load::merged(live);
    bencher.bench_local(|| assert!(load.tick(ORDERS).is_empty()));
}

/// Measures `Engine::decide` alone, without creating and dropping the write.
fn decide(
    bencher: Bencher<'_, '_>,
    load: &Load,
    write: impl Fn(&Load) -> Observation<'_>,
    disposition: Option<Disposition>,
) {
    bencher.with_inputs(|| write(load)).bench_local_refs(|write| load.decide(write));
    load.expect(&write(load), disposition);
}
