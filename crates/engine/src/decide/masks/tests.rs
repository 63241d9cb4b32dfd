use proptest::prelude::*;

use super::*;
use crate::testing::{cases, write};
use crate::tests::model::masks::masked;

fn about<'a>(name: &'a str, message: &'a str) -> EventView<'a> {
    let mut event = write().event;
    (event.regarding.name, event.message) = (name.into(), message.into());
    event
}

fn all() -> Masks {
    Mask::ALL.into_iter().collect()
}

/// The rows of the table in docs/normalize.md: mask, message, shown. The object's name is `web`.
fn documented() -> Vec<[String; 3]> {
    let text = include_str!("../../../../../docs/normalize.md");
    let rows = text.lines().filter(|line| line.starts_with("| `"));
    rows.map(|line| {
        let cells: Vec<_> =
            line.trim_matches('|').split('|').map(|cell| cell.trim().trim_matches('`').to_owned()).collect();
        cells.try_into().expect("three columns")
    })
    .collect()
}

#[test]
fn the_documented_examples_hold() {
    let rows = documented();
    for mask in Mask::ALL {
        let of_mask = |row: &&[String; 3]| row[0].eq_ignore_ascii_case(&format!("{mask:?}"));
        assert!(rows.iter().filter(of_mask).count() >= 3, "{mask:?} has too few examples");
    }
    for [name, message, expected] in rows {
        let mask = Mask::ALL.into_iter().find(|mask| name.eq_ignore_ascii_case(&format!("{mask:?}")));
        let masks = mask.into_iter().collect::<Masks>();
        assert_eq!(masks.shown(&about("web", &message)), expected, "{name}: {message}");
    }
}

#[test]
fn messages_of_real_emitters_become_equal() {
    for (name, one, other) in [
        (
            "apps",
            "Reconciliation finished in 1.24s, next run in 10m0s",
            "Reconciliation finished in 983.172ms, next run in 10m0s",
        ),
        (
            "web",
            "Scaled up replica set web-7d4b9c6f5d from 0 to 3",
            "Scaled up replica set web-5b8f6c9d7k from 2 to 5",
        ),
        (
            "web-7d4b9c6f5d-x2x4q",
            "Readiness probe failed: Get \"http://10.0.0.7:8080/healthz\": context deadline exceeded",
            "Readiness probe failed: Get \"http://10.0.0.81:8080/healthz\": context deadline exceeded",
        ),
        (
            "pod",
            "Readiness probe failed: Get \"http://[fd00::7]:8080/healthz\": context deadline exceeded",
            "Readiness probe failed: Get \"http://[fd00::1:81]:9090/healthz\": context deadline exceeded",
        ),
        ("backup", "Created job backup-29384750", "Created job backup-29384751"),
        (
            "pod",
            "Container app exceeded its local ephemeral storage limit 512Mi, usage 1.5Gi",
            "Container app exceeded its local ephemeral storage limit 1Gi, usage 713Mi",
        ),
        (
            "pod",
            "failed to pull image sha256:0f1c2d3e4b5a69788796a5b4c3d2e1f00f1c2d3e4b5a69788796a5b4c3d2e1f0",
            "failed to pull image sha256:1f1c2d3e4b5a69788796a5b4c3d2e1f00f1c2d3e4b5a69788796a5b4c3d2e1f9",
        ),
        (
            "pod",
            "volume 6f1b6a2e-3b1f-4f43-9d7e-0d3f0a1b2c3d is attached to node-17 (attempt 3)",
            "volume 7f1b6a2e-3b1f-4f43-9d7e-0d3f0a1b2c3d is attached to node-4 (attempt 12)",
        ),
    ] {
        assert_eq!(all().shown(&about(name, one)), all().shown(&about(name, other)));
    }
}

/// One pod in 440 has such a suffix.
#[test]
fn a_generated_suffix_of_digits_follows_a_hash() {
    let hashes: Masks = [Mask::Hashes].into_iter().collect();
    assert_eq!(hashes.shown(&about("web", "pod api-5b8f6c9d7k-24567")), "pod api-<hash>-<hash>");
    assert_eq!(hashes.shown(&about("web", "pod api-24567")), "pod api-24567");
}

#[test]
fn a_name_may_follow_a_hash_that_begins_with_it() {
    assert_eq!(all().shown(&about("f0a", "f0a1b2c3-f0a")), "<hash>-<name>");
    // A mask begins at a word.
    assert_eq!(all().shown(&about("-ab", "x -ab y")), "x -ab y");
}

#[test]
fn a_masked_part_begins_in_the_first_1024_bytes() {
    let long = format!("{} 17 18", "x".repeat(1020));
    assert_eq!(all().shown(&about("web", &long)), format!("{} <number> 18", "x".repeat(1020)));
    let cut = format!("{} 1.5s", "ä".repeat(512));
    assert_eq!(all().shown(&about("web", &cut)), cut);
}

#[test]
fn no_message_costs_more_than_a_linear_number_of_steps() {
    // Each is the worst case of one mask. A quadratic scan of 64 KiB would take minutes in a debug build.
    for word in ["1.", "1m", "a-", "::", "1.2.3.4.", "f-", "2x-", "web-"] {
        let message = word.repeat(64 * 1024 / word.len());
        for name in ["web-web-web", "web-1", "1.1.1.1.1.1", &"a-".repeat(126)] {
            all().shown(&about(name, &message));
        }
    }
}

/// Texts of fragments that masks match, almost match, and do not match.
fn message() -> impl Strategy<Value = String> {
    const FRAGMENTS: [&str; 52] = [
        "Back-off restarting failed container in pod, next try later; ",
        "abcdefab-cdef-abcd-efab-cdefabcdefab",
        "abcdefab-cdef-abcd-efab-cdefabcdefa1",
        "deadbeefdeadbeefdeadbeefdeadbeefdeadbeefdeadbeef",
        "-bcdfg",
        "cafe:",
        "1",
        "17",
        "0",
        "255",
        "256",
        "4.5",
        ".",
        ":",
        "::",
        "-",
        "_",
        " ",
        "/",
        "[",
        "]",
        ", ",
        "(",
        "s",
        "ms",
        "µs",
        "m",
        "h",
        "d",
        "Ki",
        "MiB",
        "G",
        "k",
        "e",
        "f0",
        "ab",
        "x2x4q",
        "7d4b9c6f5d",
        "bcdfg",
        "0a1b2c3",
        "0A1B2C3",
        "web",
        "web-1",
        "fd00:",
        "10.0.0.7",
        "6f1b6a2e-3b1f-4f43-9d7e-0d3f0a1b2c3d",
        "ä",
        "took",
        "https",
        "12345678",
        "24567",
        "\u{10348}",
    ];
    let fragment =
        prop_oneof![9 => prop::sample::select(&FRAGMENTS[..]).prop_map(str::to_owned), 1 => ".{0,3}"];
    prop::collection::vec(fragment, 0..24).prop_map(|fragments| fragments.concat())
}

/// Names with and without a digit or `:`, at the begin, in the middle and at the end. All are fragments of messages.
fn name() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "web",
        "web-1",
        "7d4b9c6f5d",
        "12345678",
        "fd00:",
        "-bcdfg",
        "took",
        "10.0.0.7",
    ])
}

fn any_masks() -> impl Strategy<Value = Masks> {
    prop::sample::subsequence(Mask::ALL.to_vec(), 0..=Mask::ALL.len())
        .prop_map(|masks| masks.into_iter().collect())
}

/// One message, and the same with other digits or another one.
fn pair() -> impl Strategy<Value = (String, String)> {
    let altered = (message(), any::<u8>()).prop_map(|(one, add)| {
        let other = one.chars().map(|character| match character.to_digit(10) {
            Some(digit) => char::from_digit((digit + u32::from(add % 9)) % 10, 10).unwrap_or(character),
            None => character,
        });
        let other = other.collect();
        (one, other)
    });
    prop_oneof![2 => altered, 1 => (message(), message())]
}

proptest! {
    #![proptest_config(cases(5_000))]

    #[test]
    fn keys_are_equal_exactly_when_the_reference_masks_say_so((one, other) in pair(), masks in any_masks(), name in name()) {
        let hasher = crate::decide::keys::Hasher::new([7, 8]);
        let of = |message: &str| {
            let mut asked = write();
            (asked.event.regarding.name, asked.event.message) = (name.into(), message.to_owned().into());
            let reference = masked(&asked.event, masks);
            (hasher.series(&asked, masks), hasher.message(&asked, crate::GroupBy::Object, masks), reference)
        };
        let (one, other) = (of(&one), of(&other));
        prop_assert_eq!(one.0 == other.0, one.2 == other.2, "{:?} and {:?}", one.2, other.2);
        prop_assert_eq!(one.1 == other.1, one.2 == other.2);
    }

    #[test]
    fn a_masked_message_masked_again_is_the_same(message in message(), masks in any_masks(), name in name()) {
        // Kubernetes refuses names that end with `-` or `:`. A part after such a name begins at a word only while the name
        // is not masked.
        let name = name.trim_matches(['-', ':']);
        let once = masks.shown(&about(name, &message));
        prop_assert_eq!(masks.shown(&about(name, &once)), once);
    }

    #[test]
    fn the_parts_are_those_of_the_reference(message in message(), masks in any_masks(), name in name()) {
        let event = about(name, &message);
        let mut shown = String::new();
        masks.split(&event, |part| match part {
            MessagePart::Text(text) => shown.push_str(text),
            MessagePart::Masked(mask) => shown.push_str(&format!("\u{1}{mask:?}\u{1}")),
        });
        prop_assert_eq!(shown, masked(&event, masks));
    }
}
