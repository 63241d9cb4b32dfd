//! Classification of answers to reviews by a few bytes, at little cost for the caller.

use std::ops::AddAssign;

use serde::Serialize;

/// Number of answers of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Answers {
    /// Allowed, unchanged.
    pub allowed: u64,
    /// Allowed, with a patch.
    pub patched: u64,
    /// Denied.
    pub denied: u64,
    /// No answer, or one that an API server cannot use.
    pub failed: u64,
}

impl Answers {
    /// The total number.
    pub fn number(&self) -> u64 {
        self.allowed + self.patched + self.denied + self.failed
    }

    /// Counts an answer with status 200 by its body.
    pub(super) fn count(&mut self, body: &[u8]) {
        *match body {
            _ if !holds(body, b"\"uid\":\"") => &mut self.failed,
            _ if holds(body, b"\"allowed\":false") => &mut self.denied,
            _ if !holds(body, b"\"allowed\":true") => &mut self.failed,
            _ if holds(body, b"\"patch\":\"") => &mut self.patched,
            _ => &mut self.allowed,
        } += 1;
    }
}

impl AddAssign for Answers {
    fn add_assign(&mut self, other: Self) {
        self.allowed += other.allowed;
        self.patched += other.patched;
        self.denied += other.denied;
        self.failed += other.failed;
    }
}

fn holds(body: &[u8], part: &[u8]) -> bool {
    body.windows(part.len()).any(|window| window == part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_classified() {
        let mut answers = Answers::default();
        for body in [
            r#"{"response":{"uid":"1","allowed":true}}"#,
            r#"{"response":{"uid":"1","allowed":true,"patchType":"JSONPatch","patch":"W10="}}"#,
            r#"{"response":{"uid":"1","allowed":false,"status":{"code":409}}}"#,
            r#"{"response":{"allowed":true}}"#,
            "",
        ] {
            answers.count(body.as_bytes());
        }
        assert_eq!(answers, Answers { allowed: 1, patched: 1, denied: 1, failed: 2 });
        answers += answers;
        assert_eq!(answers.number(), 10);
    }
}
