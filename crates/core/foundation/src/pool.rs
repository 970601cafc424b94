//! Reusable byte buffers: the hot path does not allocate.

/// A byte buffer from a [`BufPool`].
pub type Buf = Vec<u8>;

/// Number of size classes: 320, 384, 448, 512, 640 and so on to 4096 bytes, four per power of two, as in allocators.
/// A buffer with a capacity of a quarter more than the largest class is freed.
const CLASSES: usize = 16;
/// Exponent of the power of two below the first class.
const LOWEST: u32 = 8;

/// Largest number of idle buffers per size class that were used since the last [`BufPool::trim`], and as many again that
/// were not. Further returned buffers are freed.
pub const MAX_IDLE_PER_CLASS: usize = 1024;

/// Number of unused buffers per size class that [`BufPool::trim`] leaves, so that single messages cost no allocation.
const SPARE_PER_CLASS: usize = 4;

/// Idle buffers by size class. Memory follows load: [`trim`](Self::trim) frees buffers that are not needed any more.
#[derive(Debug, Default)]
pub struct BufPool {
    /// Returned since the last trim; used first.
    idle: [Vec<Buf>; CLASSES],
    /// Not used since the last trim.
    unused: [Vec<Buf>; CLASSES],
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
            Some(idle) => match idle.pop() {
                Some(buf) => buf,
                None => self.unused_or_fresh(class),
            },
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

    #[cold]
    fn unused_or_fresh(&mut self, class: usize) -> Buf {
        let unused = self.unused.get_mut(class).and_then(Vec::pop);
        unused.unwrap_or_else(|| Vec::with_capacity(capacity_of(class)))
    }

    /// Frees half of the buffers that were not used since the last call, so that a peak is forgotten after some calls and a
    /// steady load costs nothing. While the pool is in use, a few spare ones stay; otherwise they would pin much more of
    /// the allocator's memory than their own. Returns whether a further call may free more.
    pub fn trim(&mut self) -> bool {
        let spare = if self.idle.iter().all(Vec::is_empty) { 0 } else { SPARE_PER_CLASS };
        let mut has_more = false;
        for (idle, unused) in self.idle.iter_mut().zip(&mut self.unused) {
            if idle.capacity() == 0 && unused.capacity() == 0 {
                continue;
            }
            unused.truncate((unused.len() / 2).max(spare));
            let room = MAX_IDLE_PER_CLASS.saturating_sub(unused.len());
            idle.truncate(room);
            unused.append(idle);
            if unused.len() <= SPARE_PER_CLASS {
                // The lists themselves have grown with the peak.
                idle.shrink_to(spare);
                unused.shrink_to(spare);
            }
            has_more |= !unused.is_empty();
        }
        has_more
    }

    /// Number of idle buffers.
    #[must_use]
    pub fn idle(&self) -> usize {
        self.idle.iter().chain(&self.unused).map(Vec::len).sum()
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
    fn a_peak_is_forgotten_after_a_few_trims() {
        let mut pool = BufPool::new();
        let peak: Vec<_> =
            (0..MAX_IDLE_PER_CLASS).flat_map(|_| [320, 1500, 4000]).map(|size| pool.take(size)).collect();
        peak.into_iter().for_each(|buf| pool.recycle(buf));
        let mut idle = pool.idle();
        assert_eq!(idle, 3 * MAX_IDLE_PER_CLASS);
        assert!(pool.trim(), "what has just been used stays");
        assert_eq!(pool.idle(), idle);
        let mut trims = 0;
        while pool.trim() {
            trims += 1;
            assert!(pool.idle() <= idle.div_ceil(2), "half of it");
            idle = pool.idle();
        }
        assert!(trims <= 11, "{trims}");
        assert_eq!(pool.idle(), 0);
        assert!(pool.idle.iter().chain(&pool.unused).all(|list| list.capacity() == 0));
    }

    #[test]
    fn buffers_in_steady_use_stay() {
        let mut pool = BufPool::new();
        let mut used: Vec<_> = (0..10).map(|_| pool.take(1000)).collect();
        let mut addresses: Vec<_> = used.iter().map(|buf| buf.as_ptr().addr()).collect();
        addresses.sort_unstable();
        for _ in 0..20 {
            used.drain(..).for_each(|buf| pool.recycle(buf));
            pool.trim();
            used = (0..10).map(|_| pool.take(1000)).collect();
            let mut now: Vec<_> = used.iter().map(|buf| buf.as_ptr().addr()).collect();
            now.sort_unstable();
            assert_eq!(now, addresses, "none was allocated or freed");
        }
    }

    #[test]
    fn a_huge_buffer_is_not_kept() {
        let mut pool = BufPool::new();
        pool.recycle(Vec::with_capacity(65_536));
        pool.recycle(Vec::with_capacity(16));
        assert_eq!(pool.idle(), 0);
    }
}
