//! Allocations of a decision: none for a write of a series with merged occurrences.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use kube::core::{ApiResource, DynamicObject};
use serde_json::json;
use squelch::api::{ClusterEventPolicy, EventPolicy};
use squelch::policy::{Index, Labels};
use squelch_engine::{Disposition, Observation};

#[path = "../benches/load/mod.rs"]
#[allow(dead_code, reason = "a benchmark needs more of it than this test")]
mod load;

use load::Load;

thread_local! {
    /// Allocations of this thread. Threads of the test runner do not count.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[expect(unsafe_code, reason = "there is no other way to see allocations")]
// SAFETY: every call goes to the system's allocator as it came; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`, and `pointer` came from the system's allocator.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: as for `dealloc`.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

fn count() {
    ALLOCATIONS.with(|count| count.set(count.get() + 1));
}

/// The number of allocations of the decision on `write`.
fn allocations(load: &Load, write: &Observation<'_>, disposition: Option<Disposition>) -> u64 {
    let before = ALLOCATIONS.get();
    let verdict = load.decide(write);
    let after = ALLOCATIONS.get();
    assert_eq!(verdict.disposition, disposition);
    after - before
}

#[test]
fn the_allocator_counts() {
    let before = ALLOCATIONS.get();
    drop(std::hint::black_box(Box::new(7)));
    assert_eq!(ALLOCATIONS.get(), before + 1);
}

#[test]
fn a_merged_repeat_allocates_nothing() {
    let load = Load::merged(1_000);
    for _ in 0..10_000 {
        assert_eq!(allocations(&load, &load.repeat(), Some(Disposition::Compacted)), 0);
    }
}

#[test]
fn a_repeat_under_a_new_name_allocates_only_for_table_growth() {
    let load = Load::repeated(1_000);
    let decided = 10_000;
    let sum: u64 = (0..decided)
        .map(|_| allocations(&load, &load.repeat_by_create(), Some(Disposition::Compacted)))
        .sum();
    assert!(sum <= decided / 100, "{sum} allocations in {decided} decisions");
}

#[test]
fn a_dropped_write_allocates_only_for_table_growth() {
    for (load, disposition) in
        [(Load::filtered(1_000), Disposition::Filtered), (Load::throttled(1_000), Disposition::Throttled)]
    {
        let decided = 10_000;
        let sum: u64 =
            (0..decided).map(|_| allocations(&load, &load.similar_write(), Some(disposition))).sum();
        assert!(sum <= decided / 100, "{disposition:?}: {sum} allocations in {decided} decisions");
    }
}

#[test]
fn an_edit_allocates_nothing() {
    let load = Load::merged(1_000);
    for _ in 0..1_000 {
        assert_eq!(allocations(&load, &load.edit(), None), 0);
    }
}

#[test]
fn policy_selection_allocates_nothing() {
    let load = Load::merged(1_000);
    let write = load.repeat();
    let mut index = Index::default();
    let spec = |rest: serde_json::Value| json!({"spec": rest});
    let own = DynamicObject::new("own", &ApiResource::erase::<EventPolicy>(&())).within(write.namespace);
    index.apply(&own.data(spec(json!({"match": [{"types": ["Normal"]}]}))));
    let cluster = |name: &str| DynamicObject::new(name, &ApiResource::erase::<ClusterEventPolicy>(&()));
    let first = json!({"precedence": "Override", "match": [{"reasons": ["*Other*"], "users": ["a", "b*"]}]});
    index.apply(&cluster("first").data(spec(first)));
    let last =
        json!({"namespaceSelector": {"matchLabels": {"team": "shop"}}, "exempt": [{"reasons": ["?x*"]}]});
    index.apply(&cluster("last").data(spec(last)));
    index.apply_namespace(write.namespace, "1", Labels::from([("team".to_owned(), "shop".to_owned())]));
    let set = index.set();
    for (write, display) in
        [(&write, Some("last")), (&Observation { namespace: "unknown", ..write.clone() }, None)]
    {
        let before = ALLOCATIONS.get();
        let governing = set.governing(write);
        assert_eq!(ALLOCATIONS.get(), before);
        assert_eq!(governing.map(|governing| governing.rules.policy.display.to_string()).as_deref(), display);
    }
}
