//! The content of a stored Event, packed into one allocation.

use jiff::Timestamp;

use crate::text::{cut, truncate};
use crate::{EventView, Masks, ObjectReference};

/// Maximum length of a kept message, in bytes. The API server accepts messages of events.k8s.io up to this
/// length.
const MAX_MESSAGE: usize = 1024;
/// Maximum length of a message that is certain to be whole, in bytes. A longer one may have been cut between two
/// characters.
const MAX_WHOLE_MESSAGE: usize = MAX_MESSAGE - 4;
/// Maximum length of any other kept field, in bytes. No field that the API server validates is longer.
const MAX_FIELD: usize = 1024;
/// Maximum length of labels or annotations, in bytes. Longer ones are left out, because truncated JSON is
/// invalid.
const MAX_JSON: usize = 2048;

/// Number of texts in a [`Content`]: those of the Event, and the newest message.
const FIELDS: usize = 25;
/// Size of the length table in front of the texts: two bytes for each.
const LENGTHS: usize = 2 * FIELDS;
/// Size of the fields between the length table and the texts: see [`Header`].
const HEADER: usize = 12;

/// The content that the engine needs to create a stored Event again: one allocation of 62 bytes and the text.
/// Most fields of most Events are empty; as strings they would take 24 bytes each.
///
/// With masks in the policy, it also has the message of the newest merged CREATE.
#[derive(Clone, PartialEq, Eq)]
pub struct Content(Box<[u8]>);

/// The fields that are kept besides the Event.
#[derive(Clone, Copy)]
struct Header {
    /// The masks of the policy.
    masks: Masks,
    /// The length at which its messages are cut.
    max_message: u16,
    /// The time of the CREATE that opened the series, in microseconds. No Event has the least one, which says that it
    /// is unknown.
    opened_at: i64,
}

impl Default for Header {
    fn default() -> Self {
        Self { masks: Masks::default(), max_message: u16::MAX, opened_at: Timestamp::MIN.as_microsecond() }
    }
}

impl std::fmt::Debug for Content {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // A tenant wrote the text. It must not reach a log.
        write!(formatter, "Content({} bytes)", self.len())
    }
}

impl Content {
    /// Packs `event`.
    pub fn of(event: &EventView<'_>) -> Self {
        Self::packed(event, "", Header::default())
    }

    /// Packs the Event of the first merged write of a series. `opened_at`: see [`Series::merge`]. `newest`: its message
    /// if it is a CREATE, which is kept whole.
    ///
    /// [`Series::merge`]: crate::state::series::Series::merge
    pub(crate) fn of_first_merged(
        event: &EventView<'_>,
        newest: &str,
        opened_at: Timestamp,
        masks: Masks,
        max_message: Option<usize>,
    ) -> Self {
        let max_message = max_message.and_then(|max| u16::try_from(max).ok());
        let header = Header {
            masks,
            max_message: max_message.unwrap_or(u16::MAX),
            opened_at: opened_at.as_microsecond(),
        };
        Self::packed(event, newest, header)
    }

    /// Returns the Event as it was `read`, with everything else as it is here.
    pub(crate) fn reread(&self, read: &Self) -> Self {
        Self::packed(&read.view(), self.newest(), self.header())
    }

    /// Whether this message would be kept whole.
    pub(crate) fn keeps_whole(message: &str) -> bool {
        message.len() <= MAX_WHOLE_MESSAGE
    }

    /// Returns the same with the message of a newer CREATE, which is kept whole.
    pub(crate) fn with_newest(&self, message: &str) -> Self {
        Self::packed(&self.view(), message, self.header())
    }

    fn packed(event: &EventView<'_>, newest: &str, header: Header) -> Self {
        let fields = fields(event, newest);
        let text = fields.iter().map(|field| field.len()).sum::<usize>();
        let mut packed = Vec::with_capacity(LENGTHS + HEADER + text);
        for field in fields {
            let length = u16::try_from(field.len()).expect("a field is cut to 2 KiB at most");
            packed.extend(length.to_le_bytes());
        }
        packed.push(u8::from(event.related.is_some()));
        packed.push(header.masks.bits());
        packed.extend(header.max_message.to_le_bytes());
        packed.extend(header.opened_at.to_le_bytes());
        for field in fields {
            packed.extend(field.as_bytes());
        }
        Self(packed.into_boxed_slice())
    }

    fn header(&self) -> Header {
        let bytes: [u8; HEADER] = self.0[LENGTHS..LENGTHS + HEADER].try_into().expect("it has this length");
        let [_, masks, length @ .., a, b, c, d, e, f, g, h] = bytes;
        Header {
            masks: Masks::from_bits(masks),
            max_message: u16::from_le_bytes(length),
            opened_at: i64::from_le_bytes([a, b, c, d, e, f, g, h]),
        }
    }

    /// Returns the packed fields.
    pub fn view(&self) -> EventView<'_> {
        let mut fields = self.fields();
        let mut next = || fields.next().unwrap_or_default();
        let mut reference = || ObjectReference {
            api_version: next().into(),
            kind: next().into(),
            namespace: next().into(),
            name: next().into(),
            uid: next().into(),
            field_path: next().into(),
        };
        let (regarding, related) = (reference(), reference());
        EventView {
            regarding,
            related: (self.0[LENGTHS] == 1).then_some(related),
            event_type: next().into(),
            reason: next().into(),
            action: next().into(),
            message: next().into(),
            reporting_component: next().into(),
            reporting_instance: next().into(),
            source_component: next().into(),
            source_host: next().into(),
            first_timestamp: next().into(),
            event_time: next().into(),
            labels: next(),
            annotations: next(),
        }
    }

    /// Returns the message of the newest merged CREATE; empty if unknown.
    fn newest(&self) -> &str {
        self.fields().last().unwrap_or_default()
    }

    /// Whether this is the message of the newest merged CREATE. Reads no other field, because it is called for each
    /// merged CREATE.
    pub(crate) fn is_newest(&self, message: &str) -> bool {
        let length = u16::from_le_bytes([self.0[LENGTHS - 2], self.0[LENGTHS - 1]]);
        usize::from(length) == message.len() && self.0.ends_with(message.as_bytes())
    }

    /// Returns the message of the newest merged CREATE, if it may replace the one here, which was read: they differ only
    /// in parts that `masks` replaces, and the Event has the time of the CREATE that opened its series. Otherwise it
    /// may be another user's, or somebody has changed its message.
    pub(crate) fn replacing_message(&self, masks: Masks) -> Option<&str> {
        let (newest, read) = (self.newest(), self.view());
        if masks.is_empty() || newest.is_empty() || !Self::keeps_whole(&read.message) {
            return None;
        }
        let header = self.header();
        let is_opening = |time: &str| {
            time.parse::<Timestamp>().is_ok_and(|time| time.as_microsecond() == header.opened_at)
        };
        let newer = EventView { message: newest.into(), ..read.clone() };
        let may_replace = newest != read.message
            && (is_opening(&read.first_timestamp) || is_opening(&read.event_time))
            && masks.are_equal(&read, &newer);
        may_replace.then_some(newest)
    }

    /// Whether `read` is the Event that this content was kept of. Compares regarding object, type, reason and
    /// reporter; also the message, if it is known to be `unchanged` in an Event of the new API. In core/v1 clients may
    /// change the message.
    pub(crate) fn is_event_like(&self, read: &Self, unchanged: bool) -> bool {
        let (kept, event) = (self.view(), read.view());
        kept.regarding == event.regarding
            && kept.event_type == event.event_type
            && kept.reason == event.reason
            && kept.reporter() == event.reporter()
            && (kept.event_time.is_empty() || !unchanged || self.has_equal_message(read))
    }

    /// Whether the message of `read` equals the kept one, as the policy compared them when it was kept. The API server
    /// can have stored it uncut. With masks, messages that may be cut are not compared: their ends can differ.
    fn has_equal_message(&self, read: &Self) -> bool {
        let Header { masks, max_message, .. } = self.header();
        let (kept, read) = (self.view(), read.view());
        let [mut kept_cut, mut read_cut] = [kept.clone(), read.clone()];
        for event in [&mut kept_cut, &mut read_cut] {
            cut(&mut event.message, usize::from(max_message));
        }
        if masks.is_empty() {
            return kept_cut.message == read_cut.message;
        }
        let is_whole = Self::keeps_whole(&kept.message) && Self::keeps_whole(&read.message);
        !is_whole || masks.are_equal(&kept, &read) || masks.are_equal(&kept_cut, &read_cut)
    }

    /// Returns the size in bytes.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    fn fields(&self) -> impl Iterator<Item = &str> {
        let (lengths, mut rest) = (&self.0[..LENGTHS], &self.0[LENGTHS + HEADER..]);
        lengths.chunks_exact(2).map(move |length| {
            let field;
            (field, rest) = rest.split_at(usize::from(u16::from_le_bytes([length[0], length[1]])));
            std::str::from_utf8(field).expect("it was text when it was packed")
        })
    }
}

/// Returns the truncated fields in the order in which [`Content::view`] reads them.
fn fields<'a>(event: &'a EventView<'_>, newest: &'a str) -> [&'a str; FIELDS] {
    let EventView { regarding, related, .. } = event;
    let related = related.as_ref();
    let of_related = |field: fn(&'a ObjectReference<'_>) -> &'a str| {
        related.map_or("", |it| truncate(field(it), MAX_FIELD))
    };
    [
        truncate(&regarding.api_version, MAX_FIELD),
        truncate(&regarding.kind, MAX_FIELD),
        truncate(&regarding.namespace, MAX_FIELD),
        truncate(&regarding.name, MAX_FIELD),
        truncate(&regarding.uid, MAX_FIELD),
        truncate(&regarding.field_path, MAX_FIELD),
        of_related(|it| &it.api_version),
        of_related(|it| &it.kind),
        of_related(|it| &it.namespace),
        of_related(|it| &it.name),
        of_related(|it| &it.uid),
        of_related(|it| &it.field_path),
        truncate(&event.event_type, MAX_FIELD),
        truncate(&event.reason, MAX_FIELD),
        truncate(&event.action, MAX_FIELD),
        truncate(&event.message, MAX_MESSAGE),
        truncate(&event.reporting_component, MAX_FIELD),
        truncate(&event.reporting_instance, MAX_FIELD),
        truncate(&event.source_component, MAX_FIELD),
        truncate(&event.source_host, MAX_FIELD),
        truncate(&event.first_timestamp, MAX_FIELD),
        truncate(&event.event_time, MAX_FIELD),
        if event.labels.len() > MAX_JSON { "" } else { event.labels },
        if event.annotations.len() > MAX_JSON { "" } else { event.annotations },
        newest,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::write;

    #[test]
    fn unpacked_content_equals_the_packed_event() {
        let mut event = write().event;
        event.related = Some(ObjectReference { name: "other".into(), ..ObjectReference::default() });
        event.labels = r#"{"a":"b"}"#;
        event.message = "größer 🐙".into();
        assert_eq!(format!("{event:?}"), format!("{:?}", Content::of(&event).view()));
    }

    #[test]
    fn long_text_is_truncated_between_characters_and_long_json_is_omitted() {
        let mut event = write().event;
        event.message = "ü".repeat(600).into();
        let long = format!("{{\"a\":\"{}\"}}", "x".repeat(3000));
        event.annotations = &long;
        let content = Content::of(&event);
        assert_eq!(content.view().message, "ü".repeat(512));
        assert_eq!(content.view().annotations, "");
    }
}
