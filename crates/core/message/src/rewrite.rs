//! Copying a message with changes in one linear pass; unchanged parts are copied byte for byte.

use crate::head::Head;

/// A copy of a message that is being written. Changes must be made in order of position.
#[derive(Debug)]
pub struct Rewrite<'a, 'b> {
    original: &'a [u8],
    /// Number of bytes of the original processed.
    done: usize,
    out: &'b mut Vec<u8>,
}

impl<'a, 'b> Rewrite<'a, 'b> {
    /// Starts a copy of the message with the head `head`, appending to `out`.
    #[must_use]
    pub const fn new(head: &Head<'a>, out: &'b mut Vec<u8>) -> Self {
        Self { original: head.bytes(), done: 0, out }
    }

    /// Copies up to the offset `at`; what is added next goes there.
    pub fn copy_to(&mut self, at: usize) -> &mut Self {
        debug_assert!(at >= self.done, "changes are made in the order of their places");
        self.out.extend_from_slice(self.original.get(self.done..at).unwrap_or(&[]));
        self.done = self.done.max(at);
        self
    }

    /// Copies up to `part`, a slice of the message, and skips it.
    pub fn remove(&mut self, part: &[u8]) -> &mut Self {
        let at = part.as_ptr().addr().wrapping_sub(self.original.as_ptr().addr());
        self.copy_to(at);
        self.done = self.done.saturating_add(part.len());
        self
    }

    /// Appends `parts`, concatenated.
    // Inlined so that the lengths of literal parts are compile-time constants.
    #[inline(always)]
    pub fn add(&mut self, parts: &[&[u8]]) -> &mut Self {
        for part in parts {
            self.out.extend_from_slice(part);
        }
        self
    }

    /// Copies the rest.
    pub fn finish(&mut self) {
        self.copy_to(self.original.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unchanged_parts_stay_byte_for_byte() {
        let text = b"OPTIONS sip:a@b SIP/2.0\r\nA: 1\r\nB: 2\r\nC: 3\r\n\r\nbody";
        let head = Head::scan(text).expect("valid");
        let mut out = Vec::new();
        Rewrite::new(&head, &mut out).finish();
        assert_eq!(out, text);
        out.clear();
        let line = |at: usize| head.line(&head.fields()[at]);
        let mut copy = Rewrite::new(&head, &mut out);
        copy.remove(&text[8..15]).add(&[b"sip:", b"c"]).copy_to(head.fields_start()).add(&[b"X: 0\r\n"]);
        copy.remove(line(0)).remove(&line(1)[3..4]).add(&[b"two"]);
        copy.finish();
        assert_eq!(String::from_utf8_lossy(&out), "OPTIONS sip:c SIP/2.0\r\nX: 0\r\nB: two\r\nC: 3\r\n\r\nbody");
    }
}
