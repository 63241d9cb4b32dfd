//! What proves squelch and the API server to each other: Secret, certificate, `caBundle`, path.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhook, MutatingWebhookConfiguration};

use super::finding::{Finding, told};
use super::seen::{Seen, Unseen};
use crate::tls::kept::{self, Keys};
use crate::tls::rotation::Ring;
use crate::tls::{Validity, certificates};
use crate::webhook::path;

/// A certificate is renewed when a third of its life is left: with a sixth left nobody has.
const LATE: u32 = 6;

pub(super) fn findings(seen: &Seen) -> Vec<Finding> {
    let mut found = vec![secret(seen)];
    found.extend(certificate(seen));
    let ring = ring(seen);
    if let (Ok(configuration), Some(ring)) = (&seen.configuration, &ring) {
        found.extend([trust(seen, configuration, ring), token(configuration, ring)]);
    }
    found
}

fn ring(seen: &Seen) -> Option<Ring<Keys>> {
    kept::parse(seen.secret.as_ref().ok()?, !seen.installation.mounted).ok()
}

/// The Secret holds what squelch can use.
fn secret(seen: &Seen) -> Finding {
    let name = &seen.installation.secret;
    let data = match &seen.secret {
        Ok(data) => data,
        Err(Unseen::Missing) => {
            let why =
                format!("the Secret {name} is not there; without it each process makes keys of its own");
            return Finding::warning(
                "certificate",
                why,
                "see the log of squelch, which makes it when it starts",
            );
        }
        Err(unseen) => return Finding::unseen("certificate", &format!("the Secret {name}"), unseen),
    };
    match kept::parse(data, !seen.installation.mounted) {
        Err(damage) => {
            let why = format!("the Secret {name} is damaged: {damage}");
            Finding::error("certificate", why, "delete it: squelch makes a new one within seconds")
        }
        Ok(Ring { current: Keys { authority: None, .. }, .. }) => Finding::ok(
            "certificate",
            format!("the Secret {name} holds the token; the certificate is of others"),
        ),
        Ok(Ring { current: Keys { authority: Some(authority), .. }, .. }) => {
            timely(&format!("the authority in the Secret {name}"), authority.validity(), seen.at)
        }
    }
}

/// What the webhook answers a handshake with, by what the API server trusts.
fn certificate(seen: &Seen) -> Option<Finding> {
    Some(match seen.served.as_ref()? {
        Ok(validity) => timely("the certificate that is served", *validity, seen.at),
        Err(error) => Finding::warning(
            "certificate",
            format!("a handshake with the webhook from here failed: {}", told(error)),
            "if the finding `proof` is ok, a NetworkPolicy keeps others from the webhook, and all is well",
        ),
    })
}

fn timely(what: &str, validity: Validity, at: Timestamp) -> Finding {
    let Validity { begins, ends } = validity;
    let left = Duration::try_from(ends.duration_since(at)).unwrap_or_default();
    let life = Duration::try_from(ends.duration_since(begins)).unwrap_or_default();
    let until = format!("{what} is good until {ends}");
    let renew = "see the log of squelch, which renews its own when a third of its life is left; a mounted one is its issuer's";
    if at < begins {
        let why = format!("{what} is good only from {begins} on, and it is {at} here");
        Finding::error("certificate", why, "set the clock that is wrong")
    } else if left.is_zero() {
        Finding::error("certificate", format!("{what} ended at {ends}"), renew)
    } else if left < life / LATE {
        Finding::warning("certificate", until, renew)
    } else {
        Finding::ok("certificate", until)
    }
}

/// The API server trusts what signs.
fn trust(seen: &Seen, configuration: &MutatingWebhookConfiguration, ring: &Ring<Keys>) -> Finding {
    let restored = "squelch restores its configuration within seconds: see its log";
    let signs = ring.current.authority.as_ref().and_then(|own| certificates(own.ca_pem().as_bytes()).ok());
    for entry in entries(configuration) {
        let pem =
            entry.client_config.ca_bundle.as_ref().map(|bundle| bundle.0.as_slice()).unwrap_or_default();
        let Ok(trusted) = certificates(pem) else {
            let why = format!("the caBundle of {} holds no certificate", told(&entry.name));
            return Finding::error("trust", why, restored);
        };
        let good = trusted.iter().filter_map(|one| Validity::of(one).ok());
        if !good.into_iter().any(|validity| validity.begins <= seen.at && seen.at < validity.ends) {
            let why = format!("every certificate in the caBundle of {} has ended", told(&entry.name));
            return Finding::error("trust", why, restored);
        }
        if signs.as_ref().is_some_and(|signs| !trusted.contains(&signs[0])) {
            let why = format!("the caBundle of {} is without the authority of the Secret", told(&entry.name));
            return Finding::error("trust", why, restored);
        }
    }
    Finding::ok("trust", "the API server trusts the authority by the caBundle of both entries")
}

/// The API server asks on a path that squelch knows. No token is told.
fn token(configuration: &MutatingWebhookConfiguration, ring: &Ring<Keys>) -> Finding {
    let known: Vec<_> = ring.iter().map(|keys| path(&keys.token)).collect();
    let asks_so = |entry: &MutatingWebhook| {
        asked(entry).is_some_and(|asked| {
            known.iter().any(|path| asked.trim_end_matches(crate::PROOF_PATH).ends_with(path))
        })
    };
    if entries(configuration).all(asks_so) {
        return Finding::ok("token", "the API server proves itself with the token of the Secret");
    }
    let why = "the token in the webhook's path is not that of the Secret: reviews are answered as those of a stranger";
    Finding::error("token", why, "squelch writes it within seconds: see its log for what keeps it from that")
}

/// The path, or the URL, that an entry has the API server ask on.
pub(super) fn asked(entry: &MutatingWebhook) -> Option<&str> {
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
    use super::super::testing::{configuration_of, keys, well};
    use super::*;

    fn levels(seen: &Seen) -> Vec<(&'static str, Level)> {
        findings(seen).iter().map(|finding| (finding.what, finding.level)).collect()
    }

    #[test]
    fn keys_that_fit_are_well() {
        let expected = ["certificate", "certificate", "trust", "token"].map(|what| (what, Level::Ok));
        assert_eq!(levels(&well()), expected);
    }

    #[test]
    fn a_certificate_that_ends_soon_is_told_before_it_ends() {
        let mut seen = well();
        let end = seen.served.clone().unwrap().unwrap().ends;
        for (hours, level) in [(400, Level::Ok), (300, Level::Warning), (0, Level::Error)] {
            seen.at = end.checked_sub(jiff::SignedDuration::from_hours(hours)).unwrap();
            assert_eq!(certificate(&seen).unwrap().level, level, "{hours} h before its end");
        }
        seen.at = "2020-01-01T00:00:00Z".parse().unwrap();
        assert!(certificate(&seen).unwrap().what_to_do.contains("clock"));
    }

    #[test]
    fn other_keys_than_those_of_the_secret_are_errors_and_no_token_is_told() {
        let mut seen = well();
        let (other, strange) = keys();
        seen.configuration = Ok(configuration_of(&strange));
        assert_eq!(levels(&seen)[2..], [("trust", Level::Error), ("token", Level::Error)]);
        let told = super::super::finding::text(&findings(&seen));
        assert!(!told.contains(strange.current.token.reveal()) && !told.contains("PRIVATE"));
        seen.secret = Ok(other);
        assert_eq!(levels(&seen)[2..], [("trust", Level::Ok), ("token", Level::Ok)]);
    }

    #[test]
    fn a_bundle_that_is_none_and_a_damaged_secret_are_told() {
        let mut seen = well();
        let Ok(configuration) = &mut seen.configuration else { panic!("it is there") };
        configuration.webhooks.as_mut().unwrap()[1].client_config.ca_bundle = Some(ByteString(b"x".to_vec()));
        let found = findings(&seen);
        assert!(found[2].why.contains("probe.squelch.dev"), "{}", found[2].why);
        let Ok(data) = &mut seen.secret else { panic!("it is there") };
        data.insert("token".to_owned(), b"short".to_vec());
        assert_eq!(levels(&seen), [("certificate", Level::Error), ("certificate", Level::Ok)]);
        seen.secret = Err(Unseen::Missing);
        seen.served = None;
        assert_eq!(levels(&seen), [("certificate", Level::Warning)]);
    }
}
