//! The names in a source text: its `use` trees and its paths, with their lines. Comments, strings and items under
//! `#[cfg(test)]` are ignored.

use proc_macro2::{Delimiter, Group, Ident, TokenStream, TokenTree};

/// A path as written, with its module.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Named {
    /// Its segments, such as `crate`, `clock`, `now`.
    pub(crate) path: Vec<String>,
    /// The inline modules around it, within the file.
    pub(crate) inside: Vec<String>,
    /// Line number from 1.
    pub(crate) line: usize,
}

/// All names of a file.
#[derive(Debug, Default)]
pub(crate) struct Names {
    pub(crate) paths: Vec<Named>,
    /// `#[cfg(test)] mod NAME;`: the files of these are tests.
    pub(crate) test_modules: Vec<String>,
}

/// Macros of std that print.
const PRINTING: [&str; 5] = ["print", "println", "eprint", "eprintln", "dbg"];

/// Parses a source text.
pub(crate) fn names(source: &str) -> Names {
    let tokens: TokenStream = source.parse().expect("a source text that compiles");
    let mut names = Names::default();
    read(tokens, &[], &mut names);
    names
}

fn read(tokens: TokenStream, inside: &[String], names: &mut Names) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut at = 0;
    while at < tokens.len() {
        at += step(&tokens[at..], inside, names);
    }
}

/// Parses the item at this position; returns its number of tokens.
fn step(tokens: &[TokenTree], inside: &[String], names: &mut Names) -> usize {
    match tokens {
        [hash, TokenTree::Group(attribute), ..] if is(hash, '#') && is_cfg_test(attribute) => {
            let length = item(&tokens[2..]);
            names.test_modules.extend(module_file(&tokens[2..2 + length]));
            2 + length
        }
        // pub(in crate::webhook) is a visibility, not a dependency.
        [TokenTree::Ident(word), TokenTree::Group(scope), ..] if word == "pub" && is_visibility(scope) => 2,
        [TokenTree::Ident(word), next, ..] if word == "use" && !is(next, '<') => {
            let length = until_semicolon(tokens);
            for part in parts(&tokens[1..length]) {
                tree(part, &[], inside, names);
            }
            length
        }
        [TokenTree::Ident(word), TokenTree::Ident(name), TokenTree::Group(body), ..] if word == "mod" => {
            read(body.stream(), &[inside, &[name.to_string()]].concat(), names);
            3
        }
        [TokenTree::Ident(word), bang, ..] if PRINTING.iter().any(|name| word == name) && is(bang, '!') => {
            names.paths.push(named(vec![format!("{word}!")], inside, word));
            1
        }
        [TokenTree::Ident(first), ..] => path(first, tokens, inside, names),
        [TokenTree::Group(group), ..] => {
            read(group.stream(), inside, names);
            1
        }
        _ => 1,
    }
}

/// `a::b::c`, if it is a path.
fn path(first: &Ident, tokens: &[TokenTree], inside: &[String], names: &mut Names) -> usize {
    let mut path = vec![first.to_string()];
    let mut length = 1;
    while let [one, two, TokenTree::Ident(segment), ..] = &tokens[length..]
        && is(one, ':')
        && is(two, ':')
    {
        path.push(segment.to_string());
        length += 3;
    }
    if path.len() > 1 {
        names.paths.push(named(path, inside, first));
    }
    length
}

/// One branch of a `use` tree: `a::b`, `a::{b, c}`, `a as b`, `a::*`, `a::{self}`.
fn tree(tokens: &[TokenTree], prefix: &[String], inside: &[String], names: &mut Names) {
    let mut path = prefix.to_vec();
    for token in tokens {
        match token {
            TokenTree::Ident(word) if word == "as" => break,
            TokenTree::Ident(word) if word == "self" && !path.is_empty() => {}
            TokenTree::Ident(segment) => path.push(segment.to_string()),
            TokenTree::Group(branches) => {
                let branches: Vec<TokenTree> = branches.stream().into_iter().collect();
                for branch in parts(&branches) {
                    tree(branch, &path, inside, names);
                }
                return;
            }
            _ => {}
        }
    }
    if let Some(last) = tokens.last() {
        names.paths.push(Named { path, inside: inside.to_vec(), line: last.span().start().line });
    }
}

fn named(path: Vec<String>, inside: &[String], at: &Ident) -> Named {
    Named { path, inside: inside.to_vec(), line: at.span().start().line }
}

/// The parts between the commas.
fn parts(tokens: &[TokenTree]) -> impl Iterator<Item = &[TokenTree]> {
    tokens.split(|token| is(token, ',')).filter(|part| !part.is_empty())
}

/// The length of the item at this position with its other attributes: up to a semicolon or a body in braces. (The
/// braces of a `use` are no body.)
fn item(tokens: &[TokenTree]) -> usize {
    let imports = tokens
        .iter()
        .take_while(|token| !is(token, ';'))
        .any(|token| matches!(token, TokenTree::Ident(word) if word == "use"));
    let ends = |token: &TokenTree| {
        let body = matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace);
        is(token, ';') || (body && !imports)
    };
    tokens.iter().position(ends).map_or(tokens.len(), |at| at + 1)
}

fn until_semicolon(tokens: &[TokenTree]) -> usize {
    tokens.iter().position(|token| is(token, ';')).unwrap_or(tokens.len())
}

fn module_file(item: &[TokenTree]) -> Option<String> {
    match item {
        [.., TokenTree::Ident(word), TokenTree::Ident(name), end] if word == "mod" && is(end, ';') => {
            Some(name.to_string())
        }
        _ => None,
    }
}

pub(crate) fn is_cfg_test(attribute: &Group) -> bool {
    // Test support of a crate is a test too.
    let tests = ["cfg(test)", "cfg(any(test,feature=\"testing\"))"];
    attribute.delimiter() == Delimiter::Bracket
        && tests.contains(&attribute.stream().to_string().replace(' ', "").as_str())
}

fn is_visibility(scope: &Group) -> bool {
    let first = scope.stream().into_iter().next();
    let word = |word: &str| ["in", "crate", "self", "super"].contains(&word);
    scope.delimiter() == Delimiter::Parenthesis
        && matches!(first, Some(TokenTree::Ident(first)) if word(&first.to_string()))
}

fn is(token: &TokenTree, punctuation: char) -> bool {
    matches!(token, TokenTree::Punct(found) if found.as_char() == punctuation)
}
