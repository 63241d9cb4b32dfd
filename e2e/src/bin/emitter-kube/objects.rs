//! The objects of the Events. They need not exist: the API server does not check.

use k8s_openapi::api::core::v1::ObjectReference;

use crate::flags::Options;

/// An object and its position in the round.
pub(crate) struct Regarding {
    pub(crate) index: u32,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) reference: ObjectReference,
}

/// The objects that the flags name.
pub(crate) fn regardings(options: &Options) -> Vec<Regarding> {
    (0..options.objects)
        .map(|index| {
            let name = format!("{}-{index}", options.name_prefix);
            let uid = stable_uid(&[&options.namespace, &options.kind, &name]);
            let reference = ObjectReference {
                api_version: Some(options.api_version.clone()),
                kind: Some(options.kind.clone()),
                namespace: Some(options.namespace.clone()),
                name: Some(name.clone()),
                uid: Some(uid.clone()),
                field_path: options.field_path.clone(),
                resource_version: None,
            };
            Regarding { index, name, uid, reference }
        })
        .collect()
}

/// FNV-1a with 128 bits, as in `emitter-go`: processes with the same names refer to the same objects.
fn stable_uid(parts: &[&str]) -> String {
    let hash = parts.join("/").bytes().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128, |hash, byte| {
        (hash ^ u128::from(byte)).wrapping_mul(0x0100_0000_0000_0000_0000_013b)
    });
    let hex = format!("{hash:032x}");
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

#[cfg(test)]
mod tests {
    use super::stable_uid;

    #[test]
    fn an_object_has_the_same_uid_as_in_emitter_go() {
        // The same value is in e2e/emitters/client-go/objects_test.go.
        assert_eq!(stable_uid(&["default", "Pod", "storm-0"]), "20c01afa-fa15-140e-3bd8-bd8fb59a654d");
    }
}
