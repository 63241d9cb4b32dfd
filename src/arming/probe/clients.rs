//! Clients for single API servers.

use http::Uri;
use kube::{Client, Config};

/// Connects to one API server: `host:port` to a client.
type Connect = Box<dyn Fn(&str) -> Result<Client, String> + Send + Sync>;

/// Clients for single API servers, with the credentials of one configuration.
pub struct ApiServerClients {
    /// The client of the configuration, which may lead to any API server.
    pub(super) usual: Client,
    /// Its address.
    pub(super) usual_address: String,
    connect: Option<Connect>,
}

impl ApiServerClients {
    /// Clients with the credentials and the authority of `config`. Every API server has to present the name that
    /// `config` expects, because its address may lead to any of them.
    ///
    /// # Errors
    /// No client can be created from `config`.
    pub fn new(config: Config) -> kube::Result<Self> {
        let usual = Client::try_from(config.clone())?;
        let (host, port) = (config.cluster_url.host().unwrap_or_default(), config.cluster_url.port_u16());
        let usual_address = format!("{host}:{}", port.unwrap_or(443));
        let name = config.tls_server_name.clone().unwrap_or_else(|| host.trim_matches(['[', ']']).to_owned());
        // Only a verified API server may receive the credentials, whatever address an EndpointSlice has.
        let is_verified = config.cluster_url.scheme_str() == Some("https") && !config.accept_invalid_certs;
        let connect = move |address: &str| {
            let mut config = config.clone();
            config.cluster_url =
                format!("https://{address}/").parse::<Uri>().map_err(|error| error.to_string())?;
            config.tls_server_name = Some(name.clone());
            Client::try_from(config).map_err(|error| error.to_string())
        };
        let connect = is_verified.then(|| Box::new(connect) as Connect);
        Ok(Self { usual, usual_address, connect })
    }

    /// One client for all addresses, for tests.
    #[cfg(test)]
    pub(in crate::arming) fn only(usual: Client) -> Self {
        Self { usual, usual_address: "usual:443".to_owned(), connect: None }
    }

    /// These clients by address, for tests.
    #[cfg(test)]
    pub(in crate::arming) fn of(
        usual: Client,
        connect: impl Fn(&str) -> Result<Client, String> + Send + Sync + 'static,
    ) -> Self {
        Self { connect: Some(Box::new(connect)), ..Self::only(usual) }
    }

    /// Whether API servers can be called at other addresses than the usual one.
    pub(super) fn can_connect(&self) -> bool {
        self.connect.is_some()
    }

    /// Returns a client for the API server at `address`.
    ///
    /// # Errors
    /// `address` is none, no client can be created for it, or it would get the credentials without a verification.
    pub fn connect(&self, address: &str) -> Result<Client, String> {
        match &self.connect {
            _ if address == self.usual_address => Ok(self.usual.clone()),
            Some(connect) => connect(address),
            // The usual client may lead to another API server.
            None => Err("the kubeconfig has no https address, or insecure-skip-tls-verify: its credentials are sent to \
                         its own address only"
                .to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clients(url: &str, change: impl FnOnce(&mut Config)) -> ApiServerClients {
        let mut config = Config::new(url.parse().unwrap());
        change(&mut config);
        ApiServerClients::new(config).unwrap()
    }

    #[tokio::test]
    async fn credentials_are_sent_to_verified_api_servers_only() {
        let verified = clients("https://10.96.0.1", |_| {});
        assert_eq!((verified.usual_address.as_str(), verified.can_connect()), ("10.96.0.1:443", true));
        assert!(verified.connect("[fd00::1]:6443").is_ok());
        assert!(verified.connect("not an address").is_err());
        for unverified in [
            clients("https://h:6443", |config| config.accept_invalid_certs = true),
            clients("http://h:6443", |_| {}),
        ] {
            assert!(!unverified.can_connect() && unverified.connect("h:6443").is_ok());
            let error = unverified.connect("10.0.0.1:6443").map(drop).unwrap_err();
            assert!(error.contains("insecure-skip-tls-verify"), "{error}");
        }
    }
}
