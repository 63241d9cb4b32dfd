//! The nesting of JSON values.

/// A stack of open objects (1) and arrays (0), one bit each, of unlimited depth.
#[derive(Default)]
pub(super) struct Nesting {
    innermost: u64,
    depth: usize,
    outer: Vec<u64>,
}

impl Nesting {
    pub(super) fn push(&mut self, object: bool) {
        if self.depth > 0 && self.depth.is_multiple_of(64) {
            self.outer.push(self.innermost);
        }
        self.innermost = self.innermost << 1 | u64::from(object);
        self.depth += 1;
    }

    pub(super) fn innermost(&self) -> Option<bool> {
        (self.depth > 0).then_some(self.innermost & 1 == 1)
    }

    pub(super) fn pop(&mut self) {
        self.depth -= 1;
        self.innermost >>= 1;
        if self.depth > 0 && self.depth.is_multiple_of(64) {
            self.innermost = self.outer.pop().unwrap_or_default();
        }
    }
}
