//! Checks of each API server: all of them call the webhook.

use super::finding::{Finding, printable};
use super::snapshot::{Snapshot, Unreadable};

const CHECK: &str = "apiservers";

/// Each API server reaches the webhook.
pub(super) fn findings(snapshot: &Snapshot) -> Vec<Finding> {
    let probed = match &snapshot.api_servers {
        Ok(probed) if probed.is_empty() => {
            return vec![Finding::ok(CHECK, "no EndpointSlice has an API server, see `probe`")];
        }
        Ok(probed) => probed,
        // The checks `probe` and `rights` explain both.
        Err(Unreadable::Missing | Unreadable::Forbidden) => return Vec::new(),
        Err(unreadable) => {
            return vec![Finding::unreadable(CHECK, "the EndpointSlices of the API servers", unreadable)];
        }
    };
    let mut findings: Vec<_> =
        probed.iter().filter_map(|(address, result)| finding(address, result)).collect();
    if findings.is_empty() {
        findings.push(Finding::ok(CHECK, format!("{} of {} reach the webhook", probed.len(), probed.len())));
    }
    findings
}

fn finding(address: &str, result: &Result<Result<(), String>, Unreadable>) -> Option<Finding> {
    let address = printable(address);
    match result {
        Ok(Ok(())) | Err(Unreadable::Forbidden | Unreadable::Missing) => None,
        Ok(Err(reason)) => Some(Finding::error(
            CHECK,
            format!("the API server {address} does not reach the webhook in time: {}", printable(reason)),
            "see docs/runbooks.md#squelchapiserverfailing",
        )),
        Err(Unreadable::Failed(reason)) => Some(Finding::warning(
            CHECK,
            format!(
                "the API server {address} cannot be probed, so nobody knows whether it reaches the webhook: {}",
                printable(reason)
            ),
            "use a kubeconfig that verifies the API server, and allow squelch to reach this address (network policies, \
             firewalls), see docs/installation.md#network",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::super::fixtures::healthy;
    use super::*;

    #[test]
    fn api_servers_that_fail_are_named() {
        let mut snapshot = healthy();
        assert_eq!(findings(&snapshot)[0].message, "2 of 2 reach the webhook");
        let probed = snapshot.api_servers.as_mut().unwrap();
        probed[0].1 = Ok(Err("it hangs".to_owned()));
        probed[1].1 = Err(Unreadable::Failed("connection refused".to_owned()));
        let found = findings(&snapshot);
        assert_eq!(
            found.iter().map(|finding| finding.level).collect::<Vec<_>>(),
            [Level::Error, Level::Warning]
        );
        assert!(found[0].message.contains("10.0.0.1:6443 does not reach the webhook in time: it hangs"));
        assert!(found[1].message.contains("10.0.0.2:6443 cannot be probed"));
    }

    #[test]
    fn without_addresses_the_probe_is_the_check() {
        let mut snapshot = healthy();
        snapshot.api_servers = Ok(Vec::new());
        assert_eq!(findings(&snapshot)[0].level, Level::Ok);
        snapshot.api_servers = Err(Unreadable::Forbidden);
        assert!(findings(&snapshot).is_empty());
        snapshot.api_servers = Err(Unreadable::Failed("no answer within 2 s".to_owned()));
        assert_eq!(findings(&snapshot)[0].level, Level::Warning);
    }
}
