//! Groups of Events by component, kind, type and reason: how many writes each has, and what differs between them.
//!
//! Memory is bounded. [`GroupCounts`] counts the writes of every group in a first pass, and forgets those with the fewest
//! writes at its limit. [`GroupDetails`] examines a few groups in a second pass, with samples of bounded size.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use squelch_engine::{
    EventView, Mask, Masks, MessagePart, ObjectReference, Observation, is_namespace_name, sanitise,
};

use crate::api::{KIND, WORD};

/// Maximum number of groups whose writes are counted.
const MAX_COUNTED: usize = 16_384;

/// Maximum number of namespaces of one group that are counted.
const MAX_NAMESPACES: usize = 256;

/// Maximum hashes in the sample of a [`DistinctCount`].
const MAX_SAMPLE: usize = 4096;

/// Maximum characters of a reason, a component or a kind in a policy.
const MAX_TEXT: usize = 253;

/// Maximum bytes of the example of a message.
const MAX_EXAMPLE: usize = 512;

/// Events that one entry of `match` selects.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct EventGroup {
    /// Empty if the Events name none.
    pub(super) component: String,
    pub(super) kind: String,
    pub(super) is_warning: bool,
    pub(super) reason: String,
}

impl EventGroup {
    /// Returns the group of a write, or `None` if a policy cannot name it.
    pub(super) fn of(write: &Observation<'_>) -> Option<Self> {
        let event = &write.event;
        let component = event.reporter().0;
        let is_word = |text: &str| is_exact(text) && WORD.check(text).is_ok();
        let is_named = is_word(component)
            && is_word(&event.reason)
            && !event.reason.is_empty()
            && is_exact(&event.regarding.kind)
            && KIND.check(&event.regarding.kind).is_ok()
            && !event.regarding.kind.is_empty()
            && is_namespace_name(write.namespace);
        is_named.then(|| Self {
            component: component.to_owned(),
            kind: event.regarding.kind.to_string(),
            is_warning: event.is_warning(),
            reason: event.reason.to_string(),
        })
    }

    /// The type in a policy.
    pub(super) fn event_type(&self) -> &'static str {
        if self.is_warning { "Warning" } else { "Normal" }
    }
}

/// Whether a text selects itself only, and can be part of a policy.
fn is_exact(text: &str) -> bool {
    !text.contains(|c: char| matches!(c, '*' | '?') || sanitise(c) != c) && text.chars().count() <= MAX_TEXT
}

/// Whether a policy may suppress this write.
pub(super) fn is_governable(write: &Observation<'_>) -> bool {
    !write.own && !write.dry_run && !write.edited
}

/// The writes of each group.
#[derive(Debug, Default)]
pub(super) struct GroupCounts {
    groups: HashMap<EventGroup, u64>,
    /// Writes of groups that a policy cannot name, and of forgotten groups.
    others: u64,
    /// All writes that a policy may suppress.
    pub(super) writes: u64,
}

/// The groups with the most writes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BusiestGroups {
    /// Each with its writes, the most first.
    pub(super) groups: Vec<(EventGroup, u64)>,
    /// Writes of all others.
    pub(super) others: u64,
}

impl GroupCounts {
    /// Counts a write.
    pub(super) fn add(&mut self, write: &Observation<'_>) {
        self.writes += 1;
        let Some(group) = EventGroup::of(write) else {
            self.others += 1;
            return;
        };
        if self.groups.len() >= MAX_COUNTED && !self.groups.contains_key(&group) {
            self.forget_half();
        }
        *self.groups.entry(group).or_default() += 1;
    }

    /// Forgets the groups with the fewest writes.
    fn forget_half(&mut self) {
        let writes = self.writes;
        let BusiestGroups { groups, others } = std::mem::take(self).busiest(MAX_COUNTED / 2);
        *self = Self { groups: groups.into_iter().collect(), others, writes };
    }

    /// Returns the `most` groups with the most writes.
    pub(super) fn busiest(self, most: usize) -> BusiestGroups {
        let mut groups: Vec<_> = self.groups.into_iter().collect();
        groups.sort_by(|a, b| (Reverse(a.1), &a.0).cmp(&(Reverse(b.1), &b.0)));
        let rest = groups.split_off(most.min(groups.len()));
        let others = self.others + rest.iter().map(|(_, writes)| writes).sum::<u64>();
        BusiestGroups { groups, others }
    }
}

/// The number of different hashes: exact up to [`MAX_SAMPLE`], then estimated from those that end with some zero bits.
#[derive(Clone, Debug, Default)]
struct DistinctCount {
    sample: HashSet<u64>,
    zero_bits: u32,
}

impl DistinctCount {
    fn add(&mut self, hash: u64) {
        if hash.trailing_zeros() < self.zero_bits {
            return;
        }
        self.sample.insert(hash);
        while self.sample.len() > MAX_SAMPLE {
            self.zero_bits += 1;
            let zero_bits = self.zero_bits;
            self.sample.retain(|hash| hash.trailing_zeros() >= zero_bits);
        }
    }

    fn number(&self) -> u64 {
        (self.sample.len() as u64) << self.zero_bits
    }
}

/// What differs between the Events of one group.
#[derive(Clone, Debug, Default)]
pub(super) struct GroupDetails {
    pub(super) writes: u64,
    /// Writes by namespace.
    namespaces: BTreeMap<String, u64>,
    objects: DistinctCount,
    /// Messages of each object without masks.
    plain: DistinctCount,
    /// Those with all masks.
    masked: DistinctCount,
    /// Those with one mask each, and with all but one, in the order of [`Mask::ALL`].
    with: [DistinctCount; Mask::ALL.len()],
    without: [DistinctCount; Mask::ALL.len()],
    /// The first message.
    pub(super) example: String,
}

impl GroupDetails {
    /// Adds a write of the group.
    pub(super) fn add(&mut self, write: &Observation<'_>) {
        if self.writes == 0 {
            self.example = truncated(&write.event.message);
        }
        self.writes += 1;
        if self.namespaces.len() < MAX_NAMESPACES || self.namespaces.contains_key(write.namespace) {
            *self.namespaces.entry(write.namespace.to_owned()).or_default() += 1;
        }
        let object = hash_of_object(&write.event.regarding);
        self.objects.add(object);
        let message = |masks: Masks| hash_of_message(object, write, masks);
        self.plain.add(message(Masks::default()));
        self.masked.add(message(Mask::ALL.into_iter().collect()));
        for (at, mask) in Mask::ALL.into_iter().enumerate() {
            self.with[at].add(message([mask].into_iter().collect()));
            self.without[at].add(message(Mask::ALL.into_iter().filter(|other| *other != mask).collect()));
        }
    }

    /// The number of different objects.
    pub(super) fn objects(&self) -> u64 {
        self.objects.number()
    }

    /// The number of different messages, each object's counted by itself.
    pub(super) fn messages(&self) -> u64 {
        self.plain.number()
    }

    /// Returns the namespace that has nine of ten writes, if there is one.
    pub(super) fn namespace(&self) -> Option<&str> {
        let busiest = self.namespaces.iter().max_by_key(|(_, writes)| **writes);
        busiest.filter(|(_, writes)| **writes * 10 >= self.writes * 9).map(|(name, _)| name.as_str())
    }

    /// Returns the masks that make messages equal: alone, or together with others.
    pub(super) fn masks(&self) -> Vec<Mask> {
        let (plain, masked) = (self.plain.number(), self.masked.number());
        if masked * 10 > plain * 9 {
            return Vec::new();
        }
        let has_effect = |at: usize| self.with[at].number() < plain || self.without[at].number() > masked;
        Mask::ALL.into_iter().enumerate().filter(|(at, _)| has_effect(*at)).map(|(_, mask)| mask).collect()
    }
}

fn truncated(message: &str) -> String {
    message[..message.floor_char_boundary(MAX_EXAMPLE)].to_owned()
}

/// The hash key is not secret: a user who crafts a collision changes the estimate of their own Events.
fn hash_of_object(object: &ObjectReference<'_>) -> u64 {
    let mut hasher = DefaultHasher::new();
    let ObjectReference { api_version, kind, namespace, name, uid, field_path } = object;
    [api_version, kind, namespace, name, uid, field_path].hash(&mut hasher);
    hasher.finish()
}

/// Returns a hash of what distinguishes series: emitter, object, action and message.
fn hash_of_message(object: u64, write: &Observation<'_>, masks: Masks) -> u64 {
    let mut hasher = DefaultHasher::new();
    let event: &EventView<'_> = &write.event;
    (object, write.namespace, write.user, event.reporter(), &event.action).hash(&mut hasher);
    masks.split(event, |part| match part {
        MessagePart::Text(text) => hasher.write(text.as_bytes()),
        // No UTF-8 contains these bytes.
        MessagePart::Masked(mask) => hasher.write_u8(0xf8 + mask as u8),
    });
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use squelch_engine::testing::write;

    use super::*;

    fn saying(message: &str) -> Observation<'_> {
        let mut write = write();
        write.event.message = message.into();
        write
    }

    fn about(name: &str) -> Observation<'_> {
        let mut write = write();
        write.event.regarding.name = name.into();
        write
    }

    fn details<'a>(writes: impl IntoIterator<Item = Observation<'a>>) -> GroupDetails {
        let mut details = GroupDetails::default();
        writes.into_iter().for_each(|write| details.add(&write));
        details
    }

    #[test]
    fn only_the_masks_with_an_effect_are_found() {
        let of = |messages: &[String]| details(messages.iter().map(|text| saying(text))).masks();
        let many = |text: fn(u32) -> String| (1..40).map(text).collect::<Vec<_>>();
        let flux = many(|n| format!("Reconciliation finished in {n}.{n}s, next run in 10m0s"));
        assert_eq!(of(&flux), [Mask::Durations]);
        assert_eq!(of(&many(|n| format!("try {n} of 40"))), [Mask::Numbers]);
        // One of them alone has no effect.
        assert_eq!(of(&many(|n| format!("try {n} took {n}s"))), [Mask::Durations, Mask::Numbers]);
        // Numbers masks the parts of an address too.
        assert_eq!(of(&many(|n| format!("try {n} at 10.0.0.{n}:80"))), [Mask::Numbers]);
        assert_eq!(of(&many(|n| "a".repeat(n as usize))), []);
        assert_eq!(of(&["the same in 5s".to_owned()]), []);
    }

    #[test]
    fn objects_and_messages_are_counted() {
        let found = details(["a", "b", "a"].map(about));
        assert_eq!((found.writes, found.objects(), found.messages()), (3, 2, 2));
        let names: Vec<String> = (0..50_000).map(|n| format!("pod-{n}")).collect();
        let found = details(names.iter().map(|name| about(name)));
        assert!((45_000..55_000).contains(&found.objects()), "{}", found.objects());
        assert!(found.objects.sample.len() <= MAX_SAMPLE);
    }

    #[test]
    fn a_namespace_needs_nine_of_ten_writes() {
        let within = |namespace| Observation { namespace, ..write() };
        let of = |others: usize| {
            let shop = std::iter::repeat_n(within("shop"), 90);
            details(shop.chain(std::iter::repeat_n(within("other"), others))).namespace().map(str::to_owned)
        };
        assert_eq!(of(10).as_deref(), Some("shop"));
        assert_eq!(of(11), None);
    }

    #[test]
    fn the_groups_with_the_most_writes_are_kept() {
        let mut counts = GroupCounts::default();
        let reasons: Vec<String> = (0..2 * MAX_COUNTED).map(|n| format!("Reason{n}")).collect();
        for reason in &reasons {
            let mut write = write();
            for repeated in ["Busy", "Busy", reason] {
                write.event.reason = repeated.to_owned().into();
                counts.add(&write);
            }
        }
        assert!(counts.groups.len() <= MAX_COUNTED);
        let all = 3 * reasons.len() as u64;
        assert_eq!(counts.writes, all);
        let busiest = counts.busiest(1);
        assert_eq!((busiest.groups.len(), busiest.groups[0].0.reason.as_str()), (1, "Busy"));
        assert_eq!(busiest.groups[0].1, 2 * reasons.len() as u64);
        assert_eq!(busiest.others, reasons.len() as u64);
    }

    #[test]
    fn a_group_that_a_policy_cannot_name_is_counted_with_the_others() {
        let mut counts = GroupCounts::default();
        for reason in ["", "Back*", "Back|Off", "Back\u{1b}Off", &"x".repeat(254)] {
            let mut write = write();
            write.event.reason = reason.to_owned().into();
            assert_eq!(EventGroup::of(&write), None, "{reason}");
            counts.add(&write);
        }
        for kind in ["", "pods"] {
            let mut write = write();
            write.event.regarding.kind = kind.into();
            assert_eq!(EventGroup::of(&write), None, "{kind}");
        }
        assert_eq!(EventGroup::of(&Observation { namespace: "a/b", ..write() }), None);
        assert_eq!(counts.busiest(10), BusiestGroups { groups: Vec::new(), others: 5 });
    }
}
