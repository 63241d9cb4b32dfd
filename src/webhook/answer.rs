//! What goes back: an AdmissionReview response, written by hand into one buffer.

use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::Simd;
use base64::engine::general_purpose::PAD;
use bytes::Bytes;
use squelch_engine::Denial;

use super::patch::{self, write_string};
use super::review::{Review, Version};

/// Which instructions this processor has for it is asked once.
static BASE64: LazyLock<Simd> = LazyLock::new(|| Simd::standard(PAD));

/// Room for every answer but one that restores a long message.
const USUAL_LENGTH: usize = 512;

/// Allowed, unchanged: also the answer to everything that is not squelch's business.
pub(super) fn allow(version: Version, uid: &str) -> Bytes {
    let mut out = begin(version, uid, true);
    out.extend_from_slice(b"}}");
    out.into()
}

/// Denied. The message names policy and disposition (`word`), never the tenant's text. No `warnings`, no
/// `retryAfterSeconds`, never 429: clients would come again.
pub(super) fn deny(review: &Review<'_>, denial: Denial, policy: &str, word: &str) -> Bytes {
    let (code, reason) = match denial {
        Denial::AlreadyExists => ("409", "AlreadyExists"),
        Denial::Forbidden => ("403", "Forbidden"),
    };
    let mut out = begin(review.version(), review.uid(), false);
    out.extend_from_slice(br#","status":{"status":"Failure","reason":""#);
    out.extend_from_slice(reason.as_bytes());
    out.extend_from_slice(br#"","code":"#);
    out.extend_from_slice(code.as_bytes());
    out.extend_from_slice(br#","message":"#);
    write_string(&mut out, &format!("squelch: {policy} {word}"));
    out.extend_from_slice(b"}}}");
    out.into()
}

/// Allowed, under this name.
pub(super) fn allow_named(review: &Review<'_>, name: &str) -> Bytes {
    let mut out = begin(review.version(), review.uid(), true);
    patched(&mut out, |patch| patch::write_name(patch, name));
    out.into()
}

/// Allowed, with this annotation more. There must be one already.
pub(super) fn allow_annotated(review: &Review<'_>, key: &str, value: &str) -> Bytes {
    let mut out = begin(review.version(), review.uid(), true);
    patched(&mut out, |patch| patch::write_annotation(patch, key, value));
    out.into()
}

/// Allowed, and patched back to `oldObject`; `None` if the review holds no `oldObject`.
pub(super) fn restore(review: &Review<'_>) -> Option<Bytes> {
    let operations = patch::restoring(review)?;
    let mut out = begin(review.version(), review.uid(), true);
    if operations.is_empty() {
        out.extend_from_slice(b"}}");
    } else {
        patched(&mut out, |patch| patch::write(patch, &operations));
    }
    Some(out.into())
}

fn begin(version: Version, uid: &str, allowed: bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(USUAL_LENGTH);
    out.extend_from_slice(br#"{"kind":"AdmissionReview","apiVersion":""#);
    out.extend_from_slice(version.as_str().as_bytes());
    out.extend_from_slice(br#"","response":{"uid":"#);
    write_string(&mut out, uid);
    out.extend_from_slice(if allowed { br#","allowed":true"# } else { br#","allowed":false"# });
    out
}

/// Appends the patch that `write` writes, in base64, and ends the answer.
fn patched(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    // Encoded in one go: piece by piece it takes twice the instructions.
    let mut patch = Vec::with_capacity(USUAL_LENGTH);
    write(&mut patch);
    out.extend_from_slice(br#","patchType":"JSONPatch","patch":""#);
    let start = out.len();
    out.resize(start + patch.len().div_ceil(3) * 4, 0);
    BASE64.encode_slice(&patch, &mut out[start..]).expect("four bytes for each three");
    out.extend_from_slice(b"\"}}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_allowed_answer_repeats_version_and_uid() {
        let answer: serde_json::Value =
            serde_json::from_slice(&allow(Version::V1Beta1, "a\"\\\n\u{1}")).unwrap();
        let expected = json!({
            "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1beta1",
            "response": {"uid": "a\"\\\n\u{1}", "allowed": true},
        });
        assert_eq!(answer, expected);
    }
}
