//! How long one decision takes, by how many series live.

use divan::Bencher;
use squelch::engine::{Disposition, Observation};

#[allow(dead_code, reason = "other programs need more of it")]
mod load;

use load::Load;

/// How many series live.
const LIVE: [usize; 3] = [1_000, 100_000, 1_000_000];

fn main() {
    // Many short samples: the median leaves out what else the machine does. Options go first.
    divan::Divan::default().sample_count(500).sample_size(20).config_with_args().main();
}

/// A repeat of a stored Event (UPDATE), held back.
#[divan::bench(args = LIVE)]
fn fold(bencher: Bencher<'_, '_>, live: usize) {
    decide(bencher, &Load::folded(live), Load::repeat, Some(Disposition::Compacted));
}

/// A repeat under a name of its own (CREATE), held back: the name is remembered, and the oldest one forgotten.
#[divan::bench(args = LIVE)]
fn fold_create(bencher: Bencher<'_, '_>, live: usize) {
    let load = Load::repeated(live);
    decide(bencher, &load, Load::repeat_by_create, Some(Disposition::Compacted));
}

/// A new series (CREATE), in the place of the oldest one of its namespace.
#[divan::bench(args = LIVE)]
fn new_series(bencher: Bencher<'_, '_>, live: usize) {
    decide(bencher, &Load::full(live), Load::fresh, Some(Disposition::Admitted));
}

/// An edit (UPDATE) that is no occurrence.
#[divan::bench(args = LIVE)]
fn edit(bencher: Bencher<'_, '_>, live: usize) {
    decide(bencher, &Load::folded(live), Load::edit, None);
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
