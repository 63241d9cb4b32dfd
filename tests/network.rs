//! Memory and liveness under hostile clients: a pod of the cluster, or a client with a leaked token. Each server runs in
//! a process of its own, so that its memory can be measured.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "test support functions")]

#[path = "network/frames.rs"]
mod frames;
#[path = "network/plain_port.rs"]
mod plain_port;
#[path = "network/server.rs"]
mod server;
#[path = "network/unauthenticated.rs"]
mod unauthenticated;
#[path = "network/with_token.rs"]
mod with_token;

/// The allocator of the binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The memory limit of the chart, in MiB.
const POD: u64 = 640;

/// The memory left for connections, in MiB. A million series take 320 MiB, bodies 128 MiB.
const LEFT: u64 = POD - 320 - 128;
