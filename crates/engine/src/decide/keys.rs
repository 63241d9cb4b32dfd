//! Structural keys: hashes of the fields that identify a series, a group, a bucket or a name.

use std::hash::{BuildHasher, Hasher as _};

use siphasher::sip128::{Hasher128, SipHasher13};

use crate::model::dropped::identity;
use crate::{Disposition, EventView, GroupBy, Masks, MessagePart, ObjectReference, Observation, Per};

/// The prefix that client-go puts before the message of an aggregated Event (tools/record, events_cache.go).
pub const AGGREGATE_PREFIX: &str = "(combined from similar events): ";

/// A 128-bit structural key. Equal fields give equal keys. Different fields give the same key for 1 in 2^64
/// pairs, and the hash is keyed, so no client can construct such a pair.
pub(crate) type Key = u128;

/// The keyed hash. Its key is random per process.
#[derive(Clone)]
pub(crate) struct Hasher {
    seed: [u64; 2],
}

/// Hash builder for maps by [`Key`], which is already a hash.
#[derive(Clone, Copy, Default)]
pub(crate) struct ByKey;

/// The half of a key that such a map uses.
#[derive(Default)]
pub(crate) struct HalfOfKey(u64);

impl BuildHasher for ByKey {
    type Hasher = HalfOfKey;

    fn build_hasher(&self) -> HalfOfKey {
        HalfOfKey::default()
    }
}

impl std::hash::Hasher for HalfOfKey {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = self.0.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u128(&mut self, key: Key) {
        self.0 = key as u64;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// The byte in place of the first mask. The last byte of UTF-8 is 0xf4, and 0xff ends a field.
const FIRST_MASK: u8 = 0xf8;

/// The first hashed byte, which separates the kinds of keys.
#[derive(Clone, Copy)]
enum KeyKind {
    Series = 1,
    Name = 2,
    User = 3,
    Minted = 4,
    Group = 5,
    Message = 6,
    SpamFilter = 7,
    Summary = 8,
    Object = 9,
    Dropped = 10,
    Jitter = 11,
    Namespace = 12,
    Witness = 13,
}

impl Hasher {
    pub(crate) fn new(seed: [u64; 2]) -> Self {
        Self { seed }
    }

    /// Returns the key of a series: emitter, regarding, type, reason, action, related, message.
    pub(crate) fn series(&self, write: &Observation<'_>, masks: Masks) -> Key {
        let event = &write.event;
        let mut fields = self.begin(KeyKind::Series);
        emitter(&mut fields, write.user, event);
        reference(&mut fields, &event.regarding);
        fields.text(&event.event_type);
        fields.text(&event.reason);
        fields.text(&event.action);
        match &event.related {
            None => fields.byte(0),
            Some(related) => {
                fields.byte(1);
                reference(&mut fields, related);
            }
        }
        if event.message.starts_with(AGGREGATE_PREFIX) {
            fields.text(AGGREGATE_PREFIX);
        } else {
            fields.message(event, masks);
        }
        fields.finish()
    }

    /// Returns the key of an aggregation group.
    pub(crate) fn group(&self, write: &Observation<'_>, group_by: GroupBy) -> Key {
        let event = &write.event;
        let mut fields = self.begin(KeyKind::Group);
        match group_by {
            GroupBy::Object => {
                emitter(&mut fields, write.user, event);
                object(&mut fields, &event.regarding);
            }
            GroupBy::Kind => {
                fields.text(event.reporter().0);
                fields.text(&event.regarding.kind);
                fields.text(&event.regarding.api_version);
            }
        }
        fields.text(&event.event_type);
        fields.text(&event.reason);
        fields.finish()
    }

    /// Returns a hash of the fields that make an Event a witness of its group: regarding object, type, reason,
    /// reporter.
    pub(crate) fn witness(&self, event: &EventView<'_>) -> u64 {
        let mut fields = self.begin(KeyKind::Witness);
        reference(&mut fields, &event.regarding);
        fields.text(&event.event_type);
        fields.text(&event.reason);
        let (component, instance) = event.reporter();
        fields.text(component);
        fields.text(instance);
        fields.finish() as u64
    }

    /// Returns the fingerprint of a message within its group. With [`GroupBy::Kind`] it includes the object.
    pub(crate) fn message(&self, write: &Observation<'_>, group_by: GroupBy, masks: Masks) -> u64 {
        let mut fields = self.begin(KeyKind::Message);
        if group_by == GroupBy::Kind {
            object(&mut fields, &write.event.regarding);
        }
        fields.message(&write.event, masks);
        fields.finish() as u64
    }

    /// Returns the fingerprint of a regarding object within its group.
    pub(crate) fn object(&self, write: &Observation<'_>) -> u64 {
        let mut fields = self.begin(KeyKind::Object);
        object(&mut fields, &write.event.regarding);
        fields.finish() as u64
    }

    /// Returns the key of a group's summary in the table of series.
    pub(crate) fn summary(&self, group: Key) -> Key {
        let mut fields = self.begin(KeyKind::Summary);
        fields.hasher.write_u128(group);
        fields.finish()
    }

    /// Returns the key of a spam filter bucket.
    pub(crate) fn spam_filter(&self, write: &Observation<'_>, per: Per) -> Key {
        let mut fields = self.begin(KeyKind::SpamFilter);
        if per.emitter {
            emitter(&mut fields, write.user, &write.event);
        }
        if per.object {
            object(&mut fields, &write.event.regarding);
        }
        if per.event_type {
            fields.text(&write.event.event_type);
        }
        if per.reason {
            fields.text(&write.event.reason);
        }
        fields.finish()
    }

    /// Returns the key of a combination of dropped Events.
    pub(crate) fn dropped(&self, event: &EventView<'_>, disposition: Disposition) -> Key {
        let mut fields = self.begin(KeyKind::Dropped);
        fields.byte(disposition as u8);
        fields.byte(u8::from(event.is_warning()));
        // Truncated before hashing, because the text may be long.
        for text in identity(event) {
            fields.text(text);
        }
        fields.finish()
    }

    /// Returns the key of a namespace.
    pub(crate) fn namespace(&self, name: &str) -> Key {
        let mut fields = self.begin(KeyKind::Namespace);
        fields.text(name);
        fields.finish()
    }

    /// Returns the key of an Event name within its namespace.
    pub(crate) fn name(&self, name: &str) -> Key {
        let mut fields = self.begin(KeyKind::Name);
        fields.text(name);
        fields.finish()
    }

    /// Returns the hash of a user name.
    pub(crate) fn user(&self, user: &str) -> u64 {
        let mut fields = self.begin(KeyKind::User);
        fields.text(user);
        fields.finish() as u64
    }

    /// Returns random bits for a generated name: unpredictable for clients, reproducible for the same number.
    pub(crate) fn minted(&self, number: u64) -> u128 {
        let mut fields = self.begin(KeyKind::Minted);
        fields.hasher.write_u64(number);
        fields.finish()
    }

    /// Returns random bits that spread retries over time. They differ for each attempt.
    pub(crate) fn jitter(&self, name: &str, attempt: u8) -> u16 {
        let mut fields = self.begin(KeyKind::Jitter);
        fields.byte(attempt);
        fields.text(name);
        fields.finish() as u16
    }

    fn begin(&self, kind: KeyKind) -> FieldHasher {
        let mut fields = FieldHasher { hasher: SipHasher13::new_with_keys(self.seed[0], self.seed[1]) };
        fields.byte(kind as u8);
        fields
    }
}

fn emitter(fields: &mut FieldHasher, user: &str, event: &EventView<'_>) {
    let (component, instance) = event.reporter();
    fields.text(user);
    fields.text(component);
    fields.text(instance);
}

/// Adds an object without its field path.
fn object(fields: &mut FieldHasher, object: &ObjectReference<'_>) {
    let ObjectReference { api_version, kind, namespace, name, uid, field_path: _ } = object;
    for field in [api_version, kind, namespace, name, uid] {
        fields.text(field);
    }
}

fn reference(fields: &mut FieldHasher, object: &ObjectReference<'_>) {
    let ObjectReference { api_version, kind, namespace, name, uid, field_path } = object;
    for field in [api_version, kind, namespace, name, uid, field_path] {
        fields.text(field);
    }
}

/// Hashes fields, each followed by a byte that UTF-8 never contains, so that adjacent fields cannot run together.
struct FieldHasher {
    hasher: SipHasher13,
}

impl FieldHasher {
    fn byte(&mut self, byte: u8) {
        self.hasher.write_u8(byte);
    }

    fn text(&mut self, text: &str) {
        self.hasher.write(text.as_bytes());
        self.hasher.write_u8(0xff);
    }

    /// Adds the message of an Event. In place of each masked part is a byte that UTF-8 never contains.
    fn message(&mut self, event: &EventView<'_>, masks: Masks) {
        if masks.is_empty() {
            return self.text(&event.message);
        }
        masks.split(event, |part| match part {
            MessagePart::Text(text) => self.hasher.write(text.as_bytes()),
            MessagePart::Masked(mask) => self.hasher.write_u8(FIRST_MASK + mask as u8),
        });
        self.byte(0xff);
    }

    fn finish(self) -> u128 {
        self.hasher.finish128().as_u128()
    }
}

#[cfg(test)]
mod tests;
