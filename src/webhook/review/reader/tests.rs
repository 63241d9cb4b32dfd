use super::*;
use proptest::prelude::*;
use serde_json::value::RawValue;

/// Returns the value that fills `text`, without the whitespace around it.
fn skipped(text: &str) -> Option<&str> {
    let mut reader = Reader::new(text);
    let value = reader.raw().ok()?;
    reader.peek().is_none().then_some(value)
}

/// [`skipped`] by serde_json.
fn expected(text: &str) -> Option<&str> {
    serde_json::from_str::<&RawValue>(text).ok().map(RawValue::get)
}

#[test]
fn the_reader_and_serde_accept_the_same_json() {
    let texts = [
        "",
        " ",
        "0",
        "-0",
        "01",
        "-",
        "1.",
        ".5",
        "1.5e",
        "1e+",
        "1E-07",
        "+1",
        "1_0",
        "NaN",
        "-Infinity",
        "0x1",
        "true",
        "tru",
        "truex",
        "null",
        "nul",
        " \r\n\tfalse ",
        "\u{a0}1",
        "\u{feff}1",
        "1 2",
        "[]",
        "[ ]",
        "[,]",
        "[1,]",
        "[1 2]",
        "[1,2",
        "]",
        "{}",
        "{ }",
        "{,}",
        r#"{"a":1,}"#,
        r#"{"a"}"#,
        r#"{"a":}"#,
        r#"{a:1}"#,
        r#"{"a" : 1 , "b":[{"c":null}]}"#,
        r#"[{"a":1]}"#,
        r#"{"a":[1}"#,
        r#"{"a":1}}"#,
        r#"""#,
        r#""\""#,
        r#""\x""#,
        r#""\ud800""#,
        r#""\u12g4""#,
        r#""\u123"#,
        "\"a\u{1f}\"",
        "\"a\u{7f}\u{e9}\u{1f600}\"",
        "\"a\nb\"",
        "'a'",
        "//",
    ];
    for text in texts {
        assert_eq!(skipped(text), expected(text), "{text}");
    }
}

#[test]
fn nesting_depth_is_unlimited() {
    for depth in [1, 63, 64, 65, 127, 128, 129, 1_000, 100_000] {
        let (opening, closing): (Vec<_>, Vec<_>) =
            (0..depth).map(|at| if at % 3 == 0 { (r#"{"a":"#, "}") } else { ("[", "]") }).unzip();
        let closing: String = closing.into_iter().rev().collect();
        let text = format!("{}1{closing}", opening.concat());
        assert_eq!(skipped(&text), Some(&*text), "{depth}");
        let wrong = if depth % 3 == 1 { "}]" } else { "]}" };
        assert_eq!(
            skipped(&format!("{}1{}", opening.concat(), closing.replacen(['}', ']'], wrong, 1))),
            None
        );
    }
}

#[test]
fn an_error_has_the_expected_text_and_its_position() {
    let message = |text: &str| skip_error(text).to_string();
    assert_eq!(message("{\n \"a\": [1,\n  x]}"), "a value expected at line 3 column 3");
    assert_eq!(message(r#"{"a":1"#), "a comma or the end of the object expected at line 1 column 7");
    assert_eq!(message("\"a"), "the rest of a string expected at line 1 column 3");
    assert_eq!(message(r#"{"é"1}"#), "a colon expected at line 1 column 6");
}

fn skip_error(text: &str) -> Malformed {
    Reader::new(text).skip().unwrap_err()
}

#[test]
fn a_string_of_any_length_is_read_at_any_offset() {
    for before in 0..20 {
        for length in 0..40 {
            let text = format!(
                "{}\"{}\",\"\"",
                " ".repeat(before),
                "é".repeat(length / 2) + &"x".repeat(length % 2)
            );
            let mut reader = Reader::new(&text);
            let read = reader.text().unwrap();
            assert_eq!(read, text[before + 1..text.len() - 4]);
            assert!(matches!(read, Cow::Borrowed(_)) && reader.take_if(b','));
        }
    }
}

#[test]
fn a_value_is_taken_only_as_a_complete_member() {
    for (text, value, taken) in [
        ("1,", "1", true),
        (" 1}", "1", true),
        ("12,", "1", false),
        ("1.5,", "1", false),
        ("1 ,", "1", false),
        ("1", "1", false),
        ("\"a\",", "\"a\"", true),
        ("\"ab\",", "\"a\"", false),
        ("{\"a\":1}}", "{\"a\":1}", true),
        ("null,", "null", true),
        (",", "", false),
    ] {
        let mut reader = Reader::new(text);
        assert_eq!(reader.take_exact(value), taken, "{text} {value}");
        let left = text.trim_start().strip_prefix(value).filter(|_| taken);
        assert_eq!(&text[reader.at..], left.unwrap_or(text.trim_start()), "{text} {value}");
    }
}

fn json() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        any::<bool>().prop_map(|truth| truth.to_string()),
        any::<f64>().prop_map(|number| serde_json::json!(number).to_string()),
        any::<String>().prop_map(|text| serde_json::json!(text).to_string()),
    ];
    leaf.prop_recursive(6, 48, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(|items| format!("[{}]", items.join(", "))),
            prop::collection::vec((any::<String>(), inner), 0..6).prop_map(|members| {
                let members =
                    members.iter().map(|(key, value)| format!("{} :{value}", serde_json::json!(key)));
                format!("{{{}}}", members.collect::<Vec<_>>().join(","))
            }),
        ]
    })
}

proptest! {
    #[test]
    fn the_reader_and_serde_agree_on_damaged_json(text in json(), at in any::<prop::sample::Index>(), with in any::<String>()) {
        prop_assert_eq!(skipped(&text), Some(&*text));
        let mut places = text.char_indices().map(|(place, _)| place);
        let place = places.nth(at.index(text.chars().count())).unwrap_or_default();
        for broken in [
            text[..place].to_owned(),
            format!("{}{with}{}", &text[..place], &text[place..]),
            text.chars().enumerate().filter(|(number, _)| *number != place).map(|(_, each)| each).collect(),
        ] {
            prop_assert_eq!(skipped(&broken), expected(&broken), "{}", broken);
        }
    }

    #[test]
    fn the_reader_and_serde_agree_on_text_of_json_characters(text in r#"[\[\]{}",:\\ 0-9eE+.tfnu-]{0,24}"#) {
        prop_assert_eq!(skipped(&text), expected(&text), "{}", text);
    }
}
