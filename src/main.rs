//! The `squelch` binary.

use std::process::ExitCode;
use std::time::Duration;

use clap::FromArgMatches as _;
use mimalloc::MiMalloc;

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
        eprintln!("squelch: {}", output::with_causes(&*error));
        failure
    })
}

fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Crds(options) => api::run(options.out_dir.as_deref())?,
        Command::Run(options) => operate(*options)?,
        Command::Replay(options) => replay::run(&options)?,
        Command::Uninstall(options) => uninstall(&options)?,
        Command::Doctor(options) => return doctor(&options),
    }
    Ok(ExitCode::SUCCESS)
}

fn uninstall(options: &UninstallOptions) -> anyhow::Result<()> {
    telemetry::init(telemetry::LogFormat::Text, "info")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(app::uninstall::uninstall(options))
}

fn doctor(options: &DoctorOptions) -> anyhow::Result<ExitCode> {
    // Its output is the findings.
    telemetry::init(telemetry::LogFormat::Text, "off")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let healthy = runtime.block_on(app::doctor::examine(options))?;
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
