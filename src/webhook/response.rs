//! AdmissionReview responses, written into one buffer without serde.

use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::Simd;
use base64::engine::general_purpose::PAD;
use bytes::Bytes;
use squelch_engine::Denial;

use super::patch::{self, PatchOperation, write_string};
use super::review::{Review, ReviewVersion};

/// Detects the SIMD instructions of the processor once.
static BASE64: LazyLock<Simd> = LazyLock::new(|| Simd::standard(PAD));

/// Initial capacity in bytes: enough for every response except one that restores a long message.
const USUAL_LENGTH: usize = 512;

/// Returns the response that allows the write unchanged.
pub(super) fn allow(version: ReviewVersion, uid: &str) -> Bytes {
    let mut out = begin(version, uid, true);
    out.extend_from_slice(b"}}");
    out.into()
}

/// Returns the response that denies the write. The message has the policy and `cause`, and no text of the tenant. There
/// are no `warnings`, no `retryAfterSeconds` and no code 429, because clients would retry.
pub(super) fn deny(review: &Review<'_>, denial: Denial, policy: &str, cause: &str) -> Bytes {
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
    write_string(&mut out, &["squelch: ", policy, " ", cause].concat());
    out.extend_from_slice(b"}}}");
    out.into()
}

/// Returns the response that allows the write with at least one change.
pub(super) fn allow_with<'a>(
    review: &Review<'_>,
    operations: impl IntoIterator<Item = PatchOperation<'a>>,
) -> Bytes {
    let mut out = begin(review.version(), review.uid(), true);
    finish_with_patch(&mut out, |patch| patch::write(patch, operations));
    out.into()
}

/// Returns the response that allows the write and adds an annotation. The Event must already have annotations.
pub(super) fn allow_annotated(review: &Review<'_>, key: &str, value: &str) -> Bytes {
    let mut out = begin(review.version(), review.uid(), true);
    finish_with_patch(&mut out, |patch| patch::write_annotation(patch, key, value));
    out.into()
}

/// Returns the response that allows the write and patches it back to `oldObject`; `None` without an `oldObject`.
pub(super) fn restore(review: &Review<'_>) -> Option<Bytes> {
    let operations = patch::restore(review)?;
    let mut out = begin(review.version(), review.uid(), true);
    if operations.is_empty() {
        out.extend_from_slice(b"}}");
    } else {
        finish_with_patch(&mut out, |patch| patch::write(patch, operations));
    }
    Some(out.into())
}

fn begin(version: ReviewVersion, uid: &str, allowed: bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(USUAL_LENGTH);
    out.extend_from_slice(br#"{"kind":"AdmissionReview","apiVersion":""#);
    out.extend_from_slice(version.as_str().as_bytes());
    out.extend_from_slice(br#"","response":{"uid":"#);
    write_string(&mut out, uid);
    out.extend_from_slice(if allowed { br#","allowed":true"# } else { br#","allowed":false"# });
    out
}

/// Appends the patch of `write` in base64, and ends the response.
fn finish_with_patch(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    // Encoding in one step takes half of the instructions.
    let mut patch = Vec::with_capacity(USUAL_LENGTH);
    write(&mut patch);
    out.extend_from_slice(br#","patchType":"JSONPatch","patch":""#);
    let start = out.len();
    out.resize(start + patch.len().div_ceil(3) * 4, 0);
    BASE64
        .encode_slice(&patch, &mut out[start..])
        .expect("the buffer has four bytes for each three of the patch");
    out.extend_from_slice(b"\"}}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_allowing_response_repeats_version_and_uid() {
        let response: serde_json::Value =
            serde_json::from_slice(&allow(ReviewVersion::V1Beta1, "a\"\\\n\u{1}")).unwrap();
        let expected = json!({
            "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1beta1",
            "response": {"uid": "a\"\\\n\u{1}", "allowed": true},
        });
        assert_eq!(response, expected);
    }
}
