//! Tests of squelch with three API servers on one etcd (`cluster up --apiservers=3`), each with its own way to the webhook.

mod balancer;
mod one_address;
mod paths;
mod reachability;
mod replicas;
mod scene;
