//! A list that grows and shrinks by small pieces.
//!
//! A `Vec` of a million entries doubles by copying all of them while a write waits. It reserves up to twice the
//! needed memory and never shrinks. Ten thousand namespaces have a few such lists each, so reserved memory
//! matters as much as the pause. This list has at most two pieces more than it needs.

use std::hint::black_box;
use std::ops::{Index, IndexMut};

/// Entries by position, in pieces of `PIECE` entries. The list itself holds the pointers to the first `NEAR`
/// pieces, which saves a cache miss for small lists.
// The field order matters: what every access reads comes first.
#[repr(C)]
pub(crate) struct Segments<T, const PIECE: usize, const NEAR: usize> {
    len: usize,
    /// Pointers to the other pieces in lists of [`FAR`], because one list for a million pieces would take a
    /// megabyte to copy.
    far: Vec<Vec<Box<[T; PIECE]>>>,
    near: [Option<Box<[T; PIECE]>>; NEAR],
}

const FAR: usize = 256;

/// Size of a cache line in bytes.
const LINE: usize = 64;

impl<T, const PIECE: usize, const NEAR: usize> Default for Segments<T, PIECE, NEAR> {
    fn default() -> Self {
        Self { len: 0, far: Vec::new(), near: std::array::from_fn(|_| None) }
    }
}

impl<T: Default, const PIECE: usize, const NEAR: usize> Segments<T, PIECE, NEAR> {
    /// Returns the number of entries. Positions are `u32`: tables are bounded far below 2^32 entries.
    pub(crate) fn len(&self) -> u32 {
        u32::try_from(self.len).expect("a table is bounded far below 2^32 entries")
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn get(&self, at: u32) -> Option<&T> {
        ((at as usize) < self.len).then(|| &self[at])
    }

    /// Prefetches the pointers to the near pieces; see [`crate::decide::prefetch`].
    pub(crate) fn prefetch(&self) {
        black_box(self.len);
        self.near.iter().step_by(LINE / size_of::<usize>()).for_each(|near| {
            black_box(near.is_some());
        });
    }

    /// Appends an entry and returns its position.
    pub(crate) fn push(&mut self, value: T) -> u32 {
        let at = self.len();
        let piece = self.len / PIECE;
        let new = || Box::new(std::array::from_fn(|_| T::default()));
        if piece < NEAR {
            self.near[piece].get_or_insert_with(new);
        } else {
            let (list, piece) = ((piece - NEAR) / FAR, (piece - NEAR) % FAR);
            if list == self.far.len() {
                self.far.push(Vec::new());
            }
            if piece == self.far[list].len() {
                self.far[list].push(new());
            }
        }
        self.len += 1;
        self[at] = value;
        at
    }

    /// Removes the last entry.
    pub(crate) fn pop(&mut self) -> Option<T> {
        let last = self.len().checked_sub(1)?;
        let value = std::mem::take(&mut self[last]);
        self.len -= 1;
        // One piece stays in reserve, so that a list around the edge of a piece does not allocate each time.
        self.free(self.len.div_ceil(PIECE) + 1);
        Some(value)
    }

    /// Frees this piece if it is the last.
    fn free(&mut self, piece: usize) {
        if piece < NEAR {
            self.near[piece] = None;
        } else if let Some(list) = self.far.get_mut((piece - NEAR) / FAR) {
            list.truncate((piece - NEAR) % FAR);
            if list.is_empty() {
                self.far.pop();
            }
        }
    }

    /// Removes an entry; the last one takes its position.
    pub(crate) fn swap_remove(&mut self, at: u32) -> T {
        let last = self.pop().expect("there is an entry at this position");
        if at == self.len() { last } else { std::mem::replace(&mut self[at], last) }
    }
}

impl<T, const PIECE: usize, const NEAR: usize> Index<u32> for Segments<T, PIECE, NEAR> {
    type Output = T;

    fn index(&self, at: u32) -> &T {
        let (piece, at) = (at as usize / PIECE, at as usize % PIECE);
        match self.near.get(piece) {
            Some(near) => &near.as_ref().expect(THERE)[at],
            None => &self.far[(piece - NEAR) / FAR][(piece - NEAR) % FAR][at],
        }
    }
}

impl<T, const PIECE: usize, const NEAR: usize> IndexMut<u32> for Segments<T, PIECE, NEAR> {
    fn index_mut(&mut self, at: u32) -> &mut T {
        let (piece, at) = (at as usize / PIECE, at as usize % PIECE);
        match self.near.get_mut(piece) {
            Some(near) => &mut near.as_mut().expect(THERE)[at],
            None => &mut self.far[(piece - NEAR) / FAR][(piece - NEAR) % FAR][at],
        }
    }
}

const THERE: &str = "the piece of an entry is there as long as the entry";

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_long_list_grows_and_shrinks() {
        let mut list = Segments::<u32, 2, 1>::default();
        let long = 2 * 2 * FAR as u32 + 9;
        assert!((0..long).all(|value| list.push(value) == value));
        assert!((0..long).all(|at| list[at] == at));
        assert_eq!(list.far.len(), 3);
        assert!((0..long).rev().all(|value| list.pop() == Some(value)));
        assert_eq!((list.pop(), list.far.len()), (None, 0));
    }

    proptest! {
        #[test]
        fn segments_behave_like_a_vec_with_little_spare_memory(steps in prop::collection::vec((0u8..5, 0usize..64), 0..300)) {
            let mut list = Segments::<u64, 4, 3>::default();
            let mut model: Vec<u64> = Vec::new();
            for (number, (step, at)) in steps.into_iter().enumerate() {
                let number = number as u64 + 1;
                match step {
                    0..=2 => { prop_assert_eq!(list.push(number) as usize, model.len()); model.push(number); }
                    3 => prop_assert_eq!(list.pop(), model.pop()),
                    _ if at < model.len() => prop_assert_eq!(list.swap_remove(at as u32), model.swap_remove(at)),
                    _ => prop_assert_eq!(list.get(at as u32), None),
                }
                let all: Vec<u64> = (0..list.len()).map(|at| list[at]).collect();
                prop_assert_eq!(&all, &model);
                let pieces = list.near.iter().flatten().count() + list.far.iter().map(Vec::len).sum::<usize>();
                prop_assert!(pieces * 4 < model.len() + 2 * 4, "{} pieces for {}", pieces, model.len());
            }
        }
    }
}
