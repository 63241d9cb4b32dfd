//! The `squelch` binary.

use std::process::ExitCode;

use clap::Parser;

use squelch::config::{Cli, Command, DrainOptions, RunOptions};
use squelch::{api, app, replay, telemetry};

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("squelch: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Crds(options) => Ok(api::run(options.out_dir.as_deref())?),
        Command::Run(options) => operate(*options),
        Command::Replay(options) => Ok(replay::run(&options)?),
        Command::Drain(options) => drain(&options),
    }
}

fn drain(options: &DrainOptions) -> anyhow::Result<()> {
    telemetry::init(telemetry::LogFormat::Text, "info")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(app::drain::drain(options))
}

fn operate(options: RunOptions) -> anyhow::Result<()> {
    telemetry::init(options.log_format, &options.log_level)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(app::run(options))
}
