//! Initializes logging. Logs go to stderr, since commands print their output to stdout.

use std::io::IsTerminal;

use tracing_subscriber::filter::{Directive, EnvFilter, ParseError};
use tracing_subscriber::util::TryInitError;
use tracing_subscriber::{Layer, layer::SubscriberExt, util::SubscriberInitExt};

/// The format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// Human-readable text
    #[default]
    Text,
    /// One JSON object per line
    Json,
}

/// An error from initializing logging.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The filter is invalid.
    #[error("invalid log filter: {0}; use a filter such as `info` or `squelch=debug,kube=warn`")]
    Filter(#[from] ParseError),
    /// Logging is initialized already.
    #[error("cannot initialize logging: {0}")]
    Init(#[from] TryInitError),
}

/// Directives that override every filter. These crates log request heads and bodies, which contain the token of the path
/// and text of tenants.
const FORCED: [&str; 4] = ["hyper=warn", "hyper_util=warn", "h2=warn", "rustls=warn"];

/// Initializes logging with a filter in the format of tracing, such as `info` or `squelch=debug,kube=warn`. Call it once.
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
    for directive in FORCED {
        let directive: Directive = directive.parse()?;
        built = built.add_directive(directive);
    }
    Ok(built)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_for_an_invalid_filter_contains_an_example() {
        let error = TelemetryError::from(filtered("squelch=loud").unwrap_err());
        assert!(error.to_string().contains("such as"), "{error}");
    }

    #[test]
    fn crates_that_log_the_token_stay_at_warnings() {
        let filter = filtered("trace,h2=trace").unwrap().to_string();
        assert!(filter.contains("h2=warn") && !filter.contains("h2=trace"), "{filter}");
    }
}
