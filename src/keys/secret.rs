//! Reads, creates and writes the Secret with the keys. RBAC limits every call to its name. Each answer also has the API
//! server's clock.

use std::collections::BTreeMap;
use std::time::Duration;

use http::header::{CONTENT_TYPE, DATE};
use http::{HeaderMap, Method, Request, StatusCode};
use jiff::Timestamp;
use jiff::fmt::rfc2822;
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::client::Body;
use serde_json::{Map, Value, json};

use crate::FIELD_MANAGER;
use crate::tls::encoding::{self, Keys};
use crate::tls::rotation::Ring;

/// Timeout of one call.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Access to the Secret.
pub(super) struct SecretStore {
    client: Client,
    /// `None`: the keys exist in this process alone.
    secret: Option<SecretRef>,
}

/// The name of the Secret, and how it is created.
pub struct SecretRef {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Name and uid of the ServiceAccount that owns it.
    pub owner: Option<(String, String)>,
    /// Field manager of a create, unique to this process: of two concurrent creates one is refused.
    pub field_manager: String,
}

/// The result of a read.
pub(super) struct SecretRead {
    /// The API server's clock, if it answered.
    pub(super) date: Option<Timestamp>,
    pub(super) state: SecretState,
}

pub(super) enum SecretState {
    /// The keys exist in this process alone.
    NotShared,
    /// There is no Secret.
    Absent,
    /// The data of the Secret, and its `resourceVersion`.
    Present(BTreeMap<String, Vec<u8>>, String),
    /// The read failed with this error.
    Unknown(String),
}

/// The result of a write that reached the API server.
pub(super) enum SecretWrite {
    /// The Secret is stored, with this `resourceVersion`.
    Stored(Option<String>),
    /// Another writer has changed, created or deleted the Secret.
    Conflict,
}

struct ApiResponse {
    status: StatusCode,
    date: Option<Timestamp>,
    body: Vec<u8>,
}

impl SecretStore {
    pub(super) fn new(client: Client, secret: Option<SecretRef>) -> Self {
        Self { client, secret }
    }

    /// Returns namespace and name of the Secret.
    pub(super) fn reference(&self) -> Option<(String, String)> {
        self.secret.as_ref().map(|secret| (secret.namespace.clone(), secret.name.clone()))
    }

    /// Whether other replicas use the same keys.
    pub(super) fn is_shared(&self) -> bool {
        self.secret.is_some()
    }

    /// Reads the Secret and the API server's clock.
    pub(super) async fn read(&self) -> SecretRead {
        // Without a Secret only the clock is needed. Every account may read the version.
        let path = self.secret.as_ref().map_or_else(|| "/version".to_owned(), SecretRef::path);
        let answer = match self.call(Method::GET, &path, "application/json", Vec::new()).await {
            Ok(answer) => answer,
            Err(_) if self.secret.is_none() => {
                return SecretRead { date: None, state: SecretState::NotShared };
            }
            Err(error) => return SecretRead { date: None, state: SecretState::Unknown(error) },
        };
        let date = answer.date;
        let state = match (&self.secret, answer.status) {
            (None, _) => SecretState::NotShared,
            (Some(secret), _) if answer.says_not_found(secret) => SecretState::Absent,
            (Some(_), _) => answer.secret().map_or_else(SecretState::Unknown, |secret| {
                let data = secret.data.unwrap_or_default().into_iter().map(|(name, bytes)| (name, bytes.0));
                SecretState::Present(data.collect(), secret.metadata.resource_version.unwrap_or_default())
            }),
        };
        SecretRead { date, state }
    }

    /// Writes `ring`: over the Secret with the `resourceVersion` `over`, or to a new Secret.
    pub(super) async fn write(&self, ring: &Ring<Keys>, over: Option<&str>) -> Result<SecretWrite, String> {
        let Some(secret) = &self.secret else { return Ok(SecretWrite::Stored(None)) };
        let (path, body, media_type) = match over {
            // RBAC cannot limit a create to a name, but server-side apply. Without force it is refused if another
            // process has created the Secret.
            None => {
                let query = format!("{}?fieldManager={}&force=false", secret.path(), secret.field_manager);
                (query, secret.object(ring), "application/apply-patch+yaml")
            }
            Some(resource_version) => {
                let query = format!("{}?fieldManager={FIELD_MANAGER}", secret.path());
                (query, update(ring, resource_version), "application/merge-patch+json")
            }
        };
        let answer = self.call(Method::PATCH, &path, media_type, body.to_string().into_bytes()).await?;
        match answer.status {
            StatusCode::CONFLICT => Ok(SecretWrite::Conflict),
            _ if over.is_some() && answer.says_not_found(secret) => Ok(SecretWrite::Conflict),
            _ => Ok(SecretWrite::Stored(answer.secret()?.metadata.resource_version)),
        }
    }

    async fn call(
        &self,
        method: Method,
        path: &str,
        media_type: &str,
        body: Vec<u8>,
    ) -> Result<ApiResponse, String> {
        let request = Request::builder().method(method).uri(path).header(CONTENT_TYPE, media_type);
        let request = request.body(Body::from(body)).map_err(|error| error.to_string())?;
        let exchange = async {
            let response = self.client.send(request).await.map_err(|error| error.to_string())?;
            let (head, body) = response.into_parts();
            let body = body.collect_bytes().await.map_err(|error| error.to_string())?;
            Ok(ApiResponse { status: head.status, date: date(&head.headers), body: body.to_vec() })
        };
        let exchanged = tokio::time::timeout(TIMEOUT, exchange).await;
        exchanged.unwrap_or_else(|_| Err(format!("no answer within {} s", TIMEOUT.as_secs())))
    }
}

impl ApiResponse {
    /// Whether the API server says that this Secret does not exist. Any other 404, such as a proxy's page, does not
    /// count.
    fn says_not_found(&self, secret: &SecretRef) -> bool {
        let status: Value = serde_json::from_slice(&self.body).unwrap_or_default();
        let details = &status["details"];
        self.status == StatusCode::NOT_FOUND
            && details["kind"] == "secrets"
            && details["name"] == *secret.name
    }

    /// Returns the Secret, or the API server's error message.
    fn secret(&self) -> Result<Secret, String> {
        if !self.status.is_success() {
            let body: Value = serde_json::from_slice(&self.body).unwrap_or_default();
            return Err(format!(
                "{}: {}",
                self.status,
                body["message"].as_str().unwrap_or("no reason given")
            ));
        }
        // The error of serde_json would quote the Secret.
        serde_json::from_slice(&self.body).map_err(|_| "the answer is not a Secret".to_owned())
    }
}

impl SecretRef {
    fn path(&self) -> String {
        format!("/api/v1/namespaces/{}/secrets/{}", self.namespace, self.name)
    }

    fn object(&self, ring: &Ring<Keys>) -> Value {
        let mut metadata = json!({
            "name": self.name,
            "namespace": self.namespace,
            "labels": { "app.kubernetes.io/managed-by": FIELD_MANAGER },
        });
        if let Some((name, uid)) = &self.owner {
            // Garbage collection deletes the Secret with its ServiceAccount.
            metadata["ownerReferences"] = json!([{
                "apiVersion": "v1",
                "kind": "ServiceAccount",
                "name": name,
                "uid": uid,
                "blockOwnerDeletion": false,
            }]);
        }
        json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque", "data": data(ring) })
    }
}

/// A merge patch to exactly `ring`: null removes the other fields.
fn update(ring: &Ring<Keys>, resource_version: &str) -> Value {
    let mut data = data(ring);
    for name in encoding::FIELDS {
        data.entry(name).or_insert(Value::Null);
    }
    json!({ "metadata": { "resourceVersion": resource_version }, "data": data })
}

fn data(ring: &Ring<Keys>) -> Map<String, Value> {
    use base64::Engine as _;
    let encoded = |text: String| base64::engine::general_purpose::STANDARD.encode(text).into();
    encoding::encode(ring).into_iter().map(|(name, text)| (name, encoded(text))).collect()
}

/// Returns the API server's time from the `Date` header.
fn date(headers: &HeaderMap) -> Option<Timestamp> {
    rfc2822::DateTimeParser::new().parse_timestamp(headers.get(DATE)?.as_bytes()).ok()
}

#[cfg(test)]
mod tests;
