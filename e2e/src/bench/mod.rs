//! Common code of the benchmarks on a cluster, `bench-cluster` and `bench-kwok`.

pub mod document;
pub mod gauges;
pub mod limiter;
pub mod machine;
