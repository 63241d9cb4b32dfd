//! Upstream's EventRateLimit, an admission plugin that is configured by flags of the API server.

use std::path::Path;

use anyhow::Result;

use crate::Cluster;

/// The namespace limits of the example in its documentation.
const CONFIGURATION: &str = "\
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: EventRateLimit
  configuration:
    apiVersion: eventratelimit.admission.k8s.io/v1alpha1
    kind: Configuration
    limits:
    - {type: Namespace, qps: 50, burst: 100, cacheSize: 2000}
";

/// Restarts the API server with the plugin.
///
/// # Errors
/// If it is not ready in time.
pub async fn switch_on(cluster: &Cluster, folder: &Path) -> Result<()> {
    let file = folder.join("admission.yaml");
    std::fs::write(&file, CONFIGURATION)?;
    let file = format!("--admission-control-config-file={}", file.display());
    let plugins = "--enable-admission-plugins=NodeRestriction,EventRateLimit";
    cluster.restart_apiserver(false, &[plugins, &file]).await
}
