//! What is kept of the keys, as a Secret keeps it: named texts.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::sync::Arc;

use jiff::Timestamp;

use super::rotation::{AuthorityTerm, Generation, Id, Lifetimes, Ring, Term};
use super::{Authority, PathToken, TlsError};

/// The form that [`print`] writes and [`parse`] reads.
const VERSION: &str = "1";

/// Every name that [`print`] may use, and a reader of the form has to look for.
pub const NAMES: [&str; 13] = [
    "version",
    "ca.crt",
    "ca.key",
    "token",
    "since",
    "next-ca.crt",
    "next-ca.key",
    "next-token",
    "next-since",
    "previous-ca.crt",
    "previous-ca.key",
    "previous-token",
    "previous-since",
];

/// One generation of keys.
#[derive(Clone, Debug)]
pub struct Keys {
    /// Signs what is served; `None` where the certificate comes from elsewhere.
    pub authority: Option<Arc<Authority>>,
    /// In the webhook's path.
    pub token: PathToken,
    /// When the token was made.
    pub since: Timestamp,
}

impl Keys {
    /// New ones; with an authority, or the token alone.
    pub fn generate(with_authority: bool, lifetimes: Lifetimes, wall: Timestamp) -> Result<Self, TlsError> {
        let authority = match with_authority {
            true => Some(Arc::new(Authority::generate(lifetimes.authority, wall)?)),
            false => None,
        };
        Self::with(authority, wall)
    }

    /// A new token with the authority of these.
    pub fn with_new_token(&self, wall: Timestamp) -> Result<Self, TlsError> {
        Self::with(self.authority.clone(), wall)
    }

    fn with(authority: Option<Arc<Authority>>, wall: Timestamp) -> Result<Self, TlsError> {
        // As precise as it is kept.
        let since = Timestamp::from_second(wall.as_second()).unwrap_or(wall);
        Ok(Self { authority, token: PathToken::generate()?, since })
    }
}

impl Generation for Keys {
    fn term(&self) -> Term {
        let authority = self.authority.as_ref().map(|authority| {
            let validity = authority.validity();
            AuthorityTerm { id: id(authority.ca_pem()), begins: validity.begins, ends: validity.ends }
        });
        let id = id(&(self.token.reveal(), authority.map(|authority| authority.id.0)));
        Term { id, since: self.since, authority }
    }
}

fn id(of: &(impl Hash + ?Sized)) -> Id {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    Id(hasher.finish())
}

/// Why what is kept cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Damage {
    /// A name is missing.
    #[error("{0} is missing")]
    Missing(String),
    /// What stands under a name is not what belongs there.
    #[error("{0} is damaged")]
    Bad(String),
    /// Certificate and key of an authority.
    #[error("{0}ca.crt and {0}ca.key: {1}")]
    Authority(&'static str, TlsError),
    /// Another form, of another version of squelch.
    #[error("version is not {VERSION}")]
    Version,
}

/// What is kept, by its names.
pub fn print(ring: &Ring<Keys>) -> BTreeMap<String, String> {
    let mut kept = BTreeMap::from([("version".to_owned(), VERSION.to_owned())]);
    let generations =
        [("", Some(&ring.current)), ("next-", ring.next.as_ref()), ("previous-", ring.previous.as_ref())];
    for (prefix, keys) in generations {
        let Some(keys) = keys else { continue };
        let mut put = |name: &str, text: String| kept.insert(format!("{prefix}{name}"), text);
        put("token", keys.token.reveal().to_owned());
        put("since", keys.since.to_string());
        if let Some(authority) = &keys.authority {
            put("ca.crt", authority.ca_pem().to_owned());
            put("ca.key", authority.reveal_key());
        }
    }
    kept
}

/// The generations that are kept, `with_authority` or tokens alone.
///
/// # Errors
/// The first thing that is wrong: a part of the keys is none.
pub fn parse(kept: &BTreeMap<String, Vec<u8>>, with_authority: bool) -> Result<Ring<Keys>, Damage> {
    if kept.get("version").is_none_or(|version| version != VERSION.as_bytes()) {
        return Err(Damage::Version);
    }
    let generation = |prefix| parse_keys(kept, prefix, with_authority);
    let begun = |prefix: &str| NAMES.iter().any(|name| name.starts_with(prefix) && kept.contains_key(*name));
    let other = |prefix| begun(prefix).then(|| generation(prefix)).transpose();
    Ok(Ring { current: generation("")?, next: other("next-")?, previous: other("previous-")? })
}

fn parse_keys(
    kept: &BTreeMap<String, Vec<u8>>,
    prefix: &'static str,
    with_authority: bool,
) -> Result<Keys, Damage> {
    let text = |name: &str| {
        let name = format!("{prefix}{name}");
        let bytes = kept.get(&name).ok_or_else(|| Damage::Missing(name.clone()))?;
        std::str::from_utf8(bytes).map_err(|_| Damage::Bad(name))
    };
    let bad = |name: &str| Damage::Bad(format!("{prefix}{name}"));
    let token = PathToken::parse(text("token")?).ok_or_else(|| bad("token"))?;
    let since = text("since")?.parse().map_err(|_| bad("since"))?;
    let authority = match with_authority {
        true => {
            let loaded = Authority::load(text("ca.crt")?, text("ca.key")?);
            Some(Arc::new(loaded.map_err(|error| Damage::Authority(prefix, error))?))
        }
        false => None,
    };
    Ok(Keys { authority, token, since })
}

/// Whether `kept` holds exactly what [`print`] writes for `ring`, whatever else is there under other names.
pub fn is_printed(ring: &Ring<Keys>, kept: &BTreeMap<String, Vec<u8>>) -> bool {
    let printed = print(ring);
    NAMES.iter().all(|name| printed.get(*name).map(String::as_bytes) == kept.get(*name).map(Vec::as_slice))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn keys(with_authority: bool) -> Keys {
        let lifetimes = Lifetimes::of(Duration::from_secs(3600), Duration::from_secs(3600));
        Keys::generate(with_authority, lifetimes, "2026-11-21T08:00:00.25Z".parse().unwrap()).unwrap()
    }

    fn bytes(ring: &Ring<Keys>) -> BTreeMap<String, Vec<u8>> {
        print(ring).into_iter().map(|(name, text)| (name, text.into_bytes())).collect()
    }

    fn terms(ring: &Ring<Keys>) -> Vec<Term> {
        ring.iter().map(Keys::term).collect()
    }

    #[test]
    fn what_is_kept_reads_back() {
        for with_authority in [true, false] {
            let mut ring = Ring::of(keys(with_authority));
            let read = |ring: &Ring<Keys>| parse(&bytes(ring), with_authority).unwrap();
            assert_eq!(terms(&read(&ring)), terms(&ring));
            ring.next = Some(keys(with_authority));
            assert_eq!(terms(&read(&ring)), terms(&ring));
            (ring.previous, ring.next) = (ring.next, None);
            assert_eq!(terms(&read(&ring)), terms(&ring));
            assert!(read(&ring).next.is_none());
            assert!(is_printed(&read(&ring), &bytes(&ring)));
            assert!(bytes(&ring).keys().all(|name| NAMES.contains(&&**name)));
        }
    }

    #[test]
    fn every_damage_is_named() {
        let mut ring = Ring::of(keys(true));
        ring.next = Some(keys(true));
        let sound = bytes(&ring);
        let damaged = |name: &str, value: Option<&[u8]>| {
            let mut kept = sound.clone();
            match value {
                Some(value) => kept.insert(name.to_owned(), value.to_vec()),
                None => kept.remove(name),
            };
            parse(&kept, true).unwrap_err().to_string()
        };
        for name in NAMES.iter().filter(|name| sound.contains_key(**name)) {
            for value in [None, Some(&b"garbage"[..]), Some(&b"\xff"[..]), Some(&b""[..])] {
                let told = damaged(name, value);
                assert!(told.contains(name), "{name}: {told}");
            }
        }
        let other = sound["next-ca.key"].clone();
        assert!(damaged("ca.key", Some(&other)).starts_with("ca.crt and ca.key: "));
        assert!(parse(&BTreeMap::new(), true).is_err());
    }

    #[test]
    fn a_new_token_keeps_the_authority() {
        let old = keys(true);
        let new = old.with_new_token("2026-11-21T09:00:00Z".parse().unwrap()).unwrap();
        assert_ne!((new.token.reveal(), new.since), (old.token.reveal(), old.since));
        assert!(new.term().id != old.term().id && new.term().shares_authority(&old.term()));
        assert!(!new.term().shares_authority(&keys(true).term()));
        let alone = keys(false);
        assert!(alone.with_new_token(alone.since).unwrap().authority.is_none());
    }

    #[test]
    fn a_token_alone_needs_no_authority_and_leaves_none_behind() {
        let ring = Ring::of(keys(true));
        let read = parse(&bytes(&ring), false).unwrap();
        assert!(read.current.authority.is_none());
        assert!(!is_printed(&read, &bytes(&ring)), "the authority is to be taken out");
    }
}
