//! Export to an OpenTelemetry collector: OTLP logs in Protobuf over HTTP.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use http::{Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use jiff::Timestamp;
use jiff::fmt::rfc2822;
use opentelemetry_proto::tonic::collector::logs::v1::{ExportLogsServiceRequest, ExportLogsServiceResponse};
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message as _;

use super::delivery::{Exporter, Outcome};
use super::record::{Attribute, ExportRecord};
use crate::output::with_causes;
use crate::{clock, tls};

/// The time for one request, the default of OpenTelemetry.
const DEADLINE: Duration = Duration::from_secs(10);

/// Maximum length of an answer that is read, in bytes.
const MAX_ANSWER: usize = 64 << 10;

/// The path of logs, if the URL has none.
const LOGS: &str = "/v1/logs";

/// A collector.
pub struct OtlpCollector {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    url: Uri,
    headers: HeaderMap,
    instance: Arc<str>,
}

/// The reason why a collector cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CollectorError {
    /// No certificates of the system.
    #[error("cannot read the certificate authorities of the system: {0}")]
    Authorities(std::io::Error),
    /// Another error of TLS.
    #[error("cannot use TLS: {0}")]
    Tls(#[from] rustls::Error),
}

impl OtlpCollector {
    /// Prepares the client. It connects with the first records. `url` is checked by the flag.
    ///
    /// # Errors
    /// With https, if there are no certificate authorities.
    pub fn new(url: Uri, headers: HeaderMap, instance: Arc<str>) -> Result<Self, CollectorError> {
        let tls = rustls::ClientConfig::builder_with_provider(tls::provider())
            .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?;
        let tls = if url.scheme_str() == Some("https") {
            tls.with_root_certificates(system_authorities()?)
        } else {
            tls.with_root_certificates(rustls::RootCertStore::empty())
        };
        let connector = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config(tls.with_no_client_auth())
            .https_or_http()
            .enable_http1()
            .build();
        let client = Client::builder(TokioExecutor::new()).build(connector);
        Ok(Self { client, url: with_path(url), headers, instance })
    }

    /// Returns the URL for logs: without its query, which may have a secret.
    pub fn shown_url(&self) -> String {
        self.url.to_string().split('?').next().unwrap_or_default().to_owned()
    }

    fn failed(&self, cause: &str) -> Outcome {
        let url = self.shown_url();
        let error = format!("cannot reach the collector at {url}: {cause}; check --export-otlp");
        Outcome::Failed { error, pause: None }
    }

    async fn exchange(
        &self,
        body: Vec<u8>,
    ) -> Result<(StatusCode, HeaderMap, Bytes), Box<dyn std::error::Error + Send + Sync>> {
        let mut request = Request::new(Full::new(Bytes::from(body)));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.url.clone();
        request.headers_mut().extend(self.headers.clone());
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        let (head, body) = self.client.request(request).await?.into_parts();
        // The body of an error says nothing that changes the outcome.
        let answer = if head.status.is_success() {
            match Limited::new(body, MAX_ANSWER).collect().await {
                Ok(answer) => answer.to_bytes(),
                // The records were accepted. A partial success is never this long.
                Err(error) if error.is::<LengthLimitError>() => Bytes::new(),
                Err(error) => return Err(error),
            }
        } else {
            Bytes::new()
        };
        Ok((head.status, head.headers, answer))
    }
}

impl Exporter for OtlpCollector {
    async fn send(&self, batch: &[Arc<ExportRecord>]) -> Outcome {
        let body = encode(batch, &self.instance);
        match tokio::time::timeout(DEADLINE, self.exchange(body)).await {
            Ok(Ok((status, headers, answer))) => outcome(status, &headers, &answer),
            Ok(Err(error)) => self.failed(&with_causes(&*error)),
            Err(_) => self.failed(&format!("no answer within {} s", DEADLINE.as_secs())),
        }
    }
}

fn system_authorities() -> Result<rustls::RootCertStore, CollectorError> {
    let found = rustls_native_certs::load_native_certs();
    let mut authorities = rustls::RootCertStore::empty();
    authorities.add_parsable_certificates(found.certs);
    if authorities.is_empty() {
        let cause = found
            .errors
            .into_iter()
            .next()
            .map_or_else(|| "none found".to_owned(), |error| error.to_string());
        return Err(CollectorError::Authorities(std::io::Error::other(cause)));
    }
    Ok(authorities)
}

/// Adds the path of logs to a URL without a path, before its query.
fn with_path(url: Uri) -> Uri {
    if !matches!(url.path(), "" | "/") {
        return url;
    }
    let mut parts = url.clone().into_parts();
    let query = url.query().map(|query| format!("?{query}")).unwrap_or_default();
    parts.path_and_query = format!("{LOGS}{query}").parse().ok();
    Uri::from_parts(parts).unwrap_or(url)
}

/// The outcome of an answer, as the OTLP specification says (section "OTLP/HTTP Response").
fn outcome(status: StatusCode, headers: &HeaderMap, answer: &[u8]) -> Outcome {
    if status.is_success() {
        // A page for people, such as that of a login: there is no collector.
        if headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"text/html")) {
            let error = "the answer is a web page, not one of a collector; check --export-otlp".to_owned();
            return Outcome::Refused { error };
        }
        let answer = ExportLogsServiceResponse::decode(answer).unwrap_or_default();
        let refused = answer.partial_success.map_or(0, |partial| partial.rejected_log_records);
        return Outcome::Delivered { refused: usize::try_from(refused).unwrap_or(0) };
    }
    let error = format!("the collector answered {status}");
    match status.as_u16() {
        429 | 502 | 503 | 504 => {
            let asked = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok());
            Outcome::Failed { error, pause: asked.and_then(|asked| asked_pause(asked, clock::wall())) }
        }
        _ => Outcome::Refused { error: format!("{error}; check --export-otlp and --export-otlp-header") },
    }
}

/// The pause that `Retry-After` asks for: seconds, or the time until a date (RFC 9110, section 10.2.3).
fn asked_pause(asked: &str, now: Timestamp) -> Option<Duration> {
    if let Ok(seconds) = asked.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = rfc2822::DateTimeParser::new().parse_timestamp(asked).ok()?;
    Some(Duration::try_from(date.duration_since(now)).unwrap_or_default())
}

/// The request with these records.
fn encode(batch: &[Arc<ExportRecord>], instance: &str) -> Vec<u8> {
    let service = [
        ("service.name", "squelch"),
        ("service.version", env!("CARGO_PKG_VERSION")),
        ("service.instance.id", instance),
    ];
    let resource = Resource {
        attributes: service.map(|(name, value)| attribute(name, Attribute::Text(value))).into(),
        ..Resource::default()
    };
    let scope = InstrumentationScope { name: "squelch".into(), ..InstrumentationScope::default() };
    let log_records = batch.iter().map(|record| log_record(record, instance)).collect();
    let logs = ScopeLogs { scope: Some(scope), log_records, ..ScopeLogs::default() };
    let logs = ResourceLogs { resource: Some(resource), scope_logs: vec![logs], ..ResourceLogs::default() };
    ExportLogsServiceRequest { resource_logs: vec![logs] }.encode_to_vec()
}

fn log_record(record: &ExportRecord, instance: &str) -> LogRecord {
    let uid = attribute("log.record.uid", Attribute::Text(&record.uid(instance)));
    LogRecord {
        time_unix_nano: nanoseconds(record.occurred_at),
        observed_time_unix_nano: nanoseconds(record.received_at),
        severity_number: record.severity(),
        severity_text: record.event_type.to_string(),
        body: Some(value(Attribute::Text(&record.message))),
        attributes: record.attributes().map(|(name, value)| attribute(name, value)).chain([uid]).collect(),
        ..LogRecord::default()
    }
}

/// Since the Unix epoch; 0 before it and after the year 2554, which OTLP reads as unknown.
fn nanoseconds(time: Timestamp) -> u64 {
    u64::try_from(time.as_nanosecond()).unwrap_or(0)
}

fn attribute(name: &str, of: Attribute<'_>) -> KeyValue {
    KeyValue { key: name.to_owned(), value: Some(value(of)), ..KeyValue::default() }
}

fn value(of: Attribute<'_>) -> AnyValue {
    let value = match of {
        Attribute::Text(text) => any_value::Value::StringValue(text.to_owned()),
        Attribute::Number(number) => any_value::Value::IntValue(number),
    };
    AnyValue { value: Some(value) }
}

#[cfg(test)]
mod tests;
