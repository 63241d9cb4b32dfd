//! One decision or one review again and again, for a counter of instructions: see hack/instructions.
//!
//! `instructions NAME NUMBER` does it so often; without arguments it prints the names.

#![expect(clippy::print_stdout, reason = "a program that reports")]

use std::process::ExitCode;

use bytes::Bytes;
use mimalloc::MiMalloc;
use squelch::engine::Observation;

#[allow(dead_code, reason = "other programs need more of it")]
mod load;
#[allow(dead_code, reason = "other programs need more of it")]
mod served;

use load::Load;
use served::{Asked, Served};

/// That of `squelch`.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Few, so that most of what is counted is what is meant.
const LIVE: usize = 1_000;

type Decision = (&'static str, fn(usize) -> Load, for<'a> fn(&'a Load) -> Observation<'a>);

const DECISIONS: [Decision; 6] = [
    ("fold", Load::folded, Load::repeat),
    ("fold-create", Load::repeated, Load::repeat_by_create),
    ("new-series", Load::full, Load::newcomer),
    ("aggregate", Load::aggregated, Load::look_alike),
    ("filter", Load::filtered, Load::look_alike),
    ("throttle", Load::throttled, Load::look_alike),
];

const REVIEWS: [(&str, Asked); 3] = [
    ("review-core-create", Asked::CoreCreate),
    ("review-core-update", Asked::CoreUpdate),
    ("review-events-update", Asked::EventsUpdate),
];

fn main() -> ExitCode {
    // `cargo bench` adds a flag.
    let arguments: Vec<_> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let [name, number] = &arguments[..] else {
        let names = DECISIONS.map(|(name, ..)| name).into_iter().chain(REVIEWS.map(|(name, _)| name));
        names.for_each(|name| println!("{name}"));
        return ExitCode::SUCCESS;
    };
    let number = number.parse().expect("a number of repetitions");
    if let Some((_, load, write)) = DECISIONS.into_iter().find(|(of, ..)| of == name) {
        decide(&load(LIVE), write, number);
    } else if let Some((_, asked)) = REVIEWS.into_iter().find(|(of, _)| of == name) {
        review(asked, number);
    } else {
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// Making the write is counted too: it is the same each time.
fn decide(load: &Load, write: fn(&Load) -> Observation<'_>, number: usize) {
    for _ in 0..number {
        load.decide(&write(load));
    }
}

fn review(asked: Asked, number: usize) {
    // A body has a deadline, which only a runtime can keep.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let _entered = runtime.enter();
    let served = Served::warmed(asked);
    let bytes = Bytes::from(asked.bytes());
    for _ in 0..number {
        served.answer(served.request(bytes.clone()));
    }
}
