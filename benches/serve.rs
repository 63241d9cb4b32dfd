//! The servers of `just bench-serve`, each a process of its own, without a cluster: squelch, and the floor, which is
//! the same hyper and rustls with a constant answer.
//!
//! `serve enforce|observe|floor --address ADDRESS --certificate FILE --key FILE ...` prints the address that it
//! listens on.

#![expect(clippy::print_stdout, reason = "a program that reports")]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::{Parser, ValueEnum};
use mimalloc::MiMalloc;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use squelch::telemetry::{self, LogFormat};
use squelch::tls::{self, Leaf, PathToken, ServedCertificate};
use squelch::webhook::server;

#[path = "serve/floor.rs"]
mod floor;
#[path = "serve/operator.rs"]
mod operator;

/// The allocator of `squelch`.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

#[derive(Debug, Parser)]
struct Options {
    /// Server to run
    kind: Kind,
    /// Address to listen on; port 0: any free port
    #[arg(long, default_value = "127.0.0.1:0")]
    address: SocketAddr,
    /// Certificate file, PEM
    #[arg(long)]
    certificate: PathBuf,
    /// Key file, PEM
    #[arg(long)]
    key: PathBuf,
    /// Token in the path of reviews
    #[arg(long)]
    token: String,
    /// Number of namespaces, `team-00000` and up
    #[arg(long)]
    namespaces: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// squelch with a policy for all namespaces
    Enforce,
    /// squelch with that policy in Observe
    Observe,
    /// A constant answer
    Floor,
}

fn main() -> ExitCode {
    let options = Options::parse();
    if let Err(error) = run(&options) {
        eprintln!("serve: {error:#}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// Uses the runtime and the logs of `squelch run`.
fn run(options: &Options) -> Result<()> {
    telemetry::init(LogFormat::Text, "info")?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(serve(options))
}

async fn serve(options: &Options) -> Result<()> {
    let tls = tls::server_config(Arc::new(ServedCertificate::new(leaf(options)?)?), None)?;
    let listener = server::bind(options.address)?.listen()?;
    let address = listener.local_addr()?;
    let token = PathToken::parse(&options.token).context("--token is invalid")?;
    let mode = match options.kind {
        Kind::Enforce => "Enforce",
        Kind::Observe => "Observe",
        Kind::Floor => {
            println!("listening on {address}");
            return floor::serve(listener, tls).await;
        }
    };
    let webhook = operator::start(mode, token, options.namespaces)?;
    println!("listening on {address}");
    operator::serve(listener, tls, webhook).await;
    Ok(())
}

fn leaf(options: &Options) -> Result<Leaf> {
    let chain = CertificateDer::pem_file_iter(&options.certificate)?.collect::<Result<_, _>>()?;
    Ok(Leaf { chain, key: PrivateKeyDer::from_pem_file(&options.key)? })
}
