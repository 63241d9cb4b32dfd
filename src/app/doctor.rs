//! `squelch doctor`: determines how squelch is installed, collects a snapshot, and prints the findings.

use std::env;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use kube::{Api, Client};
use tokio::time::{sleep, timeout};

use super::cluster;
use crate::clock;
use crate::config::{DoctorOptions, Target};
use crate::doctor::{self, Clients, DoctorReport, Installation, Level};
use crate::output;

/// The flags of `squelch run` that the doctor reads from the Deployment.
const SECRET: &str = "secret";
const OWNER_CLUSTER_ROLE: &str = "owner-cluster-role";
const CERT_DIR: &str = "cert-dir";
const DISARM: &str = "disarm";

/// The deadline of the first call.
const DEADLINE: Duration = Duration::from_secs(10);

/// The time between two attempts with `--wait`.
const PAUSE: Duration = Duration::from_secs(1);

/// Prints the findings. Returns whether none of them is an error.
///
/// # Errors
/// The checks could not run.
pub async fn examine(options: &DoctorOptions) -> Result<bool> {
    let kubeconfig = options.target.kubeconfig.as_deref();
    let own = cluster::connect(kubeconfig).await?;
    let asked = timeout(DEADLINE, own.apiserver_version()).await;
    let version = asked
        .context("the API server did not answer in time")?
        .context("the API server cannot be reached; check that it runs, and its address in the kubeconfig")?;
    let installation = installation(&own, options).await;
    let (squelch, api_servers) = cluster::connect_as(&own, kubeconfig, &installation.own_user).await?;
    let inside = env::var_os("KUBERNETES_SERVICE_HOST").is_some();
    let clients = Clients { own, squelch, api_servers, inside };
    let version = (version.major, version.minor, version.git_version);
    let began = clock::now();
    let report = loop {
        let snapshot = doctor::collect(&clients, installation.clone(), version.clone()).await;
        let report = DoctorReport::of(doctor::findings(&snapshot));
        if report.result() < Level::Error || clock::now().since(began) >= options.wait {
            break report;
        }
        sleep(PAUSE).await;
    };
    let text = options.output.render(&report, DoctorReport::table)?;
    output::print(&text).context("cannot write to standard output")?;
    Ok(report.result() < Level::Error)
}

/// Reads the installation from its Deployment, else from the pod of this process. Options override it.
async fn installation(client: &Client, options: &DoctorOptions) -> Installation {
    let DoctorOptions {
        target: Target { install_namespace: namespace, deployment, .. },
        own_user,
        secret,
        ..
    } = options;
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    let pod = match deployments.get(deployment).await {
        Ok(found) => found.spec.and_then(|spec| spec.template.spec),
        Err(_) => own_pod(client, namespace).await,
    };
    let account = pod.as_ref().and_then(|pod| pod.service_account_name.clone());
    let account = account.unwrap_or_else(|| deployment.clone());
    let container = pod.and_then(container).unwrap_or_default();
    let value_of = |flag| flag_of(&container, flag);
    let default = || crate::SECRET.to_owned();
    Installation {
        own_user: own_user.clone().unwrap_or_else(|| format!("system:serviceaccount:{namespace}:{account}")),
        secret: secret.clone().or_else(|| value_of(SECRET)).unwrap_or_else(default),
        owner_role: value_of(OWNER_CLUSTER_ROLE),
        disarmed: is_set(&container, DISARM),
        mounted: value_of(CERT_DIR).is_some(),
        namespace: namespace.clone(),
        deployment: deployment.clone(),
    }
}

/// Reads the pod of this process (with `kubectl exec`), whose name is in the environment.
async fn own_pod(client: &Client, namespace: &str) -> Option<PodSpec> {
    let name = env::var("SQUELCH_POD_NAME").ok()?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    pods.get(&name).await.ok()?.spec
}

/// Returns the container of squelch: the pod may have sidecars.
fn container(pod: PodSpec) -> Option<Container> {
    let runs = |container: &Container| container.args.iter().flatten().any(|argument| argument == "run");
    let at = pod.containers.iter().position(runs).unwrap_or(0);
    pod.containers.into_iter().nth(at)
}

/// Returns the value of a flag of the container, else of its environment variable.
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

/// Whether a switch is set, by its flag or by its environment variable.
fn is_set(container: &Container, switch: &str) -> bool {
    let bare = format!("--{switch}");
    container.args.iter().flatten().any(|argument| *argument == bare)
        || flag_of(container, switch).as_deref() == Some("true")
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use serde_json::json;

    use super::*;
    use crate::config::Cli;

    #[test]
    fn the_doctor_reads_flags_of_squelch_run() {
        let command = Cli::command();
        let run = command.find_subcommand("run").unwrap();
        for flag in [SECRET, OWNER_CLUSTER_ROLE, CERT_DIR, DISARM] {
            let argument = run.get_arguments().find(|argument| argument.get_long() == Some(flag));
            let variable = format!("SQUELCH_{}", flag.replace('-', "_").to_uppercase());
            assert_eq!(argument.unwrap().get_env().unwrap().to_str(), Some(&*variable), "--{flag}");
        }
    }

    #[test]
    fn a_sidecar_is_not_taken_for_squelch() {
        let pod: PodSpec = serde_json::from_value(json!({ "containers": [
            { "name": "proxy", "args": ["--disarm=no"] },
            { "name": "squelch", "args": ["run", "--disarm"] },
        ] }))
        .unwrap();
        assert!(is_set(&container(pod).unwrap(), DISARM));
    }

    #[test]
    fn a_flag_overrides_its_variable() {
        let container: Container = serde_json::from_value(json!({
            "name": "squelch",
            "args": ["run", "--secret-of-others=x", "--secret=keys"],
            "env": [{ "name": "SQUELCH_SECRET", "value": "y" }, { "name": "SQUELCH_DISARM", "value": "true" }],
        }))
        .unwrap();
        assert_eq!(flag_of(&container, SECRET).as_deref(), Some("keys"));
        assert!(is_set(&container, DISARM) && !is_set(&container, SECRET));
        assert_eq!(flag_of(&container, CERT_DIR), None);
    }
}
