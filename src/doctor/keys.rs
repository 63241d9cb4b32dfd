//! Checks of the keys: Secret, certificate, `caBundle`, token.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhook, MutatingWebhookConfiguration};

use super::finding::{Finding, printable};
use super::snapshot::{Snapshot, Unreadable};
use crate::tls::encoding::{self, Keys};
use crate::tls::rotation::Ring;
use crate::tls::{Validity, certificates};
use crate::webhook::path;

/// A certificate is renewed when a third of its lifetime is left. Below a sixth the renewal is late.
const LATE: u32 = 6;

pub(super) fn findings(snapshot: &Snapshot) -> Vec<Finding> {
    let mut found = vec![secret(snapshot)];
    found.extend(certificate(snapshot));
    let ring = ring(snapshot);
    if let (Ok(configuration), Some(ring)) = (&snapshot.configuration, &ring) {
        found.extend([trust(snapshot, configuration, ring), token(configuration, ring)]);
    }
    found
}

fn ring(snapshot: &Snapshot) -> Option<Ring<Keys>> {
    encoding::decode(snapshot.secret.as_ref().ok()?, !snapshot.installation.mounted).ok()
}

/// The Secret has valid keys.
fn secret(snapshot: &Snapshot) -> Finding {
    let name = &snapshot.installation.secret;
    let data = match &snapshot.secret {
        Ok(data) => data,
        Err(Unreadable::Missing) => {
            let message =
                format!("the Secret {name} does not exist; without it each replica has its own keys");
            return Finding::warning(
                "certificate",
                message,
                "see the log of squelch, which creates the Secret at its start",
            );
        }
        Err(unreadable) => {
            return Finding::unreadable("certificate", &format!("the Secret {name}"), unreadable);
        }
    };
    match encoding::decode(data, !snapshot.installation.mounted) {
        Err(damage) => {
            let message = format!("the Secret {name} is invalid: {damage}");
            Finding::error(
                "certificate",
                message,
                "delete the Secret: squelch creates a new one within seconds",
            )
        }
        Ok(Ring { current: Keys { authority: None, .. }, .. }) => {
            Finding::ok("certificate", format!("the Secret {name} has the token; the certificate is mounted"))
        }
        Ok(Ring { current: Keys { authority: Some(authority), .. }, .. }) => check_validity(
            &format!("the certificate authority in the Secret {name}"),
            authority.validity(),
            snapshot.at,
        ),
    }
}

/// The served certificate is valid.
fn certificate(snapshot: &Snapshot) -> Option<Finding> {
    Some(match snapshot.served.as_ref()? {
        Ok(validity) => check_validity("the served certificate", *validity, snapshot.at),
        Err(error) => Finding::warning(
            "certificate",
            format!("the TLS handshake with the webhook failed from here: {}", printable(error)),
            "ignore this if the check `probe` is ok: a NetworkPolicy admits only the API server",
        ),
    })
}

fn check_validity(what: &str, validity: Validity, at: Timestamp) -> Finding {
    let Validity { begins, ends } = validity;
    let left = Duration::try_from(ends.duration_since(at)).unwrap_or_default();
    let life = Duration::try_from(ends.duration_since(begins)).unwrap_or_default();
    let until = format!("{what} is valid until {ends}");
    let renew = "see the log of squelch, which renews its own certificates when a third of the lifetime is left; have the issuer renew a mounted one";
    if at < begins {
        let message = format!("{what} is not valid before {begins}, and the time here is {at}");
        Finding::error("certificate", message, "correct the clock that is wrong")
    } else if left.is_zero() {
        Finding::error("certificate", format!("{what} expired at {ends}"), renew)
    } else if left < life / LATE {
        Finding::warning("certificate", until, renew)
    } else {
        Finding::ok("certificate", until)
    }
}

/// The API server trusts the authority of the Secret.
fn trust(snapshot: &Snapshot, configuration: &MutatingWebhookConfiguration, ring: &Ring<Keys>) -> Finding {
    let restored = "squelch reapplies its configuration within seconds; if the error stays, see its log";
    let signs = ring.current.authority.as_ref().and_then(|own| certificates(own.ca_pem().as_bytes()).ok());
    for entry in entries(configuration) {
        let pem =
            entry.client_config.ca_bundle.as_ref().map(|bundle| bundle.0.as_slice()).unwrap_or_default();
        let Ok(trusted) = certificates(pem) else {
            let message = format!("the caBundle of the entry {} has no certificate", printable(&entry.name));
            return Finding::error("trust", message, restored);
        };
        let good = trusted.iter().filter_map(|one| Validity::of(one).ok());
        if !good.into_iter().any(|validity| validity.begins <= snapshot.at && snapshot.at < validity.ends) {
            let message = format!(
                "every certificate in the caBundle of the entry {} has expired",
                printable(&entry.name)
            );
            return Finding::error("trust", message, restored);
        }
        if signs.as_ref().is_some_and(|signs| !trusted.contains(&signs[0])) {
            let message = format!(
                "the caBundle of the entry {} lacks the certificate authority of the Secret",
                printable(&entry.name)
            );
            return Finding::error("trust", message, restored);
        }
    }
    Finding::ok("trust", "the caBundle of both entries has the certificate authority of the Secret")
}

/// The path of the webhook has a token of the Secret. No token is printed.
fn token(configuration: &MutatingWebhookConfiguration, ring: &Ring<Keys>) -> Finding {
    let known: Vec<_> = ring.iter().map(|keys| path(&keys.token)).collect();
    let has_known_token = |entry: &MutatingWebhook| {
        path_of(entry).is_some_and(|configured| {
            known.iter().any(|path| configured.trim_end_matches(crate::PROBE_PATH).ends_with(path))
        })
    };
    if entries(configuration).all(has_known_token) {
        return Finding::ok("token", "the path of both entries has a token of the Secret");
    }
    let message = "the token in the webhook's path is not in the Secret: squelch treats the API server as an unauthenticated caller";
    Finding::error(
        "token",
        message,
        "squelch reapplies its configuration within seconds; if the error stays, see its log",
    )
}

/// Returns the path or URL of an entry.
pub(super) fn path_of(entry: &MutatingWebhook) -> Option<&str> {
    let client = &entry.client_config;
    client.service.as_ref().map_or(client.url.as_deref(), |service| service.path.as_deref())
}

fn entries(configuration: &MutatingWebhookConfiguration) -> impl Iterator<Item = &MutatingWebhook> {
    let all = configuration.webhooks.iter().flatten();
    all.filter(|entry| super::configuration::ENTRIES.contains(&entry.name.as_str()))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;

    use super::super::finding::Level;
    use super::super::fixtures::{configuration_of, healthy, keys};
    use super::*;

    fn levels(snapshot: &Snapshot) -> Vec<(&'static str, Level)> {
        findings(snapshot).iter().map(|finding| (finding.check, finding.level)).collect()
    }

    #[test]
    fn matching_keys_pass() {
        let expected = ["certificate", "certificate", "trust", "token"].map(|what| (what, Level::Ok));
        assert_eq!(levels(&healthy()), expected);
    }

    #[test]
    fn a_late_renewal_is_a_warning() {
        let mut snapshot = healthy();
        let end = snapshot.served.clone().unwrap().unwrap().ends;
        for (hours, level) in [(400, Level::Ok), (300, Level::Warning), (0, Level::Error)] {
            snapshot.at = end.checked_sub(jiff::SignedDuration::from_hours(hours)).unwrap();
            assert_eq!(certificate(&snapshot).unwrap().level, level, "{hours} h before its end");
        }
        snapshot.at = "2020-01-01T00:00:00Z".parse().unwrap();
        assert!(certificate(&snapshot).unwrap().remedy.contains("clock"));
    }

    #[test]
    fn other_keys_than_those_of_the_secret_are_errors_and_no_token_is_printed() {
        let mut snapshot = healthy();
        let (other, other_ring) = keys();
        snapshot.configuration = Ok(configuration_of(&other_ring));
        assert_eq!(levels(&snapshot)[2..], [("trust", Level::Error), ("token", Level::Error)]);
        let table = super::super::DoctorReport::of(findings(&snapshot)).table();
        assert!(!table.contains(other_ring.current.token.reveal()) && !table.contains("PRIVATE"));
        snapshot.secret = Ok(other);
        assert_eq!(levels(&snapshot)[2..], [("trust", Level::Ok), ("token", Level::Ok)]);
    }

    #[test]
    fn an_invalid_bundle_and_an_invalid_secret_are_errors() {
        let mut snapshot = healthy();
        let Ok(configuration) = &mut snapshot.configuration else { panic!("it exists") };
        configuration.webhooks.as_mut().unwrap()[1].client_config.ca_bundle = Some(ByteString(b"x".to_vec()));
        let found = findings(&snapshot);
        assert!(found[2].message.contains("probe.squelch.dev"), "{}", found[2].message);
        let Ok(data) = &mut snapshot.secret else { panic!("it exists") };
        data.insert("token".to_owned(), b"short".to_vec());
        assert_eq!(levels(&snapshot), [("certificate", Level::Error), ("certificate", Level::Ok)]);
        snapshot.secret = Err(Unreadable::Missing);
        snapshot.served = None;
        assert_eq!(levels(&snapshot), [("certificate", Level::Warning)]);
    }
}
