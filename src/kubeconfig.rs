//! The cluster that this process calls: that of a kubeconfig, or that of the pod, and the proxy on the way to it.

use std::env;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use http::Uri;
use hyper_util::client::proxy::matcher::Matcher;
use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};

/// Returns the configuration of `context`, or of the current context, in the kubeconfig `file`, else in the files of
/// `KUBECONFIG`, else in `~/.kube/config`. If these have no context, returns that of the pod.
///
/// # Errors
/// There is no cluster, or its configuration cannot be used.
pub(crate) async fn configuration(file: Option<&Path>, context: Option<&str>) -> Result<Config> {
    let paths = file.map_or_else(usual_paths, |file| vec![file.to_owned()]);
    let names: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
    let names = names.join(", ");
    let kubeconfig = read(&paths, file.is_some())?;
    // client-go takes a kubeconfig without content for none.
    if file.is_none() && context.is_none() && kubeconfig.contexts.is_empty() {
        return Config::incluster().with_context(|| {
            format!("no cluster configured in {names}; outside a pod set --kubeconfig FILE or KUBECONFIG")
        });
    }
    let own_proxy = proxy_url(&kubeconfig, context);
    let options = KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() };
    let used = Config::from_custom_kubeconfig(kubeconfig, &options).await;
    let mut config = used.with_context(|| format!("cannot use the kubeconfig {names}"))?;
    // kube compares NO_PROXY with the address of the proxy instead of that of the API server.
    config.proxy_url = match own_proxy {
        Some(url) => Some(url.parse::<Uri>().context("cannot parse the proxy-url of the kubeconfig")?),
        None => proxy_of_environment(&config.cluster_url, |name| env::var(name).ok()),
    };
    if let Some(proxy) = &config.proxy_url
        && !matches!(proxy.scheme_str(), Some("http" | "https" | "socks5"))
    {
        // kube's error has the whole URL, with its password.
        let host = proxy.host().unwrap_or_default();
        bail!("the URL of the proxy {host} must begin with http://, https:// or socks5://");
    }
    Ok(config)
}

/// Returns the files of `KUBECONFIG`, else `~/.kube/config`.
fn usual_paths() -> Vec<PathBuf> {
    let list = env::var_os("KUBECONFIG").unwrap_or_default();
    let paths: Vec<_> = env::split_paths(&list).filter(|path| !path.as_os_str().is_empty()).collect();
    if paths.is_empty() {
        env::home_dir().map(|home| home.join(".kube/config")).into_iter().collect()
    } else {
        paths
    }
}

/// Reads and merges kubeconfigs. As in client-go, those that do not exist are skipped, unless they are `required`.
fn read(paths: &[PathBuf], required: bool) -> Result<Kubeconfig> {
    let mut merged = Kubeconfig::default();
    for path in paths {
        match Kubeconfig::read_from(path) {
            Err(KubeconfigError::ReadConfig(error, _))
                if !required && error.kind() == ErrorKind::NotFound => {}
            read => {
                let read = read.and_then(|read| merged.merge(read));
                merged = read.with_context(|| format!("cannot read the kubeconfig {}", path.display()))?;
            }
        }
    }
    Ok(merged)
}

/// Returns the `proxy-url` of the cluster of a context.
fn proxy_url(kubeconfig: &Kubeconfig, context: Option<&str>) -> Option<String> {
    let name = context.or(kubeconfig.current_context.as_deref())?;
    let context = kubeconfig.contexts.iter().find(|its| its.name == name)?.context.as_ref()?;
    let cluster = kubeconfig.clusters.iter().find(|its| its.name == context.cluster)?.cluster.as_ref()?;
    cluster.proxy_url.clone().filter(|url| !url.is_empty())
}

/// Returns the proxy for `server` of the environment, whose variables `variable` returns. As in client-go, there is none
/// for loopback, and `ALL_PROXY` is not read.
fn proxy_of_environment(server: &Uri, variable: impl Fn(&str) -> Option<String>) -> Option<Uri> {
    let first = |name: &str| {
        let mut values =
            [name.to_owned(), name.to_lowercase()].into_iter().filter_map(|name| variable(&name));
        values.find(|value| !value.is_empty())
    };
    let host = server.host()?.trim_matches(['[', ']']);
    if host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback()) {
        return None;
    }
    let url = first(if server.scheme_str() == Some("http") { "HTTP_PROXY" } else { "HTTPS_PROXY" })?;
    let url = if url.contains("://") { url } else { format!("http://{url}") };
    // As in client-go, *.example.com is .example.com, and * is every address.
    let exceptions = first("NO_PROXY").unwrap_or_default().replace("*.", ".");
    if exceptions.split(',').any(|exception| exception.trim() == "*") {
        return None;
    }
    Matcher::builder().all(&url).no(exceptions).build().intercept(server)?;
    url.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_proxy_of_the_environment_depends_on_the_address_of_the_api_server() {
        let proxy = |server: &str, variables: &[(&str, &str)]| {
            let value = |name: &str| {
                let found = variables.iter().find(|(its, _)| *its == name);
                found.map(|(_, value)| (*value).to_owned())
            };
            proxy_of_environment(&server.parse().unwrap(), value).map(|url| url.to_string())
        };
        let of = |server: &str, no_proxy: &str| {
            proxy(server, &[("https_proxy", "http://u:p%40@proxy.corp:3128"), ("NO_PROXY", no_proxy)])
        };
        let used = Some("http://u:p%40@proxy.corp:3128/".to_owned());
        assert_eq!(of("https://api.example:6443", ""), used);
        // The address of the proxy itself does not matter.
        assert_eq!(of("https://api.example:6443", "localhost,,.corp, 10.0.0.0/8"), used);
        assert_eq!(of("https://10.1.2.3:6443", "localhost,,.corp, 10.0.0.0/8"), None);
        assert_eq!(of("https://api.eu.example:6443", "*.example"), None);
        assert_eq!(of("https://10.1.2.3:6443", "*"), None);
        for loopback in ["https://127.0.0.1:6443", "https://[::1]:6443", "https://localhost:6443"] {
            assert_eq!(of(loopback, ""), None, "{loopback}");
        }
        // A proxy for http is not used for https.
        assert_eq!(of("http://api.example:8080", ""), None);
        let both = [("HTTP_PROXY", "plain:1"), ("HTTPS_PROXY", ""), ("ALL_PROXY", "socks5h://other:1")];
        assert_eq!(proxy("http://api.example:8080", &both).as_deref(), Some("http://plain:1/"));
        assert_eq!(proxy("https://api.example", &both), None);
    }

    #[tokio::test]
    async fn an_unsupported_proxy_is_an_error_without_its_password() {
        let file = std::env::temp_dir().join(format!("kubeconfig-{}-proxy", std::process::id()));
        let kubeconfig = "
clusters: [{name: c, cluster: {server: 'https://api.example', proxy-url: 'ftp://u:secret@proxy.corp:21'}}]
contexts: [{name: x, context: {cluster: c}}]
current-context: x
";
        std::fs::write(&file, kubeconfig).unwrap();
        let configured = configuration(Some(&file), None).await;
        std::fs::remove_file(&file).unwrap();
        let error = format!("{:#}", configured.map(drop).unwrap_err());
        assert_eq!(error, "the URL of the proxy proxy.corp must begin with http://, https:// or socks5://");
    }
}
