//! The values of flags, parsed into types that cannot be invalid.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use hyper::Uri;
use jiff::SignedDuration;

use crate::api::parse_duration;

/// The time that a flush stores in `lastTimestamp`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LastTimestamp {
    /// That of the last occurrence.
    Occurrence,
    /// That of the flush.
    Flush,
}

/// `--webhook-url`: https, a host, an optional port, no path, no trailing slash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookUrl(String);

impl WebhookUrl {
    /// The URL, such as `https://127.0.0.1:9443`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The host, a name or an IP address without the brackets of IPv6. The certificate is issued for it.
    pub fn host(&self) -> &str {
        let authority = self.0.trim_start_matches("https://");
        let host = authority
            .rsplit_once(':')
            .filter(|(_, port)| !port.ends_with(']'))
            .map_or(authority, |(host, _)| host);
        host.trim_start_matches('[').trim_end_matches(']')
    }
}

impl fmt::Display for WebhookUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// `--webhook-service`: a Service in squelch's namespace, and its port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookService {
    /// Its name.
    pub name: String,
    /// The port of the Service, not of the pod.
    pub port: u16,
}

pub(super) fn webhook_service(text: &str) -> Result<WebhookService, String> {
    let (name, port) = text.rsplit_once(':').unwrap_or((text, "443"));
    let port = port.parse().ok().filter(|port| *port > 0);
    // The name of a Service has no dots.
    match (dns_name(name), port) {
        // The name of a Service has no dots.
        (Ok(name), Some(port)) if !name.contains('.') => Ok(WebhookService { name, port }),
        _ => {
            Err("must be the name of a Service with an optional port, such as squelch or squelch:443"
                .to_owned())
        }
    }
}

/// Parses the name of an object: a DNS subdomain.
pub(super) fn dns_name(text: &str) -> Result<String, String> {
    let label = |label: &str| {
        let inside = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
        !label.is_empty() && label.bytes().all(inside) && !label.starts_with('-') && !label.ends_with('-')
    };
    if text.len() <= 253 && text.split('.').all(label) {
        return Ok(text.to_owned());
    }
    Err("must be a name of lower case letters, digits and dashes, such as squelch".to_owned())
}

/// Parses a label of the webhook configuration.
pub(super) fn label(text: &str) -> Result<(String, String), String> {
    let (key, value) = annotation(text)?;
    if value.is_empty() || is_label_name(&value) {
        return Ok((key, value));
    }
    Err("the value of a label has at most 63 letters, digits, '-', '_' and '.', such as example.com/team=platform".to_owned())
}

/// Parses an annotation of the webhook configuration.
pub(super) fn annotation(text: &str) -> Result<(String, String), String> {
    let refuse = |reason: &str| Err(format!("{reason}, such as example.com/team=platform"));
    let Some((key, value)) = text.split_once('=') else { return refuse("must be KEY=VALUE") };
    let (prefix, name) = key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    if !is_label_name(name) || prefix.is_some_and(|prefix| dns_name(prefix).is_err()) {
        return refuse("KEY must be a name with an optional domain");
    }
    if prefix.is_some_and(|prefix| prefix == "squelch.dev" || prefix.ends_with(".squelch.dev")) {
        return refuse("squelch.dev/ is reserved for squelch itself; use another domain");
    }
    Ok((key.to_owned(), value.to_owned()))
}

/// Whether a text is the name part of a qualified name, or a value of a label.
fn is_label_name(text: &str) -> bool {
    let is_inside = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.');
    let ends = [text.bytes().next(), text.bytes().last()];
    text.len() <= 63
        && text.bytes().all(is_inside)
        && ends.iter().all(|end| end.is_some_and(|c| c.is_ascii_alphanumeric()))
}

pub(super) fn webhook_url(text: &str) -> Result<WebhookUrl, String> {
    let refuse =
        |what: &str| format!("{what}; must have scheme, host and port, such as https://127.0.0.1:9443");
    let url: Uri = text.parse().map_err(|_| refuse("not a URL"))?;
    if url.scheme_str() != Some("https") {
        return Err(refuse("the API server calls webhooks by https only"));
    }
    let authority = url.authority().filter(|authority| !authority.host().is_empty());
    let authority = authority.ok_or_else(|| refuse("the host is missing"))?;
    if authority.as_str().contains('@') {
        return Err(refuse("the API server refuses a webhook URL with a user"));
    }
    if url.path() != "/" || url.query().is_some() || text.contains('#') {
        return Err(refuse("squelch chooses the path itself"));
    }
    Ok(WebhookUrl(format!("https://{authority}")))
}

pub(super) fn collector_url(text: &str) -> Result<Uri, String> {
    let refuse =
        |what: &str| format!("{what}; must have scheme, host and port, such as http://127.0.0.1:4318");
    let url: Uri = text.parse().map_err(|_| refuse("not a URL"))?;
    if !matches!(url.scheme_str(), Some("http" | "https")) {
        return Err(refuse("squelch sends logs by OTLP over http or https"));
    }
    let authority = url.authority().filter(|authority| !authority.host().is_empty());
    let authority = authority.ok_or_else(|| refuse("the host is missing"))?;
    if authority.as_str().contains('@') {
        return Err(refuse("a user is given by --export-otlp-header"));
    }
    Ok(url)
}

/// `--export-otlp-header`: a header of HTTP. It may be a secret, and clap prints a value that a parser refuses. So it is
/// parsed later.
#[derive(Clone, PartialEq, Eq)]
pub struct CollectorHeader(String);

impl CollectorHeader {
    /// Returns its name and value. A line break at the end, as of a file in a Secret, is no part of the value.
    ///
    /// # Errors
    /// A sentence that does not contain the value.
    pub fn parse(&self) -> Result<(HeaderName, HeaderValue), &'static str> {
        let (name, value) = self.0.split_once('=').ok_or("no = (a comma separates headers)")?;
        let name = name.parse().map_err(|_| "not the name of a header")?;
        let value = value.trim_end_matches(['\r', '\n']);
        Ok((name, HeaderValue::from_str(value).map_err(|_| "not the value of a header")?))
    }
}

impl From<&str> for CollectorHeader {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl fmt::Debug for CollectorHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CollectorHeader").finish_non_exhaustive()
    }
}

pub(super) fn bind(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "must be an IP address and a port, such as 0.0.0.0:8080 or [::]:8080".to_owned())
}

pub(super) fn log_level(text: &str) -> Result<String, String> {
    match tracing_subscriber::EnvFilter::try_new(text) {
        Ok(_) if !text.trim().is_empty() => Ok(text.to_owned()),
        _ => {
            Err("must be error, warn, info, debug or trace, or directives such as info,squelch=debug"
                .to_owned())
        }
    }
}

pub(super) fn status_interval(text: &str) -> Result<Duration, String> {
    duration(text, "1s", "1h", "10s")
}

pub(super) fn report_interval(text: &str) -> Result<Duration, String> {
    duration(text, "1s", "1h", "30s")
}

pub(super) fn receipt_interval(text: &str) -> Result<Duration, String> {
    duration(text, "0s", "24h", "10m")
}

pub(super) fn shutdown_timeout(text: &str) -> Result<Duration, String> {
    duration(text, "0s", "1h", "30s")
}

pub(super) fn certificate_lifetime(text: &str) -> Result<Duration, String> {
    duration(text, "5s", "87600h", "2160h")
}

pub(super) fn token_lifetime(text: &str) -> Result<Duration, String> {
    duration(text, "1m", "168h", "1h")
}

pub(super) fn clock_offset(text: &str) -> Result<SignedDuration, String> {
    let (behind, length) = text.strip_prefix('-').map_or((false, text), |length| (true, length));
    let length = parse_duration(length).map_err(|bad| format!("the duration {bad}"))?;
    let length = SignedDuration::try_from(length).map_err(|_| "the duration is too long".to_owned())?;
    Ok(if behind { -length } else { length })
}

pub(super) fn uninstall_timeout(text: &str) -> Result<Duration, String> {
    duration(text, "1s", "2h", "90s")
}

pub(super) fn doctor_wait(text: &str) -> Result<Duration, String> {
    duration(text, "0s", "10m", "30s")
}

fn duration(text: &str, least: &str, most: &str, example: &str) -> Result<Duration, String> {
    let found = parse_duration(text).map_err(|bad| format!("the duration {bad}"))?;
    let limit = |text| parse_duration(text).expect("limits are constants that a test parses");
    if found < limit(least) || found > limit(most) {
        return Err(format!("the duration must be between {least} and {most}, such as {example}"));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_certificate_is_for_the_host_alone() {
        let hosts = [
            "https://h.example",
            "https://h.example:9443",
            "https://127.0.0.1:1",
            "https://[::1]:1",
            "https://[::1]",
        ];
        let hosts = hosts.map(|url| webhook_url(url).unwrap().host().to_owned());
        assert_eq!(hosts, ["h.example", "h.example", "127.0.0.1", "::1", "::1"]);
    }

    #[test]
    fn a_collector_has_a_host_and_its_headers_a_name() {
        for url in ["http://127.0.0.1:4318", "https://collector.monitoring/v1/logs", "http://[::1]:4318"] {
            assert_eq!(collector_url(url).map(|url| url.scheme().is_some()), Ok(true), "{url}");
        }
        for (url, problem) in [
            ("grpc://h:4317", "squelch sends logs by OTLP over http or https"),
            ("h:4318", "squelch sends logs by OTLP over http or https"),
            ("http://u:p@h:4318", "a user is given by --export-otlp-header"),
            ("http://", "not a URL"),
            ("", "not a URL"),
        ] {
            let error = collector_url(url).unwrap_err();
            assert!(error.starts_with(problem), "{url}: {error}");
        }
    }

    #[test]
    fn a_header_is_parsed_without_showing_its_value() {
        let header = CollectorHeader::from("Authorization=Basic dTpw=\n");
        let (name, value) = header.parse().unwrap();
        assert_eq!((name.as_str(), value.as_bytes()), ("authorization", &b"Basic dTpw="[..]));
        assert!(!format!("{header:?}").contains("dTpw"));
        for (text, problem) in
            [("dTpw", "no ="), ("=dTpw", "name"), ("dT pw=x", "name"), ("a=dT\npw", "value")]
        {
            let error = CollectorHeader::from(text).parse().unwrap_err();
            assert!(error.contains(problem) && !error.contains("dT"), "{text:?}: {error}");
        }
    }
}
