//! `squelch doctor`: finds out how squelch is installed, has everything looked at, and prints the findings.

use std::env;
use std::io::{self, Write as _};
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use kube::{Api, Client};

use super::cluster;
use crate::config::{DoctorOptions, DoctorOutput, Place};
use crate::doctor::{self, Clients, Installation, Level};

/// How long the API server may take to answer the first question.
const DEADLINE: Duration = Duration::from_secs(10);

/// Prints what is found; whether none of it is an error.
///
/// # Errors
/// That nothing could be looked at.
pub async fn examine(options: &DoctorOptions) -> Result<bool> {
    let kubeconfig = options.place.kubeconfig.as_deref();
    let own = cluster::connect(kubeconfig).await?;
    let asked = tokio::time::timeout(DEADLINE, own.apiserver_version()).await;
    let version =
        asked.context("the API server does not answer")?.context("the API server cannot be reached")?;
    let installation = installation(&own, options).await;
    let squelch = cluster::connect_as(&own, kubeconfig, &installation.own_user).await?;
    let inside = env::var_os("KUBERNETES_SERVICE_HOST").is_some();
    let clients = Clients { own, squelch, inside };
    let version = (version.major, version.minor, version.git_version);
    let findings = doctor::findings(&doctor::look(&clients, installation, version).await);
    let text = match options.output {
        DoctorOutput::Text => doctor::text(&findings),
        DoctorOutput::Json => doctor::json(&findings),
    };
    match io::stdout().write_all(text.as_bytes()) {
        // Whoever read it has seen enough.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            return Err(error).context("standard output");
        }
        _ => {}
    }
    Ok(doctor::worst(&findings) < Level::Error)
}

/// By its Deployment, or by the pod that the doctor runs in where that cannot be read; what is given goes before.
async fn installation(client: &Client, options: &DoctorOptions) -> Installation {
    let DoctorOptions { place: Place { namespace, .. }, deployment, own_user, secret, .. } = options;
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    let pod = match deployments.get(deployment).await {
        Ok(found) => found.spec.and_then(|spec| spec.template.spec),
        Err(_) => own_pod(client, namespace).await,
    };
    let account = pod.as_ref().and_then(|pod| pod.service_account_name.clone());
    let account = account.unwrap_or_else(|| deployment.clone());
    let container = pod.and_then(container).unwrap_or_default();
    let says = |flag| flag_of(&container, flag);
    let usual = || crate::SECRET.to_owned();
    Installation {
        own_user: own_user.clone().unwrap_or_else(|| format!("system:serviceaccount:{namespace}:{account}")),
        secret: secret.clone().or_else(|| says("secret")).unwrap_or_else(usual),
        owner_role: says("owner-cluster-role"),
        enforce: says("enforce").as_deref() != Some("false"),
        mounted: says("certificate-dir").is_some(),
        namespace: namespace.clone(),
        deployment: deployment.clone(),
    }
}

/// By `kubectl exec` the doctor runs in a pod of squelch's, which has its name in the environment.
async fn own_pod(client: &Client, namespace: &str) -> Option<PodSpec> {
    let name = env::var("SQUELCH_POD_NAME").ok()?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    pods.get(&name).await.ok()?.spec
}

/// That of squelch: others may have put theirs beside it.
fn container(pod: PodSpec) -> Option<Container> {
    let runs = |container: &Container| container.args.iter().flatten().any(|argument| argument == "run");
    let at = pod.containers.iter().position(runs).unwrap_or(0);
    pod.containers.into_iter().nth(at)
}

/// What a container is started with: the flag, else its environment variable.
fn flag_of(container: &Container, flag: &str) -> Option<String> {
    let mut flags = container.args.iter().flatten();
    let given = flags.find_map(|argument| argument.strip_prefix("--")?.strip_prefix(flag)?.strip_prefix('='));
    let variable = format!("SQUELCH_{}", flag.replace('-', "_").to_uppercase());
    let in_environment = || {
        let variable = container.env.iter().flatten().find(|its| its.name == variable);
        variable.and_then(|variable| variable.value.clone())
    };
    given.map(str::to_owned).or_else(in_environment)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_container_that_others_have_put_into_the_pod_is_not_taken_for_squelchs() {
        let pod: PodSpec = serde_json::from_value(json!({ "containers": [
            { "name": "proxy", "args": ["--enforce=no"] },
            { "name": "squelch", "args": ["run", "--enforce=false"] },
        ] }))
        .unwrap();
        assert_eq!(flag_of(&container(pod).unwrap(), "enforce").as_deref(), Some("false"));
    }

    #[test]
    fn a_flag_goes_before_its_variable_and_no_other_is_taken_for_it() {
        let container: Container = serde_json::from_value(json!({
            "name": "squelch",
            "args": ["run", "--secret-of-others=x", "--secret=keys"],
            "env": [{ "name": "SQUELCH_SECRET", "value": "y" }, { "name": "SQUELCH_ENFORCE", "value": "false" }],
        }))
        .unwrap();
        assert_eq!(flag_of(&container, "secret").as_deref(), Some("keys"));
        assert_eq!(flag_of(&container, "enforce").as_deref(), Some("false"));
        assert_eq!(flag_of(&container, "certificate-dir"), None);
    }
}
