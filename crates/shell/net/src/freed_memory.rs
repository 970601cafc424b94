//! Memory that the program has freed and the allocator still has.

// The allocator's library, which the program links anyway.
use libmimalloc_sys as _;

use crate::sys;

/// Collects the memory that the calling thread has freed, so that other threads and the system can have it. The allocator
/// keeps a thread's memory for that thread, and only the thread itself can collect it. Takes microseconds for each
/// megabyte.
pub fn collect_freed_memory() {
    sys::collect_freed(false);
}

/// Returns to the system what all threads have [collected](collect_freed_memory), and the blocks that the allocator keeps for
/// the calling thread even then. May take some 100 ms for each gigabyte, which no other thread waits for.
pub fn return_freed_memory() {
    sys::collect_freed(true);
}
