//! The secret token in the webhook's path, by which the API server authenticates.

use std::fmt;
use std::hint::black_box;
use std::sync::Arc;

use arc_swap::ArcSwap;
use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::TlsError;

const BYTES: usize = 32;
const DIGITS: usize = 2 * BYTES;

/// 256 random bits as 64 lowercase hex digits. `Debug` does not print them.
#[derive(Clone)]
pub struct PathToken([u8; DIGITS]);

impl PathToken {
    /// Makes a new token.
    pub fn generate() -> Result<Self, TlsError> {
        let mut bytes = [0; BYTES];
        super::provider().secure_random.fill(&mut bytes).map_err(|_| TlsError::Random)?;
        let mut digits = [0; DIGITS];
        for (pair, byte) in digits.chunks_exact_mut(2).zip(bytes) {
            pair.copy_from_slice(&[hex(byte >> 4), hex(byte & 0xf)]);
        }
        Ok(Self(digits))
    }

    /// Parses a token. `None` unless `text` is 64 lowercase hex digits.
    pub fn parse(text: &str) -> Option<Self> {
        let digits: [u8; DIGITS] = text.as_bytes().try_into().ok()?;
        digits.iter().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f')).then_some(Self(digits))
    }

    /// Returns the digits. They belong only into the path in `clientConfig` and into the Secret.
    pub fn reveal(&self) -> &str {
        std::str::from_utf8(&self.0).expect("hex digits are ASCII")
    }

    /// The key of probe signatures.
    fn key(&self) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, &self.0)
    }

    /// Whether `offered` is this token. Compares in constant time.
    fn matches(&self, offered: &[u8; DIGITS]) -> bool {
        let (mine, theirs) = (words(&self.0), words(offered));
        let difference = mine.zip(theirs).fold(0, |sum, (mine, theirs)| sum | black_box(mine ^ theirs));
        black_box(difference) == 0
    }
}

/// Splits the digits into words of eight.
fn words(digits: &[u8; DIGITS]) -> impl Iterator<Item = u64> {
    digits.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word))
}

impl fmt::Debug for PathToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PathToken(…)")
    }
}

/// The signed message. The prefix separates probe signatures from any other use of the key.
fn signed_message(nonce: &str) -> Vec<u8> {
    [b"squelch.dev/probe-signature ", nonce.as_bytes()].concat()
}

fn hex(nibble: u8) -> u8 {
    if nibble < 10 { b'0' + nibble } else { b'a' + nibble - 10 }
}

/// The accepted tokens: one, or several during a rotation.
#[derive(Debug)]
pub struct AcceptedTokens {
    current: ArcSwap<Vec<PathToken>>,
}

impl AcceptedTokens {
    /// Accepts `tokens`.
    pub fn new(tokens: Vec<PathToken>) -> Self {
        Self { current: ArcSwap::from_pointee(tokens) }
    }

    /// Accepts `tokens` and no others, from the next review on.
    pub fn replace(&self, tokens: Vec<PathToken>) {
        self.current.store(Arc::new(tokens));
    }

    /// Whether `offered` is an accepted token. Compares with every one, in constant time.
    pub fn accept(&self, offered: &str) -> bool {
        let Ok(offered) = <&[u8; DIGITS]>::try_from(offered.as_bytes()) else { return false };
        self.current.load().iter().fold(false, |accepted, token| accepted | token.matches(offered))
    }

    /// Signs `nonce` with the token `offered`. `None` unless that token is accepted.
    pub fn sign(&self, offered: &str, nonce: &str) -> Option<String> {
        let token = PathToken::parse(offered).filter(|_| self.accept(offered))?;
        Some(STANDARD.encode(hmac::sign(&token.key(), &signed_message(nonce))))
    }

    /// Whether `signature` is that of `nonce` by an accepted token. Replicas share the tokens, and during a rotation
    /// the API server may use any of them.
    pub fn verify(&self, nonce: &str, signature: &str) -> bool {
        let Ok(signature) = STANDARD.decode(signature) else { return false };
        let message = signed_message(nonce);
        self.current.load().iter().any(|token| hmac::verify(&token.key(), &message, &signature).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_tokens_differ_and_parse() {
        let (one, other) = (PathToken::generate().unwrap(), PathToken::generate().unwrap());
        assert_ne!(one.reveal(), other.reveal());
        assert_eq!(PathToken::parse(one.reveal()).unwrap().reveal(), one.reveal());
        assert!(PathToken::parse("abc").is_none());
        assert!(PathToken::parse(&"G".repeat(64)).is_none());
    }

    #[test]
    fn debug_does_not_print_it() {
        let token = PathToken::generate().unwrap();
        let printed = format!("{token:?} {:?}", AcceptedTokens::new(vec![token.clone()]));
        assert!(!printed.contains(token.reveal()));
    }

    #[test]
    fn old_and_new_are_accepted_and_nothing_else() {
        let (old, new) = (PathToken::generate().unwrap(), PathToken::generate().unwrap());
        let accepted = AcceptedTokens::new(vec![old.clone(), new.clone()]);
        assert!(accepted.accept(old.reveal()) && accepted.accept(new.reveal()));
        assert!(!accepted.accept("") && !accepted.accept(&new.reveal()[..63]));
        accepted.replace(vec![new.clone()]);
        assert!(!accepted.accept(old.reveal()) && accepted.accept(new.reveal()));
    }

    #[test]
    fn a_signature_is_verified_by_every_replica_that_accepts_its_token() {
        let (old, new) = (PathToken::generate().unwrap(), PathToken::generate().unwrap());
        let webhook = AcceptedTokens::new(vec![old.clone(), new.clone()]);
        let signature = webhook.sign(old.reveal(), "7").unwrap();
        assert!(!signature.contains(old.reveal()));
        let replica = |token: &PathToken| AcceptedTokens::new(vec![token.clone()]);
        assert!(webhook.verify("7", &signature) && replica(&old).verify("7", &signature));
        assert!(!replica(&new).verify("7", &signature), "another token");
        for (nonce, signature) in
            [("8", signature.as_str()), ("7", ""), ("7", "no base64"), ("7", &signature[..40])]
        {
            assert!(!webhook.verify(nonce, signature), "{nonce} {signature}");
        }
        assert_eq!(replica(&new).sign(old.reveal(), "7"), None, "only an accepted token signs");
    }
}
