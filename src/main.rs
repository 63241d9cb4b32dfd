//! The `squelch` binary.

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use clap::FromArgMatches as _;
use mimalloc::MiMalloc;

use squelch::cli::record::{self, RecordOptions};
use squelch::cli::{suggest, top, why};
use squelch::config::{Cli, Command, DoctorOptions, RunOptions, UninstallOptions};
use squelch::{api, app, output, replay, telemetry};

/// Returns free memory to the system. glibc keeps the memory of many closed connections.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// The exit code of a check that could not run.
const CHECK_NOT_RUN: u8 = 3;

/// How long the threads of the runtime may take to end.
const LAST_THREADS: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    let program = std::env::args_os().next().unwrap_or_default();
    let matches = Cli::command_for(program).get_matches();
    let command = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit()).command;
    let failure =
        if matches!(command, Command::Doctor(_)) { ExitCode::from(CHECK_NOT_RUN) } else { ExitCode::FAILURE };
    run(command).unwrap_or_else(|error| {
        // The exit code says it too, if standard error is closed.
        let _ = writeln!(std::io::stderr(), "squelch: {}", output::with_causes(&*error));
        failure
    })
}

fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Run(options) => operate(*options)?,
        Command::Crds(options) => api::run(options.out_dir.as_deref())?,
        Command::Replay(options) => replay::run(&options)?,
        Command::Suggest(options) => suggest::run(&options)?,
        Command::Record(options) => record_writes(&options)?,
        Command::Top(options) => block_on(top::run(&options))?,
        Command::Why(options) => block_on(why::run(&options))?,
        Command::Doctor(options) => return doctor(&options),
        Command::Uninstall(options) => uninstall(&options)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs a command on this thread.
fn block_on<T>(command: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(command)
}

fn uninstall(options: &UninstallOptions) -> anyhow::Result<()> {
    telemetry::init(telemetry::LogFormat::Text, "info")?;
    block_on(app::uninstall::uninstall(options))
}

fn record_writes(options: &RecordOptions) -> anyhow::Result<()> {
    // Standard error has the messages of the command, and standard output the trace.
    telemetry::init(telemetry::LogFormat::Text, "off")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(record::run(options));
    // A reader that takes no more lines must not keep the process alive.
    runtime.shutdown_background();
    ended
}

fn doctor(options: &DoctorOptions) -> anyhow::Result<ExitCode> {
    // Its output is the findings.
    telemetry::init(telemetry::LogFormat::Text, "off")?;
    let healthy = block_on(app::doctor::examine(options))?;
    Ok(if healthy { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn operate(options: RunOptions) -> anyhow::Result<()> {
    telemetry::init(options.log_format, &options.log_level)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let ended = runtime.block_on(app::run(options));
    // A thread that hangs must not keep the process alive.
    runtime.shutdown_timeout(LAST_THREADS);
    ended
}
