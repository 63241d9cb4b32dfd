//! Common code of the benchmarks `bench-cluster`, `bench-kwok` and `bench-serve`.

pub mod document;
pub mod gauges;
pub mod limiter;
pub mod machine;

use std::process::ExitCode;

use anyhow::Result;

/// The exit code of a benchmark. Prints its error.
pub fn exit_code(done: Result<()>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
