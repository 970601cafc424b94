//! Storage of calls in chunks: growing copies nothing and memory never doubles.

use crate::call::Call;

/// Number of calls per chunk.
const CHUNK: usize = 128;

/// Calls at indices 0 to `len`, without gaps.
#[derive(Debug, Default)]
pub(crate) struct Chunks {
    chunks: Vec<Vec<Call>>,
    len: usize,
}

impl Chunks {
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn get(&self, place: u32) -> Option<&Call> {
        let place = place as usize;
        self.chunks.get(place / CHUNK)?.get(place % CHUNK)
    }

    pub(crate) fn get_mut(&mut self, place: u32) -> Option<&mut Call> {
        let place = place as usize;
        self.chunks.get_mut(place / CHUNK)?.get_mut(place % CHUNK)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Call> {
        self.chunks.iter().flatten()
    }

    pub(crate) fn push(&mut self, call: Call) {
        let chunk = self.len / CHUNK;
        if chunk == self.chunks.len() {
            self.chunks.push(Vec::with_capacity(CHUNK));
        }
        if let Some(chunk) = self.chunks.get_mut(chunk) {
            chunk.push(call);
            self.len += 1;
        }
    }

    /// Frees the chunk that is kept for the next call, if there is no call.
    pub(crate) fn free_if_empty(&mut self) {
        if self.len == 0 {
            self.chunks = Vec::new();
        }
    }

    /// Removes the call at `place`; the last one moves there.
    pub(crate) fn swap_remove(&mut self, place: u32) -> Option<Call> {
        let last = self.len.checked_sub(1)?;
        if place as usize > last {
            return None;
        }
        let moved = self.chunks.get_mut(last / CHUNK)?.pop()?;
        self.len = last;
        // Half a chunk of slack, so that a table at a chunk boundary does not allocate repeatedly.
        self.chunks.truncate((last + CHUNK / 2).div_ceil(CHUNK));
        // One chunk stays, or each single call would allocate and free one.
        if last == 0 {
            self.chunks.shrink_to(1);
        }
        match self.get_mut(place) {
            Some(hole) => Some(core::mem::replace(hole, moved)),
            None => Some(moved),
        }
    }
}
