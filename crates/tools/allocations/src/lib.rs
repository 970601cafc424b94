//! System allocator that counts allocations. Only tests and benchmarks use it:
//!
//! ```
//! use strowger_allocations::{CountingAllocator, allocations_of};
//!
//! #[global_allocator]
//! static ALLOCATOR: CountingAllocator = CountingAllocator;
//!
//! let (boxed, count) = allocations_of(|| Box::new(1));
//! assert_eq!((*boxed, count), (1, 1));
//! ```

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// CountingAllocator allocator. Counters are per thread, so the threads of a test harness do not disturb each other.
#[derive(Debug)]
pub struct CountingAllocator;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
    static TAKEN: Cell<usize> = const { Cell::new(0) };
    static LIVE: Cell<usize> = const { Cell::new(0) };
}

static LIVE_OF_ALL: AtomicUsize = AtomicUsize::new(0);

/// Returns the number of allocations and reallocations of this thread.
#[must_use]
pub fn allocations() -> usize {
    ALLOCATIONS.get()
}

/// Returns the bytes that this thread has allocated, freed ones included.
#[must_use]
pub fn taken() -> usize {
    TAKEN.get()
}

/// Returns the bytes that this thread has allocated and not freed.
///
/// Memory freed by another thread is not subtracted, so only differences are meaningful, and they may wrap.
#[must_use]
pub fn live() -> usize {
    LIVE.get()
}

/// Returns the bytes that all threads have allocated and not freed.
#[must_use]
pub fn live_of_all() -> usize {
    LIVE_OF_ALL.load(Ordering::Relaxed)
}

/// Runs `work`; returns its result and the allocations and reallocations that it made on this thread.
pub fn allocations_of<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = allocations();
    let result = work();
    (result, allocations().wrapping_sub(before))
}

/// Runs `work`; returns its result and the bytes that it allocated on this thread, freed ones included.
pub fn taken_by<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = taken();
    let result = work();
    (result, taken().wrapping_sub(before))
}

/// Runs `work`; returns its result and the bytes that this thread has more than before, the result included.
///
/// The number wraps if the thread has fewer bytes than before, so a check of an upper bound fails.
pub fn live_after<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = live();
    let result = work();
    (result, live().wrapping_sub(before))
}

/// Runs `work`; returns its result and the bytes that all threads have more than before, or 0: threads may free
/// what they allocated earlier.
pub fn live_of_all_after<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = live_of_all();
    let result = work();
    (result, live_of_all().saturating_sub(before))
}

fn take(bytes: usize) {
    ALLOCATIONS.set(ALLOCATIONS.get().wrapping_add(1));
    TAKEN.set(TAKEN.get().wrapping_add(bytes));
    LIVE.set(LIVE.get().wrapping_add(bytes));
    LIVE_OF_ALL.fetch_add(bytes, Ordering::Relaxed);
}

fn give(bytes: usize) {
    LIVE.set(LIVE.get().wrapping_sub(bytes));
    LIVE_OF_ALL.fetch_sub(bytes, Ordering::Relaxed);
}

// SAFETY: every call is passed to the system allocator unchanged; counting only changes numbers and allocates
// nothing.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        take(layout.size());
        // SAFETY: the caller's guarantees are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        give(layout.size());
        // SAFETY: the caller's guarantees are passed on.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        take(size);
        give(layout.size());
        // SAFETY: the caller's guarantees are passed on.
        unsafe { System.realloc(memory, layout, size) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[global_allocator]
    static ALLOCATOR: CountingAllocator = CountingAllocator;

    #[test]
    fn allocated_grown_and_freed_bytes_are_counted() {
        let before = (allocations(), taken(), live());
        let mut bytes: Vec<u8> = Vec::with_capacity(100);
        bytes.reserve_exact(300);
        assert_eq!((allocations() - before.0, taken() - before.1, live() - before.2), (2, 400, 300));
        assert!(live_of_all() >= 300);
        drop(bytes);
        assert_eq!((allocations() - before.0, taken() - before.1, live() - before.2), (2, 400, 0));
    }

    #[test]
    fn work_is_charged_with_what_it_allocates_and_leaves() {
        let work = || {
            drop(Box::new([0u8; 30]));
            vec![0u8; 70]
        };
        assert_eq!(allocations_of(work).1, 2);
        assert_eq!(taken_by(work).1, 100);
        assert_eq!(live_after(work).1, 70);
        let (bytes, held) = live_of_all_after(|| vec![0u8; 1 << 24]);
        assert!(held >= bytes.len() / 2, "{held}");
        assert!(live_after(|| drop(bytes)).1 > usize::MAX / 2, "fewer bytes than before meet no upper bound");
    }
}
