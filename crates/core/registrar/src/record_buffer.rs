//! Records copied while a stripe is locked.

/// A sequence of records in reusable memory.
#[derive(Debug, Default)]
pub(crate) struct RecordBuffer {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    scratch: Vec<u8>,
}

impl RecordBuffer {
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Adds the record that `write` writes.
    pub(crate) fn add(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.scratch);
        self.bytes.extend_from_slice(&self.scratch);
        self.ends.push(self.bytes.len());
    }

    pub(crate) fn records(&self) -> impl Iterator<Item = &[u8]> {
        let mut begin = 0;
        self.ends.iter().filter_map(move |end| self.bytes.get(core::mem::replace(&mut begin, *end)..*end))
    }
}
