//! The command line: that of `emitter-go`, without the options of client-go's recorders.

use std::{path::PathBuf, str::FromStr, time::Duration};

use clap::{Parser, ValueEnum};
use kube::runtime::events::EventType;

/// Floods an API server with Events through kube's Recorder.
#[derive(Parser)]
#[command(name = "emitter-kube")]
pub(crate) struct Options {
    /// The API server and the identity
    #[arg(long)]
    pub(crate) kubeconfig: PathBuf,
    /// Impersonate this user
    #[arg(long = "as", value_name = "USER")]
    pub(crate) impersonate: Option<String>,
    /// Namespace of the objects and of their Events
    #[arg(long, default_value = "default")]
    pub(crate) namespace: String,
    /// Number of objects that the Events are about
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) objects: u32,
    /// Objects are named PREFIX-0, PREFIX-1, ...; uids follow from the names
    #[arg(long, default_value = "storm")]
    pub(crate) name_prefix: String,
    /// Kind of the objects
    #[arg(long, default_value = "Pod")]
    pub(crate) kind: String,
    /// apiVersion of the objects
    #[arg(long, default_value = "v1")]
    pub(crate) api_version: String,
    /// fieldPath of the references to the objects
    #[arg(long)]
    pub(crate) field_path: Option<String>,
    /// Type of the Events
    #[arg(long = "type", value_enum, default_value = "Warning", ignore_case = true)]
    pub(crate) type_: Type,
    /// Reason of the Events
    #[arg(long, default_value = "BackOff")]
    pub(crate) reason: String,
    /// Action of the Events
    #[arg(long, default_value = "Restarting")]
    pub(crate) action: String,
    /// Text that every message begins with
    #[arg(long, default_value = "Back-off restarting failed container")]
    pub(crate) message: String,
    /// identical, distinct (one per occurrence of an object) or a number of messages used in turn
    #[arg(long, default_value = "identical")]
    pub(crate) messages: Variety,
    /// reportingController
    #[arg(long, default_value = "emitter")]
    pub(crate) component: String,
    /// reportingInstance
    #[arg(long, default_value = "emitter-0")]
    pub(crate) instance: String,
    /// Occurrences per second over all objects together; 0: unlimited
    #[arg(long, default_value_t = 50.0, value_parser = rate)]
    pub(crate) rate: f64,
    /// Occurrences per object. Default: until --duration or a signal
    #[arg(long)]
    pub(crate) count: Option<u32>,
    /// Stop emitting after this time (500ms, 20s, 2m)
    #[arg(long, value_parser = duration)]
    pub(crate) duration: Option<Duration>,
    /// Maximum time to wait for the remaining answers
    #[arg(long, value_parser = duration, default_value = "30s")]
    pub(crate) settle: Duration,
}

impl Options {
    /// The message of an object's n-th occurrence (from 0), as `emitter-go` makes it.
    pub(crate) fn message_of(&self, n: u32) -> String {
        match self.messages {
            Variety::Identical => self.message.clone(),
            Variety::Distinct => format!("{} ({n})", self.message),
            Variety::Turns(k) => format!("{} ({})", self.message, n % k),
        }
    }
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Type {
    #[value(name = "Normal")]
    Normal,
    #[value(name = "Warning")]
    Warning,
}

impl From<Type> for EventType {
    fn from(type_: Type) -> Self {
        match type_ {
            Type::Normal => Self::Normal,
            Type::Warning => Self::Warning,
        }
    }
}

/// The number of different messages of an object.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Variety {
    Identical,
    Distinct,
    Turns(u32),
}

impl FromStr for Variety {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        match s {
            "identical" | "1" => Ok(Self::Identical),
            "distinct" => Ok(Self::Distinct),
            _ => match s.parse() {
                Ok(k) if k > 0 => Ok(Self::Turns(k)),
                _ => Err("must be identical, distinct or a number above 0".into()),
            },
        }
    }
}

fn rate(s: &str) -> Result<f64, String> {
    match s.parse::<f64>() {
        Ok(rate) if rate.is_finite() && rate >= 0.0 => Ok(rate),
        _ => Err("must be a number of at least 0".into()),
    }
}

fn duration(s: &str) -> Result<Duration, String> {
    let number = s.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let seconds = match &s[number.len()..] {
        "ms" => 0.001,
        "s" => 1.0,
        "m" => 60.0,
        _ => return Err("must be a duration such as 500ms, 20s or 2m".into()),
    };
    let number: f64 = number.parse().map_err(|_| format!("{number:?} is not a number"))?;
    Duration::try_from_secs_f64(number * seconds).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_the_format_of_go() {
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        assert!(duration("2").is_err());
        assert!(duration("-2s").is_err());
    }

    #[test]
    fn messages_are_a_keyword_or_a_number() {
        assert_eq!("identical".parse(), Ok(Variety::Identical));
        assert_eq!("3".parse(), Ok(Variety::Turns(3)));
        assert!("0".parse::<Variety>().is_err());
        assert!("some".parse::<Variety>().is_err());
    }
}
