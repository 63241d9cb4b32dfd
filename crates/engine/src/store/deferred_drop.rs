//! Freeing unused tables in slices.

use crate::store::table::Table;

/// Unused tables that are freed in slices, because freeing a million entries at once would block writes.
pub(crate) struct DeferredDrop<T, const NEAR: usize>(Vec<Table<T, NEAR>>);

impl<T, const NEAR: usize> Default for DeferredDrop<T, NEAR> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Default, const NEAR: usize> DeferredDrop<T, NEAR> {
    /// Takes all entries of a table, which is empty afterwards.
    pub(crate) fn take(&mut self, table: &mut Table<T, NEAR>) {
        if !table.is_empty() {
            self.0.push(std::mem::take(table));
        }
    }

    /// Frees at most `at_most` entries. Returns how many.
    pub(crate) fn free_some(&mut self, at_most: usize) -> usize {
        let Some(table) = self.0.last_mut() else { return 0 };
        if table.free_some(at_most) {
            self.0.pop();
        }
        at_most
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
