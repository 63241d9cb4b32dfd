//! JSON read without copying: values that only have to be compared, restored or seldom read stay as they were sent.

use std::borrow::Cow;

use serde_json::Value;

use super::reader::{Malformed, Members, Read, Reader, read};

/// A value's JSON text as sent; empty where absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::webhook) struct Raw<'a>(&'a str);

/// What is longer is compared as text alone: a million labels would take a second to be looked into, and the API server
/// spells the same labels the same.
const MOST_COMPARED: usize = 64 << 10;

/// How deep a missing member and an empty one are the same.
#[derive(Clone, Copy)]
pub(super) enum Emptiness {
    /// A Go struct's fields: an empty member is a missing one, at any depth.
    Fields,
    /// A map of the user's (labels, annotations): a key with an empty value is still a key.
    Keys,
}

impl<'a> Raw<'a> {
    /// The value that comes next.
    pub(super) fn from(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        reader.raw().map(Self)
    }

    /// The JSON text; empty where absent.
    pub(in crate::webhook) fn json(self) -> &'a str {
        self.0
    }

    /// There is no such member, not even `null`.
    pub(in crate::webhook) fn is_absent(self) -> bool {
        self.0.is_empty()
    }

    /// Absent, or what Go's zero value looks like: to the API server these are one.
    pub(super) fn is_blank(self) -> bool {
        matches!(self.0, "" | "null" | "\"\"" | "0" | "{}" | "[]" | "false")
    }

    /// The string. What is no string (nor null) stands for itself as it was spelled: never an error.
    pub(super) fn text(self) -> Cow<'a, str> {
        let Some(inner) = self.0.strip_prefix('"').and_then(|text| text.strip_suffix('"')) else {
            return Cow::Borrowed(if self.is_blank() { "" } else { self.0 });
        };
        if memchr::memchr(b'\\', inner.as_bytes()).is_none() {
            return Cow::Borrowed(inner);
        }
        // A lone surrogate is no text: its escaped spelling stands for it.
        serde_json::from_str(self.0).map_or(Cow::Borrowed(inner), Cow::Owned)
    }

    /// The number, cut to whole and to the range of i64; `None` for zero, absent, and what is no number.
    pub(super) fn integer(self) -> Option<i64> {
        if let Ok(whole) = self.0.parse::<i64>() {
            return (whole != 0).then_some(whole);
        }
        let begins_as_number = self.0.starts_with(|first: char| first == '-' || first.is_ascii_digit());
        #[expect(clippy::cast_possible_truncation, reason = "`as` saturates, which is what is wanted")]
        let cut = |number: f64| number as i64;
        self.0.parse::<f64>().ok().filter(|_| begins_as_number).map(cut).filter(|whole| *whole != 0)
    }

    /// The object read as `T`; what is no such object reads as an empty one.
    pub(super) fn read<T: Read<'a>>(self) -> T {
        if self.is_blank() { T::default() } else { read(self.0).unwrap_or_default() }
    }

    /// Both say the same. The same API server has written both, so that equal values are almost always equal text.
    pub(super) fn same(self, other: Self, emptiness: Emptiness) -> bool {
        self.0 == other.0
            || (self.is_blank() && other.is_blank())
            || self.0.len().max(other.0.len()) <= MOST_COMPARED
                && match (self.value(emptiness), other.value(emptiness)) {
                    (Some(mine), Some(theirs)) => mine == theirs,
                    _ => false,
                }
    }

    /// The value without what is empty; `None` if it is nested too deep to be compared (more than 128 levels).
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
            Some(another) if reader.takes(another.0) => *another,
            _ => Self::from(reader)?,
        };
        Ok(())
    }
}

/// A string that borrows unless it holds escapes; null reads as empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Text<'a>(pub(super) Cow<'a, str>);

impl Text<'_> {
    /// The string itself.
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
        *self = reader.truth()?;
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

/// Tells which member of an object goes into which field of a struct; unknown keys go to `else`, or nowhere.
macro_rules! object {
    ($name:ident { $($key:literal => $field:ident),+ $(,)? }) => {
        object!($name { $($key => $field),+ } else |_read, _key, reader| { reader.pass() });
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
    fn text_borrows_unless_it_is_escaped() {
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
    fn any_number_is_read_and_none_fails() {
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
    fn empty_and_missing_are_one_but_a_users_key_is_a_key() {
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
    fn what_is_long_is_the_same_only_to_the_letter() {
        let long = |blank: &str, length: usize| format!(r#"{{"a":{blank}"{}"}}"#, "x".repeat(length));
        let same = |length: usize| {
            let (one, other) = (long("", length), long(" ", length));
            assert!(raw(&one).same(raw(&one.clone()), Emptiness::Keys));
            raw(&one).same(raw(&other), Emptiness::Keys)
        };
        assert!(same(1_000) && !same(MOST_COMPARED));
    }
}
