//! Byte buffers that are used again. The hot path takes and gives; it does not allocate.

/// A byte buffer from a [`BufPool`].
pub type Buf = Vec<u8>;

/// The capacity of the smallest class; each class has twice that of the one before it.
const SMALLEST: usize = 512;
/// How many classes there are; what has twice the largest one's capacity is freed rather than kept.
const CLASSES: usize = 4;

/// Buffers kept in one size class at most; past it a returned buffer is freed, so memory follows load.
pub const MAX_IDLE_PER_CLASS: usize = 4096;

/// Idle buffers in size classes. Bounded: it can never hold more than [`MAX_IDLE_PER_CLASS`] of each class.
#[derive(Debug, Default)]
pub struct BufPool {
    idle: [Vec<Buf>; CLASSES],
}

impl BufPool {
    /// An empty pool.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty buffer with room for `size` bytes, used before where one is idle.
    #[must_use]
    pub fn take(&mut self, size: usize) -> Buf {
        // The smallest class that has room: one more than the highest bit of the last byte's number says.
        let class = (size.saturating_sub(1) / SMALLEST).checked_ilog2().map_or(0, |bit| bit as usize + 1);
        match self.idle.get_mut(class) {
            Some(idle) => idle.pop().unwrap_or_else(|| Vec::with_capacity(SMALLEST << class)),
            None => Vec::with_capacity(size),
        }
    }

    /// A buffer that holds a copy of `bytes`.
    #[must_use]
    pub fn copy_of(&mut self, bytes: &[u8]) -> Buf {
        let mut buf = self.take(bytes.len());
        buf.extend_from_slice(bytes);
        buf
    }

    /// Returns a buffer for later use; its contents are forgotten.
    pub fn give(&mut self, mut buf: Buf) {
        // The largest class that it has room for.
        let class = (buf.capacity() / SMALLEST).checked_ilog2().map(|bit| bit as usize);
        if let Some(idle) = class.and_then(|class| self.idle.get_mut(class))
            && idle.len() < MAX_IDLE_PER_CLASS
        {
            buf.clear();
            idle.push(buf);
        }
    }

    /// How many buffers lie idle.
    #[must_use]
    pub fn idle(&self) -> usize {
        self.idle.iter().map(Vec::len).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_returned_buffer_is_used_again() {
        let mut pool = BufPool::new();
        let buf = pool.copy_of(&[7; 600]);
        let address = buf.as_ptr();
        pool.give(buf);
        assert_eq!(pool.idle(), 1);
        let again = pool.take(1000);
        assert_eq!(again.as_ptr(), address);
        assert!(again.is_empty());
    }

    #[test]
    fn a_huge_buffer_is_not_kept() {
        let mut pool = BufPool::new();
        pool.give(Vec::with_capacity(65_536));
        pool.give(Vec::with_capacity(16));
        assert_eq!(pool.idle(), 0);
    }
}
