//! Which namespaces there are, in the order in which they have their turn.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The namespaces, each once. The map of their states cannot be walked without locking many of them at a time.
#[derive(Debug, Default)]
pub(crate) struct NamespaceList(Mutex<Turns>);

#[derive(Debug, Default)]
struct Turns {
    names: Vec<Arc<str>>,
    next: usize,
    next_to_evict: usize,
}

impl NamespaceList {
    /// A namespace came.
    pub(crate) fn add(&self, name: Arc<str>) {
        self.turns().names.push(name);
    }

    /// A namespace went.
    pub(crate) fn remove(&self, name: &Arc<str>) {
        let turns = &mut *self.turns();
        if let Some(at) = turns.names.iter().position(|its| Arc::ptr_eq(its, name)) {
            turns.names.swap_remove(at);
        }
    }

    /// All of them, as they are now.
    pub(crate) fn all(&self) -> Vec<Arc<str>> {
        self.turns().names.clone()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.turns().names.len()
    }

    /// Whose turn it is; the next call names the next one.
    pub(crate) fn next_turn(&self) -> Option<Arc<str>> {
        let turns = &mut *self.turns();
        if turns.names.is_empty() {
            return None;
        }
        let at = if turns.next < turns.names.len() { turns.next } else { 0 };
        turns.next = at + 1;
        turns.names.get(at).cloned()
    }

    /// Who is to make room for others: the same again until the `next` one is asked for.
    pub(crate) fn next_to_evict(&self, next: bool) -> Option<Arc<str>> {
        let turns = &mut *self.turns();
        turns.next_to_evict += usize::from(next);
        if turns.next_to_evict >= turns.names.len() {
            turns.next_to_evict = 0;
        }
        turns.names.get(turns.next_to_evict).cloned()
    }

    fn turns(&self) -> MutexGuard<'_, Turns> {
        // A panic elsewhere leaves the list as it was: nothing is changed in two steps.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_has_a_turn_while_others_come_and_go() {
        let namespace_list = NamespaceList::default();
        assert_eq!(namespace_list.next_turn(), None);
        let names: Vec<Arc<str>> = ["a", "b", "c"].map(Into::into).into();
        names.iter().for_each(|name| namespace_list.add(name.clone()));
        let turns = |number: usize| {
            (0..number).map(|_| namespace_list.next_turn().unwrap().to_string()).collect::<String>()
        };
        assert_eq!(turns(4), "abca");
        namespace_list.remove(&names[0]);
        namespace_list.add("d".into());
        let mut later: Vec<char> = turns(3).chars().collect();
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
