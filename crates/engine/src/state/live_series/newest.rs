//! The newest messages of series whose policy masks parts of messages.

use super::{Handle, LiveSeries};
use crate::model::content::MAX_MESSAGE;
use crate::text::truncate;

/// Bytes of an entry without its text, as counted for the limit on text.
const ENTRY: usize = 56;

/// The newest message of a series, and what is known of the message of its stored Event. Hashes are those of
/// [`Hasher::stored_message`](crate::decide::keys::Hasher::stored_message).
#[derive(Clone, Debug, Default)]
pub(crate) struct NewestMessage {
    /// Hash of what its client stored last; `None` if unknown.
    pub(crate) stored: Option<u64>,
    /// Hash of what squelch wrote last.
    pub(crate) written: Option<u64>,
    /// Whether the stored Event is certain to be the one of the series: its client has updated it, or it was found as
    /// the client created it. squelch writes no message before: the API server may have refused that CREATE because
    /// another user's Event has this name.
    pub(crate) owned: bool,
    /// Message of the newest CREATE that was merged since.
    pub(crate) message: Option<Box<str>>,
}

impl NewestMessage {
    /// The client writes its stored Event, with a message that is not known.
    pub(crate) fn updated_by_client() -> Self {
        Self { owned: true, ..Self::default() }
    }

    /// The client creates its Event, with this hash.
    pub(crate) fn created_by_client(stored: u64) -> Self {
        Self { stored: Some(stored), ..Self::default() }
    }

    /// Records the Event that is stored. Forgets the message if it is stored, or if somebody else has written the
    /// Event since.
    pub(crate) fn found(&mut self, hash: u64, message: &str) {
        let is_known = [self.stored, self.written].contains(&Some(hash));
        self.owned |= self.stored == Some(hash);
        if !self.owned {
            return;
        }
        let is_other = self.stored.is_some() && !is_known;
        if is_other || self.message.as_deref().is_some_and(|newest| truncate(newest, MAX_MESSAGE) == message)
        {
            self.message = None;
        }
        self.stored = Some(hash);
    }

    fn bytes(&self) -> usize {
        ENTRY + self.message.as_deref().map_or(0, str::len)
    }
}

impl LiveSeries {
    /// Returns the newest message of a series, if its policy masks parts of messages.
    pub(crate) fn newest(&self, handle: Handle) -> Option<&NewestMessage> {
        self.newest.get(&handle.birth)
    }

    /// Removes and returns the newest message.
    pub(crate) fn take_newest(&mut self, handle: Handle) -> Option<NewestMessage> {
        let taken = self.newest.remove(&handle.birth)?;
        self.bytes -= taken.bytes();
        Some(taken)
    }

    /// Records the hash of what a flush writes.
    pub(crate) fn wrote_newest(&mut self, handle: Handle, written: u64) {
        if let Some(newest) = self.newest.get_mut(&handle.birth) {
            newest.written = Some(written);
        }
    }

    /// Sets the newest message of a live series.
    pub(crate) fn set_newest(&mut self, handle: Handle, newest: NewestMessage) {
        self.take_newest(handle);
        self.bytes += newest.bytes();
        self.newest.insert(handle.birth, newest);
    }
}
