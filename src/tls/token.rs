//! The secret in the webhook's path: how the API server proves itself.

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

/// 256 random bits, as 64 lowercase hex digits. Neither `Debug` nor anything else prints it by accident.
#[derive(Clone)]
pub struct PathToken([u8; DIGITS]);

impl PathToken {
    /// A new one from the cryptographic provider's randomness.
    pub fn generate() -> Result<Self, TlsError> {
        let mut bytes = [0; BYTES];
        super::provider().secure_random.fill(&mut bytes).map_err(|_| TlsError::Random)?;
        let mut digits = [0; DIGITS];
        for (pair, byte) in digits.chunks_exact_mut(2).zip(bytes) {
            pair.copy_from_slice(&[hex(byte >> 4), hex(byte & 0xf)]);
        }
        Ok(Self(digits))
    }

    /// Reads one back from where it is kept; `None` unless it is 64 lowercase hex digits.
    pub fn parse(text: &str) -> Option<Self> {
        let digits: [u8; DIGITS] = text.as_bytes().try_into().ok()?;
        digits.iter().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f')).then_some(Self(digits))
    }

    /// The digits, for the one place where they belong: the path in `clientConfig`, and the Secret.
    pub fn reveal(&self) -> &str {
        std::str::from_utf8(&self.0).expect("hex digits are ASCII")
    }

    /// For what only who knows the token can say.
    fn key(&self) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, &self.0)
    }

    /// Whether `offered` is this token, in a time that does not depend on where they differ.
    fn matches(&self, offered: &[u8; DIGITS]) -> bool {
        let (mine, theirs) = (words(&self.0), words(offered));
        let difference = mine.zip(theirs).fold(0, |sum, (mine, theirs)| sum | black_box(mine ^ theirs));
        black_box(difference) == 0
    }
}

/// Eight digits each.
fn words(digits: &[u8; DIGITS]) -> impl Iterator<Item = u64> {
    digits.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word))
}

impl fmt::Debug for PathToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PathToken(…)")
    }
}

/// Nothing else that is ever signed with a token begins so.
fn marked(nonce: &str) -> Vec<u8> {
    [b"squelch.dev/proof ", nonce.as_bytes()].concat()
}

fn hex(nibble: u8) -> u8 {
    if nibble < 10 { b'0' + nibble } else { b'a' + nibble - 10 }
}

/// The tokens that are accepted now: one, or during a rotation the old and the new.
#[derive(Debug)]
pub struct AcceptedTokens {
    current: ArcSwap<Vec<PathToken>>,
}

impl AcceptedTokens {
    /// Accepts these.
    pub fn new(tokens: Vec<PathToken>) -> Self {
        Self { current: ArcSwap::from_pointee(tokens) }
    }

    /// Accepts these from the next review on, and no other.
    pub fn replace(&self, tokens: Vec<PathToken>) {
        self.current.store(Arc::new(tokens));
    }

    /// Whether `offered` is one of them; every one is compared, in constant time.
    pub fn accept(&self, offered: &str) -> bool {
        let Ok(offered) = <&[u8; DIGITS]>::try_from(offered.as_bytes()) else { return false };
        self.current.load().iter().fold(false, |accepted, token| accepted | token.matches(offered))
    }

    /// The mark over `nonce` of who was asked with the token `offered`; `None` unless that is accepted.
    pub fn mark(&self, offered: &str, nonce: &str) -> Option<String> {
        let token = PathToken::parse(offered).filter(|_| self.accept(offered))?;
        Some(STANDARD.encode(hmac::sign(&token.key(), &marked(nonce))))
    }

    /// Whether `mark` was made over `nonce` with one of them: replicas share them, and in a rotation the webhook
    /// may be asked with either.
    pub fn have_marked(&self, nonce: &str, mark: &str) -> bool {
        let Ok(mark) = STANDARD.decode(mark) else { return false };
        let marked = marked(nonce);
        self.current.load().iter().any(|token| hmac::verify(&token.key(), &marked, &mark).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_differ_and_read_back() {
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
    fn a_mark_is_known_by_whoever_accepts_its_token() {
        let (old, new) = (PathToken::generate().unwrap(), PathToken::generate().unwrap());
        let webhook = AcceptedTokens::new(vec![old.clone(), new.clone()]);
        let mark = webhook.mark(old.reveal(), "7").unwrap();
        assert!(!mark.contains(old.reveal()));
        let replica = |token: &PathToken| AcceptedTokens::new(vec![token.clone()]);
        assert!(webhook.have_marked("7", &mark) && replica(&old).have_marked("7", &mark));
        assert!(!replica(&new).have_marked("7", &mark), "another token");
        for (nonce, mark) in [("8", mark.as_str()), ("7", ""), ("7", "no base64"), ("7", &mark[..40])] {
            assert!(!webhook.have_marked(nonce, mark), "{nonce} {mark}");
        }
        assert_eq!(replica(&new).mark(old.reveal(), "7"), None, "nothing is marked for a stranger");
    }
}
