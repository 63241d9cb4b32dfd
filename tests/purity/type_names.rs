//! Two types share a name only if they are the same thing in two layers.

use std::collections::BTreeMap;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use super::names::is_cfg_test;
use super::sources;

/// The shared names, and what both types are.
const SHARED: [(&str, &str); 17] = [
    ("Clauses", "an entry of `match` and similar lists of a policy: as specified, and compiled"),
    ("Event", "the Kubernetes object: in a review, in a response, in the input of a replay"),
    ("EventSeries", "the field `series` of an Event: in a review, and in a response"),
    ("GroupBy", "the field of a policy: as specified, and in the engine's rules"),
    ("ListedNamespace", "a Namespace of a list or watch: what the policies need, and what a flush needs"),
    ("Mask", "an entry of `normalize` of a policy: as specified, and in the engine's rules"),
    ("Metadata", "the metadata of an object: each reader has the fields that it needs"),
    ("Mode", "the field of a policy: as specified, and in the engine's rules"),
    ("Per", "the fields of a bucket's key: as specified, and in the engine's rules"),
    ("Reference", "an ObjectReference: in a review, and in a response"),
    ("Regarding", "a clause about the object of an Event: as specified, and compiled"),
    ("Rejection", "the field of a policy: as specified, and in the engine's rules"),
    ("Request", "the request of an AdmissionReview: its head, and all of it"),
    ("Source", "the field `source` of an Event: in a review, and in a response"),
    ("Status", "the `Status` of the API server: in a response, and in an audit log"),
    ("User", "the user of a request: in a review, and in an audit log"),
    ("WarningPolicy", "the field of a policy: as specified, and in the engine's rules"),
];

/// Returns the types that a source declares, without associated types and types of tests.
fn types(tokens: TokenStream) -> Vec<String> {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut found = Vec::new();
    let mut in_block = false;
    let mut skips_item = false;
    for (at, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Group(attribute) if is_cfg_test(attribute) => skips_item = true,
            TokenTree::Group(body) if body.delimiter() == Delimiter::Brace => {
                if !skips_item && !in_block {
                    found.extend(types(body.stream()));
                }
                (in_block, skips_item) = (false, false);
            }
            TokenTree::Punct(end) if end.as_char() == ';' => skips_item = false,
            TokenTree::Ident(word) => {
                let word = word.to_string();
                let is_type = ["struct", "enum", "union", "trait", "type"].contains(&word.as_str());
                if is_type
                    && !skips_item
                    && let Some(TokenTree::Ident(name)) = tokens.get(at + 1)
                {
                    found.push(name.to_string());
                }
                // Their associated types belong to a trait.
                in_block |= word == "impl" || word == "trait";
            }
            _ => {}
        }
    }
    found
}

/// Returns the files of each name that two types have.
fn shared<'a>(sources: impl IntoIterator<Item = (&'a str, &'a str)>) -> BTreeMap<String, Vec<&'a str>> {
    let mut files: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (file, source) in sources {
        for name in types(source.parse().unwrap()) {
            files.entry(name).or_default().push(file);
        }
    }
    files.retain(|_, of_name| of_name.len() > 1);
    files
}

#[test]
fn two_types_share_a_name_only_if_they_are_the_same_thing() {
    let sources = sources();
    let shared = shared(sources.iter().map(|(file, source)| (file.as_str(), source.as_str())));
    let known: Vec<&str> = SHARED.iter().map(|(name, _)| *name).collect();
    let new: BTreeMap<_, _> = shared.iter().filter(|(name, _)| !known.contains(&name.as_str())).collect();
    assert!(new.is_empty(), "rename all but one, or add the name with its reason: {new:#?}");
    let gone: Vec<_> = known.iter().filter(|name| !shared.contains_key(**name)).collect();
    assert!(gone.is_empty(), "only one type has this name now, remove it from the list: {gone:?}");
}

#[test]
fn every_kind_of_type_is_found() {
    let first = "struct A; enum B { X } trait C { type Item; } type D = u8; mod m { pub union E { a: u8 } }";
    let second = "pub(crate) struct A<T>(T); enum B {} unsafe trait C {} fn f() -> impl Sized { struct D; }
        #[cfg(test)] mod tests { struct E; } impl Iterator for A { type Item = u8; }
        #[cfg(test)] use x; struct E { item: u8 }";
    let shared = shared([("first.rs", first), ("second.rs", second)]);
    assert_eq!(shared.keys().collect::<Vec<_>>(), ["A", "B", "C", "E"]);
    assert_eq!(shared["E"], ["first.rs", "second.rs"]);
}
