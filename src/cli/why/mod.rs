//! `squelch why`: where the Events about an object are. Reads the cluster with the rights of a tenant.

mod conclusion;
mod drops;
mod facts;
mod object;
mod read;
mod report;
mod stages;
mod stored;
#[cfg(test)]
mod tests;
mod text;
mod verdict;

use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser as _};

use crate::api::EventType;
use crate::cli::{ClusterConnection, ClusterFlags};
use crate::output::{self, OutputFormat};

use object::WrittenObject;
use report::WhyReport;

/// The deadline of all calls together.
const DEADLINE: Duration = Duration::from_secs(60);

/// Flags of `squelch why`.
#[derive(Clone, Debug, Args)]
pub struct WhyOptions {
    /// Object that the Events are about, such as pod/web-1 or deployments.apps/web. It may be deleted
    #[arg(value_name = "KIND/NAME")]
    object: WrittenObject,

    /// The cluster.
    #[command(flatten)]
    cluster: ClusterFlags,

    /// Reason of the Events, such as BackOff [default: any]
    #[arg(long, value_name = "REASON")]
    reason: Option<String>,

    /// Type of the Events. Warning is every type but Normal [default: any]
    #[arg(long = "type", value_name = "TYPE", value_parser = event_type())]
    event_type: Option<EventType>,

    /// Component that reports the Events, such as kubelet [default: any]
    #[arg(long, value_name = "COMPONENT")]
    component: Option<String>,

    /// User that writes the Events, such as system:serviceaccount:ci:builder; selects policies only [default: any]
    #[arg(long, value_name = "USER")]
    user: Option<String>,

    /// Output format
    #[arg(long, short, value_enum, default_value_t = OutputFormat::Table)]
    output: OutputFormat,
}

fn event_type() -> impl clap::builder::TypedValueParser<Value = EventType> {
    let types = PossibleValuesParser::new(["Normal", "Warning"]);
    types.map(|text| if text == "Normal" { EventType::Normal } else { EventType::Warning })
}

/// Prints where the Events about an object are.
///
/// # Errors
/// The API server cannot be reached or does not answer, or the namespace does not exist.
pub async fn run(options: &WhyOptions) -> Result<()> {
    let cluster = ClusterConnection::connect(&options.cluster).await?;
    let read = tokio::time::timeout(DEADLINE, read::read(&cluster, options)).await;
    let facts = read.context("the API server did not answer within 60 s; run the command again")??;
    let text = options.output.render(&WhyReport::of(&facts), text::table)?;
    output::print(&text).context("cannot write to standard output")
}
