//! Editing a message while it is written: what is not edited leaves byte for byte, in one linear copy.

use smallvec::SmallVec;

/// Inserted text that is kept without allocating: a Via and a Record-Route take about 250 bytes.
const INLINE_TEXT: usize = 512;
const INLINE_EDITS: usize = 12;

#[derive(Clone, Copy, Debug)]
struct Edit {
    at: u32,
    remove: u32,
    text: (u32, u32),
}

/// Insertions, removals and replacements over a message's bytes; positions are those of the original.
#[derive(Debug, Default)]
pub struct Patch {
    edits: SmallVec<[Edit; INLINE_EDITS]>,
    text: SmallVec<[u8; INLINE_TEXT]>,
}

impl Patch {
    /// No edits.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Replaces `remove` bytes from `at` on by `parts`, joined. Edits may be made in any order and must not overlap;
    /// insertions at one place stand in the order in which they were made.
    pub fn replace(&mut self, at: usize, remove: usize, parts: &[&[u8]]) {
        let start = self.text.len();
        for part in parts {
            self.text.extend_from_slice(part);
        }
        let edit = Edit { at: wide(at), remove: wide(remove), text: (wide(start), wide(self.text.len())) };
        let place = self.edits.partition_point(|other| other.at <= edit.at);
        debug_assert!(
            place
                .checked_sub(1)
                .and_then(|p| self.edits.get(p))
                .is_none_or(|e| e.at.saturating_add(e.remove) <= edit.at),
            "edits must not overlap"
        );
        self.edits.insert(place, edit);
    }

    /// Inserts `parts`, joined, before the byte at `at`.
    pub fn insert(&mut self, at: usize, parts: &[&[u8]]) {
        self.replace(at, 0, parts);
    }

    /// Removes `length` bytes from `at` on.
    pub fn remove(&mut self, at: usize, length: usize) {
        self.replace(at, length, &[]);
    }

    /// Whether nothing is edited.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.edits.is_empty()
    }

    /// Appends the edited message to `out`.
    pub fn write(&self, original: &[u8], out: &mut Vec<u8>) {
        out.reserve(original.len().saturating_add(self.text.len()));
        let mut copied = 0usize;
        for edit in &self.edits {
            let at = (edit.at as usize).max(copied);
            out.extend_from_slice(original.get(copied..at).unwrap_or(&[]));
            out.extend_from_slice(self.text.get(edit.text.0 as usize..edit.text.1 as usize).unwrap_or(&[]));
            copied = at.saturating_add(edit.remove as usize);
        }
        out.extend_from_slice(original.get(copied..).unwrap_or(&[]));
    }
}

fn wide(position: usize) -> u32 {
    u32::try_from(position).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patched(build: impl FnOnce(&mut Patch)) -> String {
        let mut patch = Patch::new();
        build(&mut patch);
        let mut out = Vec::new();
        patch.write(b"0123456789", &mut out);
        String::from_utf8(out).expect("ASCII")
    }

    #[test]
    fn edits_in_any_order() {
        let text = patched(|p| {
            p.replace(8, 1, &[b"eight"]);
            p.insert(0, &[b"a", b"b"]);
            p.remove(3, 2);
            p.insert(0, &[b"c"]);
            p.insert(10, &[b"end"]);
        });
        assert_eq!(text, "abc012567eight9end");
    }

    #[test]
    fn nothing_edited_is_the_same_bytes() {
        assert_eq!(patched(|_| {}), "0123456789");
    }
}
