//! A TCP balancer that sends each connection to the next API server.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::Result;
use e2e::api_servers::ApiServer;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// It ends on drop.
pub(crate) struct Balancer {
    /// As squelch names it: a host name of the certificate, and the port.
    pub(crate) address: String,
    serving: JoinHandle<()>,
}

impl Balancer {
    pub(crate) async fn start(servers: &[ApiServer]) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = format!("localhost:{}", listener.local_addr()?.port());
        let targets: Vec<SocketAddr> =
            servers.iter().map(|server| server.address_and_port().parse()).collect::<Result<_, _>>()?;
        let serving = tokio::spawn(async move {
            for target in targets.into_iter().cycle() {
                let Ok((mut client, _)) = listener.accept().await else { return };
                tokio::spawn(async move {
                    let Ok(mut server) = TcpStream::connect(target).await else { return };
                    // A connection that breaks is the business of its two ends.
                    let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                });
            }
        });
        Ok(Self { address, serving })
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}
