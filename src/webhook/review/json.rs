//! JSON values that are compared, restored or rarely read: kept as their JSON text.

use std::borrow::Cow;

use serde_json::Value;

use super::reader::{Malformed, Members, Read, Reader, read};

/// The JSON text of a value as sent; empty if absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::webhook) struct Raw<'a>(&'a str);

/// Maximum length, in bytes, up to which values are compared member by member. Longer values are compared as text: parsing a
/// million labels takes a second, and the API server writes equal labels as equal text.
const MAX_COMPARED: usize = 64 << 10;

/// Whether an empty member equals a missing one.
#[derive(Clone, Copy)]
pub(super) enum Emptiness {
    /// Fields of a Go struct: an empty member equals a missing one, at any depth.
    Fields,
    /// A user's map (labels, annotations): a key with an empty value differs from a missing key.
    Keys,
}

impl<'a> Raw<'a> {
    /// Reads the next value.
    pub(super) fn from(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        reader.raw().map(Self)
    }

    /// The JSON text; empty if absent.
    pub(in crate::webhook) fn json(self) -> &'a str {
        self.0
    }

    /// Whether the member is missing. False for `null`.
    pub(in crate::webhook) fn is_absent(self) -> bool {
        self.0.is_empty()
    }

    /// Whether the member is missing or a zero value of Go, which the API server treats as missing.
    pub(super) fn is_blank(self) -> bool {
        matches!(self.0, "" | "null" | "\"\"" | "0" | "{}" | "[]" | "false")
    }

    /// Returns the string. A value other than a string or null returns its JSON text.
    pub(super) fn text(self) -> Cow<'a, str> {
        let Some(inner) = self.0.strip_prefix('"').and_then(|text| text.strip_suffix('"')) else {
            return Cow::Borrowed(if self.is_blank() { "" } else { self.0 });
        };
        if memchr::memchr(b'\\', inner.as_bytes()).is_none() {
            return Cow::Borrowed(inner);
        }
        // A string with a lone surrogate keeps its escapes.
        serde_json::from_str(self.0).map_or(Cow::Borrowed(inner), Cow::Owned)
    }

    /// Returns the number, truncated and clamped to i64; `None` for zero, a missing member and other values.
    pub(super) fn integer(self) -> Option<i64> {
        if let Ok(whole) = self.0.parse::<i64>() {
            return (whole != 0).then_some(whole);
        }
        let begins_as_number = self.0.starts_with(|first: char| first == '-' || first.is_ascii_digit());
        #[expect(clippy::cast_possible_truncation, reason = "`as` saturates, as intended")]
        let cut = |number: f64| number as i64;
        self.0.parse::<f64>().ok().filter(|_| begins_as_number).map(cut).filter(|whole| *whole != 0)
    }

    /// Reads the object as `T`. Any other value reads as an empty object.
    pub(super) fn read<T: Read<'a>>(self) -> T {
        if self.is_blank() { T::default() } else { read(self.0).unwrap_or_default() }
    }

    /// Whether both values are equal. One API server has written both, so equal values almost always have equal text.
    pub(super) fn same(self, other: Self, emptiness: Emptiness) -> bool {
        self.0 == other.0
            || (self.is_blank() && other.is_blank())
            || self.0.len().max(other.0.len()) <= MAX_COMPARED
                && match (self.value(emptiness), other.value(emptiness)) {
                    (Some(mine), Some(theirs)) => mine == theirs,
                    _ => false,
                }
    }

    /// Returns the value without empty members; `None` if it is nested more than 128 levels deep.
    fn value(self, emptiness: Emptiness) -> Option<Value> {
        if self.is_blank() {
            return Some(Value::Null);
        }
        let mut value = serde_json::from_str(self.0).ok()?;
        if let Emptiness::Fields = emptiness {
            prune(&mut value);
        }
        Some(if is_empty(&value) { Value::Null } else { value })
    }
}

fn prune(value: &mut Value) {
    match value {
        Value::Object(members) => members.retain(|_, member| {
            prune(member);
            !is_empty(member)
        }),
        Value::Array(items) => items.iter_mut().for_each(prune),
        _ => {}
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Bool(true) => false,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
    }
}

impl<'a> Read<'a> for Raw<'a> {
    fn read(&mut self, another: Option<&Self>, reader: &mut Reader<'a>) -> Result<(), Malformed> {
        *self = match another {
            Some(another) if reader.take_exact(another.0) => *another,
            _ => Self::from(reader)?,
        };
        Ok(())
    }
}

/// A string that borrows unless it has escapes. Null reads as empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Text<'a>(pub(super) Cow<'a, str>);

impl Text<'_> {
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

impl<'a> Read<'a> for Text<'a> {
    fn read(&mut self, _: Option<&Self>, reader: &mut Reader<'a>) -> Result<(), Malformed> {
        self.0 = reader.text()?;
        Ok(())
    }
}

impl Read<'_> for Option<bool> {
    fn read(&mut self, _: Option<&Self>, reader: &mut Reader<'_>) -> Result<(), Malformed> {
        *self = reader.bool_or_null()?;
        Ok(())
    }
}

impl<'a, T: Members<'a>> Read<'a> for Option<T> {
    fn read(&mut self, another: Option<&Self>, reader: &mut Reader<'a>) -> Result<(), Malformed> {
        if !reader.object(self.insert(T::default()), another.and_then(Option::as_ref))? {
            *self = None;
        }
        Ok(())
    }
}

impl<'a, T: Members<'a>> Members<'a> for Box<T> {
    fn member(
        &mut self,
        another: Option<&Self>,
        key: &str,
        reader: &mut Reader<'a>,
    ) -> Result<(), Malformed> {
        (**self).member(another.map(|another| &**another), key, reader)
    }
}

/// Implements [`Read`] and [`Members`] for a struct, given the field of each key. Other keys go to `else`, or are skipped.
macro_rules! object {
    ($name:ident { $($key:literal => $field:ident),+ $(,)? }) => {
        object!($name { $($key => $field),+ } else |_read, _key, reader| { reader.skip() });
    };
    ($name:ident { $($key:literal => $field:ident),+ $(,)? } else |$read:ident, $other:ident, $reader:ident| $rest:block) => {
        impl<'a> crate::webhook::review::reader::Members<'a> for $name<'a> {
            fn member(
                &mut self,
                another: Option<&Self>,
                $other: &str,
                $reader: &mut crate::webhook::review::reader::Reader<'a>,
            ) -> Result<(), crate::webhook::review::reader::Malformed> {
                let $read = self;
                match $other {
                    $($key => crate::webhook::review::reader::Read::read(
                        &mut $read.$field,
                        another.map(|another| &another.$field),
                        $reader,
                    ),)+
                    _ => $rest
                }
            }
        }
        impl<'a> crate::webhook::review::reader::Read<'a> for $name<'a> {
            fn read(
                &mut self,
                another: Option<&Self>,
                reader: &mut crate::webhook::review::reader::Reader<'a>,
            ) -> Result<(), crate::webhook::review::reader::Malformed> {
                *self = Self::default();
                reader.object(self, another).map(drop)
            }
        }
    };
}
pub(super) use object;

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(json: &str) -> Raw<'_> {
        Raw(json)
    }

    #[test]
    fn text_is_borrowed_unless_it_has_escapes() {
        assert!(matches!(raw(r#""plain äö""#).text(), Cow::Borrowed("plain äö")));
        assert_eq!(raw(r#""a\n\"\u003c""#).text(), "a\n\"<");
        assert_eq!(raw(r#""\ud800""#).text(), r"\ud800");
        assert_eq!(raw("null").text(), "");
        assert_eq!(raw("").text(), "");
        assert_eq!(raw("[1]").text(), "[1]");
        let text: Text<'_> = read("\"plain\"").unwrap();
        assert!(matches!(text.0, Cow::Borrowed(_)));
    }

    #[test]
    fn every_number_is_read_and_other_values_are_none() {
        assert_eq!(raw("7").integer(), Some(7));
        assert_eq!(raw("-7").integer(), Some(-7));
        assert_eq!(raw("2.9").integer(), Some(2));
        assert_eq!(raw("1e400").integer(), Some(i64::MAX));
        assert_eq!(raw("-1e400").integer(), Some(i64::MIN));
        assert_eq!(raw("123456789012345678901234567890").integer(), Some(i64::MAX));
        for none in ["0", "0.0", "", "null", "\"3\"", "{}", "NaN", "inf"] {
            assert_eq!(raw(none).integer(), None, "{none}");
        }
    }

    #[test]
    fn an_empty_field_equals_a_missing_one_but_an_empty_label_does_not() {
        let blank = ["", "null", "\"\"", "0", "{}", "[]", "{ }", "0.0"];
        for (one, other) in blank.iter().flat_map(|one| blank.iter().map(move |other| (one, other))) {
            assert!(raw(one).same(raw(other), Emptiness::Fields), "{one} {other}");
        }
        let (with, without) = (raw(r#"{"component":"x","host":""}"#), raw(r#"{"component":"x"}"#));
        assert!(with.same(without, Emptiness::Fields));
        assert!(!with.same(without, Emptiness::Keys));
        assert!(raw(r#"{"a":"1", "b":"2"}"#).same(raw(r#"{"b":"2","a":"1"}"#), Emptiness::Keys));
        assert!(!raw(r#"{"a":"1"}"#).same(raw(""), Emptiness::Fields));
    }

    #[test]
    fn long_values_are_compared_as_text() {
        let long = |blank: &str, length: usize| format!(r#"{{"a":{blank}"{}"}}"#, "x".repeat(length));
        let same = |length: usize| {
            let (one, other) = (long("", length), long(" ", length));
            assert!(raw(&one).same(raw(&one.clone()), Emptiness::Keys));
            raw(&one).same(raw(&other), Emptiness::Keys)
        };
        assert!(same(1_000) && !same(MAX_COMPARED));
    }
}
