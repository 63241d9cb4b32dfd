//! Names of stored Events, and contents to create them again.

use super::{Handle, LiveSeries};
use crate::model::content::Content;

impl LiveSeries {
    /// Returns the name of the stored Event.
    pub(crate) fn name(&self, handle: Handle) -> Option<&str> {
        self.names.get(self.place(handle)?)
    }

    /// Whether the stored Event has this name. The one-byte mark rules out most other names without reading the
    /// text.
    pub(crate) fn has_name(&self, handle: Handle, name: &str) -> bool {
        let marked = |at| self.table.get(at).is_some_and(|packed| packed.may_have_name(name));
        self.place(handle).is_some_and(|at| marked(at) && self.names.get(at) == Some(name))
    }

    /// Returns the content to create the stored Event again.
    pub(crate) fn content(&self, handle: Handle) -> Option<&Content> {
        self.contents.get(self.place(handle)?)?.as_deref()
    }

    /// Removes and returns the content.
    pub(crate) fn take_content(&mut self, handle: Handle) -> Option<Box<Content>> {
        let at = self.place(handle)?;
        self.bytes -= self.bytes_at(at);
        let content = self.contents[at].take();
        self.bytes += self.bytes_at(at);
        content
    }

    pub(crate) fn set_content(&mut self, handle: Handle, content: Option<Box<Content>>) {
        if let Some(at) = self.place(handle) {
            self.bytes -= self.bytes_at(at);
            self.contents[at] = content;
            self.bytes += self.bytes_at(at);
        }
    }
}
