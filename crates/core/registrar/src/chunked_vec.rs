//! A dense array in chunks: it grows without copying elements, and frees memory as it shrinks.

/// Elements per chunk.
pub(crate) const CHUNK: usize = 128;

/// Elements at indices 0 to `len`, without gaps.
#[derive(Debug)]
pub(crate) struct ChunkedVec<T> {
    chunks: Vec<Vec<T>>,
    len: usize,
}

impl<T> ChunkedVec<T> {
    pub(crate) const fn new() -> Self {
        Self { chunks: Vec::new(), len: 0 }
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn get(&self, index: u32) -> Option<&T> {
        let index = index as usize;
        self.chunks.get(index / CHUNK)?.get(index % CHUNK)
    }

    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        let index = index as usize;
        self.chunks.get_mut(index / CHUNK)?.get_mut(index % CHUNK)
    }

    pub(crate) fn push(&mut self, value: T) {
        let chunk = self.len / CHUNK;
        if chunk == self.chunks.len() {
            self.chunks.push(Vec::with_capacity(CHUNK));
        }
        if let Some(chunk) = self.chunks.get_mut(chunk) {
            chunk.push(value);
            self.len += 1;
        }
    }

    /// Removes the element at `index`; the last one moves there.
    pub(crate) fn swap_remove(&mut self, index: u32) -> Option<T> {
        let last = self.len.checked_sub(1)?;
        if index as usize > last {
            return None;
        }
        let moved = self.chunks.get_mut(last / CHUNK)?.pop()?;
        self.len = last;
        self.shrink();
        match self.get_mut(index) {
            Some(hole) => Some(core::mem::replace(hole, moved)),
            None => Some(moved),
        }
    }

    /// Frees the last chunk when it is empty and half of the chunk before it is free too, so that a table whose size
    /// varies around a chunk boundary does not allocate each time.
    fn shrink(&mut self) {
        let wanted = (self.len + CHUNK / 2).div_ceil(CHUNK);
        if self.len == 0 {
            self.chunks = Vec::new();
        } else if wanted < self.chunks.len() {
            self.chunks.truncate(wanted);
            if self.chunks.capacity() / 4 > self.chunks.len() {
                self.chunks.shrink_to(self.chunks.len() * 2);
            }
        }
    }
}
