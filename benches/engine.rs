//! How long one decision takes, by how many series live.

use divan::Bencher;
use mimalloc::MiMalloc;
use squelch_engine::{Disposition, Observation};

#[allow(dead_code, reason = "other programs need more of it")]
mod load;

use load::Load;

/// That of `squelch`.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// How many series live.
const LIVE: [usize; 3] = [1_000, 100_000, 1_000_000];

/// So many orders the flush asks for at most.
const ORDERS: usize = 512;

fn main() {
    // Many short samples: the median leaves out what else the machine does. Options go first.
    divan::Divan::default().sample_count(500).sample_size(20).config_with_args().main();
}

/// A repeat of a stored Event (UPDATE), held back.
#[divan::bench(args = LIVE)]
fn fold(bencher: Bencher<'_, '_>, live: usize) {
    decide(bencher, &Load::folded(live), Load::repeat, Some(Disposition::Compacted));
}

/// A repeat of one of the thousand series of a storm (UPDATE), held back.
#[divan::bench(args = LIVE)]
fn fold_in_storm(bencher: Bencher<'_, '_>, live: usize) {
    decide(bencher, &Load::folded(live), Load::repeat_in_storm, Some(Disposition::Compacted));
}

/// A repeat under a name of its own (CREATE), held back: the name is remembered, and the oldest one forgotten.
#[divan::bench(args = LIVE)]
fn fold_create(bencher: Bencher<'_, '_>, live: usize) {
    let load = Load::repeated(live);
    decide(bencher, &load, Load::repeat_by_create, Some(Disposition::Compacted));
}

/// A new series (CREATE) that every step has let through, in the place of the oldest one of its namespace.
#[divan::bench(args = LIVE)]
fn new_series(bencher: Bencher<'_, '_>, live: usize) {
    decide(bencher, &Load::full(live), Load::newcomer, Some(Disposition::Admitted));
}

/// One message too many about an object (CREATE), folded into its summary.
#[divan::bench(args = LIVE)]
fn aggregate(bencher: Bencher<'_, '_>, live: usize) {
    decide(bencher, &Load::aggregated(live), Load::look_alike, Some(Disposition::Aggregated));
}

/// An Event too many of an object (CREATE), dropped by the spam filter.
#[divan::bench(args = LIVE)]
fn filter(bencher: Bencher<'_, '_>, live: usize) {
    decide(bencher, &Load::filtered(live), Load::look_alike, Some(Disposition::Filtered));
}

/// An Event too many of a namespace (CREATE), dropped by the budget.
#[divan::bench(args = LIVE)]
fn throttle(bencher: Bencher<'_, '_>, live: usize) {
    decide(bencher, &Load::throttled(live), Load::look_alike, Some(Disposition::Throttled));
}

/// An edit (UPDATE) that is no occurrence.
#[divan::bench(args = LIVE)]
fn edit(bencher: Bencher<'_, '_>, live: usize) {
    decide(bencher, &Load::folded(live), Load::edit, None);
}

/// A tick when nothing is due: what looking costs, ten times a second.
#[divan::bench(args = LIVE, sample_count = 100, sample_size = 1)]
fn tick(bencher: Bencher<'_, '_>, live: usize) {
    let load = Load::folded(live);
    bencher.bench_local(|| assert!(load.tick(ORDERS).is_empty()));
}

/// Measures `Engine::decide` alone; making the write and dropping it is not measured.
fn decide(
    bencher: Bencher<'_, '_>,
    load: &Load,
    write: impl Fn(&Load) -> Observation<'_>,
    disposition: Option<Disposition>,
) {
    bencher.with_inputs(|| write(load)).bench_local_refs(|write| load.decide(write));
    load.expect(&write(load), disposition);
}
