use proptest::prelude::*;
use squelch_engine::testing::cases;

use super::*;

fn matches(glob: &str, text: &str) -> bool {
    Glob::compile(glob).matches(text)
}

/// A simple implementation to compare with.
fn naive(glob: &[char], text: &[char]) -> bool {
    let mut reached = vec![false; text.len() + 1];
    reached[0] = true;
    for wanted in glob {
        let before = reached.clone();
        for end in 0..=text.len() {
            reached[end] = match wanted {
                '*' => before[..=end].contains(&true),
                '?' => end > 0 && before[end - 1],
                _ => end > 0 && before[end - 1] && text[end - 1] == *wanted,
            };
        }
    }
    reached[text.len()]
}

/// Applies the naive implementation to a text of any length.
fn expected(glob: &str, text: &str) -> bool {
    let read = if glob.contains(['*', '?']) {
        let mut read = String::new();
        for next in text.chars() {
            if read.len() + next.len_utf8() > 256 {
                break;
            }
            read.push(next);
        }
        read
    } else {
        text.to_owned()
    };
    naive(&glob.chars().collect::<Vec<_>>(), &read.chars().collect::<Vec<_>>())
}

#[test]
fn globs_match_the_whole_text() {
    for (glob, text, expected) in [
        ("*", "", true),
        ("**", "BackOff", true),
        ("Failed*", "FailedScheduling", true),
        ("Failed*", "Failed", true),
        ("Failed*", "NotFailed", false),
        ("*Off", "BackOff", true),
        ("*Off", "BackOffs", false),
        ("B?ckOff", "BackOff", true),
        ("Back?", "Back", false),
        ("Back?", "Backup", false),
        ("BackOff", "BackOff", true),
        ("BackOff", "backoff", false),
        ("", "", true),
        ("", "apps", false),
        ("?", "ö", true),
        ("?", "", false),
        ("??", "ö", false),
        ("*?*", "", false),
        ("a*b*c", "aXbXc", true),
        ("a*b*c", "aXcXb", false),
        ("ab*ba", "aba", false),
        ("*\0*", "a", false),
    ] {
        assert_eq!(matches(glob, text), expected, "{glob:?} on {text:?}");
    }
}

#[test]
fn a_glob_with_wildcards_reads_256_bytes_and_an_exact_text_the_whole_text() {
    let (text, long) = ("x".repeat(256), "x".repeat(257));
    assert!(matches("*x?x*", &text) && matches("x*x", &text));
    assert!(matches("*x", &format!("{text}y")), "the 257th byte is not read");
    assert!(!matches("*y", &format!("{text}y")));
    assert!(matches(&long, &long) && !matches(&long, &format!("{long}x")));
    // The text is truncated before the character that crosses the limit.
    let umlauts = format!("x{}", "ä".repeat(1_000_000));
    assert!(matches(&format!("*{}", "ä".repeat(127)), &umlauts));
    assert!(matches("x?*?ä", &umlauts));
    let users = format!("system:serviceaccount:{}:?*", "n".repeat(63));
    assert!(matches(&users, &format!("system:serviceaccount:{}:{}", "n".repeat(63), "d".repeat(253))));
}

#[test]
fn the_weight_increases_with_the_compared_characters() {
    let exact = ["x".repeat(63), "x".repeat(64), "x".repeat(511)];
    for (glob, weight) in [
        (&*exact[0], 1),
        (&exact[1], 2),
        (&exact[2], 8),
        ("*", 1),
        ("BackOff", 1),
        ("Failed*", 1),
        ("*Off", 1),
        ("Back*Off", 1),
        ("B?ckOff", 1),
        ("system:serviceaccount:*:?x", 8 + 3),
        ("*Failed*", 8 + 8),
        ("*ä*", 8 + 4),
    ] {
        assert_eq!(Glob::compile(glob).weight(), weight, "{glob}");
    }
}

#[test]
fn a_compiled_glob_has_at_most_32_bytes_besides_its_text() {
    assert!(size_of::<Glob>() <= 32, "{}", size_of::<Glob>());
}

proptest! {
    #![proptest_config(cases(4000))]

    #[test]
    fn a_glob_matches_as_the_naive_implementation_does(glob in "[abö☃*?]{0,10}", text in "[abö☃]{0,12}") {
        prop_assert_eq!(matches(&glob, &text), expected(&glob, &text), "{:?} on {:?}", glob, text);
    }

    #[test]
    fn a_glob_matches_long_texts_as_the_naive_implementation_does(
        glob in prop::collection::vec(prop_oneof!["a{1,70}", "[*]", "[?]", "b", "ö{1,40}", "[ab🦀]{1,9}"], 1..9),
        text in prop::collection::vec(prop_oneof!["a{20,130}", "b", "ö{20,130}", "[ab🦀]{1,9}"], 1..6),
    ) {
        let (glob, text) = (glob.concat(), text.concat());
        prop_assert_eq!(matches(&glob, &text), expected(&glob, &text), "{:?} on {:?}", glob, text);
    }

    /// The texts are generated from the glob, so that many match.
    #[test]
    fn a_glob_matches_generated_texts_as_the_naive_implementation_does(
        parts in prop::collection::vec(("[aö]{0,12}", prop_oneof![Just("*"), Just("?")], "[abö☃]{0,40}"), 1..9),
        spoiled in prop::option::of(0usize..300),
    ) {
        let (mut glob, mut text) = (String::new(), String::new());
        for (exact, wildcard, filled) in &parts {
            glob.push_str(exact);
            glob.push_str(wildcard);
            text.push_str(exact);
            text.extend(filled.chars().take(if *wildcard == "*" { 40 } else { 1 }));
        }
        if let Some(at) = spoiled.filter(|at| *at < text.len()) {
            text.insert(text.floor_char_boundary(at), 'b');
        }
        prop_assert_eq!(matches(&glob, &text), expected(&glob, &text), "{:?} on {:?}", glob, text);
    }
}
