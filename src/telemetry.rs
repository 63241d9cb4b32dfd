//! Logs: the one place that sets them up. They go to stderr; stdout belongs to what a command prints.

use std::io::IsTerminal;

use tracing_subscriber::filter::{Directive, EnvFilter, ParseError};
use tracing_subscriber::util::TryInitError;
use tracing_subscriber::{Layer, layer::SubscriberExt, util::SubscriberInitExt};

/// How a line of the log looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Why logs could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The filter is none.
    #[error("not a log filter: {0} (such as `info` or `squelch=debug,kube=warn`)")]
    Filter(#[from] ParseError),
    /// Logs are set up already.
    #[error("cannot set up logs: {0}")]
    Init(#[from] TryInitError),
}

/// These see request heads and bodies, in which the path's token and tenants' text stand: whatever filter is asked
/// for, they stay at warnings.
const HELD_BACK: [&str; 4] = ["hyper=warn", "hyper_util=warn", "h2=warn", "rustls=warn"];

/// Starts logging: `filter` is of tracing's form (`info`, `squelch=debug,kube=warn`). Once a process.
pub fn init(format: LogFormat, filter: &str) -> Result<(), TelemetryError> {
    let filter = filtered(filter)?;
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let lines = match format {
        LogFormat::Text => lines.with_ansi(std::io::stderr().is_terminal()).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    tracing_subscriber::registry().with(lines.with_filter(filter)).try_init()?;
    Ok(())
}

fn filtered(filter: &str) -> Result<EnvFilter, ParseError> {
    let mut built = EnvFilter::builder().parse(filter)?;
    for directive in HELD_BACK {
        let directive: Directive = directive.parse()?;
        built = built.add_directive(directive);
    }
    Ok(built)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_filter_is_an_error_that_shows_a_right_one() {
        let error = TelemetryError::from(filtered("squelch=loud").unwrap_err());
        assert!(error.to_string().contains("such as"), "{error}");
    }

    #[test]
    fn what_sees_the_token_stays_quiet_even_when_asked() {
        let filter = filtered("trace,h2=trace").unwrap().to_string();
        assert!(filter.contains("h2=warn") && !filter.contains("h2=trace"), "{filter}");
    }
}
