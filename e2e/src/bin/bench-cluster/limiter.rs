//! Upstream's EventRateLimit: an admission plugin, which is a matter of the API server's flags.

use std::path::Path;

use anyhow::Result;
use e2e::Cluster;

/// The limits of a namespace in the example of its documentation.
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

/// Starts the API server anew with it.
pub(crate) async fn switch_on(cluster: &Cluster, folder: &Path) -> Result<()> {
    let file = folder.join("admission.yaml");
    std::fs::write(&file, CONFIGURATION)?;
    let file = format!("--admission-control-config-file={}", file.display());
    let plugins = "--enable-admission-plugins=NodeRestriction,EventRateLimit";
    cluster.restart_apiserver(false, &[plugins, &file]).await
}
