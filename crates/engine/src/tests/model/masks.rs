//! An independent implementation of the masks: at each word or separator it tries every length, the longest first, and
//! asks whether the whole text is of the kind. Slow and short.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::{EventView, Mask, Masks};

/// Returns the message with a placeholder for each masked part. The placeholders contain a character that no test uses.
pub(crate) fn masked(event: &EventView<'_>, masks: Masks) -> String {
    let text: Vec<char> = event.message.chars().collect();
    let name = &*event.regarding.name;
    let (mut shown, mut at, mut bytes, mut hash_end) = (String::new(), 0, 0, None);
    while at < text.len() {
        let begins = at == 0 || !is_word(text[at - 1]) || !is_word(text[at]);
        let kinds = Mask::ALL.into_iter().filter(|kind| masks.contains(*kind) && begins && bytes < 1024);
        let found = { kinds }.find_map(|kind| {
            let ends = (at + 1..=text.len().min(at + 300)).rev();
            { ends }.find(|end| is_part(kind, &text, at..*end, name, hash_end)).map(|end| (kind, end))
        });
        let end = found.map_or(at + 1, |(_, end)| end);
        match found {
            Some((kind, end)) => {
                shown.push_str(&format!("\u{1}{kind:?}\u{1}"));
                hash_end = if kind == Mask::Hashes { Some(end) } else { hash_end };
            }
            None => shown.push(text[at]),
        }
        bytes += text[at..end].iter().map(|character| character.len_utf8()).sum::<usize>();
        at = end;
    }
    shown
}

fn is_word(character: char) -> bool {
    character.is_ascii_alphanumeric() || character == '_' || !character.is_ascii()
}

fn is_part(
    kind: Mask,
    text: &[char],
    range: std::ops::Range<usize>,
    name: &str,
    hash_end: Option<usize>,
) -> bool {
    let part: String = text[range.clone()].iter().collect();
    let rest: String = text[range.end..].iter().collect();
    let before: String = text[..range.start].iter().collect();
    if rest.starts_with(is_word) {
        return false;
    }
    match kind {
        Mask::ObjectNames => is_name(&part, name),
        Mask::Uuids => is_uuid(&part),
        Mask::Ips => is_ip(&part, &rest),
        Mask::Durations => is_duration(&part),
        Mask::Quantities => is_quantity(&part),
        Mask::Hashes => is_hash(&part, &before, hash_end == Some(range.start.wrapping_sub(1))),
        Mask::Numbers => is_number(&part),
    }
}

fn is_generated(text: &str) -> bool {
    text.chars().all(|character| "bcdfghjklmnpqrstvwxz2456789".contains(character))
}

fn is_name(part: &str, name: &str) -> bool {
    if !(3..=253).contains(&name.len()) || !name.starts_with(is_word) {
        return false;
    }
    let Some(suffixes) = part.strip_prefix(name) else { return false };
    let mut suffixes = suffixes.split('-');
    let is_suffix = |suffix: &str| {
        let digits =
            (1..=10).contains(&suffix.len()) && suffix.chars().all(|character| character.is_ascii_digit());
        digits || matches!(suffix.len(), 5 | 8 | 9 | 10) && is_generated(suffix)
    };
    suffixes.next() == Some("") && suffixes.clone().count() <= 2 && suffixes.all(is_suffix)
}

fn is_uuid(part: &str) -> bool {
    let groups: Vec<&str> = part.split('-').collect();
    groups.iter().map(|group| group.len()).eq([8, 4, 4, 4, 12])
        && part.chars().all(|character| character == '-' || character.is_ascii_hexdigit())
        && part.contains(|character: char| character.is_ascii_digit())
}

fn is_ip(part: &str, rest: &str) -> bool {
    let is_port =
        |port: &str| (1..=5).contains(&port.len()) && port.chars().all(|digit| digit.is_ascii_digit());
    if let Some((address, port)) = part.split_once(':')
        && address.parse::<Ipv4Addr>().is_ok()
    {
        return is_port(port);
    }
    if part.parse::<Ipv4Addr>().is_ok() {
        return true;
    }
    let of_address = |character: char| character.is_ascii_hexdigit() || character == ':' || character == '.';
    let is_address = |text: &str| {
        (3..=45).contains(&text.len()) && text.matches(':').count() >= 2 && text.parse::<Ipv6Addr>().is_ok()
    };
    if let Some((address, port)) = part.strip_prefix('[').and_then(|part| part.split_once(']')) {
        return is_address(address) && (port.is_empty() || port.strip_prefix(':').is_some_and(is_port));
    }
    let left: String = rest.chars().take_while(|character| of_address(*character)).collect();
    let next = rest[left.len()..].chars().next();
    let before_space = next.is_none_or(|next| next.is_ascii_whitespace());
    let is_whole = left.is_empty() && next != Some('<');
    is_address(part) && (is_whole || matches!(&*left, ":" | ".") && before_space)
}

/// Digits, and at most one fraction.
fn is_number(text: &str) -> bool {
    let digits =
        |text: &str| (1..40).contains(&text.len()) && text.chars().all(|digit| digit.is_ascii_digit());
    text.split_once('.').map_or(digits(text), |(whole, fraction)| digits(whole) && digits(fraction))
}

fn is_duration(text: &str) -> bool {
    let units = ["ns", "us", "µs", "μs", "ms", "s", "m", "h", "d"];
    let first_unit =
        |text: &str| text.find(|character: char| !character.is_ascii_digit() && character != '.');
    let (mut rest, length) = (text, text.len());
    loop {
        let Some(at) = first_unit(rest) else { return false };
        let (number, more) = rest.split_at(at);
        let end = more.find(|character: char| character.is_ascii_digit()).unwrap_or(more.len());
        if !is_number(number) || !units.contains(&&more[..end]) {
            return false;
        }
        rest = &more[end..];
        if rest.is_empty() {
            return length <= 40;
        }
    }
}

fn is_quantity(text: &str) -> bool {
    let suffixes = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "n", "u", "m", "k", "M", "G", "T", "P", "E"];
    suffixes.into_iter().any(|suffix| {
        let plain = text.strip_suffix(suffix);
        let bytes = text.strip_suffix('B').and_then(|text| text.strip_suffix(suffix));
        let bytes = bytes.filter(|_| !["n", "u", "m"].contains(&suffix));
        plain.or(bytes).is_some_and(is_number) && text.len() <= 40
    })
}

fn is_hash(text: &str, before: &str, follows_hash: bool) -> bool {
    let digits = text.chars().filter(char::is_ascii_digit).count();
    let is_mixed = digits > 0 && digits < text.len();
    let lower = text.chars().all(|character| matches!(character, '0'..='9' | 'a'..='f'));
    let upper = text.chars().all(|character| matches!(character, '0'..='9' | 'A'..='F'));
    let hexadecimal = text.len() >= 7 && is_mixed && (lower || upper);
    let template = (8..=10).contains(&text.len()) && is_mixed && is_generated(text);
    let suffix = text.len() == 5 && is_generated(text) && before.ends_with('-') && (is_mixed || follows_hash);
    hexadecimal || template || suffix
}
