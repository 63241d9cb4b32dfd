//! The encoding of the keys as the data of a Secret.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::sync::Arc;

use jiff::Timestamp;

use super::rotation::{AuthorityInfo, Generation, GenerationInfo, Id, Lifetimes, Ring};
use super::{Authority, PathToken, TlsError};

/// The version of the encoding.
const VERSION: &str = "1";

/// Every field that [`encode`] may write.
pub const FIELDS: [&str; 13] = [
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
    /// Signs the served certificate. `None` if that comes from mounted files.
    pub authority: Option<Arc<Authority>>,
    /// The token in the webhook's path.
    pub token: PathToken,
    /// When the token was made.
    pub since: Timestamp,
}

impl Keys {
    /// Makes a token, and with `with_authority` an authority.
    pub fn generate(with_authority: bool, lifetimes: Lifetimes, wall: Timestamp) -> Result<Self, TlsError> {
        let authority = match with_authority {
            true => Some(Arc::new(Authority::generate(lifetimes.authority, wall)?)),
            false => None,
        };
        Self::with(authority, wall)
    }

    /// Makes a new token for the same authority.
    pub fn with_new_token(&self, wall: Timestamp) -> Result<Self, TlsError> {
        Self::with(self.authority.clone(), wall)
    }

    fn with(authority: Option<Arc<Authority>>, wall: Timestamp) -> Result<Self, TlsError> {
        // The precision of the encoding.
        let since = Timestamp::from_second(wall.as_second()).unwrap_or(wall);
        Ok(Self { authority, token: PathToken::generate()?, since })
    }
}

impl Generation for Keys {
    fn info(&self) -> GenerationInfo {
        let authority = self.authority.as_ref().map(|authority| {
            let validity = authority.validity();
            AuthorityInfo { id: id(authority.ca_pem()), begins: validity.begins, ends: validity.ends }
        });
        let id = id(&(self.token.reveal(), authority.map(|authority| authority.id.0)));
        GenerationInfo { id, since: self.since, authority }
    }
}

fn id(of: &(impl Hash + ?Sized)) -> Id {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    Id(hasher.finish())
}

/// Why the data cannot be decoded.
#[derive(Debug, thiserror::Error)]
pub enum SecretDecodeError {
    /// A field is missing.
    #[error("{0} is missing")]
    Missing(String),
    /// A field has an invalid value.
    #[error("{0} is invalid")]
    Invalid(String),
    /// The certificate and key of an authority are invalid.
    #[error("{0}ca.crt and {0}ca.key are invalid: {1}")]
    Authority(&'static str, TlsError),
    /// The data has another version.
    #[error("version is not {VERSION}, the data is damaged or was written by another version of squelch")]
    Version,
}

/// Encodes `ring` as fields and their values.
pub fn encode(ring: &Ring<Keys>) -> BTreeMap<String, String> {
    let mut data = BTreeMap::from([("version".to_owned(), VERSION.to_owned())]);
    let generations =
        [("", Some(&ring.current)), ("next-", ring.next.as_ref()), ("previous-", ring.previous.as_ref())];
    for (prefix, keys) in generations {
        let Some(keys) = keys else { continue };
        let mut put = |name: &str, text: String| data.insert(format!("{prefix}{name}"), text);
        put("token", keys.token.reveal().to_owned());
        put("since", keys.since.to_string());
        if let Some(authority) = &keys.authority {
            put("ca.crt", authority.ca_pem().to_owned());
            put("ca.key", authority.reveal_key());
        }
    }
    data
}

/// Decodes a ring, `with_authority` or tokens alone.
///
/// # Errors
/// The first missing or invalid field.
pub fn decode(
    data: &BTreeMap<String, Vec<u8>>,
    with_authority: bool,
) -> Result<Ring<Keys>, SecretDecodeError> {
    if data.get("version").is_none_or(|version| version != VERSION.as_bytes()) {
        return Err(SecretDecodeError::Version);
    }
    let generation = |prefix| decode_keys(data, prefix, with_authority);
    let exists =
        |prefix: &str| FIELDS.iter().any(|name| name.starts_with(prefix) && data.contains_key(*name));
    let other = |prefix| exists(prefix).then(|| generation(prefix)).transpose();
    Ok(Ring { current: generation("")?, next: other("next-")?, previous: other("previous-")? })
}

fn decode_keys(
    data: &BTreeMap<String, Vec<u8>>,
    prefix: &'static str,
    with_authority: bool,
) -> Result<Keys, SecretDecodeError> {
    let text = |name: &str| {
        let name = format!("{prefix}{name}");
        let bytes = data.get(&name).ok_or_else(|| SecretDecodeError::Missing(name.clone()))?;
        std::str::from_utf8(bytes).map_err(|_| SecretDecodeError::Invalid(name))
    };
    let bad = |name: &str| SecretDecodeError::Invalid(format!("{prefix}{name}"));
    let token = PathToken::parse(text("token")?).ok_or_else(|| bad("token"))?;
    let since = text("since")?.parse().map_err(|_| bad("since"))?;
    let authority = match with_authority {
        true => {
            let loaded = Authority::load(text("ca.crt")?, text("ca.key")?);
            Some(Arc::new(loaded.map_err(|error| SecretDecodeError::Authority(prefix, error))?))
        }
        false => None,
    };
    Ok(Keys { authority, token, since })
}

/// Whether `data` equals the encoding of `ring`, ignoring other fields.
pub fn is_encoding_of(ring: &Ring<Keys>, data: &BTreeMap<String, Vec<u8>>) -> bool {
    let encoded = encode(ring);
    FIELDS.iter().all(|name| encoded.get(*name).map(String::as_bytes) == data.get(*name).map(Vec::as_slice))
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
        encode(ring).into_iter().map(|(name, text)| (name, text.into_bytes())).collect()
    }

    fn infos(ring: &Ring<Keys>) -> Vec<GenerationInfo> {
        ring.iter().map(Keys::info).collect()
    }

    #[test]
    fn an_encoded_ring_decodes_to_the_same_ring() {
        for with_authority in [true, false] {
            let mut ring = Ring::of(keys(with_authority));
            let read = |ring: &Ring<Keys>| decode(&bytes(ring), with_authority).unwrap();
            assert_eq!(infos(&read(&ring)), infos(&ring));
            ring.next = Some(keys(with_authority));
            assert_eq!(infos(&read(&ring)), infos(&ring));
            (ring.previous, ring.next) = (ring.next, None);
            assert_eq!(infos(&read(&ring)), infos(&ring));
            assert!(read(&ring).next.is_none());
            assert!(is_encoding_of(&read(&ring), &bytes(&ring)));
            assert!(bytes(&ring).keys().all(|name| FIELDS.contains(&&**name)));
        }
    }

    #[test]
    fn a_decode_error_names_the_field() {
        let mut ring = Ring::of(keys(true));
        ring.next = Some(keys(true));
        let sound = bytes(&ring);
        let damaged = |name: &str, value: Option<&[u8]>| {
            let mut data = sound.clone();
            match value {
                Some(value) => data.insert(name.to_owned(), value.to_vec()),
                None => data.remove(name),
            };
            decode(&data, true).unwrap_err().to_string()
        };
        for name in FIELDS.iter().filter(|name| sound.contains_key(**name)) {
            for value in [None, Some(&b"garbage"[..]), Some(&b"\xff"[..]), Some(&b""[..])] {
                let error = damaged(name, value);
                assert!(error.contains(name), "{name}: {error}");
            }
        }
        let other = sound["next-ca.key"].clone();
        assert!(damaged("ca.key", Some(&other)).starts_with("ca.crt and ca.key are invalid: "));
        assert!(decode(&BTreeMap::new(), true).is_err());
    }

    #[test]
    fn a_new_token_has_the_same_authority() {
        let old = keys(true);
        let new = old.with_new_token("2026-11-21T09:00:00Z".parse().unwrap()).unwrap();
        assert_ne!((new.token.reveal(), new.since), (old.token.reveal(), old.since));
        assert!(new.info().id != old.info().id && new.info().shares_authority(&old.info()));
        assert!(!new.info().shares_authority(&keys(true).info()));
        let alone = keys(false);
        assert!(alone.with_new_token(alone.since).unwrap().authority.is_none());
    }

    #[test]
    fn a_ring_without_authorities_is_not_the_encoding_of_one_with_them() {
        let ring = Ring::of(keys(true));
        let read = decode(&bytes(&ring), false).unwrap();
        assert!(read.current.authority.is_none());
        assert!(!is_encoding_of(&read, &bytes(&ring)), "the authority has to be removed");
    }
}
