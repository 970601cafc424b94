//! Reusable byte buffers: the hot path does not allocate.

/// A byte buffer from a [`BufPool`].
pub type Buf = Vec<u8>;

/// Number of size classes: 320, 384, 448, 512, 640 and so on to 4096 bytes, four per power of two, as in allocators.
/// A buffer with a capacity of a quarter more than the largest class is freed.
const CLASSES: usize = 16;
/// Exponent of the power of two below the first class.
const LOWEST: u32 = 8;

/// Largest number of idle buffers per size class. Further returned buffers are freed, so memory follows load.
pub const MAX_IDLE_PER_CLASS: usize = 1024;

/// Idle buffers by size class, at most [`MAX_IDLE_PER_CLASS`] each.
#[derive(Debug, Default)]
pub struct BufPool {
    idle: [Vec<Buf>; CLASSES],
}

impl BufPool {
    /// Creates an empty pool.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns an empty buffer with a capacity of at least `size` bytes, reused if one is idle.
    #[inline]
    #[must_use]
    pub fn take(&mut self, size: usize) -> Buf {
        let class = quarter_step(size.saturating_sub(1).max(1 << LOWEST));
        match self.idle.get_mut(class) {
            Some(idle) => idle.pop().unwrap_or_else(|| fresh(capacity_of(class))),
            None => fresh(size),
        }
    }

    /// Returns a buffer with a copy of `bytes`.
    #[must_use]
    pub fn copy_of(&mut self, bytes: &[u8]) -> Buf {
        let mut buf = self.take(bytes.len());
        buf.extend_from_slice(bytes);
        buf
    }

    /// Returns a buffer to the pool and clears it.
    #[inline]
    pub fn recycle(&mut self, mut buf: Buf) {
        // The largest class that fits: the one below that of its capacity.
        let class = quarter_step(buf.capacity().max(1 << LOWEST)).checked_sub(1);
        if let Some(idle) = class.and_then(|class| self.idle.get_mut(class))
            && idle.len() < MAX_IDLE_PER_CLASS
        {
            buf.clear();
            idle.push(buf);
        }
    }

    /// Number of idle buffers.
    #[must_use]
    pub fn idle(&self) -> usize {
        self.idle.iter().map(Vec::len).sum()
    }
}

#[cold]
fn fresh(capacity: usize) -> Buf {
    Vec::with_capacity(capacity)
}

/// Returns the number of whole quarter steps between powers of two from 2^`LOWEST` to `size`, which must not be smaller.
const fn quarter_step(size: usize) -> usize {
    let bit = size.ilog2();
    4 * (bit - LOWEST) as usize + (size >> (bit - 2) & 3)
}

const fn capacity_of(class: usize) -> usize {
    (5 + class % 4) << (LOWEST as usize - 2 + class / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_returned_buffer_is_used_again() {
        let mut pool = BufPool::new();
        let buf = pool.copy_of(&[7; 600]);
        let address = buf.as_ptr();
        pool.recycle(buf);
        assert_eq!(pool.idle(), 1);
        let again = pool.take(630);
        assert_eq!(again.as_ptr(), address);
        assert!(again.is_empty());
    }

    #[test]
    fn a_buffer_fits_and_returns_to_its_size_class() {
        let mut pool = BufPool::new();
        for size in 0..=4096 {
            let buf = pool.take(size);
            assert!(buf.capacity() >= size && (size <= 320 || buf.capacity() < size * 5 / 4 + 2), "{size}");
            let address = buf.as_ptr();
            pool.recycle(buf);
            let again = pool.take(size);
            assert_eq!(again.as_ptr(), address, "{size}");
            pool.recycle(again);
        }
        assert_eq!(pool.idle(), CLASSES);
    }

    #[test]
    fn a_huge_buffer_is_not_kept() {
        let mut pool = BufPool::new();
        pool.recycle(Vec::with_capacity(65_536));
        pool.recycle(Vec::with_capacity(16));
        assert_eq!(pool.idle(), 0);
    }
}
