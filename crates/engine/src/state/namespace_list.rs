//! The list of namespaces and the order of their turns.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// All namespaces, each once. The map of their states cannot be iterated without locking many of them at a
/// time.
#[derive(Debug, Default)]
pub(crate) struct NamespaceList(Mutex<RoundRobin>);

#[derive(Debug, Default)]
struct RoundRobin {
    names: Vec<Arc<str>>,
    next: usize,
    next_to_evict: usize,
}

impl NamespaceList {
    /// Adds a namespace.
    pub(crate) fn add(&self, name: Arc<str>) {
        self.lock().names.push(name);
    }

    /// Removes a namespace.
    pub(crate) fn remove(&self, name: &Arc<str>) {
        let list = &mut *self.lock();
        if let Some(at) = list.names.iter().position(|its| Arc::ptr_eq(its, name)) {
            list.names.swap_remove(at);
        }
    }

    /// Returns all namespaces.
    pub(crate) fn all(&self) -> Vec<Arc<str>> {
        self.lock().names.clone()
    }

    /// Returns the number of namespaces.
    pub(crate) fn len(&self) -> usize {
        self.lock().names.len()
    }

    /// Returns the namespace whose turn it is and advances the turn.
    pub(crate) fn next_turn(&self) -> Option<Arc<str>> {
        let list = &mut *self.lock();
        if list.names.is_empty() {
            return None;
        }
        let at = if list.next < list.names.len() { list.next } else { 0 };
        list.next = at + 1;
        list.names.get(at).cloned()
    }

    /// Returns the namespace that must evict entries. It stays the same until a caller asks for the `next` one.
    pub(crate) fn next_to_evict(&self, next: bool) -> Option<Arc<str>> {
        let list = &mut *self.lock();
        list.next_to_evict += usize::from(next);
        if list.next_to_evict >= list.names.len() {
            list.next_to_evict = 0;
        }
        list.names.get(list.next_to_evict).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, RoundRobin> {
        // No change takes two steps, so a panic elsewhere leaves the list consistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_namespace_has_a_turn_while_others_are_added_and_removed() {
        let namespace_list = NamespaceList::default();
        assert_eq!(namespace_list.next_turn(), None);
        let names: Vec<Arc<str>> = ["a", "b", "c"].map(Into::into).into();
        names.iter().for_each(|name| namespace_list.add(name.clone()));
        let visited = |number: usize| {
            (0..number).map(|_| namespace_list.next_turn().unwrap().to_string()).collect::<String>()
        };
        assert_eq!(visited(4), "abca");
        namespace_list.remove(&names[0]);
        namespace_list.add("d".into());
        let mut later: Vec<char> = visited(3).chars().collect();
        later.sort_unstable();
        assert_eq!(later, ['b', 'c', 'd']);
        assert_eq!((namespace_list.len(), namespace_list.all().len()), (3, 3));
        let next_to_evict: String =
            [false, false, true, true, true].map(|next| namespace_list.next_to_evict(next).unwrap()).concat();
        let mut once: Vec<char> = next_to_evict.chars().skip(1).take(3).collect();
        once.sort_unstable();
        assert_eq!(
            (once, &next_to_evict[..1], &next_to_evict[..1]),
            (vec!['b', 'c', 'd'], &next_to_evict[1..2], &next_to_evict[4..])
        );
    }
}
